"""CUDA kernels and CuPy code with the same functions as `visionkl.backend.cpu`.

Functions take and return CuPy arrays; `visionkl.backend.dispatch` chooses between the two backends by the
arrays it is given. A loop is a kernel in a `.cu` file; what is a few matrix products is CuPy array code.
Kernels are launched by `launch` alone.
"""
