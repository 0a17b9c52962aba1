"""An image classifier: dense SIFT, Fisher vectors, product-quantiser codes, support vector machines.

What happens to a picture (METHODS §5, §6, §11): it is described by SIFT descriptors on a grid; those become a
Fisher vector (`visionkl.features.fisher`), one for each channel and cell; and each class has a linear machine
that scores the vector. In training, the vectors are kept as codes of a product quantiser, in a thirty-second
of the space, and the machines of all classes are learned together, on the codes
(`visionkl.learning.classify_training`).

The codes are for training alone. A machine that was learned on codes is a vector of weights, and scores the
Fisher vector of a new picture as it is: that is more exact than to code it first, and a model need not hold
codebooks, which are larger than all the rest.

Classes that exclude each other have one machine each, and the highest score wins. Where a picture may show
several, each class is a question of its own, and a score above 0 means yes.

>>> from visionkl.learning.classify import ImageClassifier                              # doctest: +SKIP
>>> classifier = ImageClassifier(channels=["grey", "opponent"]).fit(pictures, labels)   # doctest: +SKIP
>>> classifier.predict(["a.jpg", "b.jpg"])                                              # doctest: +SKIP
array(['daisy', 'tulip'], dtype='<U5')
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from visionkl.core.errors import DataError, UsageError
from visionkl.features.fisher import FisherVector
from visionkl.features.fisher_channels import ChannelVectors
from visionkl.features.sift import DenseSIFT
from visionkl.learning.classifier_settings import ClassifierSettings

if TYPE_CHECKING:
    from visionkl.core.observer import Observer
    from visionkl.datasets.base import Dataset

_PICTURES_A_BLOCK = 32


@dataclass(frozen=True, eq=False)
class Learned:
    """What training ends in.

    Parameters
    ----------
    classes : tuple of str
    exclusive : bool
        Whether a picture shows one class.
    vectors : ChannelVectors
        What turns pictures into vectors.
    weights : ndarray of float32, shape (n_classes, n_features)
    bias : ndarray of float64, shape (n_classes,)
    notes : dict
        How it was learned: cost, route, sizes.
    """

    classes: tuple[str, ...]
    exclusive: bool
    vectors: ChannelVectors
    weights: npt.NDArray[np.float32]
    bias: npt.NDArray[np.float64]
    notes: dict[str, Any]

    def __post_init__(self) -> None:
        n, d = len(self.classes), self.vectors.n_features
        if self.weights.shape != (n, d) or self.bias.shape != (n,):
            raise DataError(
                f"ImageClassifier: weights of the shape {self.weights.shape} and {self.bias.shape} do not "
                f"fit {n} classes and vectors of {d} numbers."
            )


class ImageClassifier:
    """Tells what pictures show.

    Parameters
    ----------
    n_jobs : int, optional
        Threads; all usable cores by default.
    device : str
        Where pictures are described and encoded, and the solver's passes made: "cpu", "cuda" (an error where
        no GPU computes), "cuda:1", or "auto": a GPU if there is one.
    **settings
        Anything of `visionkl.learning.classifier_settings.ClassifierSettings`: `n_gaussians=64`, `step=5`,
        `channels=["grey", "opponent"]`, ...

    Attributes
    ----------
    settings : ClassifierSettings
    learned : Learned
        What was learned, or given to `from_parts`.
    """

    def __init__(self, *, n_jobs: int | None = None, device: str = "cpu", **settings: Any) -> None:
        self.n_jobs = n_jobs
        self.device = device
        try:
            self.settings = ClassifierSettings(**settings)
        except TypeError:
            known = ", ".join(ClassifierSettings.__dataclass_fields__)
            unknown = ", ".join(
                name for name in settings if name not in ClassifierSettings.__dataclass_fields__
            )
            raise UsageError(
                f"ImageClassifier has no parameter {unknown}; there are n_jobs, device, {known}."
            ) from None
        self._learned: Learned | None = None

    @classmethod
    def from_parts(
        cls,
        settings: ClassifierSettings,
        learned: Learned,
        *,
        n_jobs: int | None = None,
        device: str = "cpu",
    ) -> ImageClassifier:
        """Put a classifier together of what was learned."""
        classifier = cls(n_jobs=n_jobs, device=device)
        classifier.settings = settings
        classifier._learned = learned
        return classifier

    def fit(
        self, X: Dataset | Sequence[Any], y: Sequence[Any] | None = None, *, observer: Observer | None = None
    ) -> ImageClassifier:
        """Learn.

        Parameters
        ----------
        X : Dataset, or sequence of str, Path, Example or ndarray
            Pictures.
        y : sequence of str, or of collections of str, optional
            The class of each picture, or all classes that it shows; left out where X is a data set that
            says so.
        observer : visionkl.core.observer.Observer, optional
            Told how training goes.

        Returns
        -------
        ImageClassifier
            Itself.
        """
        from visionkl.datasets.labels import from_labels, labelled
        from visionkl.learning.classify_training import train

        data = labelled(X) if y is None else from_labels(y, X)  # type: ignore[arg-type]
        self._learned = train(data, self.settings, n_jobs=self.n_jobs, observer=observer, device=self.device)
        return self

    @property
    def learned(self) -> Learned:
        """All that was learned."""
        if self._learned is None:
            raise UsageError("This ImageClassifier has not been trained: call fit, or load a model.")
        return self._learned

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes, in the order of scores."""
        return self.learned.classes

    @property
    def exclusive(self) -> bool:
        """Whether a picture shows one class."""
        return self.learned.exclusive

    @property
    def notes(self) -> dict[str, Any]:
        """How it was learned: cost, route, sizes."""
        return self.learned.notes

    def scores(self, images: Sequence[Any]) -> npt.NDArray[np.float64]:
        """Score pictures.

        Parameters
        ----------
        images : Dataset, or sequence of str, Path, Example or ndarray

        Returns
        -------
        ndarray of float64, shape (n_pictures, n_classes)
        """
        return np.concatenate(list(self.score_blocks(images)))

    def score_blocks(
        self, images: Sequence[Any], block_size: int = _PICTURES_A_BLOCK
    ) -> Iterator[npt.NDArray[np.float64]]:
        """Score pictures some at a time, for those who want to see how it goes."""
        self.learned.vectors.use(self.n_jobs, self.device)
        for block in self.learned.vectors.blocks(images, block_size):
            yield self.score_vectors(block)

    def score_vectors(self, vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Score vectors of pictures, `(n, n_features)`."""
        return (vectors @ self.learned.weights.T).astype(np.float64) + self.learned.bias

    def predict(self, images: Sequence[Any]) -> npt.NDArray[Any]:
        """Tell what pictures show.

        Parameters
        ----------
        images : Dataset, or sequence of str, Path, Example or ndarray

        Returns
        -------
        ndarray of str, shape (n_pictures,); or of bool, shape (n_pictures, n_classes)
            The class with the highest score; or, where pictures may show several classes, which they show.
        """
        scores = self.scores(images)
        return np.array(self.classes)[scores.argmax(axis=1)] if self.exclusive else scores > 0

    def save(self, path: str | Path) -> None:
        """Write the classifier to a `.safetensors` file; `visionkl.load` reads it."""
        from visionkl.store import save_classifier

        save_classifier(self, path)

    def __repr__(self) -> str:
        if self._learned is None:
            return f"ImageClassifier(settings={self.settings})"
        n = len(self.classes)
        return f"<ImageClassifier: {n} classes, vectors of {self.learned.vectors.n_features} numbers>"


def make_encoders(
    settings: ClassifierSettings,
    arrays: Sequence[Mapping[str, Any]],
    n_jobs: int | None = None,
    device: str = "cpu",
) -> list[FisherVector]:
    """Make encoders, one for each channel, of what was learned before."""
    return [
        make_encoder(settings, channel, n_jobs, device).adopt(learned)
        for channel, learned in zip(settings.channels, arrays, strict=True)
    ]


def make_encoder(
    settings: ClassifierSettings, channel: str, n_jobs: int | None = None, device: str = "cpu"
) -> FisherVector:
    """Make an encoder that has learned nothing yet."""
    return FisherVector(
        settings.n_gaussians,
        n_pca=settings.n_pca,
        cells=tuple(settings.cells),
        descriptors=DenseSIFT(
            step=settings.step,
            bin_sizes=tuple(settings.bin_sizes),
            color=channel,
            normalisation="root",
            max_side=settings.longest_side,
            n_jobs=1,  # pictures run side by side
        ),
        random_state=settings.seed,
        n_jobs=n_jobs,
        device=device,
    )
