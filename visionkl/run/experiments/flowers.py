"""Weights of many kernels, learned, on Flowers17 (METHODS §7, §11): the experiment `flowers`.

Pictures are described by all channels that describe whole pictures: words of grey and of colour descriptors,
two PHOGs, LBP, and Fisher vectors of grey, opponent colours and hue. Each has a kernel. How good is the best
of them alone, the sum of all, and the sum with learned weights, exactly (GMKL) and in the Fourier domain
(RFF-MKL)?

The protocol is the usual one: of each class 40 pictures to learn from, 20 to choose the one parameter of each
machine by, and 20 to test on. Vocabularies and Gaussians are learned from the 40; then the machine learns
from all 60.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visionkl.run.console import Console, run_command
from visionkl.run.experiments.findings import Cell, Findings, Table, data_folder

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Blocks = list[npt.NDArray[Any]]

_COSTS = (100.0, 1000.0, 10_000.0, 100_000.0)
_SHARES = (0.03, 0.01, 0.003, 0.001)

#: Accuracy that the literature gives for learned weights of kernels of hand-made features, %.
_PUBLISHED = {"all channels, learned weights (GMKL)": "85 to 88"}


@dataclass(frozen=True)
class FlowersOptions:
    """Learn the weights of many kernels on Flowers17.

    Parameters
    ----------
    data : Path, optional
        A folder with flowers17 in it; by default VISIONKL_TEST_DATA.
    out : Path
        The folder to write; a number is appended if there is one.
    cache : Path
        Folder that keeps what was computed of pictures, so that an interrupted run goes on where it was.
    splits : int
        Random splits of the pictures.
    words : int
        Words of each vocabulary.
    components : int
        Fourier features of each channel.
    quick : bool
        Three classes, few pictures and channels: to see that it works.
    """

    data: Path | None = None
    out: Path = Path("runs/bench-flowers")
    cache: Path = Path("runs/cache-flowers")
    splits: int = 3
    words: int = 500
    components: int = 500
    quick: bool = False


def main(argv: Sequence[str] | None = None) -> int:
    """Run the experiment and return the exit code."""
    return run_command(FlowersOptions, flowers, argv, name="bench flowers")


def flowers(options: FlowersOptions, console: Console) -> dict[str, Any]:
    """Describe, learn and score, split by split, and write what was found."""
    import numpy as np

    from visionkl.core.rng import stream
    from visionkl.report.plots import plot_bars
    from visionkl.run.experiments.channel_blocks import describe

    pictures, labels = flower_pictures(data_folder(options.data, "flowers17") / "flowers17", options.quick)
    scores: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    weights: dict[str, list[npt.NDArray[np.float64]]] = {}
    for split in range(1 if options.quick else options.splits):
        parts = three_parts(labels, stream(split, "flowers"))
        names, blocks = describe(_channels(options), pictures, parts[0], options.cache, console)
        for title, learn in _contestants(names, blocks, labels, parts, options, console):
            started = time.perf_counter()
            score, own = learn()
            seconds.setdefault(title, []).append(time.perf_counter() - started)
            scores.setdefault(title, []).append(100 * score)
            if own is not None:
                weights.setdefault(title, []).append(own)
            console.note(f"split {split + 1}, {title}: {100 * score:.1f} %")
    findings = Findings(
        "Learned weights of kernels on Flowers17",
        f"{len(names)} channels of whole pictures. Histograms have the exponential χ² kernel with the mean "
        "distance as its width, Fisher vectors the linear one. All machines have the squared loss; their one "
        "parameter is chosen by the pictures that are there for it.",
    )
    findings.tables.append(_table(scores, seconds, parts, len(set(labels.tolist()))))
    shares = {title: np.mean(found, axis=0) for title, found in weights.items()}
    rows: list[list[Cell]] = [[title, *map(float, found)] for title, found in shares.items()]
    note = "Means over classes and splits, as shares of their sum."
    findings.tables.append(Table("Weights of the kernels", ["machine", *names], rows, note))
    bars = {title: dict(zip(names, map(float, found), strict=True)) for title, found in shares.items()}
    findings.add_plot("weights", "Weights of the kernels", plot_bars(bars))
    return findings.publish(options.out, console)


def flower_pictures(folder: Path, quick: bool) -> tuple[list[Any], npt.NDArray[Any]]:
    """Return the pictures and their classes; if it must be quick, some of three classes."""
    import numpy as np

    from visionkl.datasets.folder import ImageFolder

    examples = list(ImageFolder(folder))
    if quick:
        classes = sorted({str(example.label) for example in examples})[:3]
        examples = [example for example in examples if example.label in classes][::5]
    return examples, np.array([example.label for example in examples])


def three_parts(labels: npt.NDArray[Any], random: np.random.Generator) -> list[npt.NDArray[np.intp]]:
    """Split pictures at random, half of each class to learn from, a quarter to choose by, and one to test on.

    Examples
    --------
    >>> import numpy as np
    >>> [len(part) for part in three_parts(np.repeat(["a", "b"], 8), np.random.default_rng(0))]
    [8, 4, 4]
    """
    import numpy as np

    of_classes = []
    for label in np.unique(labels):
        own = random.permutation(np.flatnonzero(labels == label))
        of_classes.append(np.split(own, [len(own) // 2, 3 * len(own) // 4]))
    return [np.concatenate(part) for part in zip(*of_classes, strict=True)]


def _channels(options: FlowersOptions) -> dict[str, Any]:
    """Return the channels: those known by name, and Fisher vectors."""
    from visionkl.features.channels import known_channel
    from visionkl.features.fisher import FisherVector
    from visionkl.features.sift import DenseSIFT

    names = ["phow", "color_words", "phog_20", "phog_40", "lbp_whole"]
    if options.quick:
        return {name: known_channel(name, n_words=20) for name in names[1:3]}
    found = {name: known_channel(name, n_words=options.words) for name in names}
    for color in ("grey", "opponent", "hue"):
        sift = DenseSIFT(step=5, bin_sizes=(4, 6, 8, 10), color=color, normalisation="root")
        found[f"fisher_{color}"] = (FisherVector(64, n_pca=64, cells=(1, 3), descriptors=sift), "whole")
    return found


Learn = Callable[[], tuple[float, "npt.NDArray[np.float64] | None"]]


def _contestants(
    names: list[str],
    blocks: Blocks,
    labels: npt.NDArray[Any],
    parts: list[npt.NDArray[np.intp]],
    options: FlowersOptions,
    console: Console,
) -> list[tuple[str, Learn]]:
    """List who learns: each channel alone, the sum of all kernels, and learned weights."""
    import numpy as np

    from visionkl.learning.gmkl import GMKLClassifier
    from visionkl.learning.multiple import FourierMKLClassifier
    from visionkl.run.experiments.channel_blocks import exact_kernel, gaussian_inputs

    learn_from = np.concatenate(parts[:2])
    n_components = 100 if options.quick else options.components
    kernels = [exact_kernel(block, learn_from) for block in blocks]

    def exact(matrices: Blocks, model: Callable[[float], Any]) -> Learn:
        def pick(rows: npt.NDArray[np.intp], columns: npt.NDArray[np.intp]) -> Blocks:
            return [K[np.ix_(rows, columns)] for K in matrices]

        return lambda: _choose(model, _COSTS, pick, labels, parts)

    def fixed(cost: float) -> Any:
        return _Ridge(cost)

    def learned(cost: float) -> Any:
        return GMKLClassifier(kernel="precomputed", C=cost, tol=1e-3, n_jobs=console.jobs)

    def fourier(penalty: str) -> tuple[float, Any]:
        def model(share: float) -> Any:
            return FourierMKLClassifier(
                penalty=penalty, share=share, sigma=1.0, n_components=n_components, n_jobs=console.jobs
            )

        inputs = [gaussian_inputs(block, learn_from) for block in blocks]
        return _choose(model, _SHARES, lambda rows, _: [part[rows] for part in inputs], labels, parts)

    equal = sum(kernels[1:], start=kernels[0]) / len(kernels)
    return [
        *((f"{name} alone", exact([K], fixed)) for name, K in zip(names, kernels, strict=True)),
        ("all channels, equal weights", exact([equal], fixed)),
        ("all channels, learned weights (GMKL)", exact(kernels, learned)),
        ("all channels, equal weights (RFF)", lambda: (fourier("l2")[0], None)),
        ("all channels, learned weights (RFF-MKL)", lambda: fourier("l21")),
    ]


class _Ridge:
    """The machine of GMKL for a kernel that is given: all classes with one factorisation.

    Parameters
    ----------
    C : float
        How much the average loss counts beside the regulariser.
    """

    def __init__(self, C: float) -> None:
        self.C = C

    def fit(self, X: Blocks, y: npt.NDArray[Any]) -> _Ridge:
        """Learn from the matrix `X[0]` of the kernel between samples."""
        import numpy as np
        from scipy import linalg

        self.classes, numbers = np.unique(y, return_inverse=True)
        signs = np.where(numbers[:, None] == np.arange(len(self.classes)), 1.0, -1.0)
        system = X[0].copy()
        system.flat[:: len(y) + 1] += len(y) / self.C
        answers = linalg.solve(system, np.column_stack([signs, np.ones(len(y))]), assume_a="pos")
        self.bias = answers[:, :-1].sum(axis=0) / answers[:, -1].sum()
        self.weights = answers[:, :-1] - answers[:, -1:] * self.bias
        return self

    def score(self, X: Blocks, y: npt.NDArray[Any]) -> float:
        """Return the accuracy on new samples, given the kernel between them and those learned from."""
        scores = X[0] @ self.weights + self.bias
        return float((self.classes[scores.argmax(axis=1)] == y).mean())


def _choose(
    model: Callable[[float], Any],
    settings: Sequence[float],
    pick: Callable[[npt.NDArray[np.intp], npt.NDArray[np.intp]], Blocks],
    labels: npt.NDArray[Any],
    parts: list[npt.NDArray[np.intp]],
) -> tuple[float, npt.NDArray[np.float64] | None]:
    """Choose a setting, learn from all but the test pictures, and score on these; also give the weights."""
    import numpy as np

    train, choose, test = parts
    X, y = pick(train, train), labels[train]
    new = pick(choose, train)
    scores = [model(value).fit(X, y).score(new, labels[choose]) for value in settings]
    both = np.concatenate([train, choose])
    best = model(settings[int(np.argmax(scores))]).fit(pick(both, both), labels[both])
    score = float(best.score(pick(test, both), labels[test]))
    if not hasattr(best, "kernel_weights_"):
        return score, None
    weights = np.atleast_2d(best.kernel_weights_).mean(axis=0)
    return score, weights / (weights.sum() or 1)


def _table(
    scores: dict[str, list[float]],
    seconds: dict[str, list[float]],
    parts: list[npt.NDArray[np.intp]],
    n_classes: int,
) -> Table:
    import numpy as np

    rows: list[list[Cell]] = []
    for title, found in scores.items():
        shown = f"{np.mean(found):.1f} ± {np.std(found):.1f}"
        rows.append([title, shown, float(np.mean(seconds[title])), _PUBLISHED.get(title)])
    counts = [len(part) // n_classes for part in parts]
    return Table(
        f"Mean accuracy over {len(found)} random splits, %",
        ["kernels", "accuracy", "seconds a split", "published"],
        rows,
        f"{n_classes} classes; of each {counts[0]} pictures to learn from, {counts[1]} to choose by (and to "
        f"learn from in the end), {counts[2]} to test on. ± is the standard deviation over splits. Seconds "
        "are those of learning and choosing, without describing. Published are other hand-made features.",
    )
