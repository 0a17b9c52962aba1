"""Bags of visual words: how often a picture's local descriptors resemble each word of a vocabulary.

Fundamentals
------------
k-means learns `n_words` words from a sample of descriptors; each descriptor is then counted for its nearest
word, which is found exactly. Of each cell (`visionkl.features.cells`) there is a histogram of its own
descriptors; with `cells=(1, (2, 2), (4, 4))` that is a spatial pyramid. The layout is

    cell 0: counts of all words;  cell 1: counts of all words;  ...

and the whole is divided by its l1 norm, so that it sums to 1 and every grid of cells has the same share in
it; or by its l2 norm.

A mask splits the words of a picture into those of the foreground and those of the background.

Implementation
--------------
Words are learned as codewords of a product quantiser with one block are (`visionkl.backend.cpu.kmeans`).

If unsure, take a thousand words; histograms want a kernel for histograms, such as χ².
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from visionkl.backend.cpu.kmeans import find_words, learn_words
from visionkl.core.errors import DataError
from visionkl.core.rng import stream
from visionkl.core.validation import check_choice, check_number
from visionkl.features.cells import cell_numbers, count_cells
from visionkl.features.encoder import FloatArray, PictureEncoder
from visionkl.features.local import LocalDescriptors
from visionkl.features.regions import Region

# Descriptors to learn from, for each word.
_SAMPLES_A_WORD = 100
_MOST_WORDS = 65536


class BagOfWords(PictureEncoder):
    """Encodes pictures as histograms of visual words, as a scikit-learn transformer.

    Parameters
    ----------
    n_words : int
        Words of the vocabulary, up to 65 536.
    cells : sequence of int or of (rows, cols)
        Grids of cells, each with a histogram of its own: `(1, (2, 2))` is the whole picture and its quarters;
        see `visionkl.features.cells`.
    norm : {"l1", "l2", "none"}
        What the whole vector is divided by; "none" leaves counts.
    max_iter : int
        Passes of k-means over the sample, at most.
    descriptors : extractor, optional
        What computes local descriptors: an object with `extract(image)`; `DenseSIFT()` by default.
    n_samples : int, optional
        Descriptors to learn from; a hundred for each word by default.
    random_state : int, RandomState instance or None
        Seed; None is different each time.
    n_jobs : int, optional
        Threads; all usable cores by default.
    cache : str or Path, optional
        Folder that keeps vectors for another time; see `visionkl.features.pictures`.
    cache_bytes : float
        Size of that folder, above which the vectors that were not used for the longest time are deleted.

    Attributes
    ----------
    words_ : ndarray of float32, shape (n_words, n_descriptor_values_)
    extractor_ : extractor
    grids_ : tuple of (rows, cols)

    Examples
    --------
    >>> from visionkl.features.local import LocalDescriptors
    >>> values = np.float32([[0, 0], [0, 1], [9, 9], [9, 8]])
    >>> places = np.float32([[2, 2], [8, 2], [2, 8], [8, 8]])
    >>> picture = LocalDescriptors(values, places, np.ones(4, np.float32), (10, 10))
    >>> words = BagOfWords(2, cells=(1, 2), norm="none").fit([picture])
    >>> words.transform([picture])[0, :2]  # the whole picture
    array([2., 2.], dtype=float32)
    """

    def __init__(
        self,
        n_words: int = 1000,
        *,
        cells: Any = (1,),
        norm: Literal["l1", "l2", "none"] = "l1",
        max_iter: int = 30,
        descriptors: Any = None,
        n_samples: int | None = None,
        random_state: Any = 0,
        n_jobs: int | None = None,
        cache: Any = None,
        cache_bytes: float = 16e9,
    ) -> None:
        self.n_words = n_words
        self.cells = cells
        self.norm = norm
        self.max_iter = max_iter
        self.descriptors = descriptors
        self.n_samples = n_samples
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.cache = cache
        self.cache_bytes = cache_bytes

    def encode_mask(self, descriptors: LocalDescriptors, mask: npt.ArrayLike) -> FloatArray:
        """Encode the words of a picture's foreground and of its background.

        Parameters
        ----------
        descriptors : LocalDescriptors
        mask : array_like of bool, shape (rows, cols)
            True in the foreground. A descriptor belongs to where its centre lies.

        Returns
        -------
        ndarray of float32, shape (2, n_features_out)
            Of the foreground, whose cells are laid over its box, and of the background; zero where one has
            no descriptors.
        """
        check_is_fitted(self)
        self._check_length(descriptors, self._owner)
        inside = np.asarray(mask) != 0
        width, height = descriptors.image_size
        if inside.shape != (height, width):
            raise DataError(
                f"{self._owner}: the mask has the shape {inside.shape}, but the picture has {height} rows "
                f"and {width} columns."
            )
        prepared = self._prepare(descriptors)
        both = (Region.of(inside, kind) for kind in ("foreground", "background"))
        return np.stack([self.encode_region(prepared, region) for region in both])

    def _check_parameters(self) -> None:
        check_number(self._owner, "n_words", self.n_words, low=1, high=_MOST_WORDS, integer=True)
        check_number(self._owner, "max_iter", self.max_iter, low=1, integer=True)
        check_choice(self._owner, "norm", self.norm, ("l1", "l2", "none"))

    def _samples_wanted(self) -> int:
        return _SAMPLES_A_WORD * self.n_words

    def _learn(self, sample: LocalDescriptors, seed: int) -> dict[str, npt.NDArray[Any]]:
        if len(sample) < self.n_words:
            raise DataError(
                f"{self._owner}: the pictures gave {len(sample)} descriptors, which are too few to learn "
                f"{self.n_words} words; give more or larger pictures, or a smaller 'n_words'."
            )
        points = np.ascontiguousarray(sample.values, dtype=np.float32)
        random = stream(seed, self._owner, "words")
        words, _, _ = learn_words(
            points, self.n_words, random, max_iter=self.max_iter, tol=1e-4, n_jobs=self.n_jobs
        )
        return {"words": words}

    def _learned(self) -> dict[str, npt.NDArray[Any]]:
        return {"words": self.words_}

    def _take_over(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        self.words_ = np.ascontiguousarray(arrays["words"], dtype=np.float32)
        n_words, self.n_descriptor_values_ = self.words_.shape
        self._n_features_out = count_cells(self.grids_) * n_words

    def _prepare(self, descriptors: LocalDescriptors) -> LocalDescriptors:
        """Replace descriptors by the numbers of their words, or by NaN if there is NaN among them."""
        values = np.ascontiguousarray(descriptors.values, dtype=np.float32)
        words = np.full((len(values), 1), np.nan)
        if np.isfinite(values).all():
            numbers = np.empty(len(values), np.uint16)
            find_words(values, self.words_, numbers, self.n_jobs)
            words[:, 0] = numbers
        return replace(descriptors, values=words)

    def _encode_prepared(self, prepared: LocalDescriptors) -> FloatArray:
        if not np.isfinite(prepared.values).all():
            return np.full(self._n_features_out, np.nan, np.float32)
        words = prepared.values[:, 0].astype(np.int64)
        counts = np.zeros(self._n_features_out)
        for cells in cell_numbers(prepared, self.grids_).T:
            counts += np.bincount(cells * len(self.words_) + words, minlength=len(counts))
        if self.norm != "none":
            counts /= np.linalg.norm(counts, 1 if self.norm == "l1" else 2)
        return counts.astype(np.float32)
