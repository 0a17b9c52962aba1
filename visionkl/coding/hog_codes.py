"""HOG cells as codes: a pyramid of codes, and codewords for cells (METHODS §10).

A cell of 32 floats becomes 1, 2 or 4 codes. A pyramid of codes looks like one of cells, with the same frames,
scales and views (`FeaturePyramid.framed`); its levels are `(rows, cols, n_blocks)`.

The cells of the frame are all the same: zeros, with the truncation mark. They are therefore not searched:
their code is looked up once. It is worth a codeword of its own, because nothing else has the mark, and a mean
of cells would smear it: `fit_cells` learns one codeword fewer and adds it.

Cells are cut into blocks by orientation: the two signed bins and the unsigned one of an edge's direction go
together, because each nearly tells the others. That lowers the squared error of 2 blocks by a quarter and of
4 blocks by more than a third, against channels as they stand; a learned rotation gains hardly more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from visionkl.backend.dispatch import device_of, namespace_of
from visionkl.backend.threads import run_tasks
from visionkl.coding.codebooks import Codebooks, Codes, as_codebooks
from visionkl.coding.codewords import CodewordLearner, settle_blocks
from visionkl.core.errors import DataError
from visionkl.features.hog import N_CHANNELS, TRUNCATION
from visionkl.features.pyramid import FeaturePyramid, feature_pyramid

if TYPE_CHECKING:
    from visionkl.coding.pq import ProductQuantizer

#: Channels by orientation: both signs and the unsigned bin, then textures and truncation.
ORDER = (*np.arange(27).reshape(3, 9).T.ravel().tolist(), 27, 28, 29, 30, TRUNCATION)

# The ring of cells that HOG drops lies inside the padding.
_RING = 1


def frame_cell() -> npt.NDArray[np.float32]:
    """Return the cell of which a pyramid's frame is made, shape (32,)."""
    cell = np.zeros(N_CHANNELS, np.float32)
    cell[TRUNCATION] = 1
    return cell


def fit_cells(quantizer: ProductQuantizer, cells: npt.ArrayLike) -> ProductQuantizer:
    """Learn codewords for HOG cells; the last codeword of each block is the frame's, exactly.

    Parameters
    ----------
    quantizer : ProductQuantizer
        Its parameters are used; it is not changed.
    cells : array_like of float, shape (n, 32)
        Cells from inside of pictures.

    Returns
    -------
    ProductQuantizer
        Fitted, with as many codewords as asked for.
    """
    from sklearn.base import clone

    if quantizer.n_codewords < 2:
        raise DataError("fit_cells: HOG cells need at least 2 codewords, one of them for the frame.")
    rows = np.asarray(cells)
    if rows.ndim != 2 or rows.shape[1] != N_CHANNELS:
        raise DataError(f"fit_cells: HOG cells have the shape (n, {N_CHANNELS}), not {rows.shape}.")
    order = _channel_order(quantizer.blocks(N_CHANNELS)[0])
    learner = clone(quantizer).set_params(n_codewords=quantizer.n_codewords - 1).fit(rows[:, order])
    fitted = type(quantizer).from_codebooks(_with_frame(learner.codebooks_, order))
    fitted.n_iter_ = learner.n_iter_
    return fitted.set_params(**quantizer.get_params())


def learn_cell_codebooks(
    cells: npt.NDArray[np.float32], n_codewords: int, n_blocks: int, *, seed: int, n_jobs: int | None = None
) -> Codebooks:
    """Learn what `fit_cells` learns with a `ProductQuantizer` of these settings, without scikit-learn."""
    n_blocks, block_size = settle_blocks(N_CHANNELS, n_blocks, None)
    order = _channel_order(n_blocks)
    learner = CodewordLearner(n_codewords - 1, seed=seed, n_jobs=n_jobs)
    words, _ = learner.learn(np.ascontiguousarray(cells[:, order], np.float32), n_blocks, block_size)
    return _with_frame(words, order)


def _channel_order(n_blocks: int) -> list[int]:
    # A single block holds all channels, in whatever order.
    return list(ORDER) if n_blocks > 1 else list(range(N_CHANNELS))


def _with_frame(words: npt.NDArray[np.float32], order: list[int]) -> Codebooks:
    """Add the frame's codeword to those of each block."""
    n_blocks, _, block_size = words.shape
    frame = np.zeros(n_blocks * block_size, np.float32)
    frame[:N_CHANNELS] = frame_cell()[order]
    framed = np.concatenate([words, frame.reshape(n_blocks, 1, block_size)], axis=1)
    return Codebooks(framed, N_CHANNELS, order)


def encode_pyramid(pyramid: FeaturePyramid, quantizer: Any, n_jobs: int | None = None) -> FeaturePyramid:
    """Code all cells of a pyramid.

    Parameters
    ----------
    pyramid : FeaturePyramid
    quantizer : Codebooks or fitted ProductQuantizer
        For 32 features.
    n_jobs : int, optional
        Threads; all usable cores by default.

    Returns
    -------
    FeaturePyramid
        With levels of codes, uint8 or uint16, shape (rows, cols, n_blocks).

    Examples
    --------
    >>> from visionkl.features.pyramid import feature_pyramid
    >>> picture = np.random.default_rng(0).uniform(0, 255, (60, 80))
    >>> pyramid = feature_pyramid(picture, interval=2, padding=(2, 2))
    >>> cells = pyramid.levels[0][3:-3, 3:-3].reshape(-1, 32)
    >>> books = Codebooks([np.vstack([cells[:15], frame_cell()])])
    >>> coded = encode_pyramid(pyramid, books)
    >>> coded.levels[0].shape, int(coded.levels[0][0, 0, 0]), int(coded.levels[0][3, 3, 0])
    ((19, 24, 1), 15, 0)
    """
    books = as_codebooks(quantizer)
    frame = pyramid.padding[0] + _RING, pyramid.padding[1] + _RING
    encode = _encoder("encode_pyramid", books, frame)

    def encode_level(level: npt.NDArray[np.float32]) -> Codes:
        (top, left), (rows, cols) = frame, level.shape[:2]
        return encode(level[top : max(rows - top, top), left : max(cols - left, left)])

    device = device_of(*pyramid.levels)
    with device.use():
        levels = run_tasks(encode_level, pyramid.levels, 1 if device.is_gpu else n_jobs)
    return replace(pyramid, levels=cast(Any, tuple(levels)))


def coded_pyramids(
    image: npt.ArrayLike,
    quantizers: Sequence[Any],
    *,
    padding: tuple[int, int] = (0, 0),
    **settings: Any,
) -> list[FeaturePyramid]:
    """Compute the pyramid of a picture in codes, one for each quantiser.

    The result is that of `encode_pyramid`, in less time and memory: cells are coded as soon as they are
    computed, and let go.

    Parameters
    ----------
    image : array_like, shape (rows, cols) or (rows, cols, 3)
        Grey or colour picture with values 0..255.
    quantizers : sequence of Codebooks or fitted ProductQuantizer
        For 32 features.
    padding : tuple of int
        `(rows, cols)` of cells added around each level.
    **settings
        As for `visionkl.features.pyramid.feature_pyramid`.

    Returns
    -------
    list of FeaturePyramid
        With levels of codes, uint8 or uint16, shape (rows, cols, n_blocks).
    """
    frame = padding[0] + _RING, padding[1] + _RING
    encoders = [_encoder("coded_pyramids", as_codebooks(quantizer), frame) for quantizer in quantizers]
    together = feature_pyramid(
        image, padding=padding, keep=lambda cells: [encode(cells) for encode in encoders], **settings
    )
    return [
        replace(together, levels=tuple(level[i] for level in together.levels)) for i in range(len(encoders))
    ]


def _encoder(
    owner: str, books: Codebooks, frame: tuple[int, int]
) -> Callable[[npt.NDArray[np.float32]], Codes]:
    """Make the function that codes the cells of a level and puts a frame of so many cells around them."""
    _check_channels(owner, books)
    frame_code = books.encode(frame_cell(), 1)
    top, left = frame

    def encode(cells: npt.NDArray[np.float32]) -> Codes:
        rows, cols = cells.shape[:2]
        xp = namespace_of(cells)
        codes: Codes = xp.empty((rows + 2 * top, cols + 2 * left, books.n_blocks), books.code_dtype)
        codes[...] = xp.asarray(frame_code)
        books.encode_into(cells, codes[top : top + rows, left : left + cols])
        return codes

    return encode


def _check_channels(owner: str, books: Codebooks) -> None:
    if books.n_features != N_CHANNELS:
        raise DataError(
            f"{owner}: HOG cells have {N_CHANNELS} numbers, but these codewords are for {books.n_features}."
        )
