"""k-means: what must not depend on where arrays happen to lie in memory."""

import numpy as np
import pytest

from visionkl.backend.cpu import kmeans


@pytest.mark.parametrize("n", [24, 30, 40, 140])
def test_distances_from_seeds_sum_up_alike_wherever_they_lie(n):
    """Compiled loops add in another order where arrays are too near each other; in float32 that showed."""
    random = np.random.default_rng(0)
    for _ in range(10):
        columns = np.abs(random.normal(size=(4, n))).astype(np.float32)
        distances = 3 * np.abs(random.normal(size=n)).astype(np.float32)
        found = set()
        for gap in range(100):
            room = np.empty(2 * n + gap, np.float32)
            for before, after in ((room[:n], room[n + gap :]), (room[n + gap :], room[:n])):
                before[:] = distances
                totals = np.empty(-(-n // 128))
                kmeans._approach(columns, 3, before, after, totals)
                found.add(totals.tobytes())
        assert len(found) == 1
