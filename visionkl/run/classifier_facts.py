"""What a classifier has to learn from, counted before training starts: pictures, memory and time.

The time is guessed stage by stage, and meant to tell minutes from hours. Each stage of a run is there under
the name that its progress has: what it goes over is counted (pixels, descriptors, products of numbers), and
divided by what one core of a machine of about 2020 does of it in a second. Cores share all of it but the
start and the report, so the guess holds for a machine that has nothing else to do; a GPU takes less. What is
compiled when a machine trains for the first time is not counted.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from visionkl.datasets.base import listing
from visionkl.datasets.labels import LabelledPictures
from visionkl.learning.classifier_settings import ClassifierSettings
from visionkl.learning.classify_training import (
    DESCRIBED_PICTURES,
    DESCRIPTORS_A_GAUSSIAN,
    DESCRIPTORS_A_PICTURE,
    PICTURES_A_BLOCK,
    QUANTIZER_PASSES,
    VECTORS_A_CODEWORD,
)
from visionkl.run.console import duration_text
from visionkl.run.memory import bytes_text

# What a core does in a second: pixels decoded, and binned for descriptors of a size; descriptors of a plane;
# products of two numbers in products of matrices; differences of a number and a codeword's.
_PIXELS_DECODED, _PIXELS_BINNED, _DESCRIPTORS = 5e7, 8e7, 3e6
_PRODUCTS, _DISTANCES = 4e10, 1e10
# Seconds of a descriptor's posteriors, and of a block of numbers each time that it is gone over, apart from
# products and distances.
_POSTERIORS, _BLOCK = 2.5e-7, 1.3e-5
# Passes until Gaussians change no more; and until machines are good enough, in a matrix of inner products or
# over all codes or vectors.
_GAUSSIAN_PASSES, _GRAM_PASSES, _PLANE_PASSES = 60, 40, 170
# Samples up to which there is such a matrix; numbers of it read in a second, and codes or vectors' numbers;
# seconds of a machine, however few samples there are.
_MOST_IN_GRAM = 16_000
_READ, _CODES_READ, _NUMBERS_READ = 1e9, 2.5e8, 3e9
_MACHINE = 1e-3
# Seconds until everything is loaded, and to draw a report, whatever its size.
_START, _REPORT = 3.0, 2.0

_VALUES_OF_A_PLANE = 128


class Pixels(NamedTuple):
    """Pixels of pictures: those in their files, and those that are left when large ones are shrunk."""

    decoded: float
    described: float


@dataclass(frozen=True)
class ClassifierFacts:
    """What training has to work with.

    Parameters
    ----------
    dataset, scored_on : str
    n_train, n_test : int
        Pictures.
    classes : dict of str to int
        Pictures to learn from that show each class.
    n_features : int
        Length of a picture's vector.
    float_bytes, code_bytes : int
        Vectors of all pictures to learn from, and their codes.
    n_jobs : int
        Cores that the guess counts on.
    stage_seconds : dict of str to float
        A guess of the time, by stage.
    """

    dataset: str
    scored_on: str
    n_train: int
    n_test: int
    classes: dict[str, int]
    n_features: int
    float_bytes: int
    code_bytes: int
    n_jobs: int
    stage_seconds: dict[str, float]

    @property
    def seconds_guessed(self) -> float:
        """A guess of the time of the whole run."""
        return sum(self.stage_seconds.values())

    def summary(self) -> str:
        """Say in a line what there is to learn from."""
        counts = listing([f"{label} {n}" for label, n in self.classes.items()], most=20)
        return f"{self.dataset}: {self.n_train} pictures of {len(self.classes)} classes ({counts})"

    def text(self) -> str:
        """Say what training has to work with, and what it may take."""
        longest = sorted(self.stage_seconds.items(), key=lambda stage: -stage[1])[:3]
        stages = ", ".join(f"{name} {duration_text(seconds)}" for name, seconds in longest)
        cores = f"{self.n_jobs} cores" if self.n_jobs > 1 else "a core"
        return "\n".join(
            [
                self.summary(),
                f"to score on: {self.scored_on}, {self.n_test} pictures",
                f"vectors of {self.n_features} numbers: {bytes_text(self.float_bytes)} in all, "
                f"{bytes_text(self.code_bytes)} as codes",
                f"time: roughly {duration_text(self.seconds_guessed)} ({stages}, ...), by what the stages go "
                f"over and the usual speed of {cores} without other work",
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """Turn it into plain values, for JSON."""
        return {**asdict(self), "seconds_guessed": self.seconds_guessed}


def classifier_facts(
    train: LabelledPictures,
    test: LabelledPictures,
    pixels: Pixels,
    settings: ClassifierSettings,
    n_jobs: int,
) -> ClassifierFacts:
    """Put together what is known of the data, and guess memory and time."""
    n, d = len(train), settings.n_features
    code = 1 if settings.n_codewords <= 256 else 2
    shared = guess_stages(n, len(test), len(train.classes), pixels, settings)
    return ClassifierFacts(
        train.name,
        test.name,
        n,
        len(test),
        {label: int((column > 0).sum()) for label, column in zip(train.classes, train.signs.T, strict=True)},
        d,
        4 * n * d,
        code * n * -(-d // settings.block_size),
        n_jobs,
        {"start": _START, **{name: s / n_jobs for name, s in shared.items()}, "report": _REPORT},
    )


def guess_stages(
    n_train: int, n_test: int, n_classes: int, pixels: Pixels, settings: ClassifierSettings
) -> dict[str, float]:
    """Guess how long one core takes for each stage that cores share.

    Parameters
    ----------
    n_train, n_test, n_classes : int
    pixels : Pixels
        Of a picture, on average.
    settings : ClassifierSettings

    Returns
    -------
    dict of str to float
        Seconds by the name of the stage, in the order of the run.
    """
    decode = pixels.decoded / _PIXELS_DECODED  # a picture
    n_binned = pixels.described * len(settings.bin_sizes)
    n_descriptors = n_binned / settings.step**2
    moments = 4 * settings.n_gaussians * settings.n_pca  # first and second ones, compared and then added up
    describe = encode = 0.0
    for channel in settings.channels:
        n_planes = 1 if channel == "grey" else 3
        described = decode + n_planes * (n_binned / _PIXELS_BINNED + n_descriptors / _DESCRIPTORS)
        describe += described
        projection = n_planes * _VALUES_OF_A_PLANE * settings.n_pca
        encode += described + n_descriptors * (_POSTERIORS + (projection + moments) / _PRODUCTS)

    n_described = min(n_train, DESCRIBED_PICTURES)
    drawn = max(DESCRIPTORS_A_GAUSSIAN * settings.n_gaussians, DESCRIPTORS_A_PICTURE * n_described)
    learned_from = len(settings.channels) * min(drawn, n_described * n_descriptors)
    gaussians = _GAUSSIAN_PASSES * learned_from * (_POSTERIORS + moments / _PRODUCTS)
    return {
        "checking": (n_train + n_test) * decode,
        "describing": n_described * describe + gaussians,
        **(_coding if settings.coding == "pq" else _no_coding)(n_train, encode, settings),
        "learning": _machines(n_train, n_classes, settings),
        "scoring": n_test * encode,
    }


def _coding(n: int, encode: float, settings: ClassifierSettings) -> dict[str, float]:
    """Seconds of one core to learn codewords and to code all pictures, each of which is encoded once."""
    d = settings.n_features
    n_sampled = min(n, VECTORS_A_CODEWORD * settings.n_codewords)
    n_codewords = min(settings.n_codewords, n_sampled // 2)
    compare = n_codewords * d / _DISTANCES  # a vector
    blocks = _BLOCK * d / settings.block_size  # some vectors together
    return {
        "encoding a sample": n_sampled * encode,
        "learning codewords": QUANTIZER_PASSES * (n_sampled * compare + blocks),
        "coding": (n - n_sampled) * encode + n * (compare + blocks / PICTURES_A_BLOCK),
    }


def _no_coding(n: int, encode: float, settings: ClassifierSettings) -> dict[str, float]:
    return {"vectors": n * encode}


def _machines(n: int, n_classes: int, settings: ClassifierSettings) -> float:
    """Seconds of one core to learn the machines of all classes, at each cost.

    `visionkl.learning.routes` chooses between more ways with better estimates, but needs the data for it.
    """
    d, n_costs = settings.n_features, len(settings.cost)
    n_problems = n_classes * (1 if n_costs == 1 else 2)  # with and without the pictures that are held out
    read = d / _NUMBERS_READ  # a vector, for all machines; or its codes, for up to 32 at a time
    if settings.coding == "pq":
        read = d / settings.block_size / _CODES_READ * -(-n_problems // 32)
    by_passes = n_costs * (n_problems * _MACHINE + _PLANE_PASSES * n * read)
    if n > _MOST_IN_GRAM or settings.loss == "logistic":
        return by_passes
    in_gram = n_costs * n_problems * (_MACHINE + n**2 * _GRAM_PASSES / _READ)
    return min(by_passes, n**2 * d / 2 / _PRODUCTS + in_gram)
