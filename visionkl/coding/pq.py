"""Product quantisation: long vectors as short codes (METHODS §5).

Fundamentals
------------
A vector of `d` features is cut into `M` blocks, and k-means learns `D` codewords for each block. A vector is
then kept as the numbers of its nearest codewords: `M` bytes for up to 256 codewords, and twice as many for up
to 65 536, instead of `4 d`. Of all vectors that can be put together from codewords, the code is that of the
nearest.

Scores on codes are sums of `M` numbers from a table, which is how detectors and solvers use them; see
`visionkl.coding.codebooks`.

Implementation
--------------
The blocks are learned independently, from at most `max_samples` rows drawn at random. Seeds come from
greedy k-means++; then follow Lloyd's iterations, all of whose searches are exact
(`visionkl.backend.cpu.pq`). Very many codewords on very many rows are learned faster in batches
(`batch_size`), which move the codewords after each batch; the result is slightly worse. Codewords that lose
all their rows start again at the rows that are coded worst.

Every block draws from a stream of its own, and sums are made in one order, so the codewords depend on
`random_state` and not on `n_jobs`.

If unsure, take blocks of 8 features with 256 codewords: 32 times smaller than floats. For HOG cells see
`visionkl.coding.hog_codes`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from visionkl.backend.dispatch import choose_device, device_of
from visionkl.coding.codebooks import MAX_CODEWORDS, Codebooks
from visionkl.coding.codes import CodeArray
from visionkl.coding.codewords import CodewordLearner, settle_blocks
from visionkl.core.errors import DataError
from visionkl.core.rng import seed_of
from visionkl.core.validation import check_number, check_rows

FloatArray = npt.NDArray[np.float32]


class ProductQuantizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Codes vectors block by block, as a scikit-learn transformer.

    Parameters
    ----------
    n_codewords : int
        Codewords of each block, up to 65 536.
    block_size : int, optional
        Features of a block; the last block may have fewer. 8 by default, or what `n_blocks` asks for.
    n_blocks : int, optional
        Number of blocks, instead of their size.
    max_samples : int, optional
        Rows to learn from, drawn at random; 256 for each codeword by default.
    batch_size : int, optional
        Learn from batches of so many rows; from all rows at once by default.
    max_iter : int
        Passes over the rows, at most.
    tol : float
        Learning ends when a pass improves the squared error by less than this share of it.
    random_state : int, RandomState instance or None
        Seed; None is different each time.
    n_jobs : int, optional
        Threads; all usable cores by default.
    device : str
        "cpu", "cuda", "cuda:1" and so on, or "auto": where `transform` searches. Rows that lie on a GPU are
        coded there anyway, and stay there. Codewords are learned on the CPU.

    Attributes
    ----------
    codebooks_ : ndarray of float32, shape (n_blocks, n_codewords, block_size)
        The codewords; zero past the last feature.
    books_ : Codebooks
        The same, ready for use without scikit-learn.
    n_iter_ : int
        The most passes that a block took.
    n_features_in_ : int

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(1000, 16)).astype(np.float32)
    >>> quantizer = ProductQuantizer(n_codewords=64, block_size=4).fit(X)
    >>> codes = quantizer.transform(X)
    >>> codes.shape, codes.dtype
    ((1000, 4), dtype('uint8'))
    >>> error = X - quantizer.inverse_transform(codes)
    >>> bool((error**2).mean() < 0.25)
    True
    """

    def __init__(
        self,
        n_codewords: int = 256,
        *,
        block_size: int | None = None,
        n_blocks: int | None = None,
        max_samples: int | None = None,
        batch_size: int | None = None,
        max_iter: int = 50,
        tol: float = 1e-5,
        random_state: Any = 0,
        n_jobs: int | None = None,
        device: str = "cpu",
    ) -> None:
        self.n_codewords = n_codewords
        self.block_size = block_size
        self.n_blocks = n_blocks
        self.max_samples = max_samples
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device

    def fit(self, X: npt.ArrayLike, y: object = None) -> ProductQuantizer:
        """Learn the codewords.

        Parameters
        ----------
        X : array_like of float, shape (n_samples, n_features)
        y : None
            Not used.

        Returns
        -------
        self
        """
        self._check_parameters()
        rows = check_rows("ProductQuantizer", X, np.float32)
        n_features = rows.shape[1]
        n_blocks, block_size = self.blocks(n_features)
        learner = CodewordLearner(
            self.n_codewords,
            self.max_samples,
            self.batch_size,
            self.max_iter,
            self.tol,
            seed_of(self.random_state),
            self.n_jobs,
        )
        codebooks, n_iter = learner.learn(rows, n_blocks, block_size)
        validate_data(self, X, skip_check_array=True)
        self._adopt(Codebooks(codebooks, n_features))
        self.n_iter_ = n_iter
        return self

    def transform(self, X: npt.ArrayLike) -> CodeArray:
        """Code vectors: for each block the number of the nearest codeword; of equally near ones the first.

        Parameters
        ----------
        X : array_like of float, shape (n_samples, n_features)

        Returns
        -------
        CodeArray of uint8 (up to 256 codewords) or uint16, shape (n_samples, n_blocks)
            An array that also knows the codebooks, for what learns on codes. A CuPy array, which knows
            nothing, if X is one.
        """
        check_is_fitted(self)
        device = choose_device(self.device, "ProductQuantizer")
        on_gpu = device_of(X).is_gpu
        rows: Any = X if on_gpu else check_rows("ProductQuantizer", X, np.float32)
        if rows.shape[1] != self.n_features_in_:
            raise DataError(
                f"X has {rows.shape[1]} features, but ProductQuantizer is expecting "
                f"{self.n_features_in_} features as input."
            )
        validate_data(self, X, reset=False, skip_check_array=True)
        with device_of(X).use():
            rows = rows.astype(np.float32, copy=False)
        codes: Any = self.books_.encode(rows, self.n_jobs, device)
        return codes if on_gpu else CodeArray(codes, self.books_)

    def inverse_transform(self, X: npt.ArrayLike) -> FloatArray:
        """Put codewords in the place of codes.

        Parameters
        ----------
        X : array_like of int, shape (n_samples, n_blocks)

        Returns
        -------
        ndarray of float32, shape (n_samples, n_features)
        """
        check_is_fitted(self)
        return self.books_.decode(X)

    def kernel_product(self, tables: npt.ArrayLike) -> npt.NDArray[np.floating[Any]]:
        """Multiply tables by the codewords' kernel; see `Codebooks.kernel_product`.

        Parameters
        ----------
        tables : array_like of float, shape (n_blocks, n_codewords) or (n_blocks, n_codewords, n)

        Returns
        -------
        ndarray, same shape
        """
        check_is_fitted(self)
        return self.books_.kernel_product(tables)

    @classmethod
    def from_codebooks(
        cls, codebooks: npt.ArrayLike | Codebooks, n_features: int | None = None
    ) -> ProductQuantizer:
        """Make a fitted quantizer from codewords that are known.

        Parameters
        ----------
        codebooks : Codebooks, or array_like of float, shape (n_blocks, n_codewords, block_size)
        n_features : int, optional
            Length of the vectors; all blocks are full by default.
        """
        books = codebooks if isinstance(codebooks, Codebooks) else Codebooks(codebooks, n_features)
        quantizer = cls(books.n_codewords, block_size=books.block_size)
        quantizer.n_features_in_ = books.n_features
        quantizer._adopt(books)
        quantizer.n_iter_ = 0
        return quantizer

    def _adopt(self, books: Codebooks) -> None:
        self.books_ = books
        self.codebooks_ = books.words
        self._n_features_out = books.n_blocks

    def _check_parameters(self) -> None:
        owner = "ProductQuantizer"
        check_number(owner, "n_codewords", self.n_codewords, low=1, high=MAX_CODEWORDS, integer=True)
        check_number(owner, "max_iter", self.max_iter, low=1, integer=True)
        check_number(owner, "tol", self.tol, low=0)
        for name in ("block_size", "n_blocks", "batch_size", "n_jobs"):
            if getattr(self, name) is not None:
                check_number(owner, name, getattr(self, name), low=1, integer=True)
        if self.max_samples is not None:
            check_number(owner, "max_samples", self.max_samples, low=self.n_codewords, integer=True)

    def blocks(self, n_features: int) -> tuple[int, int]:
        """Settle the number and the size of the blocks."""
        return settle_blocks(n_features, self.n_blocks, self.block_size)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # codes are integers
        return tags
