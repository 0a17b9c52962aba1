"""Features: HOG and its pyramid; local descriptors, such as dense SIFT; Fisher vectors and bags of words."""
