"""Channels of Flowers17, and splits of its pictures, for multiple kernel learning (METHODS §7).

Three channels that are known by name: words of opponent colours, words of grey, and a PHOG. `bench flowers`
takes all that there are, and more time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.core.rng import stream
from visionkl.features.channels import known_channel
from visionkl.run.console import Console
from visionkl.run.experiments.channel_blocks import Block, Rows, describe
from visionkl.run.experiments.flowers import flower_pictures, three_parts

CHANNELS = ("color_words", "phow", "phog_20")
_WORDS, _QUICK_WORDS = 200, 20


def describe_flowers(
    folder: Path, quick: bool, seed: int, console: Console
) -> tuple[list[Block], npt.NDArray[Any], list[tuple[Rows, Rows]]]:
    """Return the channels of all pictures, their classes, and three splits into training and test parts.

    Splits are the usual ones: of each class 60 pictures to learn from, a third of them, which come last, to
    choose λ with, and 20 to test on. The vocabularies are learned from the first split's training part.
    """
    pictures, labels = flower_pictures(folder, quick)
    parts = [three_parts(labels, stream(seed, "Flowers17", number)) for number in range(1 if quick else 3)]
    wanted = {name: known_channel(name, n_words=_QUICK_WORDS if quick else _WORDS) for name in CHANNELS}
    _, blocks = describe(wanted, pictures, parts[0][0], None, console)
    return blocks, labels, [(np.concatenate([train, choose]), test) for train, choose, test in parts]
