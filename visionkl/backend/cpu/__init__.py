"""Numba loops for the CPU."""
