"""Models of other programs, read into ours."""
