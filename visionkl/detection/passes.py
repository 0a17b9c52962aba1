"""The passes over training pictures: what each of them gives to learn from (METHODS §10).

Before the first step of the plan, codewords are learned from cells of all pictures, and pyramids are coded;
both depend on nothing but the pictures and the settings. Then objects are warped to the shape of their root,
and windows drawn at random; and, again and again, objects are placed by the model so far
(`visionkl.detection.latent`), and hard negatives mined (`visionkl.detection.mining`).

Passes are spread over processes, and their results come back in the order of the pictures: they do not depend
on the number of jobs. With a GPU it is one process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.backend.dispatch import Device
from visionkl.coding.codebooks import Codebooks
from visionkl.coding.hog_codes import learn_cell_codebooks
from visionkl.core.errors import DataError
from visionkl.core.image import read_image
from visionkl.core.rng import stream
from visionkl.detection.initialise import facing, warped_cells
from visionkl.detection.latent import PlacedObjects, PlacingPass, place_objects
from visionkl.detection.mining import DrawingPass, MiningPass, draw_negatives, mine_picture, sorted_by_root
from visionkl.detection.model import MixtureModel
from visionkl.detection.objects import TrainingData
from visionkl.detection.parameters import n_cells
from visionkl.detection.plan import Observer
from visionkl.detection.pyramids import (
    PlainPyramids,
    Pyramids,
    PyramidSettings,
    code_pyramids,
    sample_cells,
)
from visionkl.detection.samples import Samples
from visionkl.detection.settings import TrainingSettings
from visionkl.features.hog import N_CHANNELS, mirror
from visionkl.parallel.executor import Executor

_RANDOM_NEGATIVES = 20000  # for each component
# Hard negatives of a pass, and of a picture at most and at least.
_MINED = 60000
_MOST_A_PICTURE, _FEWEST_A_PICTURE = 100, 10


def prepare(
    data: TrainingData,
    settings: TrainingSettings,
    executor: Executor,
    observer: Observer,
    device: Device,
    *,
    folder: Path,
    codebooks: Codebooks | None,
    n_jobs: int | None,
) -> Passes:
    """Learn codewords, unless they are known, and code all pyramids into a folder; or nothing of it.

    Plain cells, of settings without blocks, are computed anew in each pass.
    """
    pictures = data.pictures
    how = PyramidSettings(settings.cell_size, settings.training_interval, data.padding, settings.n_parts > 0)
    if not settings.n_blocks:
        plain = PlainPyramids(how, tuple(picture.path for picture in pictures), device)
        return Passes(data, settings, executor, observer, device, plain, None)
    if codebooks is None:
        with observer.stage("learning codewords"):
            cells = sample_cells(pictures, how, settings.seed, executor, device)
            codebooks = learn_cell_codebooks(
                cells, settings.n_codewords, settings.n_blocks, seed=settings.seed, n_jobs=n_jobs
            )
    with observer.stage("coding pictures", len(pictures)) as stage:
        coded = code_pyramids(pictures, how, codebooks, folder, executor, stage.advance, device)
    return Passes(data, settings, executor, observer, device, coded, codebooks)


@dataclass(frozen=True, eq=False)
class Passes:
    """The passes over given pictures; `prepare` makes it.

    Parameters
    ----------
    data : TrainingData
    settings : TrainingSettings
    executor : Executor
        Who makes the passes.
    observer : Observer
        Told how far each is.
    device : Device
        Where pictures are described and searched.
    pyramids : Pyramids
    codebooks : Codebooks or None
        Of the pyramids' codes; None for plain cells.
    """

    data: TrainingData
    settings: TrainingSettings
    executor: Executor
    observer: Observer
    device: Device
    pyramids: Pyramids
    codebooks: Codebooks | None

    def warp_objects(self) -> tuple[Samples, ...]:
        """Take samples of the objects that each component starts from, turned to face the same way."""
        data, settings = self.data, self.settings
        objects = data.objects
        samples: list[Samples] = []
        with self.observer.stage("warping objects", len(objects)) as stage:
            for number, (root, group) in enumerate(zip(data.roots, data.groups, strict=True)):
                cells = []
                for i in group:
                    picture, row = objects[i]
                    image = read_image(data.pictures[picture].path)
                    box = data.pictures[picture].boxes[row]
                    cells.append(warped_cells(image, box, root, settings.cell_size))
                    stage.advance()
                stacked = np.stack(cells)
                turned = facing(stacked, stream(settings.seed, "facing", number))
                stacked[turned] = mirror(stacked[turned])
                keys = np.array([(objects[i][0], 0, objects[i][1], 0) for i in group], np.int32)
                samples += [self._root_samples(stacked, keys), self._root_samples(stacked[:0], keys[:0])]
        return tuple(samples)

    def _root_samples(self, cells: npt.NDArray[np.float32], keys: npt.NDArray[np.int32]) -> Samples:
        features = cells if self.codebooks is None else self.codebooks.encode(cells)
        n = len(cells)
        return Samples(
            features.reshape(n, int(np.prod(features.shape[1:]))),
            np.zeros((n, 0, 2), np.int16),
            np.ones(n, np.uint8),
            keys,
        )

    def draw_windows(self, model: MixtureModel) -> tuple[Samples, ...]:
        """Take windows at random, for each root of a model without parts."""
        n_windows = -(-_RANDOM_NEGATIVES // len(self.data.pictures))
        context = DrawingPass(model, self.pyramids, self._taboo(), self.settings.seed, n_windows)
        drawn = self._gather("drawing windows", draw_negatives, context)
        return tuple(map(sorted_by_root, drawn))

    def place_objects(self, model: MixtureModel) -> list[PlacedObjects]:
        """Place all objects, picture by picture; at least one must fit."""
        numbers = self.data.with_objects
        boxes = [picture.boxes for picture in self.data.pictures]
        context = PlacingPass(model, self.pyramids, boxes, self.settings.min_overlap, self.device)
        placed = []
        with self.observer.stage("placing objects", len(numbers)) as stage:
            for one in self.executor.map(place_objects, context, numbers):
                placed.append(one)
                stage.advance()
        if not any(len(one.rows) for one in placed):
            raise DataError(
                f"not one object of {self.data.label!r} could be placed with an overlap of "
                f"{self.settings.min_overlap:g}; give objects that are larger, or a smaller min_overlap."
            )
        return placed

    def mine(self, model: MixtureModel, name: str, max_bytes: int) -> tuple[Samples, ...]:
        """Search all pictures for hard negatives, which may take so much memory; plain cells take much."""
        n_pictures = len(self.data.pictures)
        n_windows = int(np.clip(_MINED // n_pictures, _FEWEST_A_PICTURE, _MOST_A_PICTURE))
        n_windows = max(min(n_windows, max_bytes // self._sample_bytes(model) // n_pictures), 1)
        context = MiningPass(model, self.pyramids, self._taboo(), n_windows, self.device)
        return self._gather(f"mining ({name})", mine_picture, context)

    def _sample_bytes(self, model: MixtureModel) -> int:
        """Return the memory that the cells of a sample take."""
        books = self.codebooks
        a_cell = 4 * N_CHANNELS if books is None else books.n_blocks * np.dtype(books.code_dtype).itemsize
        return a_cell * max(map(n_cells, model.components))

    def _taboo(self) -> list[npt.NDArray[np.float64]]:
        """Boxes that are not background, by picture."""
        return [picture.all_boxes for picture in self.data.pictures]

    def _gather(
        self, name: str, function: Callable[[Any, int], list[Samples]], context: Any
    ) -> tuple[Samples, ...]:
        found = []
        numbers = range(len(self.data.pictures))
        with self.observer.stage(name, len(numbers)) as stage:
            for samples in self.executor.map(function, context, numbers):
                found.append(samples)
                stage.advance()
        return joined(found, found[0])


def joined(found: Sequence[Sequence[Samples]], like: Sequence[Samples]) -> tuple[Samples, ...]:
    """Join what pictures gave, component by component; with no pictures, nothing of the same kind."""
    nothing = [some[:0] for some in like]
    return tuple(Samples.join(some) for some in zip(nothing, *found, strict=True))
