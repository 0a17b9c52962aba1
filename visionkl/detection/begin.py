"""Training that begins with a model instead of with nothing: one of ours, or a published one.

Such a model knows where objects lie, which way they face and where their parts are; that is what takes many
pictures to find out, above all for rare views. Its views and parts are kept, and all that they look for is
learned anew from where it finds the objects of the new pictures: on codes even if it was made for plain
cells, of another year, of a narrower class. The stages that would find roots and parts are left out.
"""

from __future__ import annotations

from dataclasses import replace

from visionkl.coding.codebooks import Codebooks
from visionkl.core.errors import DataError
from visionkl.detection.model import MixtureModel
from visionkl.detection.objects import TrainingData, n_too_small
from visionkl.detection.parameters import are_mirrored, with_mirrors, without_mirrors
from visionkl.detection.plan import TrainingState, steps_of
from visionkl.detection.samples import no_samples
from visionkl.detection.settings import TrainingSettings


def settings_of(start: MixtureModel, settings: TrainingSettings) -> TrainingSettings:
    """Return settings with the views, the parts and the cells of a model.

    Raises
    ------
    DataError
        If the model cannot be learned from: its components must be pairs that are mirror images.
    """
    pairs = list(zip(start.components[::2], start.components[1::2], strict=False))
    if 2 * len(pairs) != len(start.components) or not all(are_mirrored(*pair) for pair in pairs):
        raise DataError(
            f"training cannot begin with {start}: its components do not come in pairs that are mirror images "
            "of each other; train without a model to begin with."
        )
    return replace(settings, n_components=len(pairs), n_parts=start.n_parts, cell_size=start.cell_size)


def data_for(start: MixtureModel, data: TrainingData, settings: TrainingSettings) -> TrainingData:
    """Return the training data with the shapes of a model's roots."""
    roots = tuple((component.root.shape[0], component.root.shape[1]) for component in without_mirrors(start))
    return replace(data, roots=roots, groups=(), n_small=n_too_small(data.pictures, roots, settings))


def first_state(
    start: MixtureModel, data: TrainingData, settings: TrainingSettings, codebooks: Codebooks | None
) -> TrainingState:
    """Return the state from which training goes on: the model is there, and all rounds are to come."""
    components = tuple(replace(component, box_weights=None) for component in without_mirrors(start))
    model = replace(
        start,
        label=data.label,
        components=with_mirrors(components),
        interval=settings.training_interval,
        codebooks=codebooks,
    )
    nothing = no_samples(model)
    return TrainingState(n_left_out(settings), model, nothing, nothing)


def n_left_out(settings: TrainingSettings) -> int:
    """Count the steps of the plan before the first that a model to begin with needs."""
    stage = "parts" if settings.n_parts else "mixture"
    return next(number for number, step in enumerate(steps_of(settings)) if step.stage == stage)
