"""Shards: arrays of many pictures in a few memory-mapped files.

A shard is one file of raw numbers and an index that tells where each array of each picture lies. Workers
write shards independently of each other; readers map them into memory, so that what is held is what is looked
at, and the operating system lets it go when memory is short.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.core.errors import DataError
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
