"""The bundle's small problem against a general solver, and its bounded memory."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from visionkl.solvers.master import IDLE_ANSWERS, Master, solve_simplices


def random_problem(seed, m, n_parts, n_free, rank):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(m + n_free, rank))
    parts = np.concatenate([np.arange(n_parts), rng.integers(0, n_parts, m - n_parts), np.full(n_free, -1)])
    x = np.zeros(m + n_free)
    x[:n_parts] = 1.0
    Q = A @ A.T
    # Numbers without a sum must not run away.
    Q[m:, m:] += 0.1 * np.eye(n_free)
    return Q, rng.normal(size=m + n_free), parts, x


def value(Q, c, x):
    return x @ Q @ x / 2 - c @ x


def violation(Q, c, parts, x):
    """How far from optimal: per part, weight times the distance from the lowest gradient."""
    gradient = Q @ x - c
    total = 0.0
    for part in range(parts.max() + 1):
        own = parts == part
        total += x[own] @ (gradient[own] - gradient[own].min())
    free = parts < 0
    return total + np.abs(np.where(x[free] > 0, gradient[free], np.minimum(gradient[free], 0))).sum()


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**31), st.integers(4, 30), st.integers(1, 4), st.integers(0, 3), st.integers(1, 12))
def test_small_problem_is_solved_to_rounding(seed, m, n_parts, n_free, rank):
    Q, c, parts, start = random_problem(seed, m, n_parts, n_free, rank)
    x = solve_simplices(Q, c, parts, start)
    assert (x >= 0).all()
    for part in range(n_parts):
        assert x[parts == part].sum() == pytest.approx(1, abs=1e-9)
    assert violation(Q, c, parts, x) < 1e-7 * (1 + np.abs(Q).max())


@pytest.mark.parametrize("seed", range(5))
def test_small_problem_equals_a_general_solver(seed):
    Q, c, parts, start = random_problem(seed, 12, 2, 2, 5)
    sums = [{"type": "eq", "fun": lambda x, p=p: x[parts == p].sum() - 1} for p in range(2)]
    other = minimize(
        lambda x: value(Q, c, x),
        start,
        jac=lambda x: Q @ x - c,
        bounds=[(0, None)] * len(c),
        constraints=sums,
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    x = solve_simplices(Q, c, parts, start)
    assert value(Q, c, x) == pytest.approx(other.fun, abs=1e-8)


def test_accuracy_is_kept():
    Q, c, parts, start = random_problem(3, 60, 3, 0, 40)
    best = value(Q, c, solve_simplices(Q, c, parts, start))
    for accuracy in (1.0, 1e-2, 1e-4):
        assert value(Q, c, solve_simplices(Q, c, parts, start, accuracy)) <= best + accuracy


def test_equal_and_dependent_planes_are_no_trouble():
    planes = np.array([[1.0, 0], [1, 0], [0, 1], [0.5, 0.5], [0, 0], [0, 0]])
    c = np.array([0.0, 0.1, 0.2, 0.3, -1, -1])
    x = solve_simplices(planes @ planes.T, c, np.zeros(6, np.intp), np.eye(6)[0])
    assert violation(planes @ planes.T, c, np.zeros(6, np.intp), x) < 1e-10


def filled(n_planes, max_planes, *, n_parts=2, dim=6, seed=0):
    rng = np.random.default_rng(seed)
    master = Master(dim, 0.1, np.empty(0, np.intp), np.empty(0), max_planes)
    values = []
    for _ in range(n_planes // n_parts):
        master.add(rng.normal(size=n_parts), rng.normal(size=(n_parts, dim)), np.arange(n_parts))
        values.append(master.solve()[1])
    return master, values


def test_lower_bound_never_falls_with_more_planes():
    _, values = filled(40, 100)
    assert (np.diff(values) >= -1e-9).all()


@pytest.mark.parametrize("max_planes", [0, 6, 9])
def test_memory_is_bounded_and_melting_keeps_the_answer(max_planes):
    master, values = filled(200, max_planes)
    assert len(master) <= max(max_planes, 6)
    # Melted planes are averages of planes with the weights in use: the bound cannot fall.
    assert (np.diff(values) >= -1e-9).all()
    assert np.allclose(master.gram, master.planes @ master.planes.T)
    assert master.alpha[master.parts == 0].sum() == pytest.approx(1)


def test_unused_planes_are_dropped_first():
    master, _ = filled(2, 8, n_parts=1)
    master.add(np.array([-100.0]), np.zeros((1, 6)), np.zeros(1, np.intp))
    for _ in range(IDLE_ANSWERS + 1):
        master.solve()
    for _ in range(8):
        master.add(np.array([1.0]), np.eye(6)[:1], np.zeros(1, np.intp))
    assert -100.0 not in master.offsets


def test_bounds_by_hand():
    # min 1/2 w² + max(0, 1 − w₀) with w₁ ≥ 0.5: w = (1, 0.5).
    master = Master(2, 1.0, np.array([1]), np.array([0.5]), 10)
    master.add(np.array([0.0, 1.0]), np.array([[0.0, 0], [-1, 0]]), np.zeros(2, np.intp))
    answer, bound = master.solve()
    assert answer == pytest.approx([1, 0.5])
    assert bound == pytest.approx(0.5 + 0.125)
