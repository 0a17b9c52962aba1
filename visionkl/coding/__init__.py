"""Product quantisation: vectors and HOG cells as short codes."""
