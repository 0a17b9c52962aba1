"""Features: HOG and its pyramid; local descriptors, such as dense SIFT."""
