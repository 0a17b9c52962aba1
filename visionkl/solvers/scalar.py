"""Losses of one sample, as functions of its margin or of its score.

Classification has labels +1 and -1, and its losses are functions of the *margin* z = label · score.
Regression has target values, and its losses are functions of the score z itself, with a *tube* around the
target in which nothing is lost:

=========================== ======================= ==========================================================
hinge                       max(0, 1 − z)           the support vector machine; take this if unsure
squared_hinge               max(0, 1 − z)²          differentiable; counts gross mistakes more
logistic                    log(1 + e^(−z))         its scores are log-odds
epsilon_insensitive         max(0, abs(z − y) − ε)  support vector regression; take this if unsure
squared_epsilon_insensitive max(0, abs(z − y) − ε)² differentiable; with ε = 0 the squared error
=========================== ======================= ==========================================================
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


class Loss(Protocol):
    """A convex loss of a number z: the margin of each sample, or its score."""

    def value(self, z: Vector) -> Vector:
        """Losses at margins."""
        ...

    def derivative(self, z: Vector) -> Vector:
        """Return derivatives at margins; where there are two, the one to the left."""
        ...

    def tangents(self, z: Vector, weights: Vector, slack: float) -> tuple[Vector, Vector]:
        """Slopes and offsets of lines below the loss, whose weighted sum is at most `slack` below it at z."""
        ...


class Hinge:
    """`max(0, 1 − z)`."""

    def value(self, z: Vector) -> Vector:
        """Losses at margins."""
        return np.maximum(1 - z, 0)

    def derivative(self, z: Vector) -> Vector:
        """Return derivatives at margins; at the kink, -1."""
        return -(z <= 1).astype(np.float64)

    def tangents(self, z: Vector, weights: Vector, slack: float) -> tuple[Vector, Vector]:
        """Lines `share · (1 − z)` with shares of 0 and 1, or between them near the kink."""
        distance = np.abs(1 - z)
        width = _width_of_slack(distance, weights, slack) if slack > 0 else 0.0
        share = np.clip(0.5 + (1 - z) / (2 * width), 0, 1) if width > 0 else (z < 1).astype(np.float64)
        return -share, share


def _width_of_slack(distance: Vector, weights: Vector, slack: float) -> float:
    """Width around the kink within which shares may go from 1 to 0 at the expense of `slack`.

    A sample at a distance d < width is `d (1 − d / width) / 2` below the hinge.
    """
    low, high = 0.0, 2 * float(distance.max(initial=0.0)) + 1
    for _ in range(30):
        width = (low + high) / 2
        near = distance < width
        lost = 0.5 * weights[near] @ (distance[near] * (1 - distance[near] / width))
        low, high = (width, high) if lost <= slack else (low, width)
    return low


class SquaredHinge:
    """`max(0, 1 − z)²`."""

    def value(self, z: Vector) -> Vector:
        """Losses at margins."""
        return np.maximum(1 - z, 0) ** 2

    def derivative(self, z: Vector) -> Vector:
        """Return derivatives at margins."""
        return -2 * np.maximum(1 - z, 0)

    def tangents(self, z: Vector, weights: Vector, slack: float) -> tuple[Vector, Vector]:
        """Slopes and offsets of the tangents."""
        slopes = self.derivative(z)
        return slopes, self.value(z) - slopes * z


class Logistic:
    """`log(1 + e^(−z))`."""

    def value(self, z: Vector) -> Vector:
        """Losses at margins."""
        return np.logaddexp(0, -z)

    def derivative(self, z: Vector) -> Vector:
        """Return derivatives at margins."""
        return -np.exp(-np.logaddexp(0, z))

    def tangents(self, z: Vector, weights: Vector, slack: float) -> tuple[Vector, Vector]:
        """Slopes and offsets of the tangents."""
        slopes = self.derivative(z)
        return slopes, self.value(z) - slopes * z


LOSSES: dict[str, Loss] = {"hinge": Hinge(), "squared_hinge": SquaredHinge(), "logistic": Logistic()}


class EpsilonInsensitive:
    """`max(0, |z − y| − ε)`: a hinge on either side of the tube, of which never both count.

    Parameters
    ----------
    targets : ndarray of float64, shape (n,)
        y of each sample.
    epsilon : float
    """

    def __init__(self, targets: Vector, epsilon: float) -> None:
        self.targets = targets
        self.epsilon = epsilon

    def value(self, z: Vector) -> Vector:
        """Losses at scores."""
        return np.maximum(np.abs(z - self.targets) - self.epsilon, 0)

    def derivative(self, z: Vector) -> Vector:
        """Return derivatives at scores; at a kink, the one to the left."""
        error = z - self.targets
        return (error > self.epsilon).astype(np.float64) - (error <= -self.epsilon)

    def tangents(self, z: Vector, weights: Vector, slack: float) -> tuple[Vector, Vector]:
        """Slopes and offsets of lines below the loss; near a kink of any slope between its two."""
        error = z - self.targets
        outside = np.concatenate([error, -error]) - self.epsilon
        width = _width_of_slack(np.abs(outside), np.tile(weights, 2), slack) if slack > 0 else 0.0
        shares = np.clip(0.5 + outside / (2 * width), 0, 1) if width > 0 else (outside > 0) * 1.0
        above, below = np.split(shares, 2)
        slopes = above - below
        return slopes, -slopes * self.targets - (above + below) * self.epsilon


class SquaredEpsilonInsensitive(EpsilonInsensitive):
    """`max(0, |z − y| − ε)²`."""

    def value(self, z: Vector) -> Vector:
        """Losses at scores."""
        return super().value(z) ** 2

    def derivative(self, z: Vector) -> Vector:
        """Return derivatives at scores."""
        error = z - self.targets
        return 2 * np.sign(error) * np.maximum(np.abs(error) - self.epsilon, 0)

    def tangents(self, z: Vector, weights: Vector, slack: float) -> tuple[Vector, Vector]:
        """Slopes and offsets of the tangents."""
        slopes = self.derivative(z)
        return slopes, self.value(z) - slopes * z


#: Losses that need the targets and the tube's half width.
TUBES = {
    "epsilon_insensitive": EpsilonInsensitive,
    "squared_epsilon_insensitive": SquaredEpsilonInsensitive,
}
