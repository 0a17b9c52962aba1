"""Average and joint models of three channels on classes of ImageNet (METHODS §7): the experiment `imagenet`.

Each picture has three channels: PHOGs of 20 and of 40 directions, and words in a pyramid of three levels
(PHOW). Their kernels are exponential χ². *Average* models have the σ that the mean distance gives, and learn
the weights of the Fourier features alone; *joint* models learn σ as well. Models of multiple kernels have one
σ and one group of weights a channel; models of a single kernel take all channels side by side.

Any tree of classes will do: ImageNet's, by WordNet ids, or a folder of folders. The paper took 12 classes of
ILSVRC2011 with 1000 pictures to learn from and 300 to test on, and does not say which;
`models/imagenet_12.yaml` names ours.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visionkl.core.errors import DataError, UsageError
from visionkl.run.console import Console, run_command
from visionkl.run.experiments.findings import Cell, Findings, Table

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from visionkl.datasets.base import Dataset

#: Models of multiple and of single kernels, and what the paper found on 1000 classes: accuracy in %, and
#: seconds a class.
_MODELS: dict[str, tuple[float | None, float | None]] = {
    "RFF-SQL-MKL": (18.5, 196.0),
    "RFF-SQL-MKL-JOINT": (None, None),
    "RFF-SQL-SQR-MKL": (12.3, 101.0),
    "RFF-SQL-SKL": (10.0, 27.0),
    "RFF-SQL-SKL-JOINT": (None, None),
}
_SHARES = (0.03, 0.01, 0.003, 0.001)
# Share of the pictures to learn from that λ is chosen by.
_CHOOSE_BY = 4


@dataclass(frozen=True)
class ImageNetOptions:
    """Compare average and joint models of three channels on classes of ImageNet.

    Parameters
    ----------
    data : Path, optional
        The folder that holds ImageNet's train, or a folder with a folder of pictures for each class; by
        default imagenet in VISIONKL_DATA.
    category : list of str, optional
        Classes to take, such as WordNet ids; by default the first 12.
    train_pictures : int
        Pictures of each class to learn from.
    test_pictures : int
        Pictures of each class to test on.
    words : int
        Words of the vocabulary.
    components : int
        Fourier features of each channel.
    sigma_steps : int
        Steps along σ of joint models, at most.
    seed : int
        Chooses pictures, words and frequencies.
    out : Path
        The folder to write; a number is appended if there is one.
    cache : Path
        Folder that keeps what was computed of pictures, so that an interrupted run goes on where it was.
    quick : bool
        Few pictures, words and features: to see that it works.
    """

    data: Path | None = None
    category: list[str] | None = None
    train_pictures: int = 1000
    test_pictures: int = 300
    words: int = 300
    components: int = 1000
    sigma_steps: int = 20
    seed: int = 0
    out: Path = Path("runs/bench-imagenet")
    cache: Path = Path("runs/cache-imagenet")
    quick: bool = False


def main(argv: Sequence[str] | None = None) -> int:
    """Run the experiment and return the exit code."""
    return run_command(ImageNetOptions, imagenet, argv, name="bench imagenet")


def imagenet(options: ImageNetOptions, console: Console) -> dict[str, Any]:
    """Describe the pictures, train all models, and write what they are worth."""
    import numpy as np

    from visionkl.features.channels import PICTURE_CHANNELS, known_channel
    from visionkl.report.plots import plot_bars
    from visionkl.run.experiments.channel_blocks import describe, gaussian_inputs

    if options.quick:
        options = replace(options, train_pictures=12, test_pictures=4)
        options = replace(options, words=20, components=50, sigma_steps=2)
    dataset, categories = _open(options)
    pictures, labels, train = _choose(dataset, categories, options)
    wanted = {name: known_channel(name, n_words=options.words) for name in PICTURE_CHANNELS}
    names, blocks = describe(wanted, pictures, np.flatnonzero(train), options.cache, console)
    inputs = [gaussian_inputs(block, np.flatnonzero(train)) for block in blocks]
    rows: list[list[Cell]] = []
    weights: dict[str, dict[str, float]] = {}
    for name, published in _MODELS.items():
        found = _learn(name, inputs, labels, train, options, console)
        console.note(f"{name}: {found['accuracy']:.1f} %")
        rows.append([name, found["accuracy"], found["seconds"], found["share"], *published])
        if found["weights"] is not None:
            weights[name] = dict(zip(names, found["weights"], strict=True))
    findings = Findings(
        f"Average and joint models on {len(categories)} classes",
        f"{dataset.name}: {', '.join(categories)}. Of each class {options.train_pictures} pictures to learn "
        f"from, {options.test_pictures} to test on. Channels: {', '.join(names)}, {options.words} words; "
        f"{options.components} Fourier features a channel.",
    )
    findings.tables.append(
        Table(
            "Accuracy, %, and time",
            ["model", "accuracy, %", "seconds", "λ / λ_max", "paper: accuracy, %", "paper: s a class"],
            rows,
            f"λ is chosen by a {_CHOOSE_BY}th of the pictures to learn from, with the average model for the "
            "joint one, too; seconds are those of one training of all classes. The paper's figures are of "
            "all 1000 classes of ILSVRC2011; those of its 12 classes are given as curves only.",
        )
    )
    shares: list[list[Cell]] = [[name, *own.values()] for name, own in weights.items()]
    note = "Means over classes, as shares of their sum."
    findings.tables.append(Table("Weights of the kernels", ["model", *names], shares, note))
    findings.add_plot("weights", "Weights of the kernels", plot_bars(weights))
    return findings.publish(options.out, console)


def _open(options: ImageNetOptions) -> tuple[Dataset, tuple[str, ...]]:
    """Open the tree, and settle the classes."""
    from visionkl.datasets.base import check_classes
    from visionkl.datasets.folder import ImageFolder
    from visionkl.datasets.imagenet import ImageNet

    try:
        dataset: Dataset = ImageNet(options.data, "train")
    except (DataError, UsageError):
        if options.data is None or not options.data.is_dir():
            raise
        dataset = ImageFolder(options.data)
    if len(dataset.classes) < 2:
        raise DataError(f"{options.data}: there are no folders of classes in it, nor ImageNet's train.")
    if options.category:
        return dataset, tuple(check_classes(dataset.name, options.category, dataset.classes))
    return dataset, dataset.classes[: 3 if options.quick else 12]


def _choose(
    dataset: Dataset, categories: Sequence[str], options: ImageNetOptions
) -> tuple[list[Any], npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Draw pictures: return them, their classes, and which are to learn from."""
    import numpy as np

    from visionkl.core.rng import stream

    for option, number in (("train", options.train_pictures), ("test", options.test_pictures)):
        if number < 1:
            raise UsageError(f"--{option}-pictures must be an integer of 1 or more, not {number}.")
    by_class: dict[str, list[int]] = {label: [] for label in categories}
    for number, example in enumerate(dataset):
        if example.label in by_class:
            by_class[example.label].append(number)
    needed = options.train_pictures + options.test_pictures
    chosen: list[int] = []
    for label, numbers in by_class.items():
        if len(numbers) < needed:
            raise DataError(
                f"{dataset.name}: the class {label} has {len(numbers)} pictures, but "
                f"{options.train_pictures} to learn from and {options.test_pictures} to test on "
                "are wanted; lower --train-pictures or --test-pictures, or leave it out."
            )
        order = stream(options.seed, "pictures", label).permutation(len(numbers))[:needed]
        chosen += [numbers[k] for k in order]
    pictures = [dataset[number] for number in chosen]
    train = np.tile(np.arange(needed) < options.train_pictures, len(categories))
    return pictures, np.array([picture.label for picture in pictures]), train


def _learn(
    name: str,
    inputs: list[npt.NDArray[np.float32]],
    labels: npt.NDArray[Any],
    train: npt.NDArray[np.bool_],
    options: ImageNetOptions,
    console: Console,
) -> dict[str, Any]:
    """Choose λ with the average model, train, and score."""
    import numpy as np

    from visionkl.learning.multiple import named_model

    single = "SKL" in name
    if single:  # side by side, each with the same share of the distances
        inputs = [np.hstack(inputs) * np.float32(len(inputs) ** -0.5)]
    n_components = options.components * (1 if not single else 3)

    def fit(name: str, share: float, rows: npt.NDArray[np.intp]) -> Any:
        settings: dict[str, Any] = {"sigma": 1.0, "random_state": options.seed, "n_jobs": console.jobs}
        model = named_model(
            name, share=share, n_components=n_components, sigma_iter=options.sigma_steps, **settings
        )
        return model.fit([part[rows] for part in inputs], labels[rows])

    def accuracy(model: Any, rows: npt.NDArray[np.intp]) -> float:
        return float(model.score([part[rows] for part in inputs], labels[rows]))

    learn_from = np.flatnonzero(train)
    held = np.arange(len(learn_from)) % _CHOOSE_BY == 0
    average = name.removesuffix("-JOINT")
    trials = [accuracy(fit(average, share, learn_from[~held]), learn_from[held]) for share in _SHARES]
    share = _SHARES[int(np.argmax(trials))]
    started = time.perf_counter()
    model = fit(name, share, learn_from)
    seconds = time.perf_counter() - started
    weights = None
    if not single:
        means = np.atleast_2d(model.kernel_weights_).mean(axis=0)
        weights = (means / (means.sum() or 1)).tolist()
    score = 100 * accuracy(model, np.flatnonzero(~train))
    return {"accuracy": score, "seconds": seconds, "share": share, "weights": weights}
