"""From many local descriptors a picture to one vector: what Fisher vectors and bags of words share.

A `PictureEncoder` is a scikit-learn transformer whose `X` are pictures (`visionkl.features.pictures`). It
learns from a sample of their descriptors, and then encodes picture by picture: a picture is decoded,
described, encoded and let go, several side by side in threads. All descriptors of all pictures are never in
memory together.

The sample has an equal share of each picture. From very many pictures some are chosen, so that each gives a
hundred descriptors or more: describing a picture costs far more than taking more of its descriptors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from visionkl._version import __version__
from visionkl.backend.dispatch import Device, choose_device, to_host
from visionkl.backend.threads import run_tasks
from visionkl.core.errors import DataError, ModelFileError
from visionkl.core.rng import seed_of, stream
from visionkl.core.validation import check_number, parameter_error
from visionkl.features.cells import check_cells, relative_places
from visionkl.features.local import Extractor, LocalDescriptors
from visionkl.features.pictures import Picture, PictureCache, as_pictures, digest, on_device, settings_of

if TYPE_CHECKING:
    from visionkl.features.regions import Region

# Pictures whose vectors are made at a time, in threads.
_PICTURES_A_BLOCK = 32
# Descriptors that each picture gives to the sample, at least, if it has so many.
_LEAST_QUOTA = 100

FloatArray = npt.NDArray[np.float32]
Encoder = TypeVar("Encoder", bound="PictureEncoder")


class PictureEncoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):
    """Base of what encodes pictures; see the module's page.

    A derived class has the parameters `descriptors`, `cells`, `n_samples`, `random_state`, `n_jobs`, `cache`
    and `cache_bytes` beside its own. One that computes on GPUs has `device`, too.
    """

    #: Parameters that do not change the vectors.
    _WITHOUT_EFFECT: ClassVar = ("descriptors", "n_jobs", "cache", "cache_bytes")

    descriptors: Any
    cells: Any
    n_samples: int | None
    random_state: Any
    n_jobs: int | None
    device: str = "cpu"
    cache: Any
    cache_bytes: float
    n_descriptor_values_: int
    _n_features_out: int

    def fit(self: Encoder, X: Any, y: object = None) -> Encoder:
        """Learn from a sample of the pictures' descriptors.

        Parameters
        ----------
        X : list of ndarray, str, Path or LocalDescriptors; or Dataset
            Pictures.
        y : None
            Not used.

        Returns
        -------
        self
        """
        self._settle()
        seed = seed_of(self.random_state)
        sample = self._sample(as_pictures(X, self._owner), seed)
        self._take_over(self._learn(sample, seed))
        return self

    def transform(self, X: Any) -> FloatArray:
        """Encode pictures.

        Parameters
        ----------
        X : list of ndarray, str, Path or LocalDescriptors; or Dataset

        Returns
        -------
        ndarray of float32, shape (n_pictures, n_features_out)
        """
        check_is_fitted(self)
        pictures = as_pictures(X, self._owner)
        vectors = np.empty((len(pictures), self._n_features_out), np.float32)
        start = 0
        for block in self._blocks(pictures, _PICTURES_A_BLOCK):
            vectors[start : start + len(block)] = block
            start += len(block)
        return vectors

    def transform_blocks(self, X: Any, block_size: int = _PICTURES_A_BLOCK) -> Iterator[FloatArray]:
        """Encode pictures some at a time, for vectors that do not all fit into memory.

        Parameters
        ----------
        X : list of ndarray, str, Path or LocalDescriptors; or Dataset
        block_size : int
            Pictures whose vectors are made at a time.

        Yields
        ------
        ndarray of float32, shape (block_size or fewer, n_features_out)
        """
        check_is_fitted(self)
        check_number("transform_blocks", "block_size", block_size, low=1, integer=True)
        yield from self._blocks(as_pictures(X, self._owner), block_size)

    def encode(self, descriptors: LocalDescriptors) -> FloatArray:
        """Encode the descriptors of one picture; without any, the vector is zero.

        Parameters
        ----------
        descriptors : LocalDescriptors

        Returns
        -------
        ndarray of float32, shape (n_features_out,)
        """
        check_is_fitted(self)
        return run_tasks(lambda one: self._checked_encode(one, self._owner), [descriptors], 1)[0]

    def prepare(self, image: npt.ArrayLike) -> LocalDescriptors:
        """Compute all that the vectors of a picture's regions have in common.

        Parameters
        ----------
        image : array_like, shape (rows, cols) or (rows, cols, 3)
            Values 0..255.

        Returns
        -------
        LocalDescriptors
            For `encode_region` alone.
        """
        check_is_fitted(self)
        picture = on_device(self.extractor_, np.asarray(to_host(image)), self._device())
        found = self.extractor_.extract(picture)
        self._check_length(found, self._owner)
        return self._prepare(found)

    def encode_region(self, prepared: LocalDescriptors, region: Region) -> FloatArray:
        """Encode a region of a picture that was prepared; without descriptors, the vector is zero.

        Cells are laid over the region's box, and a descriptor belongs to where its centre lies.

        Parameters
        ----------
        prepared : LocalDescriptors
        region : Region

        Returns
        -------
        ndarray of float32, shape (n_features_out,)
        """
        inside = region.select(prepared)
        return self._finite(self._encode_prepared(inside), self._owner) if len(inside) else self._nothing()

    def fingerprint(self) -> str:
        """Return a digest of all that vectors depend on, besides the picture."""
        own = settings_of(self, self._owner, (*self._WITHOUT_EFFECT, "cells"))
        extractor = settings_of(self.extractor_, self._owner)
        learned = [part for name, array in sorted(self._learned().items()) for part in (name, array)]
        return digest(f"visionkl {__version__}", *own, f"cells={self.grids_!r}", *extractor, *learned)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all that was learned, for a model file."""
        check_is_fitted(self)
        return self._learned()

    def adopt(self: Encoder, arrays: Mapping[str, npt.NDArray[Any]]) -> Encoder:
        """Take over what one with the same parameters learned (`arrays`), instead of learning.

        Parameters
        ----------
        arrays : mapping of str to ndarray

        Returns
        -------
        self
        """
        self._settle()
        try:
            self._take_over(arrays)
        except (KeyError, ValueError) as error:
            raise ModelFileError(f"{self._owner}: these arrays are not what one learns ({error}).") from None
        return self

    # -- what derived classes do -----------------------------------------------------------------------------

    @abstractmethod
    def _check_parameters(self) -> None:
        """Complain of parameters that are not accepted."""

    @abstractmethod
    def _samples_wanted(self) -> int:
        """Say how many descriptors to learn from if `n_samples` does not."""

    @abstractmethod
    def _learn(self, sample: LocalDescriptors, seed: int) -> dict[str, npt.NDArray[Any]]:
        """Learn from descriptors, whose places are relative to their pictures."""

    @abstractmethod
    def _learned(self) -> dict[str, npt.NDArray[Any]]:
        """Return what `_learn` returned."""

    @abstractmethod
    def _take_over(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Set all learned attributes; among them `n_descriptor_values_` and `_n_features_out`."""

    def _prepare(self, descriptors: LocalDescriptors) -> LocalDescriptors:
        """Compute what does not depend on the region that descriptors are in."""
        return descriptors

    @abstractmethod
    def _encode_prepared(self, prepared: LocalDescriptors) -> FloatArray:
        """Encode descriptors that were prepared; NaN among them must show in the vector."""

    # -- what they share -------------------------------------------------------------------------------------

    @property
    def _owner(self) -> str:
        return type(self).__name__

    def _settle(self) -> None:
        """Check the parameters, and settle what needs no learning."""
        self._check_parameters()
        self._device()
        self.grids_ = check_cells(self._owner, self.cells)
        for name in ("n_samples", "n_jobs"):
            if getattr(self, name) is not None:
                check_number(self._owner, name, getattr(self, name), low=1, integer=True)
        check_number(self._owner, "cache_bytes", self.cache_bytes, low=0)
        self.extractor_ = self._extractor()

    def _device(self) -> Device:
        return choose_device(self.device, self._owner)

    def _extractor(self) -> Extractor:
        if self.descriptors is None:
            from visionkl.features.sift import DenseSIFT

            return DenseSIFT()
        if not callable(getattr(self.descriptors, "extract", None)) or isinstance(self.descriptors, type):
            accepted = "an object with a method extract(image), such as DenseSIFT()"
            raise parameter_error(self._owner, "descriptors", accepted, self.descriptors)
        return self.descriptors

    def _sample(self, pictures: list[Picture], seed: int) -> LocalDescriptors:
        """Take descriptors of pictures; places and sizes are those in a picture of 1 × 1."""
        n_samples = self.n_samples or self._samples_wanted()
        n_pictures = min(len(pictures), max(n_samples // _LEAST_QUOTA, 1))
        random = stream(seed, self._owner, "pictures")
        chosen = np.sort(random.choice(len(pictures), n_pictures, replace=False))
        quota = -(-n_samples // n_pictures)
        device = self._device()

        def take(number: int) -> LocalDescriptors:
            found = pictures[number].describe(self.extractor_, device)
            if len(found) > quota:
                random = stream(seed, self._owner, "descriptors", number)
                found = found[np.sort(random.choice(len(found), quota, replace=False))]
            values = np.array(to_host(found.values))  # a copy: a view would keep all of the picture's
            if not np.isfinite(values).all():
                raise _not_finite(pictures[number].name)
            return LocalDescriptors(values, *relative_places(found), (1, 1))

        taken = [found for found in run_tasks(take, chosen.tolist(), self.n_jobs) if len(found)]
        if not taken:
            raise DataError(
                f"{self._owner}: none of the {n_pictures} pictures has a descriptor to learn from; "
                "they may be too small."
            )
        lengths = {found.values.shape[1] for found in taken}
        if len(lengths) > 1:
            raise DataError(f"{self._owner}: the descriptors have different lengths: {sorted(lengths)}.")
        return LocalDescriptors(
            np.concatenate([found.values for found in taken]),
            np.concatenate([found.positions for found in taken]),
            np.concatenate([found.sizes for found in taken]),
            (1, 1),
        )

    def _blocks(self, pictures: list[Picture], block_size: int) -> Iterator[FloatArray]:
        cache = None if self.cache is None else PictureCache(self.cache, self.cache_bytes)
        depends_on = self.fingerprint() if cache else ""
        device = self._device()

        def encode(picture: Picture) -> FloatArray:
            key = digest(depends_on, picture.identity()) if cache else ""
            vector = cache.get(key, (self._n_features_out,)) if cache else None
            if vector is None:
                vector = self._checked_encode(picture.describe(self.extractor_, device), picture.name)
                if cache:
                    cache.put(key, vector)
            return vector

        for start in range(0, len(pictures), block_size):
            yield np.stack(run_tasks(encode, pictures[start : start + block_size], self.n_jobs))

    def _checked_encode(self, descriptors: LocalDescriptors, name: str) -> FloatArray:
        if not len(descriptors):
            return self._nothing()
        self._check_length(descriptors, name)
        with np.errstate(invalid="ignore", over="ignore"):  # which the vector tells
            return self._finite(self._encode_prepared(self._prepare(descriptors)), name)

    def _nothing(self) -> FloatArray:
        return np.zeros(self._n_features_out, np.float32)

    def _check_length(self, descriptors: LocalDescriptors, name: str) -> None:
        if len(descriptors) and descriptors.values.shape[1] != self.n_descriptor_values_:
            raise DataError(
                f"{name}: the descriptors have {descriptors.values.shape[1]} values, but {self._owner} "
                f"learned from descriptors of {self.n_descriptor_values_}."
            )

    def _finite(self, vector: FloatArray, name: str) -> FloatArray:
        if not np.isfinite(vector).all():
            raise _not_finite(name)
        return vector

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.no_validation = True
        return tags


def _not_finite(name: str) -> DataError:
    return DataError(f"{name}: the descriptors hold NaN or infinite values.")
