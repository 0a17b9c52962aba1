"""Problems in step: each ends where it would by itself."""

import numpy as np
import pytest

from tests.solvers.problems import two_classes
from visionkl.core.errors import UsageError
from visionkl.solvers.bundle import minimise
from visionkl.solvers.losses import Risk
from visionkl.solvers.metrics import DiagonalMetric
from visionkl.solvers.rows import DenseRows
from visionkl.solvers.together import minimise_together


@pytest.fixture(scope="module")
def several():
    X, y = two_classes(600, 10)
    rows = DenseRows(X)
    others = np.sign(X[:, 0] + 0.1), np.sign(X[:, 1] - X[:, 2])
    return [Risk(rows, labels) for labels in (y, *others)]


def test_the_same_steps_as_alone(several):
    metric = DiagonalMetric(11)
    together = minimise_together(several, metric, regularisation=1e-2, tol=1e-4)
    for risk, result in zip(several, together, strict=True):
        alone = minimise(risk, metric, regularisation=1e-2, tol=1e-4)
        assert result.converged
        assert result.n_passes == alone.n_passes
        np.testing.assert_allclose(result.v, alone.v, atol=1e-6)
    assert len({result.n_passes for result in together}) > 1  # some drop out earlier


def test_threads_change_nothing(several):
    metric = DiagonalMetric(11)
    one, two = (minimise_together(several, metric, regularisation=1e-2, n_jobs=k) for k in (1, 2))
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a.v, b.v)


def test_a_warm_start_saves_passes(several):
    metric = DiagonalMetric(11)
    first = minimise_together(several, metric, regularisation=1.2e-2, tol=1e-4)
    warm = minimise_together(several, metric, regularisation=1e-2, tol=1e-4, warm=first)
    cold = minimise_together(several, metric, regularisation=1e-2, tol=1e-4)
    for a, b in zip(warm, cold, strict=True):
        assert a.primal == pytest.approx(b.primal, rel=2e-4)
    assert sum(a.n_passes for a in warm) < sum(b.n_passes for b in cold)


def test_risks_of_different_data_are_refused(several):
    other = Risk(DenseRows(several[0].rows.X), several[0].labels)
    with pytest.raises(UsageError, match="same rows"):
        minimise_together([several[0], other], DiagonalMetric(11), regularisation=1e-2)
