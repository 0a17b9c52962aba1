"""Dense filter responses: correlation of HOG levels with many filters at once, in one of two ways.

**By Fourier transforms** (`FourierFilters`). The level is cut into overlapping tiles. A batch of tiles is
laid out with places first and channels last: transforming along the places then leaves each frequency as a
matrix of tiles × channels, which is multiplied by its channels × filters, and the way back leaves responses
with the filters last. Nothing is ever transposed, and a batch stays in the cache. The cost of transforming 32
channels is shared by all filters, so this wants many.

**By matrix products** (`ProductFilters`). A filter of `h` rows is cut into them. The windows of `w`
neighbouring cells of a row become the lines of a matrix, one product with the rows of all filters gives the
share of each filter row at each place, and the shares of `h` successive level rows are added up. It does ten
times the operations, at the speed of the machine.

For the 48 parts of a model of six components the former is 1.8 times faster; for a pair of roots the latter
(`benchmarks/`).
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from visionkl.backend.cpu.jit import compiled

# Filters from which on Fourier transforms pay.
_ENOUGH_FOR_FOURIER = 12
# Tiles of 20 cells in batches of 8 were the fastest of 16–32 and 8–64; larger filters get larger tiles.
_TILE_BEYOND_FILTER = 14
_BATCH = 8
# Windows per product: enough to fill BLAS's blocks, few enough to stay in the cache.
_BAND_WINDOWS = 512


class FourierFilters:
    """Filters, ready to be applied by Fourier transforms.

    Parameters
    ----------
    filters : sequence of ndarray of float32, each of shape (h, w, channels)
        They may differ in size.
    """

    def __init__(self, filters: Sequence[npt.NDArray[np.float32]]) -> None:
        import scipy.fft  # not above: matching on codes, in each of many processes, does without its 10 MB

        self._n = len(filters)
        sizes = [filter_.shape[:2] for filter_ in filters]
        self._smallest = np.min(sizes, axis=0).tolist()
        largest = np.max(sizes, axis=0).tolist()
        rows, cols = (scipy.fft.next_fast_len(edge + _TILE_BEYOND_FILTER, real=True) for edge in largest)
        self._tile = rows, cols
        self._steps = rows - largest[0] + 1, cols - largest[1] + 1
        spectra = [scipy.fft.rfft2(filter_, self._tile, axes=(0, 1)).conj() for filter_ in filters]
        self._spectra = np.ascontiguousarray(
            np.stack(spectra, axis=-1).reshape(-1, *spectra[0].shape[2:], self._n)
        )

    def correlate(self, level: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Compute responses `(rows - h + 1, cols - w + 1, n)` for the smallest h and w.

        Where a larger filter reaches outside, the level goes on with zeros.
        """
        import scipy.fft

        responses = _no_responses(level, self._smallest, self._n)
        steps = self._steps
        corners = [
            (y, x)
            for y in range(0, responses.shape[0], steps[0])
            for x in range(0, responses.shape[1], steps[1])
        ]
        for first in range(0, len(corners), _BATCH):
            batch = corners[first : first + _BATCH]
            tiles = np.zeros((*self._tile, len(batch), level.shape[2]), np.float32)
            for i, (y, x) in enumerate(batch):
                cells = level[y : y + self._tile[0], x : x + self._tile[1]]
                tiles[: cells.shape[0], : cells.shape[1], i] = cells
            spectra = scipy.fft.rfft2(tiles, axes=(0, 1))
            products = np.matmul(spectra.reshape(-1, *tiles.shape[2:]), self._spectra)
            products = products.reshape(*spectra.shape[:3], self._n)
            answers = scipy.fft.irfft2(products, self._tile, axes=(0, 1), overwrite_x=True)
            for i, (y, x) in enumerate(batch):
                place = responses[y : y + steps[0], x : x + steps[1]]
                place[...] = answers[: place.shape[0], : place.shape[1], i]
        return responses


class ProductFilters:
    """Filters of one size, ready to be applied by matrix products.

    Parameters
    ----------
    filters : ndarray of float32, shape (n, h, w, channels)
    """

    def __init__(self, filters: npt.NDArray[np.float32]) -> None:
        self._n, *self._size, channels = filters.shape
        self._rows = np.ascontiguousarray(
            filters.transpose(2, 3, 1, 0).reshape(self._size[1] * channels, self._size[0] * self._n)
        )

    def correlate(self, level: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Compute responses `(rows - h + 1, cols - w + 1, n)`; empty where the filters do not fit."""
        responses = _no_responses(level, self._size, self._n)
        if not responses.size:
            return responses
        places = responses.shape[1]
        rows, _, channels = level.shape
        h, w = self._size
        windows = np.lib.stride_tricks.as_strided(
            level, (rows, places, w * channels), level.strides, writeable=False
        )
        band = max(_BAND_WINDOWS // places, 1)
        unrolled = np.empty((band * places, w * channels), np.float32)
        shares = np.empty((band * places, h * self._n), np.float32)
        for first in range(0, rows, band):
            n_rows = min(band, rows - first)
            lines = n_rows * places
            unrolled[:lines].reshape(n_rows, places, -1)[...] = windows[first : first + n_rows]
            np.dot(unrolled[:lines], self._rows, out=shares[:lines])
            _add_shares(shares[:lines].reshape(n_rows, places, h, self._n), first, responses)
        return responses


def dense_filters(filters: Sequence[npt.NDArray[np.float32]]) -> FourierFilters | ProductFilters:
    """Make filters ready in the way that is faster for so many.

    Only Fourier transforms take different sizes.
    """
    alike = len({filter_.shape for filter_ in filters}) == 1
    if alike and len(filters) < _ENOUGH_FOR_FOURIER:
        return ProductFilters(np.stack(filters))
    return FourierFilters(filters)


def _no_responses(level: npt.NDArray[np.float32], size: list[int], n: int) -> npt.NDArray[np.float32]:
    return np.zeros(
        (max(level.shape[0] - size[0] + 1, 0), max(level.shape[1] - size[1] + 1, 0), n), np.float32
    )


@compiled
def _add_shares(shares, first, responses):  # type: ignore[no-untyped-def]
    n_rows, n_places, h, n = shares.shape
    for row in range(n_rows):
        for part in range(h):
            y = first + row - part
            if 0 <= y < responses.shape[0]:
                for x in range(n_places):
                    source = shares[row, x, part]
                    target = responses[y, x]
                    for f in range(n):
                        target[f] += source[f]
