"""Filter banks: the responses of all filters of a model on a level of the pyramid.

Filters of equal size form a group and are computed together. A group's responses are `(rows, cols, n)`: the
filters of one place lie side by side, which is how the distance transform wants them.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from visionkl.backend.cpu.filters import dense_filters

Level = npt.NDArray[np.float32]


class DenseFilters:
    """Filters applied to plain HOG cells.

    Parameters
    ----------
    filters : sequence of ndarray of float32, each of shape (rows, cols, 32)
    together : bool
        Compute filters of all sizes as one group, which is faster for a few. Its responses range over the
        places of the smallest; of the others they mean nothing where these do not fit.

    Attributes
    ----------
    groups : list of tuple of int
        The numbers of the filters in each group.
    """

    def __init__(self, filters: Sequence[npt.NDArray[np.float32]], *, together: bool = False) -> None:
        by_size: dict[tuple[int, int], list[int]] = {}
        for number, filter_ in enumerate(filters):
            by_size.setdefault((0, 0) if together else filter_.shape[:2], []).append(number)
        self.groups = [tuple(numbers) for numbers in by_size.values()]
        self._ready = [dense_filters([filters[i] for i in group]) for group in self.groups]

    def responses(self, level: Level, group: int) -> npt.NDArray[np.float32]:
        """Compute the responses `(rows, cols, n)` of one group wherever its filters fit into the level."""
        return self._ready[group].correlate(level)
