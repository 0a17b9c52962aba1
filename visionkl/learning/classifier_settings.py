"""Settings of an image classifier: what `ImageClassifier`, the command and the recipes share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from visionkl.core.validation import check_choice, check_number, parameter_error

CHANNELS = ("grey", "rgb", "opponent", "hue")
LOSSES = ("hinge", "squared_hinge", "logistic")

_OWNER = "ImageClassifier"


@dataclass(frozen=True)
class ClassifierSettings:
    """How an image classifier is trained (METHODS §5, §6, §11). The defaults are fast and good.

    Parameters
    ----------
    channels : list of {"grey", "rgb", "opponent", "hue"}
        Descriptors to take; each kind has Gaussians and a Fisher vector of its own, and the vectors stand
        side by side. "grey opponent" adds colour.
    step : int
        Distance of neighbouring descriptors in pixels; a larger one takes less time.
    bin_sizes : list of int
        Sizes of descriptors: the edge of one of the 4 × 4 bins, in pixels.
    longest_side : int
        Pictures with a longer side are shrunk to it, in pixels, before they are described.
    n_pca : int
        Principal components of descriptors.
    n_gaussians : int
        Gaussians that the descriptors are compared with.
    cells : list of int
        Numbers of horizontal strips: "1 3" describes the picture as a whole, and each of three strips.
    coding : {"pq", "none"}
        Learn on product-quantiser codes, or on the numbers themselves, which take 4 · block_size times the
        space.
    n_codewords : int
        Codewords of a block: up to 256 make a code of one byte, more one of two. There are at most half as
        many as pictures to learn from.
    block_size : int
        Numbers that share a code.
    cost : list of float
        Price of an error beside a simple solution (C of the support vector machine). Of several, the one
        that does best on a fifth of the pictures is taken.
    loss : {"hinge", "squared_hinge", "logistic"}
        How errors are counted.
    seed : int
        The same seed gives the same classifier, for any number of jobs.
    """

    channels: list[str] = field(default_factory=lambda: ["grey"])
    step: int = 5
    bin_sizes: list[int] = field(default_factory=lambda: [4, 6, 8, 10])
    longest_side: int = 1024
    n_pca: int = 64
    n_gaussians: int = 64
    cells: list[int] = field(default_factory=lambda: [1, 3])
    coding: Literal["pq", "none"] = "pq"
    n_codewords: int = 256
    block_size: int = 8
    cost: list[float] = field(default_factory=lambda: [10.0])
    loss: Literal["hinge", "squared_hinge", "logistic"] = "hinge"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("channels", "bin_sizes", "cells", "cost"):
            value = getattr(self, name)
            if isinstance(value, str) or not len(value) or len(set(value)) < len(value):
                raise parameter_error(_OWNER, name, "a list without repetitions", value)
            object.__setattr__(self, name, list(value))
        for channel in self.channels:
            check_choice(_OWNER, "channels", channel, CHANNELS)
        for size in self.bin_sizes:
            check_number(_OWNER, "bin_sizes", size, low=1, high=1000, integer=True)
        for n_strips in self.cells:
            check_number(_OWNER, "cells", n_strips, low=1, high=64, integer=True)
        for cost in self.cost:
            check_number(_OWNER, "cost", cost, low=1e-9)
        check_number(_OWNER, "step", self.step, low=1, high=1000, integer=True)
        check_number(_OWNER, "longest_side", self.longest_side, low=16, integer=True)
        check_number(_OWNER, "n_pca", self.n_pca, low=1, high=128, integer=True)
        check_number(_OWNER, "n_gaussians", self.n_gaussians, low=1, high=65536, integer=True)
        check_choice(_OWNER, "coding", self.coding, ("pq", "none"))
        check_number(_OWNER, "n_codewords", self.n_codewords, low=2, high=65536, integer=True)
        check_number(_OWNER, "block_size", self.block_size, low=1, high=64, integer=True)
        check_choice(_OWNER, "loss", self.loss, LOSSES)
        check_number(_OWNER, "seed", self.seed, low=0, integer=True)

    @property
    def n_features(self) -> int:
        """Length of a picture's vector."""
        return len(self.channels) * sum(self.cells) * 2 * self.n_gaussians * self.n_pca

    @property
    def smallest_side(self) -> int:
        """Pixels that the shorter side of a picture has at least, if it is to have a descriptor."""
        return 3 * min(self.bin_sizes) + 1
