"""What several rows are measured against: the most that this machine can do."""

from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

from visionkl.core.rng import stream


def matrix_product(multiply_adds: int, threads: int) -> Callable[[], None]:
    """Make one big matrix product in single precision with as many multiply-adds."""
    edge = 1024
    rows = max(round(multiply_adds / edge**2), 1)
    left = stream(0, "product").normal(size=(rows, edge)).astype(np.float32)
    right = stream(1, "product").normal(size=(edge, edge)).astype(np.float32)

    def multiply() -> None:
        with threadpool_limits(threads, "blas"):
            left @ right

    return multiply
