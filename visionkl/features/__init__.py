"""Features: HOG and its pyramid; dense SIFT, Fisher vectors and bags of words; PHOG and LBP; channels."""
