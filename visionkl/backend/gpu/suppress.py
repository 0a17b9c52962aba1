"""Non-maximum suppression on a GPU: the function of `visionkl.backend.cpu.suppress` on CuPy arrays."""

from typing import Any

import numpy as np

from visionkl.backend.gpu import device
from visionkl.backend.gpu.launch import declare, launch

_WORD = 64
# Boxes whose bits are held at a time; a multiple of a word.
_BAND = 4096

_COMPARE = declare(
    "suppress",
    "compare_boxes",
    "const double* boxes, unsigned long long* masks, double overlap, int of_union, int n, int first, "
    "int n_rows, int n_words",
    block=_WORD,
)
_TAKE_OFF = declare(
    "suppress",
    "take_off",
    "const unsigned long long* masks, unsigned long long* gone, bool* keep, int n, int first, int n_rows, "
    "int n_words",
)


def suppress(boxes: Any, overlap: float, of_union: bool, keep: Any) -> None:
    """Mark which boxes survive; see the CPU's function."""
    xp = device.namespace()
    n = len(boxes)
    n_words = -(-n // _WORD)
    gone = xp.zeros(n_words, np.uint64)
    masks = xp.empty((min(_BAND, n), n_words), np.uint64)
    for first in range(0, n, _BAND):
        n_rows = min(_BAND, n - first)
        launch(
            _COMPARE, boxes, masks, overlap, int(of_union), n, first, n_rows, n_words,
            blocks=-(-n_rows // _WORD) * n_words,
        )  # fmt: skip
        launch(_TAKE_OFF, masks, gone, keep, n, first, n_rows, n_words, blocks=1)
