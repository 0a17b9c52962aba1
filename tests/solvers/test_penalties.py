"""Penalties: proximal operators against numeric minimisation, and duality."""

import numpy as np
import pytest
from scipy import optimize

from visionkl.solvers.penalties import PENALTIES

GROUPS = [slice(0, 3), slice(3, 4), slice(4, 6)]


def make(name):
    return PENALTIES[name](GROUPS)


@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize("step", [0.1, 0.7, 3.0])
def test_prox_is_the_minimum(name, step):
    penalty = make(name)
    point = np.random.default_rng(3).normal(size=(6, 1))

    def objective(v):
        return 0.5 * ((v - point[:, 0]) ** 2).sum() + step * penalty.value(v[:, None])[0]

    found = penalty.prox(point, step)[:, 0]
    numeric = optimize.minimize(
        objective, found + 0.05, method="Powell", options={"xtol": 1e-9, "ftol": 1e-13}
    )
    assert objective(found) <= numeric.fun + 1e-9
    # Convex, so nothing near it may be lower.
    for direction in np.random.default_rng(4).normal(size=(50, 6)):
        assert objective(found) <= objective(found + 1e-4 * direction)


@pytest.mark.parametrize("name", PENALTIES)
def test_outputs_have_steps_of_their_own(name):
    penalty = make(name)
    points, steps = np.random.default_rng(5).normal(size=(6, 2)), np.array([0.2, 0.9])
    both = penalty.prox(points, steps)
    for k in range(2):
        np.testing.assert_allclose(both[:, [k]], penalty.prox(points[:, [k]], steps[k]), rtol=1e-14)


@pytest.mark.parametrize("name", PENALTIES)
def test_shrunk_slopes_obey_the_inequality_of_fenchel(name):
    penalty = make(name)
    rng = np.random.default_rng(6)
    slopes, weights, strength = rng.normal(size=(6, 40)), rng.normal(size=(6, 40)), rng.uniform(0.1, 2, 40)
    shrunk = slopes * penalty.dual_scale(slopes, strength)
    products = (shrunk * weights).sum(axis=0)
    assert (products <= strength * penalty.value(weights) + penalty.conjugate(shrunk, strength) + 1e-12).all()
