"""Codebooks: vectors to codes and back, and the kernel of codes (METHODS §5).

A vector is cut into blocks of equal size; each block is replaced by the number of its nearest codeword. What
learns the codewords is `ProductQuantizer`; what is done with them is here, so that a detector that only uses
codes does not load scikit-learn.

The code of a block stands for the sparse map that is 1 at its codeword and 0 elsewhere, with the inner
product `K = Z Zᵀ` of the codewords `Z`. So a linear function of codes is a table with a number for each
codeword, and learning on codes equals learning on decoded vectors; `kernel_product` is all that a solver
needs of `K`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.backend import glue
from visionkl.backend.cpu.pq import Codebook, make_codebook
from visionkl.backend.dispatch import CPU, Device, choose_device, device_of, kept_on, to_host
from visionkl.backend.gpu.device import in_blocks
from visionkl.backend.threads import run_tasks
from visionkl.core.errors import DataError, UsageError
from visionkl.core.validation import check_number

#: Codes have 16 bits at most.
MAX_CODEWORDS = 65536

# Points that a thread encodes at a time.
_POINTS_A_TASK = 4096
_POINTS_ON_A_GPU = 2**18

Codes = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]
FloatArray = npt.NDArray[np.float32]


class Codebooks:
    """The codewords of all blocks.

    Parameters
    ----------
    words : array_like of float, shape (n_blocks, n_codewords, block_size)
        Where the last block reaches past the last feature, the codewords must be zero.
    n_features : int, optional
        Length of the vectors; all blocks are full by default.
    order : array_like of int, shape (n_features,), optional
        The features in the order in which they are cut into blocks; as they stand by default. Features that
        go together belong into one block.

    Attributes
    ----------
    words : ndarray of float32, shape (n_blocks, n_codewords, block_size)
    order : ndarray of int64, shape (n_features,)
    n_features, n_blocks, n_codewords, block_size : int
    code_dtype : dtype
        uint8 for up to 256 codewords, uint16 for more.

    Examples
    --------
    >>> books = Codebooks([[[0, 0], [1, 1]], [[5, 5], [7, 7]]])
    >>> books.encode(np.float32([[0.9, 0.8, 5.2, 5.1]]))
    array([[1, 0]], dtype=uint8)
    >>> books.decode([[1, 0]])
    array([[1., 1., 5., 5.]], dtype=float32)
    """

    def __init__(
        self, words: npt.ArrayLike, n_features: int | None = None, order: npt.ArrayLike | None = None
    ) -> None:
        self.words = np.ascontiguousarray(words, dtype=np.float32)
        if self.words.ndim != 3 or 0 in self.words.shape:
            raise DataError(
                f"Codebooks: codewords have the shape (n_blocks, n_codewords, block_size), "
                f"not {self.words.shape}."
            )
        if not np.isfinite(self.words).all():
            raise DataError("Codebooks: the codewords hold NaN or infinite values.")
        self.n_blocks, self.n_codewords, self.block_size = self.words.shape
        if self.n_codewords > MAX_CODEWORDS:
            raise DataError(
                f"Codebooks: {self.n_codewords} codewords a block are too many for codes of 16 bits; "
                f"at most {MAX_CODEWORDS} are accepted."
            )
        full = self.n_blocks * self.block_size
        lowest = full - self.block_size + 1
        self.n_features = full if n_features is None else n_features
        check_number("Codebooks", "n_features", self.n_features, low=lowest, high=full, integer=True)
        if self.words[-1, :, self.block_size - (full - self.n_features) :].any():
            raise DataError("Codebooks: codewords must be zero past the last feature.")
        self.order = np.arange(self.n_features) if order is None else np.array(order, dtype=np.int64)
        if not np.array_equal(np.sort(self.order), np.arange(self.n_features)):
            raise DataError(f"Codebooks: the order must hold each of the {self.n_features} features once.")
        self._blocks = np.split(self.order, range(self.block_size, self.n_features, self.block_size))
        self.code_dtype = np.dtype(np.uint8 if self.n_codewords <= 256 else np.uint16)
        last = self.block_size - (full - self.n_features)
        self._ready = [make_codebook(words) for words in self.words[:-1]]
        self._ready.append(make_codebook(self.words[-1, :, :last]))

    def encode(self, vectors: FloatArray, n_jobs: int | None = None, device: str | Device = CPU) -> Codes:
        """Find the nearest codeword of each block of each vector; of equally near ones the first.

        Parameters
        ----------
        vectors : ndarray of float32, shape (..., n_features)
            Finite.
        n_jobs : int, optional
            Threads; all usable cores by default.
        device : str
            Where to search: "cpu", "cuda", "cuda:1" and so on, or "auto". Vectors that lie on a GPU are
            searched there anyway, and so are their codes.

        Returns
        -------
        ndarray of uint8 or uint16, shape (..., n_blocks)
        """
        home = device_of(vectors)
        if not home.is_gpu:
            vectors = np.asarray(vectors, dtype=np.float32)
        if vectors.ndim == 0 or vectors.shape[-1] != self.n_features:
            raise DataError(
                f"Codebooks: vectors of {self.n_features} features are encoded; "
                f"this array has the shape {vectors.shape}."
            )
        xp = home.namespace
        with home.use():
            codes: Codes = xp.empty((*vectors.shape[:-1], self.n_blocks), self.code_dtype)
            flat = xp.ascontiguousarray(vectors).reshape(1, -1, self.n_features)
        flat_codes = codes.reshape(1, -1, self.n_blocks)
        where = home if home.is_gpu else choose_device(device, "Codebooks")
        if where.is_gpu:
            self._encode_there(flat, flat_codes, where)
            return codes
        tasks = [np.s_[:, i : i + _POINTS_A_TASK] for i in range(0, flat.shape[1], _POINTS_A_TASK)]
        run_tasks(lambda part: self.encode_into(flat[part], flat_codes[part]), tasks, n_jobs)
        return codes

    def _encode_there(self, vectors: FloatArray, codes: Codes, device: Device) -> None:
        """Encode `(1, n, n_features)` on a GPU, in blocks that fit into its memory."""
        stay = device_of(vectors).is_gpu

        def encode(rows: slice) -> None:
            block = device.put(vectors[:, rows])
            found = device.namespace.empty((1, block.shape[1], self.n_blocks), self.code_dtype)
            self.encode_into(block, found)
            codes[:, rows] = found if stay else to_host(found)

        with device.use():
            in_blocks(encode, vectors.shape[1], _POINTS_ON_A_GPU)

    def encode_into(self, cells: FloatArray, codes: Codes) -> None:
        """Encode in this thread, without copies or checks, which is for many threads with many pieces.

        Parameters
        ----------
        cells : ndarray of float32, shape (rows, cols, n_features)
            Contiguous along the last axis, spaced in any way along the others; or an array on a GPU.
        codes : ndarray of `code_dtype`, shape (rows, cols, n_blocks)
            Receives the codes; where the cells are.
        """
        device = device_of(cells, codes)
        encode = device.loops("pq").encode
        for block, book in enumerate(self._ready_on(device)):
            encode(cells, self._blocks[block], book, codes[..., block])

    def _ready_on(self, device: Device) -> list[Codebook] | list[Any]:
        """Codewords ready for searching on a device; on a GPU they stay once they were used there."""
        if not device.is_gpu:
            return self._ready
        make = device.loops("pq").make_codebook
        return kept_on(device, self, lambda: [make(book.words) for book in self._ready])

    def decode(self, codes: npt.ArrayLike) -> FloatArray:
        """Put codewords in the place of codes.

        Parameters
        ----------
        codes : array_like of int, shape (..., n_blocks)

        Returns
        -------
        ndarray of float32, shape (..., n_features)
            On a GPU if the codes are.
        """
        codes = self.check_codes(codes)
        device = device_of(codes)
        shape = (*codes.shape[:-1], self.n_blocks, self.block_size)
        with device.use():
            vectors = device.namespace.empty(shape, np.float32)
            for block, words in enumerate(device.put(self.words)):
                vectors[..., block, :] = words[codes[..., block]]
        return self.join(vectors)

    def __sklearn_clone__(self) -> Codebooks:
        """Stay the same when an estimator that has them is cloned: nobody changes codebooks."""
        return self

    def join(self, blocks: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Put blocks `(..., n_blocks, block_size)` back to where their features stand in a vector."""
        joined = blocks.reshape(*blocks.shape[:-2], self.n_blocks * self.block_size)
        device = device_of(blocks)
        with device.use():
            vectors = device.namespace.empty((*blocks.shape[:-2], self.n_features), blocks.dtype)
            vectors[..., device.put(self.order)] = joined[..., : self.n_features]
        return vectors

    def split(self, vectors: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Cut vectors into blocks `(..., n_blocks, block_size)`, zero past the end; `join` undoes it."""
        blocks = np.zeros((*vectors.shape[:-1], self.n_blocks * self.block_size), vectors.dtype)
        blocks[..., : self.n_features] = vectors[..., self.order]
        return blocks.reshape(*vectors.shape[:-1], self.n_blocks, self.block_size)

    def check_codes(self, codes: npt.ArrayLike, *, values: bool = True) -> npt.NDArray[np.integer[Any]]:
        """Return codes as an array, and complain if they are not these codebooks'.

        Without `values`, only their type and shape are looked at.
        """
        array: Any = codes if device_of(codes).is_gpu else np.asarray(codes)
        if array.dtype.kind not in "ui":
            raise DataError(f"Codebooks: codes are integers, not {array.dtype}.")
        if array.ndim == 0 or array.shape[-1] != self.n_blocks:
            raise DataError(
                f"Codebooks: codes have {self.n_blocks} blocks; this array has the shape {array.shape}."
            )
        if values:
            self.check_range([array])
        return array

    def check_range(self, arrays: Sequence[npt.NDArray[Any]]) -> None:
        """Complain if arrays hold codes that are none; two numbers leave the device on which they lie."""
        doubtful = [
            array
            for array in arrays
            if array.size
            and array.dtype.kind in "ui"
            and not (array.dtype.kind == "u" and np.iinfo(array.dtype).max < self.n_codewords)
        ]
        if not doubtful:
            return
        with device_of(*doubtful).use():
            low, high = glue.extremes(doubtful)
        if low < 0 or high >= self.n_codewords:
            raise DataError(f"Codebooks: codes lie in 0..{self.n_codewords - 1}; these span {low}..{high}.")

    def tables(self, weights: npt.ArrayLike) -> FloatArray:
        """Scores of all codewords under weights: what a linear function of vectors is on codes.

        Parameters
        ----------
        weights : array_like of float, shape (..., n_features)

        Returns
        -------
        ndarray of float32, shape (..., n_blocks, n_codewords)

        Examples
        --------
        >>> books = Codebooks([[[0, 1], [1, 1], [2, 0]]])
        >>> books.tables([1.0, 10.0])
        array([[10., 11.,  2.]], dtype=float32)
        """
        given = np.asarray(weights, dtype=np.float32)
        columns = self.split(given).reshape(-1, self.n_blocks, self.block_size).transpose(1, 2, 0)
        scores = np.matmul(self.words, columns).transpose(2, 0, 1)
        return np.ascontiguousarray(scores).reshape(*given.shape[:-1], self.n_blocks, self.n_codewords)

    def totals(self, histograms: npt.ArrayLike) -> npt.NDArray[np.floating[Any]]:
        """Sum the vectors that weighted histograms of codes stand for: the transpose of `tables`.

        Parameters
        ----------
        histograms : array_like of float, shape (..., n_blocks, n_codewords)

        Returns
        -------
        ndarray of float, shape (..., n_features)

        Examples
        --------
        >>> books = Codebooks([[[0, 1], [1, 1], [2, 0]]])
        >>> books.totals([[2.0, 0.0, 1.0]])
        array([2., 2.])
        """
        given = np.asarray(histograms)
        rows = given.reshape(-1, self.n_blocks, self.n_codewords).transpose(1, 0, 2)
        blocks = np.matmul(rows, self.words).transpose(1, 0, 2)
        return self.join(blocks.reshape(*given.shape[:-2], self.n_blocks, self.block_size))

    def kernel_product(self, tables: npt.ArrayLike) -> npt.NDArray[np.floating[Any]]:
        """Multiply tables by the codewords' kernel: `K a = Z (Zᵀ a)` in each block.

        Parameters
        ----------
        tables : array_like of float, shape (n_blocks, n_codewords) or (n_blocks, n_codewords, n)

        Returns
        -------
        ndarray, same shape
            float32 for float32, and float64 otherwise.

        Examples
        --------
        >>> books = Codebooks([[[0, 1], [1, 1], [2, 0]]])
        >>> books.kernel_product([[1.0, 0.0, -1.0]])
        array([[ 1., -1., -4.]])
        """
        array = np.asarray(tables)
        array = array.astype(np.float32 if array.dtype == np.float32 else np.float64, copy=False)
        if array.ndim not in (2, 3) or array.shape[:2] != self.words.shape[:2]:
            raise DataError(
                f"Codebooks: tables have the shape {self.words.shape[:2]}, or that and a third axis, "
                f"not {array.shape}."
            )
        words = self.words.astype(array.dtype, copy=False)
        columns = array.reshape(*array.shape[:2], -1)
        return np.matmul(words, np.matmul(words.transpose(0, 2, 1), columns)).reshape(array.shape)


def as_codebooks(quantizer: Any) -> Codebooks:
    """Return the codebooks of a fitted `ProductQuantizer`; codebooks are returned as they are."""
    if isinstance(quantizer, Codebooks):
        return quantizer
    books = getattr(quantizer, "books_", None)
    if not isinstance(books, Codebooks):
        raise UsageError(
            f"Codebooks or a fitted ProductQuantizer are needed here; "
            f"this {type(quantizer).__name__} has no codewords yet: call fit first."
        )
    return books
