"""Features: HOG and its pyramid."""
