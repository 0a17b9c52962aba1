"""The pictures of a classifier's run: which to learn from, which to score on, and whether they are sound.

Everything is decoded once before training starts, so that a picture that cannot be read, or that is too small
to be described, is known now and not in an hour.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from visionkl.core.errors import DataError, UsageError
from visionkl.datasets.base import Dataset, Example, OnBadData, check_classes, listing, usable
from visionkl.datasets.folder import ImageFolder
from visionkl.datasets.labels import LabelledPictures, labelled, pick_listed, split_by_class
from visionkl.learning.classifier_settings import ClassifierSettings
from visionkl.run.classifier_facts import Pixels
from visionkl.run.console import Console
from visionkl.run.training_data import open_voc_splits

if TYPE_CHECKING:
    from visionkl.run.train_classifier import TrainClassifierOptions

_TEST_SHARE = 0.25


def open_splits(options: TrainClassifierOptions) -> tuple[Dataset, Dataset]:
    """Open the pictures to learn from and to score on."""
    root = options.data
    if root is None or not root.is_dir():
        raise DataError(
            f"{root}: there is no such folder; --data takes a folder of classes, or a VOCdevkit folder."
        )
    policy: OnBadData = "skip" if options.on_bad_data == "skip" else "raise"
    if _is_voc(root):
        if options.test_share is not None:
            raise UsageError("--test-share is for folders of classes; VOC data have lists: see --val-split.")
        return open_voc_splits(root, options.year, options.train_split, options.val_split, policy)
    if options.year is not None:
        raise UsageError(f"--year is for VOC data; {root} is none: there is no ImageSets in it.")
    given = options.train_split, options.val_split
    if given == (None, None):
        there = {entry.name for entry in root.iterdir() if entry.is_dir()}
        scored = next((name for name in ("val", "test") if name in there), None)
        if there <= {"train", "val", "test"} and "train" in there and scored:
            given = "train", scored
        else:
            return split_by_class(
                _with_classes(ImageFolder(root, on_bad_data=policy)), _share(options), options.settings.seed
            )
    if options.test_share is not None:
        raise UsageError(
            "--test-share sets pictures aside where no splits are given; leave one or the other out."
        )
    if None in given:
        raise UsageError("of a folder of classes, give both --train-split and --val-split, or neither.")
    train_set, test_set = (_folder_split(root, str(name), policy) for name in given)
    unknown = [name for name in test_set.classes if name not in train_set.classes]
    if unknown:
        raise DataError(
            f"{test_set.name}: there is nothing to learn the class {unknown[0]!r} from in {train_set.name}."
        )
    return train_set, Dataset(test_set.name, train_set.classes, list(test_set), on_bad_data=policy)


def _share(options: TrainClassifierOptions) -> float:
    share = _TEST_SHARE if options.test_share is None else options.test_share
    if not 0 < share < 1:
        raise UsageError(f"--test-share must be a number above 0 and below 1, not {share:g}.")
    return share


def _is_voc(root: Path) -> bool:
    from visionkl.datasets.voc import voc_splits

    try:
        voc_splits(root)
    except DataError:
        return False
    except UsageError:  # several years, or none of those that were asked for
        return True
    return True


def _folder_split(root: Path, name: str, policy: OnBadData) -> Dataset:
    """Take a folder inside the folder; or the pictures that a text file lists, there or anywhere."""
    if (root / name).is_dir():
        return _with_classes(ImageFolder(root / name, on_bad_data=policy))
    for path in (root / name, root / f"{name}.txt", Path(name)):
        if path.is_file():
            return pick_listed(_with_classes(ImageFolder(root, on_bad_data=policy)), path)
    raise UsageError(f"there is no folder {root / name}, no list {root / name}.txt, and no list {name}.")


def _with_classes(dataset: ImageFolder) -> ImageFolder:
    if not dataset.classes:
        raise DataError(
            f"{dataset[0].path.parent}: the pictures lie in this folder itself, without classes; put those "
            "of each class into a folder of its own."
        )
    return dataset


# -- reading -------------------------------------------------------------------------------------------------


def read_pictures(
    train_set: Dataset, test_set: Dataset, options: TrainClassifierOptions, console: Console
) -> tuple[LabelledPictures, LabelledPictures, Pixels]:
    """Decode all pictures and read all labels; leave bad ones out, or stop. Also tells how large they are."""
    classes = check_classes(train_set.name, options.category or train_set.classes, train_set.classes)
    n_good, pixels = 0, np.zeros(2)
    both = []
    for dataset in (train_set, test_set):
        good, total = _sound(dataset, options.settings, console)
        n_good, pixels = n_good + len(good), pixels + total
        if len(good) < len(dataset):
            dataset = Dataset(dataset.name, dataset.classes, good)
        both.append(labelled(dataset, classes))
    train, test = both
    if not options.category and not train.exclusive:
        train, test = _with_positives(train, test, console)
    train.check_learnable()
    if not len(test):
        raise DataError(f"{test.name}: there are no pictures of these classes to score on.")
    seen = {example.path for example in train.pictures}
    n_seen = sum(example.path in seen for example in test.pictures)
    if n_seen:
        console.warn(
            f"{n_seen} of the {len(test)} pictures to score on are also learned from: the score will flatter "
            "the classifier."
        )
    return train, test, Pixels(*map(float, pixels / n_good))


def _with_positives(
    train: LabelledPictures, test: LabelledPictures, console: Console
) -> tuple[LabelledPictures, LabelledPictures]:
    """Leave out classes that nobody asked for and that no picture shows, as there may be of VOC's twenty."""
    shown = np.any(train.signs > 0, axis=0)
    absent = [label for number, label in enumerate(train.classes) if not shown[number]]
    if not absent or not shown.any():
        return train, test
    console.warn(
        f"{train.name}: no picture shows {listing(absent)}, which cannot be learned and is left out."
    )
    classes = tuple(label for label in train.classes if label not in absent)
    first, second = (replace(data, classes=classes, signs=data.signs[:, shown]) for data in (train, test))
    return first, second


def _sound(dataset: Dataset, settings: ClassifierSettings, console: Console) -> tuple[list[Example], Pixels]:
    """List the pictures that can be decoded and are large enough, and count all their pixels."""
    good: list[Example] = []
    decoded = described = 0.0
    with console.progress("checking", len(dataset)) as progress:

        def leave_out(example: Example, error: DataError) -> None:
            console.warn(f"left out: {error}")
            progress.advance()

        for example, image in usable(dataset, on_skip=leave_out):
            height, width = image.shape[:2]
            if min(height, width) < settings.smallest_side:
                error = DataError(
                    f"{example.path}: with {width} × {height} pixels the picture is too small to be "
                    f"described; sides of {settings.smallest_side} pixels or more are needed."
                )
                if dataset.on_bad_data == "raise":
                    raise error
                leave_out(example, error)
                continue
            good.append(example)
            decoded += height * width
            described += height * width * min(1.0, settings.longest_side / max(height, width)) ** 2
            progress.advance()
    if not good:
        raise DataError(f"{dataset.name}: not one of its {len(dataset)} pictures can be used.")
    return good, Pixels(decoded, described)
