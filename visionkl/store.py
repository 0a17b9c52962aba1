"""Model files and checkpoints: safetensors with a JSON description, and nothing that is ever executed.

A model file holds the arrays of a model by name, such as `components.0.parts.3.weights`, and in the header's
metadata one entry `visionkl`: a JSON object with the format version, the kind of model and its settings. A
file of a newer format, of another program, or a damaged one is refused in one sentence.

What rescores detections by their context (`visionkl.detection.context`) has a file of a kind of its own,
because it belongs to several models. A checkpoint of training is such a file, too: the model so far under the
same names, and the samples beside it as `positives.0.features` and so on. All replace an older file only once
they are complete: if the disk is full, the older one stays.

An image classifier is kept in the same way: what its encoders learned as `encoders.0.means` and so on, and
the weights of its machines.

`load` also takes the published part models in MATLAB files; see `visionkl.interop.voc_dpm`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as encode

from visionkl._version import __version__
from visionkl.coding.codebooks import Codebooks
from visionkl.core.errors import DataError, ModelFileError
from visionkl.core.files import write_whole
from visionkl.detection.context import ContextRescorer
from visionkl.detection.detector import DPMDetector
from visionkl.detection.model import Component, MixtureModel, Part
from visionkl.features.hog import N_CHANNELS

if TYPE_CHECKING:
    from visionkl.detection.plan import TrainingState
    from visionkl.learning.classify import ImageClassifier

#: Version of the layout described above; raised when an older reader could misunderstand a newer file.
FORMAT = 1

_KIND = "mixture of deformable part models"
_CONTEXT = "context rescorer"
_CLASSIFIER = "image classifier"
_CHECKPOINT = "checkpoint of training"

_WRITER = f"visionkl {__version__}"
_MODEL_FIELDS = ("label", "cell_size", "interval", "extra_octave", "threshold", "max_displacement", "notes")
_SAMPLE_KINDS = ("positives", "negatives")

Arrays = dict[str, npt.NDArray[Any]]
Content = TypeVar("Content")
Build = Callable[[dict[str, Any], Arrays], Content]

# -- models --------------------------------------------------------------------------------------------------


def save(model: MixtureModel | ContextRescorer, path: str | Path) -> None:
    """Write a model, or what rescores by context, to a `.safetensors` file.

    A file of that name is replaced only once the new one is complete.
    """
    if isinstance(model, ContextRescorer):
        kind, arrays = _CONTEXT, model.to_arrays()
        description: dict[str, Any] = {"classes": model.classes_}
    else:
        kind = _KIND
        description, arrays = _described(model)
    _write(path, {"format": FORMAT, "kind": kind, "written_by": _WRITER, **description}, arrays)


def load(path: str | Path) -> Any:
    """Read what `save` wrote, or a published part model in a `.mat` file.

    Returns
    -------
    DPMDetector, ImageClassifier or ContextRescorer
        As the file says.

    Raises
    ------
    ModelFileError
        If the file is missing, damaged, no model, or of a newer format; the message names the file.
    """
    if Path(path).suffix.lower() == ".mat":
        return load_detector(path)
    builders: dict[str, Build[Any]] = {_KIND: _detector, _CONTEXT: _context, _CLASSIFIER: _classifier}
    return _read(Path(path), builders)


def load_detector(path: str | Path) -> DPMDetector:
    """Read a detector, as `load` does; a file of another kind is refused."""
    if Path(path).suffix.lower() == ".mat":
        from visionkl.interop.voc_dpm import read_voc_dpm  # SciPy's reader takes long to import

        return DPMDetector.from_model(read_voc_dpm(path))
    return _read(Path(path), {_KIND: _detector})


def read_model(path: str | Path) -> MixtureModel:
    """Read a model from a `.safetensors` file that `save` wrote."""
    return _read(Path(path), {_KIND: _model})


def read_context(path: str | Path) -> ContextRescorer:
    """Read what rescores by context from a `.safetensors` file that `save` wrote."""
    return _read(Path(path), {_CONTEXT: _context})


def _detector(settings: dict[str, Any], arrays: Arrays) -> DPMDetector:
    return DPMDetector.from_model(_model(settings, arrays))


def _context(settings: dict[str, Any], arrays: Arrays) -> ContextRescorer:
    return ContextRescorer.from_arrays(settings["classes"], arrays)


def _described(model: MixtureModel) -> tuple[dict[str, Any], Arrays]:
    """Take a model apart into a description in JSON's types, and arrays."""
    arrays: Arrays = {}
    components = []
    for i, component in enumerate(model.components):
        arrays[f"components.{i}.root"] = component.root
        arrays[f"components.{i}.scale_bias"] = component.scale_bias
        if component.box_weights is not None:
            arrays[f"components.{i}.box_weights"] = component.box_weights
        for j, part in enumerate(component.parts):
            arrays[f"components.{i}.parts.{j}.weights"] = part.weights
            arrays[f"components.{i}.parts.{j}.deformation"] = part.deformation
        components.append({"bias": component.bias, "anchors": [part.anchor for part in component.parts]})
    if model.codebooks is not None:
        arrays["codebooks.words"] = model.codebooks.words
        arrays["codebooks.order"] = model.codebooks.order
    description = {name: getattr(model, name) for name in _MODEL_FIELDS}
    return {**description, "notes": dict(model.notes), "components": components}, arrays


def _model(settings: dict[str, Any], arrays: Arrays) -> MixtureModel:
    components = []
    for i, component in enumerate(settings["components"]):
        parts = tuple(
            Part(
                arrays[f"components.{i}.parts.{j}.weights"],
                anchor,
                arrays[f"components.{i}.parts.{j}.deformation"],
            )
            for j, anchor in enumerate(component["anchors"])
        )
        components.append(
            Component(
                arrays[f"components.{i}.root"],
                parts,
                component["bias"],
                arrays[f"components.{i}.scale_bias"],
                arrays.get(f"components.{i}.box_weights"),
            )
        )
    return MixtureModel(
        components=tuple(components),
        codebooks=_codebooks(arrays),
        **{name: settings[name] for name in _MODEL_FIELDS},
    )


def _codebooks(arrays: Arrays) -> Codebooks | None:
    if "codebooks.words" not in arrays:
        return None
    return Codebooks(arrays["codebooks.words"], N_CHANNELS, arrays["codebooks.order"])


# -- classifiers ---------------------------------------------------------------------------------------------


def save_classifier(classifier: ImageClassifier, path: str | Path) -> None:
    """Write an image classifier to a `.safetensors` file, as `save` does with a detector's model."""
    description = {
        "classes": classifier.classes,
        "exclusive": classifier.exclusive,
        "settings": asdict(classifier.settings),
        "notes": classifier.notes,
    }
    learned = classifier.learned
    arrays: Arrays = {"weights": learned.weights, "bias": learned.bias}
    for number, encoder in enumerate(learned.vectors.encoders):
        arrays |= {f"encoders.{number}.{name}": array for name, array in encoder.arrays().items()}
    _write(path, {"format": FORMAT, "kind": _CLASSIFIER, "written_by": _WRITER, **description}, arrays)


def _classifier(description: dict[str, Any], arrays: Arrays) -> ImageClassifier:
    from visionkl.features.fisher_channels import ChannelVectors
    from visionkl.learning.classifier_settings import ClassifierSettings
    from visionkl.learning.classify import ImageClassifier, Learned, make_encoders

    settings = ClassifierSettings(**description["settings"])
    by_encoder: list[Arrays] = [{} for _ in settings.channels]
    for name, array in arrays.items():
        owner, _, rest = name.partition(".")
        if owner == "encoders":
            number, _, own_name = rest.partition(".")
            by_encoder[int(number)][own_name] = array
    learned = Learned(
        tuple(map(str, description["classes"])),
        bool(description["exclusive"]),
        ChannelVectors(make_encoders(settings, by_encoder)),
        arrays["weights"],
        arrays["bias"],
        dict(description["notes"]),
    )
    return ImageClassifier.from_parts(settings, learned)


# -- checkpoints ---------------------------------------------------------------------------------------------


def save_checkpoint(state: TrainingState, path: str | Path) -> None:
    """Write where training stands; `read_checkpoint` gives it back to the last bit.

    Raises
    ------
    VisionklError
        If the file cannot be written, for want of space, say; an older one is left as it was.
    """
    model, arrays = _described(state.model)
    for kind in _SAMPLE_KINDS:
        for number, samples in enumerate(getattr(state, kind)):
            arrays |= {
                f"{kind}.{number}.{part.name}": getattr(samples, part.name) for part in fields(samples)
            }
    counts = {kind: len(getattr(state, kind)) for kind in _SAMPLE_KINDS}
    description = {"format": FORMAT, "kind": _CHECKPOINT, "written_by": _WRITER, "n_done": state.n_done}
    _write(path, {**description, "shares": state.shares, "model": model, **counts}, arrays)


def read_checkpoint(path: str | Path) -> TrainingState:
    """Read a checkpoint that `save_checkpoint` wrote.

    Raises
    ------
    ModelFileError
        If the file is missing, damaged, something else, or of a newer format; the message names the file.
    """
    return _read(Path(path), {_CHECKPOINT: _state})


def _state(description: dict[str, Any], arrays: Arrays) -> TrainingState:
    from visionkl.detection.plan import TrainingState
    from visionkl.detection.samples import Samples

    samples = {
        kind: tuple(
            Samples(**{part.name: arrays[f"{kind}.{number}.{part.name}"] for part in fields(Samples)})
            for number in range(description[kind])
        )
        for kind in _SAMPLE_KINDS
    }
    shares = tuple(map(float, description["shares"]))
    model = _model(description["model"], arrays)
    return TrainingState(int(description["n_done"]), model, **samples, shares=shares)


# -- files ---------------------------------------------------------------------------------------------------


def _write(path: str | Path, description: dict[str, Any], arrays: Arrays) -> None:
    # safetensors writes the memory as it lies there: an array that is a view must be made contiguous first.
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    write_whole(path, encode(whole, metadata={"visionkl": json.dumps(description)}), description["kind"])


def _read(path: Path, builders: dict[str, Build[Content]]) -> Content:
    """Read a file of one of some kinds, each with what makes its content."""
    what = "model file" if _KIND in builders else next(iter(builders))
    if not path.is_file():
        raise ModelFileError(f"{path}: there is no such file.")
    try:
        with safe_open(path, framework="numpy") as file:
            description = (file.metadata() or {}).get("visionkl")
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (the file is no dict)
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelFileError(f"{path}: the file is damaged or no {what} ({error}).") from None
    if description is None:
        raise ModelFileError(f"{path}: a safetensors file, but not written by visionkl.")
    try:
        settings = json.loads(description)
        newer, builder = settings["format"] > FORMAT, builders.get(settings["kind"])
        if not newer and builder is not None:
            return builder(settings, arrays)
    except (KeyError, TypeError, ValueError, IndexError, DataError) as error:
        raise ModelFileError(f"{path}: the description in the file is not consistent ({error!r}).") from None
    if newer:
        raise ModelFileError(
            f"{path}: the file has format {settings['format']}, this version reads up to {FORMAT}; "
            f"upgrade visionkl (the file was written by {settings.get('written_by', 'a newer one')})."
        )
    wanted = " or ".join(map(repr, builders))
    raise ModelFileError(f"{path}: the file holds {settings['kind']!r}, not {wanted}.")


__all__ = [
    "FORMAT",
    "load",
    "load_detector",
    "read_checkpoint",
    "read_context",
    "read_model",
    "save",
    "save_checkpoint",
    "save_classifier",
]
