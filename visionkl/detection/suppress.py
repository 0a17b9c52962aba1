"""Non-maximum suppression: of detections that overlap, the best stays."""

import numpy as np
import numpy.typing as npt

from visionkl.backend.dispatch import device_of
from visionkl.core.validation import check_choice, check_number


def suppress(
    boxes: npt.ArrayLike, scores: npt.ArrayLike, *, overlap: float = 0.5, measure: str = "covered"
) -> npt.NDArray[np.intp]:
    """Choose the boxes that stay, going from the best to the worst.

    Parameters
    ----------
    boxes : array_like of float, shape (n, 4)
        If boxes and scores lie on a GPU, it is done there, and the result stays there.
    scores : array_like of float, shape (n,)
    overlap : float
        A box goes if its overlap with a better one that stayed is larger than this.
    measure : {"covered", "iou"}
        Shared area over the area of the box in question (the published models' measure: a small box inside a
        large one goes), or over the union of both.

    Returns
    -------
    ndarray of int
        Row numbers, best first; of equal scores, the earlier row first.

    Examples
    --------
    >>> suppress([[0, 0, 10, 10], [1, 0, 11, 10], [20, 0, 30, 10]], [0.5, 0.9, 0.1]).tolist()
    [1, 2]
    """
    check_number("suppress", "overlap", overlap, low=0)
    check_choice("suppress", "measure", measure, ("covered", "iou"))
    device = device_of(boxes, scores)
    xp = device.namespace
    with device.use():
        corners = xp.asarray(boxes, dtype=np.float64).reshape(-1, 4)
        order = xp.argsort(-xp.asarray(scores, dtype=np.float64), kind="stable")
        keep = xp.empty(len(corners), dtype=bool)
        device.loops("suppress").suppress(corners[order], float(overlap), measure == "iou", keep)
        return order[keep]
