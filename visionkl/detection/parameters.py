"""A mixture as one vector of parameters, which is how a solver sees it.

Learned components come in mirrored pairs that share their parameters: model components 2k and 2k + 1 are
learned component k and its mirror image. The vector holds, component after component,

====================== ==================================================== ============ ===========
block                  numbers                                              regularised  at least
====================== ==================================================== ============ ===========
root filter            rows · cols · 32                                     1
each part: filter      rows · cols · 32                                     1
each part: deformation ax, bx, ay, by                                       10           0.01 (a)
scale bias             3                                                    1
bias                   1, seen through a gain of 10                         0.01
====================== ==================================================== ============ ===========

The score of a placement is the inner product of the vector with the placement's features: its cells, minus
its deformations `dx², dx, dy², dy`, the octave's indicator, and the gain. The multipliers of the
regularisation and the lower bound, without which a part could fly away, are those of the published models;
their bias is not regularised at all, ours so little that it makes no difference but keeps the problem
strictly convex.

What is regularised is the *largest* component, not their sum: else the clearest view would take all the
weight, and the others would learn to see nothing. The largest of some numbers is their weighted mean with the
worst shares; `next_shares` moves shares towards those, from one solution to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from visionkl.detection.model import N_SCALE_BIASES, Component, MixtureModel, Part
from visionkl.features.hog import N_CHANNELS, mirror

BIAS_GAIN = 10.0
SMALLEST_QUADRATIC_COST = 0.01

_DEFORMATION_WEIGHT = 10.0
_BIAS_WEIGHT = 0.01
# However small a component is, it keeps so much of an equal share.
_SMALLEST_SHARE = 0.02

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ComponentBlocks:
    """Where the parameters of one learned component lie in the vector.

    Parameters
    ----------
    cells : slice
        All filters' weights: the root's cells row by row, then each part's.
    deformations, scale_bias : slice
    bias : int
    """

    cells: slice
    deformations: slice
    scale_bias: slice
    bias: int

    @property
    def all(self) -> slice:
        """All parameters of the component."""
        return slice(self.cells.start, self.bias + 1)


class Parameters:
    """The correspondence between a mixture of mirrored pairs and its parameter vector.

    Parameters
    ----------
    components : sequence of Component
        The learned components; only their shapes and anchors matter here.
    shares : sequence of float, optional
        Each component's share in the regularisation; the sum is 1. Equal by default.
    """

    def __init__(self, components: Sequence[Component], shares: Sequence[float] | None = None) -> None:
        self.components = tuple(components)
        self.shares = tuple(shares or (1 / len(self.components),) * len(self.components))
        self.blocks: list[ComponentBlocks] = []
        first = 0
        for component in self.components:
            cells = slice(first, first + N_CHANNELS * n_cells(component))
            deformations = slice(cells.stop, cells.stop + 4 * len(component.parts))
            scale_bias = slice(deformations.stop, deformations.stop + N_SCALE_BIASES)
            self.blocks.append(ComponentBlocks(cells, deformations, scale_bias, scale_bias.stop))
            first = scale_bias.stop + 1
        self.size = first

    def regularisation(self) -> Vector:
        """Multiplier of each squared parameter."""
        weights = np.ones(self.size)
        for block, share in zip(self.blocks, self.shares, strict=True):
            weights[block.deformations] = _DEFORMATION_WEIGHT
            weights[block.bias] = _BIAS_WEIGHT
            weights[block.all] *= share
        return weights

    def next_shares(self, vector: Vector) -> tuple[float, ...]:
        """Return larger shares for the components that are large in this solution, smaller for the others."""
        plain = self.regularisation() * vector**2
        sizes = np.array(
            [plain[block.all].sum() / share for block, share in zip(self.blocks, self.shares, strict=True)]
        )
        moved = np.array(self.shares) * np.sqrt(np.maximum(sizes, 1e-12) / max(sizes.mean(), 1e-12))
        moved = np.maximum(moved / moved.sum(), _SMALLEST_SHARE / len(sizes))
        return tuple((moved / moved.sum()).tolist())

    def lower_bounds(self) -> Vector:
        """Smallest value of each parameter; -inf where there is none."""
        bounds = np.full(self.size, -np.inf)
        for block in self.blocks:
            bounds[block.deformations].reshape(-1, 4)[:, [0, 2]] = SMALLEST_QUADRATIC_COST
        return bounds

    def vector(self, components: Sequence[Component]) -> Vector:
        """Return the parameters of learned components of these shapes."""
        vector = np.empty(self.size)
        for block, component in zip(self.blocks, components, strict=True):
            vector[block.cells] = component_cells(component).ravel()
            deformations = np.array([part.deformation for part in component.parts], np.float64)
            vector[block.deformations] = deformations.reshape(-1)
            vector[block.scale_bias] = component.scale_bias
            vector[block.bias] = component.bias / BIAS_GAIN
        return vector

    def learned(self, vector: Vector) -> tuple[Component, ...]:
        """Return the learned components with these parameters."""
        return tuple(
            _component(component, block, vector)
            for component, block in zip(self.components, self.blocks, strict=True)
        )


def with_mirrors(components: Sequence[Component]) -> tuple[Component, ...]:
    """Put the mirror image of each learned component after it."""
    return tuple(each for component in components for each in (component, mirrored(component)))


def without_mirrors(model: MixtureModel) -> tuple[Component, ...]:
    """Return the learned components of a model made by `with_mirrors`."""
    return model.components[::2]


def mirrored(component: Component) -> Component:
    """Return the mirror image of a component; its box regression is left out."""
    cols = component.root.shape[1]
    return replace(
        component,
        root=mirror(component.root),
        parts=tuple(part.mirrored(cols) for part in component.parts),
        box_weights=None,
    )


def are_mirrored(one: Component, other: Component) -> bool:
    """Tell whether the roots of two components are mirror images of each other, nearly."""
    if one.root.shape != other.root.shape or len(one.parts) != len(other.parts):
        return False
    largest = float(np.abs(one.root).max(initial=1e-12))
    return bool(np.allclose(mirror(one.root), other.root, atol=1e-4 * largest))


def n_cells(component: Component) -> int:
    """Count the cells of a component's filters."""
    return sum(filter_.shape[0] * filter_.shape[1] for filter_ in filters_of(component))


def filters_of(component: Component) -> list[npt.NDArray[np.float32]]:
    """List the root filter and the parts' filters."""
    return [component.root, *(part.weights for part in component.parts)]


def component_cells(component: Component) -> npt.NDArray[np.float32]:
    """Return all filters' cells `(n_cells, 32)`: the root's row by row, then each part's."""
    return np.concatenate([filter_.reshape(-1, N_CHANNELS) for filter_ in filters_of(component)])


def mirror_cells(component: Component, cells: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """Mirror what belongs to the cells `(n_cells, 32)` of a component, filter by filter."""
    mirrored_filters = []
    first = 0
    for filter_ in filters_of(component):
        rows, cols, _ = filter_.shape
        own = cells[first : first + rows * cols].reshape(rows, cols, N_CHANNELS)
        mirrored_filters.append(mirror(own).reshape(-1, N_CHANNELS))
        first += rows * cols
    return np.concatenate(mirrored_filters)


def _component(shape: Component, block: ComponentBlocks, vector: Vector) -> Component:
    cells = vector[block.cells].reshape(-1, N_CHANNELS).astype(np.float32)
    deformations = vector[block.deformations].reshape(-1, 4).astype(np.float32)
    filters: list[npt.NDArray[np.float32]] = []
    first = 0
    for filter_ in filters_of(shape):
        rows, cols, _ = filter_.shape
        filters.append(cells[first : first + rows * cols].reshape(rows, cols, N_CHANNELS))
        first += rows * cols
    parts = tuple(
        Part(weights, part.anchor, deformation)
        for part, weights, deformation in zip(shape.parts, filters[1:], deformations, strict=True)
    )
    scale_bias = vector[block.scale_bias].astype(np.float32)
    return Component(filters[0], parts, float(vector[block.bias]) * BIAS_GAIN, scale_bias, shape.box_weights)
