"""The mixture of deformable part models (METHODS §10), as plain data.

A model is a mixture of components, usually one per view of the object and its mirror image. A component has a
root filter, which covers the whole object, and parts: smaller filters at twice the resolution, tied to an
anchor by a deformation cost. The score of a placement is

    root response + Σ over parts (response - ax dx² - bx dx - ay dy² - by dy) + bias + scale bias

with `(dx, dy) = placed - anchor` in cells of the part's level.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.coding.codebooks import Codebooks
from visionkl.core.errors import DataError
from visionkl.core.validation import check_number
from visionkl.features.hog import N_CHANNELS, mirror

#: Octaves of the pyramid that have a bias of their own: the first, the second, and all further ones.
N_SCALE_BIASES = 3


@dataclass(frozen=True, eq=False)
class Part:
    """A part of a component.

    Parameters
    ----------
    weights : ndarray of float32, shape (rows, cols, 32)
        The filter.
    anchor : tuple of int
        `(x, y)` of the filter's first cell relative to the root's, in cells at twice the root's resolution.
    deformation : ndarray of float32, shape (4,)
        `ax, bx, ay, by`.
    """

    weights: npt.NDArray[np.float32]
    anchor: tuple[int, int]
    deformation: npt.NDArray[np.float32]

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", _checked_filter("a part's filter", self.weights))
        object.__setattr__(self, "anchor", (int(self.anchor[0]), int(self.anchor[1])))
        object.__setattr__(self, "deformation", _checked_vector("a part's deformation", self.deformation, 4))
        if self.deformation[0] <= 0 or self.deformation[2] <= 0:
            raise DataError(
                f"a part's quadratic deformation costs must be positive, not {self.deformation.tolist()}."
            )

    def mirrored(self, root_cols: int) -> Part:
        """Return the part of the mirrored component, whose root has `root_cols` columns."""
        x, y = self.anchor
        return Part(
            mirror(self.weights),
            (2 * root_cols - self.weights.shape[1] - x, y),
            self.deformation * np.array([1, -1, 1, 1], np.float32),
        )


@dataclass(frozen=True, eq=False)
class Component:
    """One view of the object.

    Parameters
    ----------
    root : ndarray of float32, shape (rows, cols, 32)
        The root filter; its extent is the detection window.
    parts : tuple of Part
    bias : float
    scale_bias : ndarray of float32, shape (3,), optional
        Added for roots in the first, the second and all further octaves of the pyramid.
    box_weights : ndarray of float32, shape (4, 2 * (1 + n_parts) + 1), optional
        Box regression, see `visionkl.detection.boxes`.
    """

    root: npt.NDArray[np.float32]
    parts: tuple[Part, ...] = ()
    bias: float = 0.0
    scale_bias: npt.NDArray[np.float32] = field(default_factory=lambda: np.zeros(N_SCALE_BIASES, np.float32))
    box_weights: npt.NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", _checked_filter("a root filter", self.root))
        object.__setattr__(self, "parts", tuple(self.parts))
        object.__setattr__(self, "bias", float(self.bias))
        object.__setattr__(
            self, "scale_bias", _checked_vector("a component's scale bias", self.scale_bias, N_SCALE_BIASES)
        )
        if self.box_weights is not None:
            box_weights = np.asarray(self.box_weights, dtype=np.float32)
            expected = (4, 2 * (1 + len(self.parts)) + 1)
            if box_weights.shape != expected or not np.isfinite(box_weights).all():
                raise DataError(
                    f"a component's box regression must be finite and of shape {expected}, "
                    f"not {box_weights.shape}."
                )
            object.__setattr__(self, "box_weights", box_weights)


@dataclass(frozen=True, eq=False)
class MixtureModel:
    """A mixture of components for one class of objects.

    Parameters
    ----------
    label : str
        The class.
    components : tuple of Component
        At least one.
    cell_size, interval : int
        Of the pyramid the model was trained on.
    extra_octave : bool
        Whether roots are also sought at twice the picture's resolution.
    threshold : float
        Score above which placements count as detections by default.
    max_displacement : int or None
        How many cells a part may move in each direction; None is without bound.
    codebooks : Codebooks, optional
        Codewords of HOG cells: with them, pictures are searched on codes; without, on plain cells.
    notes : dict, optional
        Anything worth keeping about where the model comes from; JSON values.
    """

    label: str
    components: tuple[Component, ...]
    cell_size: int = 8
    interval: int = 10
    extra_octave: bool = False
    threshold: float = 0.0
    max_displacement: int | None = 4
    codebooks: Codebooks | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "components", tuple(self.components))
        object.__setattr__(self, "threshold", float(self.threshold))
        if not self.components:
            raise DataError(f"the model of {self.label!r} has no components.")
        check_number("MixtureModel", "cell_size", self.cell_size, low=4, integer=True)
        check_number("MixtureModel", "interval", self.interval, low=1, integer=True)
        if self.codebooks is not None and self.codebooks.n_features != N_CHANNELS:
            raise DataError(
                f"the codebooks of a model are for cells of {N_CHANNELS} numbers, "
                f"not of {self.codebooks.n_features}."
            )
        if self.max_displacement is not None:
            check_number("MixtureModel", "max_displacement", self.max_displacement, low=0, integer=True)

    @property
    def filter_shapes(self) -> list[tuple[int, int]]:
        """`(rows, cols)` of all filters, roots and parts."""
        return [
            filter_.shape[:2]
            for component in self.components
            for filter_ in (component.root, *(part.weights for part in component.parts))
        ]

    @property
    def padding(self) -> tuple[int, int]:
        """Cells around each pyramid level, so that any root may lie almost wholly outside the picture."""
        roots = [component.root.shape for component in self.components]
        return max(shape[0] for shape in roots), max(shape[1] for shape in roots)

    @property
    def n_parts(self) -> int:
        """The largest number of parts of a component."""
        return max(len(component.parts) for component in self.components)

    def __str__(self) -> str:
        roots = ", ".join("×".join(map(str, component.root.shape[:2])) for component in self.components)
        n = len(self.components)
        return f"{self.label}: {n} components with roots of {roots} cells and up to {self.n_parts} parts"


def _checked_filter(what: str, weights: npt.ArrayLike) -> npt.NDArray[np.float32]:
    array = np.ascontiguousarray(weights, dtype=np.float32)
    if array.ndim != 3 or array.shape[2] != N_CHANNELS or 0 in array.shape:
        raise DataError(f"{what} must have the shape (rows, cols, {N_CHANNELS}), not {array.shape}.")
    if not np.isfinite(array).all():
        raise DataError(f"{what} holds NaN or infinite weights.")
    return array


def _checked_vector(what: str, values: npt.ArrayLike, n: int) -> npt.NDArray[np.float32]:
    array = np.asarray(values, dtype=np.float32)
    if array.shape != (n,) or not np.isfinite(array).all():
        raise DataError(f"{what} must be {n} finite numbers, not {array.tolist()}.")
    return array
