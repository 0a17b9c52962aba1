"""Kernels, exact and as explicit maps whose inner products come near them."""
