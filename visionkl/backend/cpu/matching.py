"""Adding up the scores of roots and parts."""

import numpy as np

from visionkl.backend.cpu.jit import compiled


@compiled
def add_parts(transformed, parts, offsets, scores):  # type: ignore[no-untyped-def]
    """Add the transformed scores of parts, found at twice the resolution, to the scores of their root.

    Parameters
    ----------
    transformed : ndarray of float32, shape (part_rows, part_cols, n)
    parts : ndarray of int64, shape (p,)
        Which of the `n` belong to this root.
    offsets : ndarray of int64, shape (p, 2)
        `(row, col)` of each part's anchor when the root lies at 0, 0.
    scores : ndarray of float32, shape (rows, cols)
        Scores of the root's places; becomes -inf where an anchor falls outside.
    """
    part_rows, part_cols, _ = transformed.shape
    for y in range(scores.shape[0]):
        for x in range(scores.shape[1]):
            total = scores[y, x]
            for k in range(parts.shape[0]):
                row, col = 2 * y + offsets[k, 0], 2 * x + offsets[k, 1]
                if 0 <= row < part_rows and 0 <= col < part_cols:
                    total += transformed[row, col, parts[k]]
                else:
                    total = np.float32(-np.inf)
            scores[y, x] = total
