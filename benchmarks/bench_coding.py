"""Product quantisation: learning codewords, coding the cells of a pyramid, and filters on codes.

The filters are those of a typical model, with random weights: 48 parts of 6 × 6 cells on all levels where
parts are sought, and 6 roots of three sizes on the levels an octave above. Codewords are learned from the
picture's own cells: one block a cell, 256 codewords. Dense filters have the cells themselves to work on.
"""

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
from harness import Contestant, Setting, row
from limits import matrix_product

from visionkl.backend.cpu.filters import ProductFilters
from visionkl.backend.threads import run_tasks
from visionkl.coding.codebooks import Codebooks
from visionkl.coding.hog_codes import encode_pyramid, fit_cells
from visionkl.coding.pq import ProductQuantizer
from visionkl.core.rng import stream
from visionkl.detection.filters import DenseFilters, TableFilters
from visionkl.features.pyramid import FeaturePyramid, feature_pyramid

N_CODEWORDS = 256
PADDING = (6, 11)
PARTS = ((6, 6),) * 48
ROOTS = ((6, 11), (6, 11), (8, 9), (8, 9), (11, 5), (11, 5))


Maker = Callable[[list[npt.NDArray[np.float32]]], Any]


class Bank:
    """The filters of a model: parts on the finer levels, roots on the coarser ones."""

    def __init__(self, make_parts: Maker, make_roots: Maker) -> None:
        self.parts = make_parts(random_filters("parts", PARTS))
        self.roots = make_roots(random_filters("roots", ROOTS))

    @classmethod
    def dense(cls) -> "Bank":
        """Make dense filters as matching has them: all roots together."""
        return cls(DenseFilters, partial(DenseFilters, together=True))

    @classmethod
    def coded(cls, books: Codebooks, dtype: str) -> "Bank":
        """Make tables as matching has them: all roots together, responses in memory that is used again."""
        make = partial(TableFilters, quantizer=books, dtype=dtype)
        return cls(partial(make, memory="parts"), partial(make, memory="roots", together=True))

    def apply(self, pyramid: FeaturePyramid, threads: int) -> None:
        """Compute all responses, level by level; a level's are let go before the next, as matching does."""

        def respond(task: tuple[Any, npt.NDArray[Any]]) -> None:
            filters, level = task
            for group in range(len(filters.groups)):
                filters.responses(level, group)

        n = len(pyramid) - pyramid.interval
        tasks = [(self.parts, level) for level in pyramid.levels[:n]]
        tasks += [(self.roots, level) for level in pyramid.levels[pyramid.interval :]]
        run_tasks(respond, tasks, threads)


class _Products:
    """Filters of each size by matrix products alone."""

    def __init__(self, filters: list[npt.NDArray[np.float32]]) -> None:
        self.groups = DenseFilters(filters).groups
        self._ready = [ProductFilters(np.stack([filters[i] for i in group])) for group in self.groups]

    def responses(self, level: npt.NDArray[np.float32], group: int) -> npt.NDArray[np.float32]:
        return self._ready[group].correlate(level)


def random_filters(name: str, sizes: tuple[tuple[int, int], ...]) -> list[npt.NDArray[np.float32]]:
    """Make filters of these sizes with random weights."""
    random = stream(0, name)
    return [random.normal(0, 0.1, (*size, 32)).astype(np.float32) for size in sizes]


def codebooks(picture: npt.NDArray[np.uint8], n_blocks: int = 1) -> Codebooks:
    """Learn codewords for the cells of a picture."""
    return _codebooks(picture.tobytes(), picture.shape, n_blocks)


@cache
def _codebooks(picture: bytes, shape: tuple[int, ...], n_blocks: int) -> Codebooks:
    pyramid = feature_pyramid(np.frombuffer(picture, np.uint8).reshape(shape))
    cells = np.concatenate([level[1:-1, 1:-1].reshape(-1, 32) for level in pyramid.levels])
    return fit_cells(ProductQuantizer(N_CODEWORDS, n_blocks=n_blocks), cells).books_


def pyramid_and_codebooks(setting: Setting) -> tuple[FeaturePyramid, Codebooks]:
    """Compute the padded pyramid of the picture, and codewords for its cells."""
    return feature_pyramid(setting.picture, padding=PADDING), codebooks(setting.picture)


# -- filters on codes ----------------------------------------------------------------------------------------


@row("tables", "54 filters on the codes of all levels", threads=(1, 2), rounds=15)
def tables(setting: Setting) -> Iterator[Contestant]:
    pyramid, books = pyramid_and_codebooks(setting)
    coded = encode_pyramid(pyramid, books)
    threads = setting.threads
    short, exact = (Bank.coded(books, dtype) for dtype in ("int16", "float32"))
    decoded = books.decode(coded.levels[12])
    expected = DenseFilters(random_filters("parts", PARTS)).responses(decoded, 0)
    bound = short.parts.error_bounds[0].max()
    _demand_equal(exact.parts.responses(coded.levels[12], 0), expected, 1e-4)
    _demand_equal(short.parts.responses(coded.levels[12], 0), expected, bound + 1e-4)
    setting.notes.append(
        f"1 code a cell, {N_CODEWORDS} codewords; 16-bit tables are off by at most {bound:.4f}; dense "
        "filters work on the cells"
    )
    yield Contestant("visionkl, 16-bit tables", "ours", lambda: short.apply(coded, threads))
    yield Contestant("visionkl, float32 tables", "peer", lambda: exact.apply(coded, threads))
    yield from _dense(pyramid, threads)
    shapes = [(level.shape[0] - 5, level.shape[1] - 5, 48) for level in pyramid.levels[: -pyramid.interval]]
    yield Contestant(
        "writing the parts' responses",
        "limit",
        lambda: _discard(run_tasks(lambda shape: np.empty(shape, np.float32).fill(1), shapes, threads)),
    )


@row("coded-filters", "coding the cells and 54 filters on codes", threads=(1, 2), rounds=15)
def coded_filters(setting: Setting) -> Iterator[Contestant]:
    pyramid, books = pyramid_and_codebooks(setting)
    threads = setting.threads
    bank = Bank.coded(books, "int16")
    yield Contestant("visionkl", "ours", lambda: bank.apply(encode_pyramid(pyramid, books, threads), threads))
    yield from _dense(pyramid, threads)


def _dense(pyramid: FeaturePyramid, threads: int) -> Iterator[Contestant]:
    dense, products = Bank.dense(), Bank(_Products, _Products)
    yield Contestant("visionkl, dense", "peer", lambda: dense.apply(pyramid, threads))
    yield Contestant("visionkl, dense, products only", "peer", lambda: products.apply(pyramid, threads))


# -- codes ---------------------------------------------------------------------------------------------------


@row("encode", "codes of all cells of the padded pyramid", threads=(1, 2), rounds=15)
def encoding(setting: Setting) -> Iterator[Contestant]:
    pyramid, books = pyramid_and_codebooks(setting)
    threads = setting.threads
    inside = [level[7:-7, 12:-12] for level in pyramid.levels]
    cells = np.concatenate([level.reshape(-1, 32) for level in inside])
    n_all = sum(level.shape[0] * level.shape[1] for level in pyramid.levels)
    setting.notes.append(
        f"{len(cells)} cells, and {n_all - len(cells)} in the frames, whose code is known; {N_CODEWORDS} "
        "codewords; faiss codes the cells alone, from one array"
    )
    yield Contestant("visionkl", "ours", lambda: _discard(encode_pyramid(pyramid, books, threads)))
    yield setting.peers.contestant(
        "faiss", "faiss_encode", {"cells": cells, "words": books.words}, threads=threads
    )
    yield Contestant("sgemm of all products", "limit", matrix_product(len(cells) * 32 * N_CODEWORDS, threads))


N_BLOCKS, SIZE = 512, 8


def long_rows() -> npt.NDArray[np.float32]:
    """Make rows of many blocks: half of the variance is noise, half is common to all features."""
    random = stream(0, "rows")
    common = random.normal(size=(5000, SIZE)) @ random.normal(0, SIZE**-0.5, (SIZE, N_BLOCKS * SIZE))
    return (common + random.normal(size=common.shape)).astype(np.float32)


@row("encode-rows", "codes of 5000 rows, 512 blocks of 8 features, 256 codewords", threads=(1, 2), rounds=5)
def encoding_rows(setting: Setting) -> Iterator[Contestant]:
    rows, threads = long_rows(), setting.threads
    words = rows[:N_CODEWORDS].reshape(N_CODEWORDS, N_BLOCKS, SIZE).transpose(1, 0, 2)
    books = Codebooks(np.ascontiguousarray(words))
    yield Contestant("visionkl", "ours", lambda: _discard(books.encode(rows, n_jobs=threads)))
    yield setting.peers.contestant(
        "faiss", "faiss_encode", {"cells": rows, "words": books.words}, threads=threads
    )
    yield Contestant("sgemm of all products", "limit", matrix_product(rows.size * N_CODEWORDS, threads))


@row("learn-codes", "learning 512 blocks of 8 features, 256 codewords, 5000 rows", threads=(2,), rounds=2)
def learning(setting: Setting) -> Iterator[Contestant]:
    n_blocks, size, threads = N_BLOCKS, SIZE, setting.threads
    rows = long_rows()
    quantizer = ProductQuantizer(256, block_size=size, n_jobs=threads)
    ours = _squared_error(quantizer.fit(rows).books_, rows)
    path = setting.peers.file("words.npy")
    peer = setting.peers.contestant(
        "faiss", "faiss_learn", {"rows": rows}, n_blocks=n_blocks, threads=threads, save=str(path)
    )
    if path.is_file():
        theirs = _squared_error(Codebooks(np.load(path)), rows)
        setting.notes.append(f"squared error of ours ÷ faiss's: {ours / theirs:.4f}")
    yield Contestant("visionkl", "ours", lambda: _discard(quantizer.fit(rows)))
    yield peer


def _squared_error(books: Codebooks, rows: npt.NDArray[np.float32]) -> float:
    return float(((rows - books.decode(books.encode(rows))) ** 2).sum())


def _demand_equal(ours: npt.NDArray[np.float32], theirs: npt.NDArray[np.float32], tolerance: float) -> None:
    worst = float(np.abs(ours - theirs).max())
    if not worst <= tolerance:
        raise AssertionError(f"The contestants disagree by {worst:g}: their times cannot be compared.")


def _discard(value: object) -> None:
    """Let a result go: a contestant's return value is its time."""
