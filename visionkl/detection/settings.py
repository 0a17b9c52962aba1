"""Settings of training, in one place: what `DPMDetector`, the command and the recipes have in common."""

from __future__ import annotations

from dataclasses import dataclass

from visionkl.core.errors import UsageError
from visionkl.core.validation import check_number


@dataclass(frozen=True)
class TrainingSettings:
    """How a detector is trained (METHODS §10). The defaults are for photographs of a few hundred objects.

    Parameters
    ----------
    n_components : int
        Views that are learned, by aspect ratio; each comes with its mirror image.
    n_parts : int
        Parts of each component; 0 trains a rigid detector in a fraction of the time.
    part_size : int
        Edge of a part in cells, at twice the root's resolution.
    cell_size : int
        Edge of a HOG cell in pixels, a multiple of 4.
    interval : int
        Levels an octave when pictures are searched.
    training_interval : int
        Levels an octave during training; fewer take less time and memory.
    n_blocks : int
        Codes a cell: 1, 2 or 4 bytes with up to 256 codewords; 0 trains on plain numbers, which takes many
        times the memory and the time.
    n_codewords : int
        Codewords a block: up to 256 a code takes one byte, beyond that two.
    cost : float
        The price of an error of size 1 on a negative sample (C of the support vector machine).
    positive_weight : float
        How many times as much an error on a positive sample costs: negatives are many.
    min_overlap : float
        A placement stands for a labelled object if it overlaps its box so much; 0.6 suits rigid detectors.
    root_rounds, part_rounds : int
        How often objects are placed anew: with roots alone, and with parts.
    mining_rounds : int
        How often hard negatives are sought for each placing of the objects, at most.
    box_regression : bool
        Whether to learn to predict the object's box from where root and parts lie.
    seed : int
        The same seed gives the same model, for any number of jobs.
    """

    n_components: int = 3
    n_parts: int = 8
    part_size: int = 6
    cell_size: int = 8
    interval: int = 10
    training_interval: int = 5
    n_blocks: int = 2
    n_codewords: int = 256
    cost: float = 0.0007
    positive_weight: float = 3.0
    min_overlap: float = 0.7
    root_rounds: int = 2
    part_rounds: int = 3
    mining_rounds: int = 10
    box_regression: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        owner = "DPMDetector"
        for name, low, high in (
            ("n_components", 1, 100),
            ("n_parts", 0, 100),
            ("part_size", 2, 20),
            ("interval", 1, 50),
            ("training_interval", 1, 50),
            ("n_blocks", 0, 32),
            ("n_codewords", 2, 65536),
            ("root_rounds", 1, 100),
            ("part_rounds", 1, 100),
            ("mining_rounds", 1, 100),
        ):
            check_number(owner, name, getattr(self, name), low=low, high=high, integer=True)
        check_number(owner, "cell_size", self.cell_size, low=4, high=64, integer=True)
        check_number(owner, "min_overlap", self.min_overlap, low=0.1, high=1)
        check_number(owner, "cost", self.cost, low=1e-9)
        check_number(owner, "positive_weight", self.positive_weight, low=1e-3)
        check_number(owner, "seed", self.seed, low=0, integer=True)
        if self.cell_size % 4:
            raise UsageError(
                f"The 'cell_size' parameter of {owner} must be a multiple of 4. Got {self.cell_size} instead."
            )
