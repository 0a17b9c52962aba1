"""Filter banks: the responses of all filters of a model on a level of the pyramid.

Filters of equal size form a group and are computed together. A group's responses are `(rows, cols, n)`: the
filters of one place lie side by side, which is how the distance transform wants them.

`DenseFilters` work on HOG cells, `TableFilters` on their codes; whoever calls them need not know which.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.backend.cpu.tables import Tables
from visionkl.backend.dispatch import CPU, Device
from visionkl.backend.threads import run_tasks
from visionkl.coding.codebooks import as_codebooks
from visionkl.core.errors import DataError
from visionkl.core.validation import check_choice

Level = npt.NDArray[Any]


class DenseFilters:
    """Filters applied to plain HOG cells.

    Parameters
    ----------
    filters : sequence of ndarray of float32, each of shape (rows, cols, 32)
    together : bool
        Compute filters of all sizes as one group, which is faster for a few. Its responses range over the
        places of the smallest; of the others they mean nothing where these do not fit.
    device : visionkl.backend.dispatch.Device
        Where the levels lie.

    Attributes
    ----------
    groups : list of tuple of int
        The numbers of the filters in each group.
    """

    def __init__(
        self,
        filters: Sequence[npt.NDArray[np.float32]],
        *,
        together: bool = False,
        device: Device = CPU,
    ) -> None:
        by_size: dict[tuple[int, int], list[int]] = {}
        for number, filter_ in enumerate(filters):
            by_size.setdefault((0, 0) if together else filter_.shape[:2], []).append(number)
        self.groups = [tuple(numbers) for numbers in by_size.values()]
        make = device.loops("filters").dense_filters
        self._ready = [make([filters[i] for i in group]) for group in self.groups]

    def responses(self, level: Level, group: int) -> npt.NDArray[np.float32]:
        """Compute the responses `(rows, cols, n)` of one group wherever its filters fit into the level."""
        return self._ready[group].correlate(level)


class TableFilters:
    """Filters applied to codes: look-ups in tables instead of multiplications (METHODS §10).

    The responses are those of `DenseFilters` on the decoded cells.

    Parameters
    ----------
    filters : sequence of ndarray of float32, each of shape (rows, cols, 32)
    quantizer : Codebooks or fitted ProductQuantizer
        For 32 features.
    dtype : {"float32", "int16"}
        Of the tables. With 16 bits they take half the memory and time, and responses are off by at most
        `error_bounds`, typically by a fifth of it.
    together : bool
        Compute filters of all sizes as one group if that takes fewer look-ups. Its responses range over the
        places of the smallest; of the others they mean nothing where these do not fit.
    memory : str, optional
        Name of memory to use again: responses of a group then are valid only until the same thread asks for
        the next of this name. By default they are new arrays.
    device : visionkl.backend.dispatch.Device
        Where the levels lie.

    Attributes
    ----------
    groups : list of tuple of int
        The numbers of the filters in each group.
    error_bounds : list of ndarray of float32
        For each group, how far the rounding of the tables can move the responses of each filter.
    """

    def __init__(
        self,
        filters: Sequence[npt.NDArray[np.float32]],
        quantizer: Any,
        *,
        dtype: str = "float32",
        together: bool = False,
        memory: str | None = None,
        device: Device = CPU,
    ) -> None:
        check_choice("TableFilters", "dtype", dtype, ("float32", "int16"))
        self._books = as_codebooks(quantizer)
        self._memory = memory
        self._device = device
        self.groups = _by_size(filters)
        if together and len(self.groups) > 1:
            sizes = np.array([filters[group[0]].shape[:2] for group in self.groups])
            if np.prod(sizes.max(axis=0)) < np.prod(sizes, axis=1).sum():
                self.groups = [tuple(range(len(filters)))]

        def make(group: tuple[int, ...]) -> Tables:
            own = [filters[i] for i in group]
            smallest = np.min([filter_.shape[:2] for filter_ in own], axis=0)
            make_tables = device.loops("tables").make_tables
            return make_tables(self._scores(own), dtype, (int(smallest[0]), int(smallest[1])))

        self._ready = run_tasks(make, self.groups, 1)
        self.error_bounds = [tables.error_bound for tables in self._ready]

    def responses(self, level: Level, group: int) -> npt.NDArray[np.float32]:
        """Compute the responses `(rows, cols, n)` of one group wherever its filters fit into the level.

        Parameters
        ----------
        level : ndarray of uint8 or uint16, shape (rows, cols, n_blocks)
            Codes. Those that lie on a GPU are not looked at one by one, for which it would have to be waited
            for: `Codebooks.check_range` does so for many levels at once.
        group : int
        """
        if level.ndim != 3:
            raise DataError(
                f"TableFilters: a level of codes has the shape (rows, cols, n_blocks), not {level.shape}."
            )
        memory = None if self._memory is None else f"{self._memory} {group}"
        look_up = self._device.loops("tables").look_up
        codes = self._books.check_codes(level, values=not self._device.is_gpu)
        return look_up(codes, self._ready[group], memory)

    def _scores(self, filters: Sequence[npt.NDArray[np.float32]]) -> npt.NDArray[np.float32]:
        """Scores `(h, w, n_blocks, n_codewords, n)` of all codewords in all positions of `n` filters."""
        books = self._books
        h, w = np.max([filter_.shape[:2] for filter_ in filters], axis=0)
        weights = np.zeros((len(filters), h, w, books.n_features), np.float32)
        for i, filter_ in enumerate(filters):
            rows, cols, channels = filter_.shape
            if channels != books.n_features:
                raise DataError(
                    f"TableFilters: the filters have {channels} channels, "
                    f"but the codewords {books.n_features}."
                )
            weights[i, :rows, :cols] = filter_
        return books.tables(weights).transpose(1, 2, 3, 4, 0)


def _by_size(filters: Sequence[npt.NDArray[np.float32]]) -> list[tuple[int, ...]]:
    by_size: dict[tuple[int, int], list[int]] = {}
    for number, filter_ in enumerate(filters):
        by_size.setdefault(filter_.shape[:2], []).append(number)
    return [tuple(numbers) for numbers in by_size.values()]
