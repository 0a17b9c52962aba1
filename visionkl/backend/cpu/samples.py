"""Scores and sums of coded samples: one table of scores for each code of a sample.

Codes are stored with samples last, `(n_codes, n)`: walking along a row, one table of a kilobyte stays in the
first-level cache, and codes and scores are read in order.
"""

from visionkl.backend.cpu.jit import compiled


@compiled
def add_scores(codes, tables, scores):  # type: ignore[no-untyped-def]
    """Add to each sample's score the entries its codes point at.

    Parameters
    ----------
    codes : ndarray of uint8 or uint16, shape (n_codes, n)
    tables : ndarray of float32, shape (n_codes, n_codewords)
    scores : ndarray of float32, shape (n,)
    """
    for row in range(codes.shape[0]):
        table, own = tables[row], codes[row]
        for i in range(own.shape[0]):
            scores[i] += table[own[i]]


@compiled
def add_weights(codes, weights, tables):  # type: ignore[no-untyped-def]
    """Add each sample's weight to the entries its codes point at.

    Parameters
    ----------
    codes : ndarray of uint8 or uint16, shape (n_codes, n)
    weights : ndarray of float32, shape (n,)
    tables : ndarray of float64, shape (n_codes, n_codewords)
    """
    for row in range(codes.shape[0]):
        table, own = tables[row], codes[row]
        for i in range(own.shape[0]):
            table[own[i]] += weights[i]
