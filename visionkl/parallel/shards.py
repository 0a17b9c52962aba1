"""Shards: arrays of many pictures in a few memory-mapped files.

A shard is one file of raw numbers and an index that tells where each array of each picture lies. Workers
write shards independently of each other; readers map them into memory, so that what is held is what is looked
at, and the operating system lets it go when memory is short.

What has one row of equal length a picture is kept more simply, as one matrix in one file (`write_rows`).
While it is made, the file grows row by row under a name of its own, so that an interrupted pass goes on with
the first picture that is missing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.core.errors import DataError, VisionklError
from visionkl.core.files import atomic_write

Arrays = Sequence[npt.NDArray[Any]]


@dataclass(frozen=True)
class Shard:
    """Arrays of several pictures in one file.

    Parameters
    ----------
    path : Path
    dtype : str
    shapes : tuple of tuple of tuple of int
        For each picture the shapes of its arrays, in the order of the file.
    """

    path: Path
    dtype: str
    shapes: tuple[tuple[tuple[int, ...], ...], ...]

    def __len__(self) -> int:
        return len(self.shapes)

    def __getitem__(self, number: int) -> list[npt.NDArray[Any]]:
        """Return the arrays of one picture as views into the mapped file."""
        first = self._offsets[number]
        arrays = []
        for shape in self.shapes[number]:
            size = int(np.prod(shape))
            arrays.append(self._numbers[first : first + size].reshape(shape))
            first += size
        return arrays

    def __getstate__(self) -> dict[str, Any]:
        # A mapped file is mapped anew by whoever receives the shard.
        return {"path": self.path, "dtype": self.dtype, "shapes": self.shapes}

    @cached_property
    def _offsets(self) -> npt.NDArray[np.int64]:
        sizes = [sum(int(np.prod(shape)) for shape in picture) for picture in self.shapes]
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    @cached_property
    def _numbers(self) -> npt.NDArray[Any]:
        expected = int(self._offsets[-1]) * np.dtype(self.dtype).itemsize
        actual = self.path.stat().st_size if self.path.is_file() else None
        if actual != expected:
            found = "is missing" if actual is None else f"has {actual} bytes instead of {expected}"
            raise DataError(f"{self.path}: the shard {found}; remove its folder to have it made again.")
        return np.asarray(np.memmap(self.path, self.dtype, "r")) if expected else np.zeros(0, self.dtype)


def write_shard(path: str | Path, pictures: Iterable[Arrays], dtype: npt.DTypeLike) -> Shard:
    """Write the arrays of pictures to a new shard, one picture at a time.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> shard = write_shard(folder / "0.bin", [[np.eye(2)], [np.zeros(3), np.ones((1, 2))]], np.uint8)
    >>> len(shard), shard[1][1]
    (2, array([[1, 1]], dtype=uint8))
    """
    shapes = []
    with atomic_write(path, "wb") as file:
        for arrays in pictures:
            shapes.append(tuple(tuple(array.shape) for array in arrays))
            for array in arrays:
                file.write(np.ascontiguousarray(array, dtype=dtype).data)
    return Shard(Path(path), np.dtype(dtype).str, tuple(shapes))


class ShardedArrays:
    """Shards in a row: the pictures of all, numbered through."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self.shards = tuple(shards)
        self._first = np.concatenate([[0], np.cumsum([len(shard) for shard in shards])]).astype(int)

    def __len__(self) -> int:
        return int(self._first[-1])

    def __getitem__(self, number: int) -> list[npt.NDArray[Any]]:
        if not 0 <= number < len(self):
            raise IndexError(number)
        shard = int(np.searchsorted(self._first, number, side="right")) - 1
        return self.shards[shard][number - int(self._first[shard])]


# -- one row a picture ---------------------------------------------------------------------------------------


def write_rows(
    path: str | Path,
    shape: tuple[int, int],
    dtype: npt.DTypeLike,
    blocks_from: Callable[[int], Iterable[npt.NDArray[Any]]],
) -> npt.NDArray[Any]:
    """Write a matrix to a file, some rows at a time, and map it into memory.

    A matrix that is there is not made again, and one that was begun is gone on with.

    Parameters
    ----------
    path : str or Path
        The file appears when all rows are there; until then, they are in `<path>.part`.
    shape : tuple of int
        Rows and columns.
    dtype : dtype
    blocks_from : callable
        Gives all rows from a row number on, some at a time.

    Returns
    -------
    ndarray, shape `shape`
        Memory-mapped, read-only.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "squares.bin"
    >>> write_rows(path, (3, 1), np.uint8, lambda first: (np.array([[i * i]]) for i in range(first, 3)))
    array([[0],
           [1],
           [4]], dtype=uint8)
    """
    path, dtype = Path(path), np.dtype(dtype)
    row_bytes = shape[1] * dtype.itemsize
    if not path.is_file():
        growing = path.with_name(f"{path.name}.part")
        n_there = growing.stat().st_size // row_bytes if growing.is_file() else 0
        try:
            with growing.open("ab") as file:
                file.truncate(n_there * row_bytes)  # an interrupt may have left part of a row
                for block in blocks_from(n_there):
                    file.write(np.ascontiguousarray(block, dtype=dtype).data)
                    file.flush()
        except OSError as error:
            raise VisionklError(f"{growing}: cannot be written ({error.strerror or error}).") from None
        os.replace(growing, path)
    return map_rows(path, shape, dtype)


def map_rows(path: str | Path, shape: tuple[int, int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Map a matrix that `write_rows` wrote into memory."""
    shard = Shard(Path(path), np.dtype(dtype).str, (((shape),),))
    return shard[0][0]
