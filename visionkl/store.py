"""Model files: safetensors with a JSON description, and nothing that is ever executed.

A model file holds the arrays of a model by name, such as `components.0.parts.3.weights`, and in the header's
metadata one entry `visionkl`: a JSON object with the format version, the kind of model and its settings. A
file of a newer format, of another program, or a damaged one is refused in one sentence.

`load` also takes the published part models in MATLAB files; see `visionkl.interop.voc_dpm`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as encode

from visionkl._version import __version__
from visionkl.coding.codebooks import Codebooks
from visionkl.core.errors import DataError, ModelFileError
from visionkl.core.files import atomic_write
from visionkl.detection.detector import DPMDetector
from visionkl.detection.model import Component, MixtureModel, Part
from visionkl.features.hog import N_CHANNELS

#: Version of the layout described above; raised when an older reader could misunderstand a newer file.
FORMAT = 1

_KIND = "mixture of deformable part models"

Arrays = dict[str, npt.NDArray[Any]]


def save(model: MixtureModel, path: str | Path) -> None:
    """Write a model to a `.safetensors` file.

    A file of that name is replaced only once the new one is complete.
    """
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
    description = {
        "format": FORMAT,
        "kind": _KIND,
        "written_by": f"visionkl {__version__}",
        "label": model.label,
        "cell_size": model.cell_size,
        "interval": model.interval,
        "extra_octave": model.extra_octave,
        "threshold": model.threshold,
        "max_displacement": model.max_displacement,
        "notes": dict(model.notes),
        "components": components,
    }
    with atomic_write(path, "wb") as file:
        file.write(encode(arrays, metadata={"visionkl": json.dumps(description)}))


def load(path: str | Path) -> DPMDetector:
    """Read a detector: our own `.safetensors` file, or a published part model in a `.mat` file.

    Raises
    ------
    ModelFileError
        If the file is missing, damaged, no model, or of a newer format; the message names the file.
    """
    if Path(path).suffix.lower() == ".mat":
        from visionkl.interop.voc_dpm import read_voc_dpm  # SciPy's reader takes long to import

        return DPMDetector.from_model(read_voc_dpm(path))
    return DPMDetector.from_model(read_model(path))


def read_model(path: str | Path) -> MixtureModel:
    """Read a model from a `.safetensors` file that `save` wrote."""
    path = Path(path)
    if not path.is_file():
        raise ModelFileError(f"{path}: there is no such file.")
    try:
        with safe_open(path, framework="numpy") as file:
            description = (file.metadata() or {}).get("visionkl")
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (the file is no dict)
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelFileError(f"{path}: the file is damaged or no model file ({error}).") from None
    if description is None:
        raise ModelFileError(f"{path}: a safetensors file, but not written by visionkl.")
    try:
        settings = json.loads(description)
        if settings["format"] > FORMAT:
            raise ModelFileError(
                f"{path}: the file has format {settings['format']}, this version reads up to {FORMAT}; "
                f"upgrade visionkl (the file was written by {settings.get('written_by', 'a newer one')})."
            )
        if settings["kind"] != _KIND:
            raise ModelFileError(f"{path}: the file holds a {settings['kind']!r}, not a {_KIND!r}.")
        return _model(settings, arrays)
    except ModelFileError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, DataError) as error:
        raise ModelFileError(f"{path}: the model's description is not consistent ({error!r}).") from None


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
    fields = ("label", "cell_size", "interval", "extra_octave", "threshold", "max_displacement", "notes")
    return MixtureModel(
        components=tuple(components),
        codebooks=_codebooks(arrays),
        **{name: settings[name] for name in fields},
    )


def _codebooks(arrays: Arrays) -> Codebooks | None:
    if "codebooks.words" not in arrays:
        return None
    return Codebooks(arrays["codebooks.words"], N_CHANNELS, arrays["codebooks.order"])


__all__ = ["FORMAT", "load", "read_model", "save"]
