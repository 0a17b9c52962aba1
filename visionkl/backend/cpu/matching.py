"""Adding up the scores of roots and parts."""

from visionkl.backend.cpu.jit import compiled


@compiled
def add_sampled(transformed, parts, first, wiring, limits, totals):  # type: ignore[no-untyped-def]
    """Add the transformed scores of parts at every second anchor to the totals of their roots.

    Parameters
    ----------
    transformed : ndarray of float32, shape (rows, cols, n)
        At all anchors.
    parts : ndarray of int64, shape (n_chosen,)
        Which of the `n` are added.
    first, wiring, limits, totals
        As for `visionkl.backend.cpu.distance.add_windowed`.
    """
    for i in range(parts.shape[0]):
        root, down, across = wiring[i]
        for y in range(limits[root, 0], limits[root, 1]):
            for x in range(limits[root, 2], limits[root, 3]):
                row, col = first[0] + 2 * (y + down), first[1] + 2 * (x + across)
                totals[root, y, x] += transformed[row, col, parts[i]]
