"""L-BFGS for many problems at once, against SciPy's."""

import numpy as np
import pytest
from scipy import optimize

from visionkl.solvers.batched import minimise_all


@pytest.fixture
def valleys():
    """Rosenbrock's valley with a different bend for each problem."""
    bends = np.linspace(1, 30, 25)

    def evaluate(points, which):
        x, y = points.T
        bend = bends[which]
        values = (1 - x) ** 2 + bend * (y - x**2) ** 2
        slopes = np.stack([-2 * (1 - x) - 4 * bend * x * (y - x**2), 2 * bend * (y - x**2)], axis=1)
        return values, slopes

    return evaluate, np.random.default_rng(0).normal(size=(25, 2))


def test_valleys_end_at_their_minima(valleys):
    evaluate, start = valleys
    found = minimise_all(evaluate, start, max_iter=500, tol=1e-8)
    assert found.converged.all()
    np.testing.assert_allclose(found.points, 1, atol=1e-4)
    assert found.n_iter.max() < 150


def test_together_is_one_by_one(valleys):
    evaluate, start = valleys
    together = minimise_all(evaluate, start)
    for k in range(len(start)):
        alone = minimise_all(
            lambda points, which, k=k: evaluate(points, np.full(len(which), k)), start[k : k + 1]
        )
        np.testing.assert_array_equal(together.points[k], alone.points[0])
        assert together.n_iter[k] == alone.n_iter[0]


def test_bounds_as_in_scipy(valleys):
    evaluate, start = valleys
    low, high = np.array([-0.5, -0.2]), np.array([0.6, 0.9])
    found = minimise_all(evaluate, start, low=low, high=high, max_iter=500, tol=1e-9)
    assert (found.points >= low).all()
    assert (found.points <= high).all()
    for k, value in enumerate(found.values):
        peer = optimize.minimize(
            lambda x, k=k: tuple(part[0] for part in evaluate(x[None], np.array([k]))),
            np.clip(start[k], low, high),
            jac=True,
            bounds=list(zip(low, high, strict=True)),
        )
        assert value == pytest.approx(peer.fun, abs=1e-6)


def test_no_steps_and_no_problems(valleys):
    evaluate, start = valleys
    still = minimise_all(evaluate, start, max_iter=0)
    np.testing.assert_array_equal(still.points, start)
    assert not still.converged.any()
    assert minimise_all(evaluate, start[:0]).points.shape == (0, 2)


def test_values_never_rise(valleys):
    evaluate, start = valleys
    before = evaluate(start, np.arange(len(start)))[0]
    for n in (1, 2, 5, 10):
        after = minimise_all(evaluate, start, max_iter=n).values
        assert (after <= before).all()
        before = after


def test_steps_that_lead_nowhere_end():
    """A kink: no step downhill is small enough in the end, and the search says so instead of going on."""
    found = minimise_all(
        lambda points, _: (np.abs(points).sum(axis=1), np.sign(points) + 0.5), [[1.0]], max_iter=50
    )
    assert np.isfinite(found.values).all()
