"""The pyramids of all training pictures: codes in memory-mapped shards, or plain cells made anew each time.

Codes are small, a few hundred kilobytes a picture, so they are computed once and kept on disk; workers map
them and hold what they look at. Plain cells are up to 128 times as large: computing them again takes less
time than reading them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from visionkl.backend.dispatch import CPU, Device
from visionkl.coding.codebooks import Codebooks
from visionkl.coding.hog_codes import coded_pyramids
from visionkl.core.image import read_image
from visionkl.core.rng import stream
from visionkl.features.pyramid import FeaturePyramid, feature_pyramid
from visionkl.parallel.executor import Executor
from visionkl.parallel.shards import Shard, ShardedArrays, write_shard

if TYPE_CHECKING:  # workers, which import this module, would load OpenCV for nothing
    from visionkl.detection.objects import TrainingPicture

_PICTURES_A_SHARD = 16
_CELLS_A_PICTURE = 700
_PICTURES_FOR_CODEWORDS = 200


@dataclass(frozen=True)
class PyramidSettings:
    """How training pyramids are computed; the octave for parts can be left out where there are none."""

    cell_size: int
    interval: int
    padding: tuple[int, int]
    part_octave: bool = True

    def compute(self, path: Path, device: Device = CPU) -> FeaturePyramid:
        """Compute the pyramid of a picture, in plain cells, on a device."""
        return feature_pyramid(read_image(path), device=device, **asdict(self))

    def code(self, path: Path, books: Codebooks, device: Device = CPU) -> FeaturePyramid:
        """Compute the pyramid of a picture, in codes, on a device."""
        return coded_pyramids(read_image(path), [books], device=device, **asdict(self))[0]


class Pyramids(Protocol):
    """Pyramids of training pictures by their number."""

    def __getitem__(self, number: int) -> FeaturePyramid: ...


@dataclass(frozen=True, eq=False)
class PlainPyramids:
    """Pyramids of plain cells, computed when asked for, and left where they were computed."""

    settings: PyramidSettings
    paths: tuple[Path, ...]
    device: Device = CPU

    def __getitem__(self, number: int) -> FeaturePyramid:
        return self.settings.compute(self.paths[number], self.device)


@dataclass(frozen=True, eq=False)
class CodedPyramids:
    """Pyramids of codes in shards."""

    settings: PyramidSettings
    arrays: ShardedArrays
    scales: tuple[npt.NDArray[np.float64], ...]
    sizes: tuple[tuple[int, int], ...]

    def __getitem__(self, number: int) -> FeaturePyramid:
        settings = self.settings
        return FeaturePyramid(
            tuple(self.arrays[number]),
            self.scales[number],
            settings.cell_size,
            settings.interval,
            settings.padding,
            self.sizes[number],
        )


def code_pyramids(
    pictures: Sequence[TrainingPicture],
    settings: PyramidSettings,
    books: Codebooks,
    folder: Path,
    executor: Executor,
    on_picture: Callable[[int], None],
    device: Device = CPU,
) -> CodedPyramids:
    """Code all pictures into shards in a folder, on a device."""
    paths = [picture.path for picture in pictures]
    pieces = [
        (number, paths[first : first + _PICTURES_A_SHARD])
        for number, first in enumerate(range(0, len(paths), _PICTURES_A_SHARD))
    ]
    shards: list[Shard] = []
    scales: list[npt.NDArray[np.float64]] = []
    for shard, some in executor.map(_code_shard, (settings, books, folder, device), pieces):
        shards.append(shard)
        scales += some
        on_picture(len(some))
    return CodedPyramids(
        settings, ShardedArrays(shards), tuple(scales), tuple(picture.size for picture in pictures)
    )


def _code_shard(
    context: tuple[PyramidSettings, Codebooks, Path, Device], piece: tuple[int, list[Path]]
) -> tuple[Shard, list[npt.NDArray[np.float64]]]:
    settings, books, folder, device = context
    number, paths = piece
    scales: list[npt.NDArray[np.float64]] = []

    def code(path: Path) -> tuple[npt.NDArray[np.float32], ...]:
        pyramid = settings.code(path, books, device).on(CPU)
        scales.append(pyramid.scales)
        return pyramid.levels

    shard = write_shard(folder / f"{number:05d}.bin", map(code, paths), books.code_dtype)
    return shard, scales


def sample_cells(
    pictures: Sequence[TrainingPicture],
    settings: PyramidSettings,
    seed: int,
    executor: Executor,
    device: Device = CPU,
) -> npt.NDArray[np.float32]:
    """Draw HOG cells `(n, 32)` from inside of pictures, to learn codewords from.

    They do not depend on the class, so that detectors of several classes can share their codewords.
    """
    random = stream(seed, "pictures for codewords")
    n = min(len(pictures), _PICTURES_FOR_CODEWORDS)
    chosen = np.sort(random.choice(len(pictures), n, replace=False))
    plain = PyramidSettings(settings.cell_size, settings.interval, (0, 0))
    tasks = [(pictures[i].path, seed, pictures[i].id) for i in chosen]
    return np.concatenate(list(executor.map(_sample_picture, (plain, device), tasks)))


def _sample_picture(
    context: tuple[PyramidSettings, Device], task: tuple[Path, int, str]
) -> npt.NDArray[np.float32]:
    settings, device = context
    path, seed, picture_id = task
    pyramid = settings.compute(path, device).on(CPU)
    cells = np.concatenate([level[1:-1, 1:-1].reshape(-1, level.shape[2]) for level in pyramid.levels])
    random = stream(seed, "cells", picture_id)
    return cells[random.choice(len(cells), min(len(cells), _CELLS_A_PICTURE), replace=False)]
