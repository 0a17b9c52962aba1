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
squared                     ½ (z − y)²              least squares; for labels as well
gamma_logistic              see `GammaLogistic`     a smooth tube, the sharper the higher γ
=========================== ======================= ==========================================================

A `SmoothLoss` has a bounded curvature and a conjugate as well. With the first a loss lies below a parabola
that touches it anywhere, and with the second a duality gap can be told (`visionkl.solvers.smooth`).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import expit, xlogy

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


class SmoothLoss(Protocol):
    """A convex loss with a bounded second derivative."""

    curvature: float

    def value(self, z: Vector) -> Vector:
        """Losses at margins or scores."""
        ...

    def derivative(self, z: Vector) -> Vector:
        """Return derivatives at margins or scores."""
        ...

    def conjugate(self, slope: Vector) -> Vector:
        """Return max_z slope · z − loss(z), for slopes that the loss has somewhere."""
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

    curvature = 2.0

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

    def conjugate(self, slope: Vector) -> Vector:
        """Return the conjugate; slopes are 0 or below."""
        return slope + slope**2 / 4


class Logistic:
    """`log(1 + e^(−z))`."""

    curvature = 0.25

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

    def conjugate(self, slope: Vector) -> Vector:
        """Return the conjugate; slopes lie between -1 and 0."""
        return xlogy(-slope, -slope) + xlogy(1 + slope, 1 + slope)


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


class Squared:
    """`½ (z − y)²`.

    Parameters
    ----------
    targets : ndarray of float64
        y; any shape, that of the scores.
    """

    curvature = 1.0

    def __init__(self, targets: Vector) -> None:
        self.targets = targets

    def value(self, z: Vector) -> Vector:
        """Losses at scores."""
        return 0.5 * (z - self.targets) ** 2

    def derivative(self, z: Vector) -> Vector:
        """Return derivatives at scores."""
        return z - self.targets

    def conjugate(self, slope: Vector) -> Vector:
        """Return the conjugate."""
        return slope * (0.5 * slope + self.targets)


class GammaLogistic:
    """The ε-insensitive γ-logistic loss, which turns into `max(0, |z − y| − ε)` as γ grows (METHODS §7).

    `(1/γ) [log(1 + e^(γ(z − y − ε))) + log(1 + e^(γ(y − z − ε))) − 2 log(1 + e^(−γε))]`, which is 0 for
    z = y. With e = z − y its derivative is `sinh(γe) / (cosh(γe) + cosh(γε))`, which can be inverted.

    Parameters
    ----------
    targets : ndarray of float64
        y; any shape, that of the scores.
    epsilon : float
    gamma : float
        γ > 0, with γε at most 300.
    """

    def __init__(self, targets: Vector, epsilon: float, gamma: float) -> None:
        self.targets = targets
        self.epsilon = epsilon
        self.gamma = gamma
        # Where the second derivative is highest depends on γε; γ/2 is the bound for all, reached for ε = 0.
        self.curvature = gamma / 2

    def value(self, z: Vector) -> Vector:
        """Losses at scores."""
        return self._of_error(z - self.targets)

    def derivative(self, z: Vector) -> Vector:
        """Return derivatives at scores."""
        error = self.gamma * (z - self.targets)
        width = self.gamma * self.epsilon
        return expit(error - width) - expit(-error - width)

    def conjugate(self, slope: Vector) -> Vector:
        """Return the conjugate; slopes lie between -1 and 1."""
        inner = np.clip(slope, -1 + 1e-15, 1 - 1e-15)
        steep = np.cosh(self.gamma * self.epsilon) * inner / np.sqrt((1 - inner) * (1 + inner))
        error = (np.arcsinh(steep) + np.arctanh(inner)) / self.gamma
        return slope * (error + self.targets) - self._of_error(error)

    def _of_error(self, error: Vector) -> Vector:
        scaled, width = self.gamma * error, self.gamma * self.epsilon
        both = np.logaddexp(0, scaled - width) + np.logaddexp(0, -scaled - width)
        return (both - 2 * np.logaddexp(0, -width)) / self.gamma


class Signed:
    """A loss of margins as one of scores, given labels +1 and -1."""

    def __init__(self, loss: SmoothLoss, labels: Vector) -> None:
        self.loss = loss
        self.labels = labels
        self.curvature = loss.curvature

    def value(self, z: Vector) -> Vector:
        """Losses at scores."""
        return self.loss.value(self.labels * z)

    def derivative(self, z: Vector) -> Vector:
        """Return derivatives at scores."""
        return self.labels * self.loss.derivative(self.labels * z)

    def conjugate(self, slope: Vector) -> Vector:
        """Return the conjugate."""
        return self.loss.conjugate(self.labels * slope)
