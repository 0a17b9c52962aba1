"""Reads the published part models of voc-release5 (MATLAB `.mat` files, version 5 or 7).

The files hold an object grammar: a start symbol that expands into components (structural rules), whose
symbols expand into placed filters (deformation rules), with weights in numbered blocks that mirrored
components share. This reader accepts the grammars that are mixtures of star models, which is what the
published detectors are, and says what it found in any other.

Differences of convention: their deformation is a function of anchor - placed, so that the linear terms change
sign here; offsets are stored divided by ten; box regression is one column a side.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.io

from visionkl.core.errors import ModelFileError
from visionkl.detection.model import Component, MixtureModel, Part
from visionkl.features.hog import N_CHANNELS, mirror


def read_voc_dpm(path: str | Path) -> MixtureModel:
    """Read a published part model.

    Parameters
    ----------
    path : str or Path
        A `.mat` file of voc-release5, such as `VOC2007/bicycle_final.mat`.

    Returns
    -------
    MixtureModel

    Raises
    ------
    ModelFileError
        If the file is missing, damaged, no part model, or a grammar that is not a mixture of star models.
    """
    if not Path(path).is_file():
        raise ModelFileError(f"{path}: there is no such file.")
    try:
        content = scipy.io.loadmat(path, struct_as_record=False, squeeze_me=True, variable_names=["model"])
    except NotImplementedError:
        raise ModelFileError(f"{path}: MATLAB 7.3 files are not read; save the model with '-v7'.") from None
    except Exception as error:  # the reader raises whatever a damaged file makes it stumble over
        raise ModelFileError(
            f"{path}: the file is damaged or no MATLAB file ({type(error).__name__})."
        ) from None
    if "model" not in content:
        raise ModelFileError(f"{path}: the file holds no variable 'model', so it is no part model.")
    try:
        return _Grammar(content["model"]).mixture(str(path))
    except ModelFileError:
        raise
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ModelFileError(
            f"{path}: the variable 'model' is not a voc-release5 part model ({error})."
        ) from None


class _Grammar:
    def __init__(self, model: Any) -> None:
        self.model = model
        self.bias_gain = float(model.features.bias)

    def mixture(self, path: str) -> MixtureModel:
        model = self.model
        if int(model.features.dim) != N_CHANNELS:
            raise ModelFileError(
                f"{path}: the model uses {model.features.dim} features a cell; only {N_CHANNELS} are known."
            )
        regressions = np.atleast_1d(getattr(model, "bboxpred", np.zeros(0, object)))
        components = []
        for number, rule in enumerate(np.atleast_1d(model.rules[model.start - 1])):
            if rule.type != "S":
                raise ModelFileError(
                    f"{path}: rule {number} of the start symbol does not place a root and its parts."
                )
            regression = regressions[number] if number < len(regressions) else None
            components.append(self._component(path, rule, regression))
        return MixtureModel(
            label=str(getattr(model, "class")),
            components=tuple(components),
            cell_size=int(model.sbin),
            interval=int(model.interval),
            extra_octave=bool(model.features.extra_octave),
            threshold=float(model.thresh),
            max_displacement=4,
            notes={"origin": "voc-release5", "note": str(model.note), "year": str(model.year)},
        )

    def _component(self, path: str, rule: Any, regression: Any) -> Component:
        bias = self._block(rule.offset).item() * self.bias_gain
        scale_bias = self._block(rule.loc).reshape(-1).astype(np.float64)
        filters = []
        for symbol, anchor in zip(np.atleast_1d(rule.rhs), np.atleast_1d(rule.anchor), strict=True):
            deformation_rule = self.model.rules[symbol - 1]
            if np.size(deformation_rule) != 1 or deformation_rule.type != "D":
                raise ModelFileError(
                    f"{path}: the grammar goes deeper than roots and parts; only star models are read."
                )
            bias += self._block(deformation_rule.offset).item() * self.bias_gain
            scale_bias = scale_bias + self._block(deformation_rule.loc).reshape(-1)
            filters.append(
                (self._filter(deformation_rule), self._deformation(deformation_rule), tuple(map(int, anchor)))
            )
        (root, _, root_anchor), *placed = filters
        if root_anchor != (0, 0, 0) or any(anchor[2] != 1 for _, _, anchor in placed):
            raise ModelFileError(f"{path}: a component's root or parts lie on an unexpected level.")
        parts = tuple(
            Part(weights, (anchor[0], anchor[1]), deformation) for weights, deformation, anchor in placed
        )
        box_weights = None
        if regression is not None:
            box_weights = np.stack([getattr(regression, side) for side in ("x1", "y1", "x2", "y2")])
        return Component(root, parts, bias, scale_bias.astype(np.float32), box_weights)

    def _filter(self, rule: Any) -> npt.NDArray[np.float32]:
        filter_ = self.model.filters[self.model.symbols[rule.rhs - 1].filter - 1]
        weights = self._block(filter_).astype(np.float32)
        return mirror(weights) if filter_.flip else weights

    def _deformation(self, rule: Any) -> npt.NDArray[np.float32]:
        definition = getattr(rule, "def")
        ax, bx, ay, by = self._block(definition).reshape(-1).astype(np.float32)
        return np.array([ax, bx if definition.flip else -bx, ay, -by], np.float32)

    def _block(self, owner: Any) -> npt.NDArray[Any]:
        block = self.model.blocks[owner.blocklabel - 1]
        return np.reshape(np.asarray(block.w), tuple(np.atleast_1d(block.shape)), order="F")
