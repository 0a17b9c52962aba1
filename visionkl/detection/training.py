"""Training a detector, from labelled pictures to a model (METHODS §10).

The plan, step by step:

1. *roots*: objects are grouped by aspect ratio, warped to the group's usual shape and turned to face the same
   way; a linear classifier tells them from random windows. That gives one root filter a group, and with its
   mirror image a pair of components.
2. *mixture*: rounds of placing all roots on the objects anew (`visionkl.detection.latent`), mining hard
   negatives (`visionkl.detection.mining`) and solving (`visionkl.detection.objective`). Each mining pass and
   the solution after it is a step; when mining finds little that is new, the round ends early.
3. *parts*: parts are put where the roots have most energy, and the rounds go on with them.
4. *boxes*: a regression learns to predict objects' boxes from where root and parts lie.

Before the first step come the codewords, learned from cells of all pictures, and the coded pyramids; both
depend on nothing but the pictures and the settings, so they are made again when training is resumed. All
else that a step needs is in the `TrainingState` that the step before returned: it can be saved, and going on
from it ends in the same model.

Passes over pictures are spread over processes, and their results come back in the order of the pictures: the
model does not depend on the number of jobs. With a GPU it is one process: pyramids are computed and coded,
and models matched with them, on the GPU, and the solver's passes over the cells of samples are made there;
its small problems are the CPU's.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.backend.dispatch import CPU, Device, choose_device
from visionkl.backend.gpu.device import enough_memory
from visionkl.backend.scratch import give_back
from visionkl.coding.codebooks import Codebooks
from visionkl.coding.hog_codes import learn_cell_codebooks
from visionkl.core.errors import DataError, UsageError
from visionkl.core.image import read_image
from visionkl.core.rng import stream
from visionkl.datasets.base import Dataset
from visionkl.detection.boxes import learn_box_weights
from visionkl.detection.initialise import facing, place_parts, warped_cells
from visionkl.detection.latent import PlacedObjects, PlacingPass, place_objects
from visionkl.detection.mining import (
    MARGIN,
    DrawingPass,
    MiningPass,
    draw_negatives,
    mine_picture,
    root_order,
    sorted_by_root,
)
from visionkl.detection.model import Component, MixtureModel
from visionkl.detection.objective import PlacementRows, objective, solve
from visionkl.detection.objects import TrainingData, collect
from visionkl.detection.parameters import Parameters, n_cells, with_mirrors, without_mirrors
from visionkl.detection.plan import Observer, Stage, Step, TrainingState, steps_of
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
from visionkl.parallel.executor import Executor, make_executor

#: Score above which a trained detector shows what it finds, before validation tells better.
_THRESHOLD = -0.5

_RANDOM_NEGATIVES = 20000  # for each component
# Hard negatives of a pass, and of a picture at most and at least.
_MINED = 60000
_MOST_A_PICTURE, _FEWEST_A_PICTURE = 100, 10
_CACHE_SHARE = 0.1  # of the memory that training may use
_DEFAULT_MEMORY = 2 << 30
# Negatives to keep for each picture, and in all: more of them make a solution slow and hardly better.
_KEPT_A_PICTURE, _FEWEST_KEPT, _MOST_KEPT = 250, 50_000, 150_000
_SCORED_TOGETHER = 1 << 14
# A round of mining that adds so small a part to the objective ends.
_LITTLE_NEW = 0.02
# Relative gap of a solution; a rough one will do as long as mining still finds much that is new.
_TOLERANCE, _ROUGH_TOLERANCE = 0.005, 0.04
_MUCH_NEW = 1.0
_MAX_PASSES = 300


def train(
    dataset: Dataset,
    label: str,
    settings: TrainingSettings | None = None,
    *,
    n_jobs: int | None = None,
    observer: Observer | None = None,
    **more: Any,
) -> MixtureModel:
    """Train a model of a class: read the data set, and go on with `train_on`, which has all parameters.

    Parameters
    ----------
    dataset : Dataset
        With labelled boxes.
    label : str
        The class.
    """
    settings = settings or TrainingSettings()
    observer = observer or Observer()
    with observer.stage("reading pictures", len(dataset)) as stage:
        data = collect(dataset, label, settings, on_picture=stage.advance, on_skip=observer.skip)
    return train_on(data, settings, n_jobs=n_jobs, observer=observer, **more)


def train_on(
    data: TrainingData,
    settings: TrainingSettings,
    *,
    n_jobs: int | None = None,
    executor: Executor | None = None,
    folder: str | Path | None = None,
    max_memory: int | None = None,
    observer: Observer | None = None,
    state: TrainingState | None = None,
    device: str | Device = CPU,
) -> MixtureModel:
    """Train a model on what was collected with the same settings.

    Parameters
    ----------
    data : TrainingData
    settings : TrainingSettings
    n_jobs : int, optional
        Processes; all usable cores by default.
    executor : Executor, optional
        Who makes the passes over pictures; processes of this machine by default.
    folder : path, optional
        Where to keep codes while training; a temporary folder by default.
    max_memory : int, optional
        Bytes that training may use, roughly; 2 GB by default. It bounds the cache of negatives.
    observer : Observer, optional
        Told how it goes.
    state : TrainingState, optional
        Go on from here instead of beginning anew; data and settings must be the same.
    device : str
        Where pictures are described and searched, and samples gone over: "cpu", "cuda" (an error where no GPU
        computes), "cuda:1", or "auto": a GPU if there is one.

    Returns
    -------
    MixtureModel
    """
    where = choose_device(device, "train")
    if where.is_gpu and executor is not None:
        raise UsageError(f"train: one process trains on {where}; leave out 'executor', or 'device'.")
    trainer = _Trainer(data, settings, n_jobs, observer or Observer(), max_memory or _DEFAULT_MEMORY, where)
    if state is not None and state.n_done >= len(steps_of(settings)):
        return trainer.finished(state)
    own_executor = executor is None
    trainer.executor = executor or make_executor(1 if where.is_gpu else n_jobs)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="codes-", dir=folder) as shards,
            where.use(),
            enough_memory("a training picture"),
        ):
            trainer.prepare(Path(shards), state.model.codebooks if state else None)
            return trainer.run(state)
    finally:
        if own_executor:
            trainer.executor.close()


class _Trainer:
    """The steps of training on given data."""

    executor: Executor
    pyramids: Pyramids

    def __init__(
        self,
        data: TrainingData,
        settings: TrainingSettings,
        n_jobs: int | None,
        observer: Observer,
        max_memory: int,
        device: Device,
    ) -> None:
        self.data = data
        self.settings = settings
        self.n_jobs = n_jobs
        self.observer = observer
        self.device = device
        self.costs = (settings.cost, settings.cost * settings.positive_weight)
        self.cache_size = int(np.clip(_KEPT_A_PICTURE * len(data.pictures), _FEWEST_KEPT, _MOST_KEPT))
        self.cache_bytes = int(_CACHE_SHARE * max_memory)
        self.codebooks: Codebooks | None = None
        self._state: TrainingState | None = None
        self.taboo = [picture.all_boxes for picture in data.pictures]

    # -- before the first step -------------------------------------------------------------------------------

    def prepare(self, folder: Path, codebooks: Codebooks | None) -> None:
        """Learn codewords, unless they are known, and code all pyramids; or nothing, for plain cells."""
        settings, pictures = self.settings, self.data.pictures
        padding, with_parts = self.data.padding, settings.n_parts > 0
        how = PyramidSettings(settings.cell_size, settings.training_interval, padding, with_parts)
        if not settings.n_blocks:
            self.pyramids = PlainPyramids(how, tuple(picture.path for picture in pictures), self.device)
            return
        if codebooks is None:
            with self.observer.stage("learning codewords"):
                cells = sample_cells(pictures, how, settings.seed, self.executor, self.device)
                codebooks = learn_cell_codebooks(
                    cells, settings.n_codewords, settings.n_blocks, seed=settings.seed, n_jobs=self.n_jobs
                )
        self.codebooks = codebooks
        with self.observer.stage("coding pictures", len(pictures)) as stage:
            self.pyramids = code_pyramids(
                pictures, how, codebooks, folder, self.executor, stage.advance, self.device
            )

    # -- the plan --------------------------------------------------------------------------------------------

    def run(self, state: TrainingState | None) -> MixtureModel:
        """Go through the plan, from the beginning or from a state."""
        steps = steps_of(self.settings)
        self._state = state
        del state  # each step is handed the only reference: what it replaces in the state is let go at once
        while self._state is None or self._state.n_done < len(steps):
            began = time.perf_counter()
            step = steps[self._state.n_done if self._state else 0]
            self._state, figures = self._take(step)
            seconds = round(time.perf_counter() - began, 2)
            self.observer.record({"step_seconds": seconds, **figures})
            self.observer.checkpoint(self._state)
        return self.finished(self._state)

    def finished(self, state: TrainingState) -> MixtureModel:
        """Return the model for use."""
        notes = {"trained_on": self.data.name, "n_pictures": len(self.data.pictures)}
        return replace(state.model, interval=self.settings.interval, notes=notes)

    def _take(self, step: Step) -> tuple[TrainingState, dict[str, Any]]:
        if self._state is None:
            return self._start_roots()
        take = self._learn_boxes if step.stage == "boxes" else self._mine_and_solve
        return take(step, self._hand_over())

    def _hand_over(self) -> TrainingState:
        state, self._state = self._state, None
        assert state is not None
        return state

    def _start_roots(self) -> tuple[TrainingState, dict[str, Any]]:
        """Make a root for each group of objects from warped objects and random windows."""
        data = self.data
        components = tuple(Component(np.zeros((*root, N_CHANNELS), np.float32)) for root in data.roots)
        model = self._model(with_mirrors(components))
        with self.observer.stage("warping objects", len(data.objects)) as stage:
            positives = self._warped_objects(stage.advance)
        with self.observer.stage("drawing windows", len(data.pictures)) as stage:
            n_windows = -(-_RANDOM_NEGATIVES // len(data.pictures))
            drawing = DrawingPass(model, self.pyramids, self.taboo, self.settings.seed, n_windows)
            negatives = self._gather(draw_negatives, drawing, range(len(data.pictures)), stage)
        start = TrainingState(1, model, positives, tuple(map(sorted_by_root, negatives)))
        return self._solve(start)

    def _mine_and_solve(self, step: Step, state: TrainingState) -> tuple[TrainingState, dict[str, Any]]:
        figures: dict[str, Any] = {}
        if step.stage == "parts" and step.round == step.mining == 0:
            state = self._add_parts(state)
        if step.mining == 0:
            placed = self._place(state.model)
            state = replace(state, positives=_joined([each.samples for each in placed], state.positives))
            figures["placed"] = sum(len(each.rows) for each in placed)
            if sum(map(len, state.negatives)):
                state, _ = self._solve(state)
        mined = self._mine(step, state.model)
        had_negatives = any(map(len, state.negatives))
        figures["mined"] = sum(map(len, mined))
        new = [some[some.new_to(known)] for some, known in zip(mined, state.negatives, strict=True)]
        del mined  # what is in the cache is not kept here, too
        scores = np.concatenate(self._scores(state.model, new)) if any(map(len, new)) else np.zeros(0)
        worth = self.settings.cost * float(np.maximum(scores - MARGIN, 0).sum())
        share = worth / self._objective(state) if had_negatives else np.inf
        state = self._extend_cache(state, new)
        del new
        give_back()
        figures |= {"new": len(scores), "share_of_new": round(share, 4)}
        if share < _LITTLE_NEW:
            return replace(state, n_done=state.n_done + self.settings.mining_rounds - step.mining), figures
        tol = _ROUGH_TOLERANCE if share > _MUCH_NEW else _TOLERANCE
        state, more = self._solve(replace(state, n_done=state.n_done + 1), tol)
        return state, figures | more

    def _mine(self, step: Step, model: MixtureModel) -> tuple[Samples, ...]:
        """Search all pictures for hard negatives."""
        numbers = range(len(self.data.pictures))
        n_windows = int(np.clip(_MINED // len(numbers), _FEWEST_A_PICTURE, _MOST_A_PICTURE))
        # What is mined in a pass may take as much memory as the cache; plain cells take much.
        n_windows = max(min(n_windows, self.cache_bytes // self._sample_bytes(model) // len(numbers)), 1)
        context = MiningPass(model, self.pyramids, self.taboo, n_windows, self.device)
        with self.observer.stage(f"mining ({step})", len(numbers)) as stage:
            return self._gather(mine_picture, context, numbers, stage)

    def _learn_boxes(self, step: Step, state: TrainingState) -> tuple[TrainingState, dict[str, Any]]:
        placed = self._place(state.model)
        boxes = [
            self.data.pictures[i].boxes[each.rows]
            for i, each in zip(self.data.with_objects, placed, strict=True)
        ]
        sizes = [self.data.pictures[i].size for i in self.data.with_objects]
        learned = learn_box_weights(
            state.model,
            np.concatenate([each.components for each in placed]),
            np.concatenate([each.roots for each in placed]),
            np.concatenate([each.parts for each in placed]),
            np.repeat(sizes, list(map(len, boxes)), axis=0),
            np.concatenate(boxes),
        )
        model = replace(state.model, components=learned)
        return replace(state, n_done=state.n_done + 1, model=model), {"placed": sum(map(len, boxes))}

    # -- pieces of steps -------------------------------------------------------------------------------------

    def _sample_bytes(self, model: MixtureModel) -> int:
        """Return the memory that the cells of a sample take."""
        books = self.codebooks
        a_cell = 4 * N_CHANNELS if books is None else books.n_blocks * np.dtype(books.code_dtype).itemsize
        return a_cell * max(map(n_cells, model.components))

    def _model(self, components: Sequence[Component]) -> MixtureModel:
        settings = self.settings
        return MixtureModel(
            self.data.label,
            tuple(components),
            cell_size=settings.cell_size,
            interval=settings.training_interval,
            threshold=_THRESHOLD,
            codebooks=self.codebooks,
        )

    def _warped_objects(self, on_object: Callable[[], None]) -> tuple[Samples, ...]:
        """Take samples of the objects that each component starts from, turned to face the same way."""
        data, settings = self.data, self.settings
        objects = data.objects
        samples: list[Samples] = []
        for number, (root, group) in enumerate(zip(data.roots, data.groups, strict=True)):
            cells = []
            for i in group:
                picture, row = objects[i]
                image = read_image(data.pictures[picture].path)
                cells.append(warped_cells(image, data.pictures[picture].boxes[row], root, settings.cell_size))
                on_object()
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

    def _add_parts(self, state: TrainingState) -> TrainingState:
        settings = self.settings
        components = tuple(
            replace(component, parts=place_parts(component.root, settings.n_parts, settings.part_size))
            for component in without_mirrors(state.model)
        )
        model = replace(state.model, components=with_mirrors(components))
        # Samples without parts are of no use any more.
        nothing = _no_samples(model, state.negatives[0].features.dtype, self.codebooks)
        return replace(state, model=model, positives=nothing, negatives=nothing)

    def _place(self, model: MixtureModel) -> list[PlacedObjects]:
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

    def _gather(
        self,
        function: Callable[[Any, int], list[Samples]],
        context: Any,
        numbers: Sequence[int],
        stage: Stage,
    ) -> tuple[Samples, ...]:
        found = []
        for samples in self.executor.map(function, context, numbers):
            found.append(samples)
            stage.advance()
        return _joined(found, found[0])

    def _extend_cache(self, state: TrainingState, new: Sequence[Samples]) -> TrainingState:
        """Add negatives to the cache; if they do not fit, the hardest of all stay."""
        pairs = list(zip(state.negatives, new, strict=True))
        orders = [root_order(np.concatenate([known.keys, some.keys])) for known, some in pairs]
        n = sum(map(len, orders))
        n_bytes = sum(known.nbytes + some.nbytes for known, some in pairs)
        n_kept = min(self.cache_size, int(n * self.cache_bytes / max(n_bytes, 1)))
        if n > n_kept:
            both = zip(
                self._scores(state.model, state.negatives), self._scores(state.model, new), strict=True
            )
            scores = np.concatenate(
                [np.concatenate(mine)[order] for mine, order in zip(both, orders, strict=True)]
            )
            kept = np.zeros(n, bool)
            kept[np.argsort(-scores, kind="stable")[:n_kept]] = True
            ends = np.cumsum(list(map(len, orders)))[:-1]
            orders = [order[own] for order, own in zip(orders, np.split(kept, ends), strict=True)]
        cache = tuple(Samples.pick(pair, order) for pair, order in zip(pairs, orders, strict=True))
        return replace(state, negatives=cache)

    def _solve(self, state: TrainingState, tol: float = _TOLERANCE) -> tuple[TrainingState, dict[str, Any]]:
        """Learn from all samples."""
        learned = without_mirrors(state.model)
        parameters = Parameters(learned, state.shares)
        began = time.perf_counter()
        result = solve(
            parameters,
            parameters.vector(learned),
            state.positives,
            state.negatives,
            self.codebooks,
            costs=self.costs,
            tol=tol,
            max_passes=_MAX_PASSES,
            n_jobs=self.n_jobs,
            device=self.device,
        )
        model = replace(state.model, components=with_mirrors(parameters.learned(result.v)))
        n_negatives = sum(map(len, state.negatives))
        n_samples = n_negatives + sum(map(len, state.positives))
        figures: dict[str, Any] = {
            "positives": n_samples - n_negatives,
            "negatives": n_negatives,
            "cache_bytes": sum(samples.nbytes for samples in state.negatives),
            "gap": round(result.gap, 5),
            "passes": result.n_passes,
            "solving_seconds": round(time.perf_counter() - began, 2),
        }
        state = replace(state, model=model, shares=parameters.next_shares(result.v))
        del result  # its planes are large
        give_back()
        figures["shares"] = " ".join(f"{share:.3f}" for share in state.shares)
        return state, figures | {"objective": round(self._objective(state), 5)}

    def _objective(self, state: TrainingState) -> float:
        parameters = Parameters(without_mirrors(state.model), state.shares)
        return objective(
            parameters,
            parameters.vector(without_mirrors(state.model)),
            state.positives,
            state.negatives,
            self.codebooks,
            self.costs,
            self.n_jobs,
            self.device,
        )

    def _scores(self, model: MixtureModel, samples: Sequence[Samples]) -> list[npt.NDArray[np.float64]]:
        """Scores of samples, by component."""
        parameters = Parameters(without_mirrors(model))
        vector = parameters.vector(without_mirrors(model))
        scores = [np.zeros(len(some)) for some in samples]
        for number, some in enumerate(samples):
            # Some at a time: rows hold a copy of their samples.
            for first in range(0, len(some), _SCORED_TOGETHER):
                piece = np.s_[first : first + _SCORED_TOGETHER]
                alone = [other[piece if i == number else np.s_[:0]] for i, other in enumerate(samples)]
                rows = PlacementRows(
                    parameters, alone, self.codebooks, n_jobs=self.n_jobs, device=self.device
                )
                scores[number][piece] = rows.scores(vector)
        return scores


def _joined(found: Sequence[Sequence[Samples]], like: Sequence[Samples]) -> tuple[Samples, ...]:
    """Join what pictures gave, component by component; with no pictures, nothing of the same kind."""
    nothing = [some[:0] for some in like]
    return tuple(Samples.join(some) for some in zip(nothing, *found, strict=True))


def _no_samples(
    model: MixtureModel, dtype: npt.DTypeLike, codebooks: Codebooks | None
) -> tuple[Samples, ...]:
    depth = N_CHANNELS if codebooks is None else codebooks.n_blocks
    return tuple(
        Samples(
            np.zeros((0, depth * n_cells(component)), dtype),
            np.zeros((0, len(component.parts), 2), np.int16),
            np.zeros(0, np.uint8),
            np.zeros((0, 4), np.int32),
        )
        for component in model.components
    )
