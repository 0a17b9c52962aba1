"""What the experiment with binary kernels learns from: UCI's Sonar and Liver, USPS digits, Flowers17.

Flowers are described by two histograms, side by side: words of SIFT over the picture and its quarters, and
colours. The words are learned from pictures that the first split trains on. Vectors are kept in a file, and
read from there another time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import RepeatedStratifiedKFold, StratifiedShuffleSplit

from visionkl.core.files import writable_folder
from visionkl.run.console import Console

#: What of the folder of real data each set is.
FILES = {"sonar": "uci/sonar.csv", "liver": "uci/liver.csv", "flowers17": "flowers17", "usps": "usps.npz"}

Matrix = npt.NDArray[Any]

_WORDS = 400
_BINS = 6  # of each colour channel


@dataclass(frozen=True, eq=False)
class Task:
    """A data set and how it is cut.

    Parameters
    ----------
    title : str
    X : ndarray of float, shape (n, d)
    y : ndarray, shape (n,)
    splits : list of (train, test)
        Numbers of samples.
    histograms : bool
        Whether features are histograms, which want no scaling.
    n_maps : int
        Binary maps to draw.
    n_inner : int
        Parts for tuning: folds, or 1 third held out.
    n_tuning : int
        Training samples that parameters are tuned on, at most.
    """

    title: str
    X: Matrix
    y: Matrix
    splits: list[tuple[Matrix, Matrix]]
    histograms: bool
    n_maps: int
    n_inner: int
    n_tuning: int


def load_task(
    name: str, data: Path, *, repeats: int, n_splits: int, quick: bool, cache: Path, console: Console
) -> Task:
    """Load a data set by name."""
    if name == "flowers17":
        return _flowers(data / "flowers17", 1 if quick else n_splits, quick, cache, console)
    return _usps(data / "usps.npz", quick) if name == "usps" else _uci(name, data, repeats, quick)


def _uci(name: str, data: Path, repeats: int, quick: bool) -> Task:
    table = np.genfromtxt(data / "uci" / f"{name}.csv", delimiter=",", dtype=str, skip_header=1)
    X, y = table[:, :-1].astype(np.float64), table[:, -1]
    folds = RepeatedStratifiedKFold(n_splits=5, n_repeats=repeats, random_state=0)
    splits = list(folds.split(X, y))[: 2 if quick else None]
    title = f"{name.capitalize()}: {X.shape[0]} × {X.shape[1]}, {repeats} × 5 folds"
    return Task(title, X, y, splits, False, 200 if quick else 5000, 5, 10_000)


def _usps(path: Path, quick: bool) -> Task:
    with np.load(path) as file:
        parts = [file[name] for name in ("x_train", "x_test", "y_train", "y_test")]
    X = np.concatenate(parts[:2]).astype(np.float32) / 1000
    y, n_train = np.concatenate(parts[2:]).ravel(), len(parts[0])
    train, test = np.arange(n_train), np.arange(n_train, len(X))
    if quick:
        train, test = train[:300], test[:200]
    title = f"USPS: {len(train)} training and {len(test)} test digits, {X.shape[1]} pixels"
    return Task(title, X, y, [(train, test)], False, 200 if quick else 20_000, 1, 2000)


def _flowers(folder: Path, n_splits: int, quick: bool, cache: Path, console: Console) -> Task:
    from visionkl.datasets.folder import ImageFolder

    dataset = ImageFolder(folder)
    examples = list(dataset)
    if quick:
        examples = [example for example in examples if example.label in dataset.classes[:3]][::6]
    y = np.array([example.label for example in examples])
    shuffle = StratifiedShuffleSplit(n_splits=n_splits, test_size=0.25, random_state=0)
    splits = list(shuffle.split(np.zeros(len(y)), y))
    X = _kept(
        cache / f"mbkl-flowers17-{len(examples)}.npy",
        lambda: _describe(examples, splits[0][0], quick, console),
    )
    title = f"Flowers17: {n_splits} splits of 60 training and 20 test pictures a class, {X.shape[1]} numbers"
    return Task(title, X, y, splits, True, 200 if quick else 20_000, 1, 10_000)


def _describe(examples: list[Any], train: Matrix, quick: bool, console: Console) -> Matrix:
    from visionkl.features.sift import DenseSIFT
    from visionkl.features.words import BagOfWords

    paths = [example.path for example in examples]
    sift = DenseSIFT(step=8 if quick else 4, bin_sizes=(4, 8))
    words = BagOfWords(20 if quick else _WORDS, cells=(1, (2, 2)), descriptors=sift)
    console.note("learning words ...")
    words.fit([paths[number] for number in train])
    shape: list[Matrix] = []
    with console.progress("describing flowers", len(paths)) as progress:
        for block in words.transform_blocks(paths):
            shape.append(block)
            progress.advance(len(block))
    colours = np.stack([_colours(path) for path in paths])
    return np.hstack([np.concatenate(shape), colours]).astype(np.float32)


def _colours(path: Path) -> Matrix:
    """Return histograms of colours of a picture and of its middle, which add up to 1 together."""
    from visionkl.core.image import read_image

    picture = np.asarray(read_image(path), dtype=np.float64)
    red, green, blue = np.moveaxis(picture, 2, 0)
    opponent = np.stack(
        [(red - green) / 2 + 127.5, (red + green - 2 * blue) / 4 + 127.5, picture.mean(axis=2)]
    )
    bins = np.clip(opponent * (_BINS / 256), 0, _BINS - 1).astype(np.int64)
    numbers = (bins[0] * _BINS + bins[1]) * _BINS + bins[2]
    rows, cols = numbers.shape
    middle = numbers[rows // 4 : rows - rows // 4, cols // 4 : cols - cols // 4]
    counts = [np.bincount(part.ravel(), minlength=_BINS**3) / part.size for part in (numbers, middle)]
    return np.concatenate(counts) / 2


def _kept(path: Path, make: Callable[[], Matrix]) -> Matrix:
    """Return an array from a file, or make it and keep it there."""
    if path.is_file():
        return np.load(path)
    array = make()
    writable_folder(path.parent)
    np.save(path, array)
    return array
