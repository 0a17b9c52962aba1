"""Training a detector, from labelled pictures to a model (METHODS §10).

The plan, step by step:

1. *roots*: objects are grouped by aspect ratio, warped to the group's usual shape and turned to face the same
   way; a linear classifier tells them from random windows. That gives one root filter a group, and with its
   mirror image a pair of components.
2. *mixture*: rounds of placing all roots on the objects anew, mining hard negatives and solving. Each mining
   pass and the solution after it is a step; when mining finds little that is new, the round ends early.
3. *parts*: parts are put where the roots have most energy, and the rounds go on with them.
4. *boxes*: a regression learns to predict objects' boxes from where root and parts lie.

Before the first step come the codewords, learned from cells of all pictures, and the coded pyramids; both
depend on nothing but the pictures and the settings, so they are made again when training is resumed. All
else that a step needs is in the `TrainingState` that the step before returned: it can be saved, and going on
from it ends in the same model.

The story of the steps is here; `visionkl.detection.passes` goes over the pictures, spread over processes, and
`visionkl.detection.learner` learns from what they gave. The model does not depend on the number of jobs. With
a GPU it is one process: pyramids are computed and coded, and models matched with them, on the GPU, and the
solver's passes over the cells of samples are made there; its small problems are the CPU's.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from visionkl.backend.dispatch import CPU, Device, choose_device
from visionkl.backend.gpu.device import enough_memory
from visionkl.backend.scratch import give_back
from visionkl.core.errors import UsageError
from visionkl.datasets.base import Dataset
from visionkl.detection.begin import data_for, first_state, settings_of
from visionkl.detection.boxes import learn_box_weights
from visionkl.detection.initialise import place_parts
from visionkl.detection.learner import Learner
from visionkl.detection.model import Component, MixtureModel
from visionkl.detection.objects import TrainingData, collect
from visionkl.detection.parameters import with_mirrors, without_mirrors
from visionkl.detection.passes import Passes, joined, prepare
from visionkl.detection.plan import Observer, Step, TrainingState, steps_of
from visionkl.detection.samples import no_samples
from visionkl.detection.settings import TrainingSettings
from visionkl.features.hog import N_CHANNELS
from visionkl.parallel.executor import Executor, make_executor

#: Score above which a trained detector shows what it finds, before validation tells better.
_THRESHOLD = -0.5

_DEFAULT_MEMORY = 2 << 30
# A round of mining that adds so small a part to the objective ends; as long as one adds so much, a rough
# solution will do.
_LITTLE_NEW, _MUCH_NEW = 0.02, 1.0


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
    start: MixtureModel | None = None,
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
    start : MixtureModel, optional
        Begin with this model; its views, parts and cells take the place of those of the settings.
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
    if start is not None:
        settings = settings_of(start, settings)
        data = data_for(start, data, settings)
    if state is not None and state.n_done >= len(steps_of(settings)):
        return _finished(state, data, settings)
    observer = observer or Observer()
    workers = executor or make_executor(1 if where.is_gpu else n_jobs)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="codes-", dir=folder) as shards,
            where.use(),
            enough_memory("a training picture"),
        ):
            passes = prepare(
                data,
                settings,
                workers,
                observer,
                where,
                folder=Path(shards),
                codebooks=state.model.codebooks if state else None,
                n_jobs=n_jobs,
            )
            if start is not None and state is None:
                shown = replace(start, threshold=_THRESHOLD)  # its own was for its scores
                state = first_state(shown, data, settings, passes.codebooks)
            memory = max_memory or _DEFAULT_MEMORY
            learner = Learner(settings, len(data.pictures), passes.codebooks, memory, n_jobs, where)
            return _Trainer(passes, learner).run(state)
    finally:
        if executor is None:
            workers.close()


def _finished(state: TrainingState, data: TrainingData, settings: TrainingSettings) -> MixtureModel:
    """Return the model for use."""
    notes = {"trained_on": data.name, "n_pictures": len(data.pictures)}
    return replace(state.model, interval=settings.interval, notes=notes)


class _Trainer:
    """The steps of the plan."""

    def __init__(self, passes: Passes, learner: Learner) -> None:
        self.passes = passes
        self.learner = learner
        self.data, self.settings, self.observer = passes.data, passes.settings, passes.observer
        self._state: TrainingState | None = None

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
        return _finished(self._state, self.data, self.settings)

    def _take(self, step: Step) -> tuple[TrainingState, dict[str, Any]]:
        if self._state is None:
            return self._start_roots()
        take = self._learn_boxes if step.stage == "boxes" else self._mine_and_solve
        return take(step, self._hand_over())

    def _hand_over(self) -> TrainingState:
        state, self._state = self._state, None
        assert state is not None
        return state

    # -- roots -----------------------------------------------------------------------------------------------

    def _start_roots(self) -> tuple[TrainingState, dict[str, Any]]:
        """Make a root for each group of objects from warped objects and random windows."""
        model = self._blank_model()
        positives = self.passes.warp_objects()
        return self.learner.learn(TrainingState(1, model, positives, self.passes.draw_windows(model)))

    def _blank_model(self) -> MixtureModel:
        settings, roots = self.settings, self.data.roots
        return MixtureModel(
            self.data.label,
            with_mirrors(tuple(Component(np.zeros((*root, N_CHANNELS), np.float32)) for root in roots)),
            cell_size=settings.cell_size,
            interval=settings.training_interval,
            threshold=_THRESHOLD,
            codebooks=self.passes.codebooks,
        )

    # -- mixture and parts -----------------------------------------------------------------------------------

    def _mine_and_solve(self, step: Step, state: TrainingState) -> tuple[TrainingState, dict[str, Any]]:
        figures: dict[str, Any] = {}
        if step.stage == "parts" and not state.model.n_parts:
            state = self._add_parts(state)
        if step.mining == 0:
            placed = self.passes.place_objects(state.model)
            state = replace(state, positives=joined([each.samples for each in placed], state.positives))
            figures["placed"] = sum(len(each.rows) for each in placed)
            if sum(map(len, state.negatives)):
                state, _ = self.learner.learn(state)
        mined = self.passes.mine(state.model, str(step), self.learner.new_bytes)
        new = [some[some.new_to(known)] for some, known in zip(mined, state.negatives, strict=True)]
        figures |= {"mined": sum(map(len, mined)), "new": sum(map(len, new))}
        del mined  # what is in the cache is not kept here, too
        share = self.learner.share_of(state, new)
        figures["share_of_new"] = round(share, 4)
        state = self.learner.extend_cache(state, new)
        del new
        give_back()
        if share < _LITTLE_NEW:
            return replace(state, n_done=state.n_done + self.settings.mining_rounds - step.mining), figures
        state, more = self.learner.learn(replace(state, n_done=state.n_done + 1), rough=share > _MUCH_NEW)
        return state, figures | more

    def _add_parts(self, state: TrainingState) -> TrainingState:
        settings = self.settings
        components = tuple(
            replace(component, parts=place_parts(component.root, settings.n_parts, settings.part_size))
            for component in without_mirrors(state.model)
        )
        model = replace(state.model, components=with_mirrors(components))
        # Samples without parts are of no use any more.
        nothing = no_samples(model)
        return replace(state, model=model, positives=nothing, negatives=nothing)

    # -- boxes -----------------------------------------------------------------------------------------------

    def _learn_boxes(self, step: Step, state: TrainingState) -> tuple[TrainingState, dict[str, Any]]:
        placed = self.passes.place_objects(state.model)
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
