"""Greedy non-maximum suppression."""

from visionkl.backend.cpu.jit import compiled

# Windows of levels half an octave apart overlap by exactly one half: such ties stay, whatever the rounding.
_TIE = 1 + 1e-5


@compiled
def suppress(boxes, overlap, of_union, keep):  # type: ignore[no-untyped-def]
    """Mark which boxes survive.

    Parameters
    ----------
    boxes : ndarray of float64, shape (n, 4)
        Best first.
    overlap : float
        A box goes if more than this share of it is covered by a better one that stayed.
    of_union : bool
        Measure the shared area against the union of both boxes instead of against the box in question.
    keep : ndarray of bool, shape (n,)
        Receives the answer.
    """
    n = boxes.shape[0]
    keep[:] = True
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    for i in range(n):
        if not keep[i]:
            continue
        x1, y1, x2, y2 = boxes[i, 0], boxes[i, 1], boxes[i, 2], boxes[i, 3]
        for j in range(i + 1, n):
            width = min(x2, boxes[j, 2]) - max(x1, boxes[j, 0])
            height = min(y2, boxes[j, 3]) - max(y1, boxes[j, 1])
            if keep[j] and width > 0 and height > 0:
                shared = width * height
                whole = areas[i] + areas[j] - shared if of_union else areas[j]
                if shared > overlap * whole * _TIE:
                    keep[j] = False
