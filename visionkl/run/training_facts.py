"""What training has to work with, counted before it starts: objects, roots, memory and time.

Memory is that of the codes of all pictures, the largest thing that training keeps, on disk. Time is a rough
guess, meant to tell minutes from hours: what it takes to code the pictures once, to search them in each pass
of mining, and to learn from what was found.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from visionkl.detection.objects import TrainingData
from visionkl.detection.settings import TrainingSettings
from visionkl.features.hog import N_CHANNELS
from visionkl.run.console import duration_text
from visionkl.run.memory import bytes_text

# What a core of a machine of 2020 or later does in a second: pixels turned into coded cells of all levels; in
# a pass of mining, places of roots looked after, and table look-ups (of plain cells, products of cells).
_PIXELS_A_SECOND = 7.5e6
_PLACES_A_SECOND = 9e5
_LOOKUPS_A_SECOND = 8.5e9
_CELLS_A_SECOND = 1.5e8

# How long a core learns from the negatives of many pictures; there are fewer in few pictures.
_SECONDS_A_SOLUTION = 10.0
_MANY_PICTURES = 300

# Of the steps that the settings allow, about this share is needed before no hard negatives are left.
_STEPS_TAKEN = 0.6


@dataclass(frozen=True)
class TrainingFacts:
    """What training has to work with.

    Parameters
    ----------
    dataset, label : str
    n_pictures, n_with, n_without : int
        Pictures, those that show the class, and those that do not.
    n_objects, n_difficult, n_small : int
        Objects to learn from, difficult ones (not among them), and those that are too small (among them).
    roots : tuple of (rows, cols)
        Of the learned components, in cells; each comes with its mirror image.
    n_bytes : int
        Codes of all pictures.
    seconds : float
        A guess of the time.
    """

    dataset: str
    label: str
    n_pictures: int
    n_with: int
    n_without: int
    n_objects: int
    n_difficult: int
    n_small: int
    roots: tuple[tuple[int, int], ...]
    n_bytes: int
    seconds: float

    def summary(self) -> str:
        """Say in a line what there is to learn from."""
        roots = ", ".join(f"{rows}×{cols}" for rows, cols in self.roots)
        beside = [f"{self.n_difficult} difficult ones left out"] if self.n_difficult else []
        beside += [f"{self.n_small} too small to be learned from"] if self.n_small else []
        return (
            f"{self.dataset}: {self.n_objects} objects of the class {self.label}"
            f"{' (' + ', '.join(beside) + ')' if beside else ''} in {self.n_with} pictures, "
            f"{self.n_without} pictures without; roots of {roots} cells"
        )

    def text(self) -> str:
        """Say what training has to work with, and what it may take."""
        return "\n".join(
            [
                self.summary(),
                f"codes of all pictures: {bytes_text(self.n_bytes)} on disk",
                f"time: roughly {duration_text(self.seconds)}",
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """Turn it into plain values, for JSON."""
        return {**asdict(self), "roots": [list(root) for root in self.roots]}


def training_facts(data: TrainingData, settings: TrainingSettings, n_jobs: int) -> TrainingFacts:
    """Put together what is known of the training data, and guess memory and time."""
    n_pixels = sum(float(np.prod(picture.size)) for picture in data.pictures)
    n_with = sum(len(picture.all_boxes) > 0 for picture in data.pictures)
    return TrainingFacts(
        data.name,
        data.label,
        len(data.pictures),
        n_with,
        len(data.pictures) - n_with,
        len(data.objects),
        data.n_difficult,
        data.n_small,
        data.roots,
        _code_bytes(n_pixels, settings),
        _seconds(n_pixels, data, settings) / max(n_jobs, 1),
    )


def _cells(n_pixels: float, settings: TrainingSettings) -> float:
    """Count the cells of all levels; they begin at twice the pictures' resolution."""
    levels = 1 / (1 - 4 ** (-1 / settings.training_interval))  # each level has 4^(-1/interval) of the last
    return n_pixels / settings.cell_size**2 * 4 * levels


def _code_bytes(n_pixels: float, settings: TrainingSettings) -> int:
    code = 1 if settings.n_codewords <= 256 else 2
    octaves = 1 if settings.n_parts else 0.25  # the finest octave is for parts
    return round(octaves * _cells(n_pixels, settings) * (settings.n_blocks * code or 4 * N_CHANNELS))


def _seconds(n_pixels: float, data: TrainingData, settings: TrainingSettings) -> float:
    """Guess how long one core would train."""
    root_cells = 2 * sum(rows * cols for rows, cols in data.roots)  # each root has its mirror image
    part_cells = 2 * len(data.roots) * settings.n_parts * settings.part_size**2
    places = _cells(n_pixels, settings) / 4  # roots are sought in all octaves but the finest
    coding = n_pixels / _PIXELS_A_SECOND
    solving = _SECONDS_A_SOLUTION * min(len(data.pictures) / _MANY_PICTURES, 1)

    def step(products: float) -> float:
        """Mine once, and learn from what was found."""
        if settings.n_blocks:
            searching = settings.n_blocks * products / _LOOKUPS_A_SECOND
        else:
            searching = products / _CELLS_A_SECOND + coding  # plain cells are computed anew in each pass
        return places / _PLACES_A_SECOND + searching + solving

    seconds = settings.root_rounds * step(places * root_cells)
    if settings.n_parts:
        seconds += settings.part_rounds * step(places * root_cells + 4 * places * part_cells)
    return coding + _STEPS_TAKEN * settings.mining_rounds * seconds
