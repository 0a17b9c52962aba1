"""The pictures of a training run: which to learn from, which to score on, and whether they are sound.

Everything is read once before training starts, so that a picture that cannot be decoded is known now and not
in an hour.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from visionkl.core.errors import DataError, UsageError
from visionkl.datasets.base import Dataset, OnBadData, check_classes, listing
from visionkl.datasets.voc import VOC, voc_splits
from visionkl.detection.objects import TrainingData, collect
from visionkl.detection.settings import TrainingSettings
from visionkl.run.console import Console
from visionkl.run.evaluate import check_data

if TYPE_CHECKING:
    from visionkl.run.train_detector import TrainOptions


def open_splits(options: TrainOptions) -> tuple[VOC, VOC, str]:
    """Open the pictures to learn from and to score on, and settle the class."""
    policy: OnBadData = "skip" if options.on_bad_data == "skip" else "raise"
    train_set, val_set = open_voc_splits(
        options.data, options.year, options.train_split, options.val_split, policy
    )
    label = options.category
    if label is None:
        if len(train_set.classes) != 1:
            raise UsageError(
                f"say with --category which class to find; {train_set.name} has {listing(train_set.classes)}."
            )
        label = train_set.classes[0]
    check_classes(train_set.name, [label], train_set.classes)
    if any(letter in label for letter in "/\\\0"):
        raise UsageError(f"the class {label!r} cannot be the name of a file; rename it in the annotations.")
    return train_set, val_set, label


def open_voc_splits(
    data: Path | None,
    year: str | None,
    train_split: str | None,
    val_split: str | None,
    on_bad_data: OnBadData,
) -> tuple[VOC, VOC]:
    """Open the pictures to learn from and to score on; unnamed splits are chosen by what is there."""
    there = voc_splits(data, year)
    train_split = train_split or ("trainval" if "train" not in there else "train")
    rest = ["test"] if train_split == "trainval" else ["val", "test"]
    val_split = val_split or next((name for name in rest if name in there), None)
    if val_split is None:
        raise UsageError(
            f"there is no split to score on beside {train_split}; name one with --val-split "
            f"(there is {listing(there)})."
        )
    return VOC(data, year, train_split, on_bad_data=on_bad_data), VOC(
        data, year, val_split, on_bad_data=on_bad_data
    )


def read_objects(dataset: Dataset, label: str, settings: TrainingSettings, console: Console) -> TrainingData:
    """Decode all pictures and read all annotations before training; leave bad ones out, or stop."""
    with console.progress("checking", len(dataset)) as progress:
        return collect(
            dataset,
            label,
            settings,
            on_picture=progress.advance,
            on_skip=lambda _, error: console.warn(f"left out: {error}"),
        )


def check_validation(dataset: VOC, learned_from: TrainingData, console: Console) -> None:
    """Make sure that the pictures to score on can be read, their results be written, and mean something."""
    for example in dataset:
        if len(example.id.split()) != 1:
            raise DataError(
                f"{dataset.name}: the picture {example.id!r} has a blank in its name, which VOC results "
                "files cannot hold; rename it."
            )
    check_data(dataset, console)
    both = {example.id for example in dataset} & {picture.id for picture in learned_from.pictures}
    if both:
        console.warn(
            f"{len(both)} of the {len(dataset)} pictures to score on are also learned from: the score will "
            "flatter the detector."
        )
