"""The hot loops, on arrays and scalars only."""
