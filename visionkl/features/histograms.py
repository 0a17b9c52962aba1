"""From the labels of a picture's pixels to one histogram: what PHOG and LBP share.

A `PixelHistogram` is a scikit-learn transformer whose `X` are pictures (`visionkl.features.pictures`). It
learns nothing; `fit` checks its parameters. Of a picture with many regions the votes are made once
(`prepare`), and counted for each region (`encode_region`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, TypeVar

import cv2
import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from visionkl._version import __version__
from visionkl.backend.threads import run_tasks
from visionkl.core.validation import check_choice, check_number, check_picture
from visionkl.features.cells import Grids, count_cells
from visionkl.features.pictures import Picture, as_pictures, digest, settings_of
from visionkl.features.regions import Region
from visionkl.features.votes import NORMS, Votes

FloatArray = npt.NDArray[np.float32]
Own = TypeVar("Own", bound="PixelHistogram")


class PixelHistogram(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):
    """Base of histograms of pixels' labels; see the module's page.

    A derived class has the parameters `norm` and `n_jobs` beside its own.
    """

    #: Parameters that do not change the vectors.
    _WITHOUT_EFFECT: ClassVar = ("n_jobs",)

    norm: str
    n_jobs: int | None
    grids_: Grids
    n_labels_: int
    _n_features_out: int

    def fit(self: Own, X: Any = None, y: object = None) -> Own:
        """Check the parameters; there is nothing to learn.

        Parameters
        ----------
        X, y
            Not used.

        Returns
        -------
        self
        """
        check_choice(self._owner, "norm", self.norm, NORMS)
        if self.n_jobs is not None:
            check_number(self._owner, "n_jobs", self.n_jobs, low=1, integer=True)
        self.grids_, self.n_labels_ = self._settle()
        self._n_features_out = count_cells(self.grids_) * self.n_labels_
        return self

    def transform(self, X: Any) -> FloatArray:
        """Describe pictures.

        Parameters
        ----------
        X : list of ndarray, str or Path; or Dataset

        Returns
        -------
        ndarray of float32, shape (n_pictures, n_features_out)
        """
        check_is_fitted(self)

        def encode(picture: Picture) -> FloatArray:
            votes = self.prepare(picture.pixels())
            return self.encode_region(votes, Region.whole(votes.shape))

        return np.stack(run_tasks(encode, as_pictures(X, self._owner), self.n_jobs))

    def prepare(self, image: npt.ArrayLike) -> Votes:
        """Compute what does not depend on the region: the votes of all pixels.

        Parameters
        ----------
        image : array_like, shape (rows, cols) or (rows, cols, 3)
            Values 0..255.

        Returns
        -------
        Votes
        """
        check_is_fitted(self)
        return self._votes(np.asarray(image))

    def encode_region(self, prepared: Votes, region: Region) -> FloatArray:
        """Describe a region of a picture that was prepared: `(n_features_out,)`."""
        return prepared.histogram(region, self.grids_, self.norm)

    def fingerprint(self) -> str:
        """Return a digest of all that vectors depend on, besides the picture."""
        return digest(f"visionkl {__version__}", *settings_of(self, self._owner, self._WITHOUT_EFFECT))

    @abstractmethod
    def _settle(self) -> tuple[Grids, int]:
        """Complain of parameters that are not accepted; return the grids of cells and how many labels."""

    @abstractmethod
    def _votes(self, image: npt.NDArray[Any]) -> Votes:
        """Let the pixels of a picture vote."""

    @property
    def _owner(self) -> str:
        return type(self).__name__

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.no_validation = True
        tags.requires_fit = True
        return tags


def grey_values(image: npt.ArrayLike, owner: str) -> FloatArray:
    """Return the grey values of a picture, `0.299 R + 0.587 G + 0.114 B`: `(rows, cols)`."""
    if np.ndim(image) == 2:
        return np.ascontiguousarray(check_picture(image, owner)[:, :, 0], np.float32)
    colour = check_picture(image, owner).astype(np.float32)
    return cv2.cvtColor(colour, cv2.COLOR_RGB2GRAY).astype(np.float32, copy=False)
