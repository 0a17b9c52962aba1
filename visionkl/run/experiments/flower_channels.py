"""Channels of Flowers17: several histograms of the same pictures, for multiple kernel learning (METHODS §7).

A channel is learned from the pictures of one training part, without labels, and then computed for all
pictures. To add one, add a line to `CHANNELS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import cv2
import numpy as np
import numpy.typing as npt

from visionkl.backend.threads import run_tasks
from visionkl.core.image import read_image
from visionkl.core.rng import stream
from visionkl.datasets.folder import ImageFolder
from visionkl.features.sift import DenseSIFT
from visionkl.features.words import BagOfWords
from visionkl.run.console import Console

Histograms = npt.NDArray[np.float32]

_CELLS = (1, (2, 2))


class Channel(Protocol):
    """What computes a histogram of each picture."""

    def fit(self, X: Any) -> Any:
        """Learn what must be learned, of some pictures."""

    def transform(self, X: Any) -> Histograms:
        """Return a histogram of each picture."""


class ColourHistogram:
    """How often hues, saturations and brightnesses occur together, in the whole picture and its quarters.

    Parameters
    ----------
    bins : tuple of int
        Of hue, saturation and brightness.
    n_jobs : int, optional
    """

    def __init__(self, bins: tuple[int, int, int] = (12, 4, 3), n_jobs: int | None = None) -> None:
        self.bins, self.n_jobs = bins, n_jobs

    def fit(self, X: Sequence[Path]) -> ColourHistogram:
        """Learn nothing."""
        return self

    def transform(self, X: Sequence[Path]) -> Histograms:
        """Return the histograms, which sum to 1."""
        return np.stack(run_tasks(self._histogram, X, self.n_jobs))

    def _histogram(self, path: Path) -> Histograms:
        colours = cv2.cvtColor(read_image(path), cv2.COLOR_RGB2HSV)
        rows, columns = (size // 2 for size in colours.shape[:2])
        quarters = [
            half for both in (colours[:rows], colours[rows:]) for half in np.split(both, [columns], 1)
        ]
        parts = [self._count(part) / part[:, :, 0].size for part in (colours, *quarters)]
        parts[0] *= len(quarters)  # the whole counts as much as its quarters together
        whole = np.concatenate(parts)
        return (whole / whole.sum()).astype(np.float32)

    def _count(self, colours: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        limits = [0, 180, 0, 256, 0, 256]  # OpenCV's hues are half degrees
        counts = cv2.calcHist([colours], [0, 1, 2], None, list(self.bins), limits)
        return counts.ravel().astype(np.float64)


def _words(color: str) -> Callable[[int, int], Channel]:
    return lambda n_words, jobs: BagOfWords(
        n_words, cells=_CELLS, descriptors=DenseSIFT(step=4, color=color), n_jobs=jobs
    )


#: What makes a channel, told the number of words and of threads.
CHANNELS: dict[str, Callable[[int, int], Channel]] = {
    "colour": lambda n_words, jobs: ColourHistogram(n_jobs=jobs),
    "SIFT words": _words("grey"),
    "opponent SIFT words": _words("opponent"),
}


def describe_flowers(
    folder: Path, quick: bool, seed: int, console: Console
) -> tuple[list[Histograms], npt.NDArray[Any], list[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]]]:
    """Return the channels of all pictures, their classes, and three splits into training and test parts.

    Splits are the usual ones: of each class 60 pictures to learn from, a third of them to choose λ with, and
    20 to test on. The vocabularies are those of the first split's training part.
    """
    flowers = ImageFolder(folder)
    classes = flowers.classes[:3] if quick else flowers.classes
    chosen = [example for example in flowers if example.label in classes]
    if quick:
        chosen = [example for k, example in enumerate(chosen) if k % 5 == 0]
    labels = np.array([example.label for example in chosen])
    splits = list(_splits(labels, 1 if quick else 3, seed))
    paths = [example.path for example in chosen]
    learn_from = [paths[k] for k in splits[0][0]]
    channels = []
    for name, make in CHANNELS.items():
        console.note(f"Flowers17: {name} of {len(paths)} pictures ...")
        channels.append(make(20 if quick else 800, console.jobs).fit(learn_from).transform(paths))
    return channels, labels, splits


def _splits(
    labels: npt.NDArray[Any], n_splits: int, seed: int
) -> Iterator[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]]:
    """Give the pictures to learn from, those to choose λ with coming last, and those to test on."""
    for number in range(n_splits):
        random = stream(seed, "Flowers17", number)
        by_class = [random.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
        parts = [np.split(some, [len(some) // 2, 3 * len(some) // 4]) for some in by_class]
        train, choose, test = (np.concatenate(part) for part in zip(*parts, strict=True))
        yield np.concatenate([train, choose]), test
