"""HOG: histograms of oriented gradients, 31 numbers a cell and a truncation mark (METHODS §10).

Fundamentals
------------
The picture is cut into square cells of `cell_size` pixels. Every pixel votes with its gradient's length for
one of 18 signed orientations, shared bilinearly among the four nearest cells; of three colour channels the
steepest votes. A cell's histogram is divided by the energy of each of the four 2 × 2 blocks of cells it
belongs to, and each result is clipped at 0.2. The channels are

====== =======================================================================================
0–17   signed orientations: half the sum of the four normalised, clipped values
18–26  unsigned orientations, likewise
27–30  texture: the four blocks' sums over the signed orientations, times 0.2357
31     truncation: 1 outside the picture (in the padding of a pyramid), 0 inside
====== =======================================================================================

The outermost ring of cells has no complete blocks and is dropped: a picture of `r` × `c` cells gives `(r - 2,
c - 2, 32)`.

Implementation
--------------
The numbers agree with those of the published part models to 2e-7, which takes more care than it seems:
orientations are compared with four-digit cosines, and where a gradient is exactly vertical, double precision
decides between the two nearest bins.

If unsure, take cells of 8 pixels for whole objects and of 4 for their parts.
"""

import numpy as np
import numpy.typing as npt

from visionkl.backend.cpu import hog as cpu_hog
from visionkl.backend.dispatch import choose_device, device_of, to_host
from visionkl.core.errors import DataError, UsageError
from visionkl.core.validation import check_number, check_picture

#: Numbers per cell, and the last of them, which marks cells outside the picture.
N_CHANNELS = cpu_hog.N_CHANNELS
TRUNCATION = cpu_hog.TRUNCATION

# Mirroring sends orientation o to 9 - o (signed, modulo 18) and to -o (unsigned, modulo 9), and swaps blocks
# left and right.
_MIRRORED = np.array(
    [(9 - o) % 18 for o in range(18)] + [18 + (-o) % 9 for o in range(9)] + [29, 30, 27, 28] + [31]
)


def hog(image: npt.ArrayLike, *, cell_size: int = 8, device: str = "cpu") -> npt.NDArray[np.float32]:
    """Compute the HOG cells of a picture.

    Parameters
    ----------
    image : array_like, shape (rows, cols) or (rows, cols, 3)
        Grey or colour picture with values 0..255.
    cell_size : int
        Edge of a cell in pixels, even.
    device : str
        "cpu", "cuda", "cuda:1" and so on, or "auto": where to compute. A picture that lies on a GPU is
        described there anyway, and so are its cells.

    Returns
    -------
    ndarray of float32, shape (round(rows / cell_size) - 2, round(cols / cell_size) - 2, 32)

    Examples
    --------
    >>> stripes = np.tile(np.arange(64) % 16 * 16, (48, 1))
    >>> hog(stripes, cell_size=8).shape
    (4, 6, 32)
    """
    check_cell_size("hog", cell_size)
    home = device_of(image)
    where = home if home.is_gpu else choose_device(device, "hog")
    kernel = where.loops("hog")
    with where.use():
        magnitude, orientation = kernel.gradients(where.put(as_planes(to_host(image), "hog")))
        n_rows, n_cols = kernel.cell_counts(magnitude.shape, cell_size)
        cells = where.namespace.zeros((max(n_rows - 2, 0), max(n_cols - 2, 0), N_CHANNELS), np.float32)
        kernel.cells_into(magnitude, orientation, cell_size, cells, 0, 0)
    return cells if home.is_gpu else to_host(cells)


def mirror(features: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """Mirror HOG cells or a HOG filter left to right, without computing them anew.

    Parameters
    ----------
    features : ndarray, shape (..., rows, cols, 31 or 32)

    Returns
    -------
    ndarray, same shape and dtype

    Examples
    --------
    >>> image = np.random.default_rng(0).uniform(0, 255, (40, 48, 3))
    >>> bool(np.allclose(mirror(hog(image)), hog(image[:, ::-1]), atol=1e-5))
    True
    """
    features = np.asarray(features)
    if features.ndim < 3 or features.shape[-1] not in (N_CHANNELS - 1, N_CHANNELS):
        raise DataError(
            f"mirror: HOG cells have the shape (..., rows, cols, 31 or 32), not {features.shape}."
        )
    return np.ascontiguousarray(features[..., ::-1, _MIRRORED[: features.shape[-1]]])


def glyphs(
    features: npt.ArrayLike, *, cell_pixels: int = 20, negative: bool = False
) -> npt.NDArray[np.uint8]:
    """Draw HOG cells or a filter as a picture: in each cell a star of strokes along the edges it stands for.

    Parameters
    ----------
    features : array_like of float, shape (rows, cols, 31 or 32)
    cell_pixels : int
        Edge of a drawn cell in pixels.
    negative : bool
        Draw the negative weights of a filter instead of the positive ones: the edges that speak against the
        object.

    Returns
    -------
    ndarray of uint8, shape (rows * cell_pixels, cols * cell_pixels)
        Grey picture; the strongest cell is white.
    """
    features = np.asarray(features, dtype=np.float32)
    check_number("glyphs", "cell_pixels", cell_pixels, low=3, integer=True)
    if features.ndim != 3 or features.shape[2] < N_CHANNELS - 1:
        raise DataError(f"glyphs: HOG cells have the shape (rows, cols, 31 or 32), not {features.shape}.")
    weights = -features if negative else features
    # What a cell says of an unsigned orientation: the sum of its three channels, each cut off at zero.
    strength = sum(np.maximum(weights[:, :, first : first + 9], 0) for first in (0, 9, 18))
    strokes = _strokes(cell_pixels)
    drawn = np.einsum("yxo,oij->yixj", strength, strokes).reshape(
        features.shape[0] * cell_pixels, features.shape[1] * cell_pixels
    )
    peak = drawn.max(initial=0)
    return np.rint(drawn * (255.0 / peak if peak > 0 else 0.0)).astype(np.uint8)


def _strokes(size: int) -> npt.NDArray[np.float32]:
    """Nine anti-aliased strokes `(9, size, size)`: an edge runs at right angles to its gradient."""
    centre = (size - 1) / 2
    y, x = np.mgrid[:size, :size] - centre
    angles = np.pi * np.arange(9)[:, None, None] / 9
    across = np.abs(np.cos(angles) * x + np.sin(angles) * y)
    along = np.abs(-np.sin(angles) * x + np.cos(angles) * y)
    thickness = max(size / 20, 0.5)
    return (np.clip(thickness + 0.5 - across, 0, 1) * np.clip(size / 2 - along, 0, 1)).astype(np.float32)


def check_cell_size(owner: str, cell_size: int) -> None:
    """Cells have an even edge, so that pixels lie symmetrically about the cells' middle."""
    check_number(owner, "cell_size", cell_size, low=2, integer=True)
    if cell_size % 2:
        raise UsageError(f"The 'cell_size' parameter of {owner} must be even. Got {cell_size} instead.")


def as_planes(image: npt.ArrayLike, owner: str) -> npt.NDArray[np.float64]:
    """Turn a picture into planes `(channels, rows, cols)`; a grey one has a single plane."""
    picture = np.asarray(image)
    if picture.ndim == 2 or (picture.ndim == 3 and picture.shape[2] == 1):
        grey = check_picture(picture, owner)[:, :, :1]
        return np.ascontiguousarray(grey.transpose(2, 0, 1), dtype=np.float64)
    return np.ascontiguousarray(check_picture(picture, owner).transpose(2, 0, 1), dtype=np.float64)
