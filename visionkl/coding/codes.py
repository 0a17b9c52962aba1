"""Codes that know their codebooks.

What a `ProductQuantizer` returns goes on to something that learns, in a pipeline, after cross-validation has
picked rows, or in another process. A `CodeArray` is a plain NumPy array of codes in every way but one: its
attribute `books` is the `Codebooks` that it was made with. It keeps them where the columns stay what they
are, that is when rows are picked (`codes[10:20]`, `codes[mask]`), and when it is copied or pickled. Any other
operation, such as picking columns, gives an array without codebooks.

Codes that come from elsewhere, for instance from a memory-mapped file, become a `CodeArray` without a copy:

>>> from visionkl.coding.codebooks import Codebooks
>>> books = Codebooks([[[0, 0], [1, 1]], [[5, 5], [7, 7]]])
>>> codes = CodeArray(np.array([[1, 0], [0, 1], [1, 1]], np.uint8), books)
>>> codes[1:].books is books, codes[:, 1:].books is None, (codes + 1).books is None
(True, True, True)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.coding.codebooks import Codebooks


class CodeArray(np.ndarray):
    """Codes with their codebooks.

    Parameters
    ----------
    codes : array_like of int, shape (..., n_blocks)
    books : Codebooks

    Attributes
    ----------
    books : Codebooks or None
    """

    books: Codebooks | None

    def __new__(cls, codes: npt.ArrayLike, books: Codebooks) -> CodeArray:
        """Check that the codes can be those of the codebooks, and put the two together."""
        array = books.check_codes(codes).astype(books.code_dtype, copy=False).view(cls)
        array.books = books
        return array

    def __array_finalize__(self, source: Any) -> None:
        # An array that came about in any way; those methods that keep the columns set the codebooks.
        self.books = None

    def __getitem__(self, key: Any) -> Any:
        """Pick rows, with their codebooks, or anything else without."""
        picked = super().__getitem__(key)
        if isinstance(picked, CodeArray) and _picks_rows(key, self.ndim):
            picked.books = self.books
        return picked

    def copy(self, order: Any = "C") -> CodeArray:
        """Copy the codes; the codebooks stay the same."""
        copied = super().copy(order)
        copied.books = self.books
        return copied

    def __deepcopy__(self, memo: Any) -> CodeArray:
        """Copy the codes; the codebooks stay the same, since nobody changes them."""
        return self.copy()

    def __reduce__(self) -> Any:
        """Pickle the codes with their codebooks."""
        reduced: Any = super().__reduce__()
        make, arguments, state = reduced
        return make, arguments, (state, self.books)

    def __setstate__(self, state: Any) -> None:
        """Take the codes and their codebooks from a pickle."""
        own, self.books = state
        super().__setstate__(own)


def _picks_rows(key: Any, n_axes: int) -> bool:
    """Tell whether an index leaves the last axis alone."""
    parts = key if isinstance(key, tuple) else (key,)
    if parts and parts[-1] is Ellipsis:
        parts = parts[:-1]
    # A new axis, axes that are counted from the end, and masks of several axes are not looked into.
    if any(part is None or part is Ellipsis or np.ndim(part) > 1 for part in parts):
        return False
    return len(parts) < n_axes or (len(parts) == n_axes and parts[-1] == slice(None))
