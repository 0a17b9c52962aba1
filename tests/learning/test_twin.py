"""Twin Gaussian processes: slopes, the plain process, neighbours, uncertainty, bad input."""

import warnings

import numpy as np
import pytest
from scipy import optimize
from sklearn.kernel_ridge import KernelRidge
from sklearn.utils.estimator_checks import parametrize_with_checks

from visionkl.core.errors import DataError, UsageError
from visionkl.kernels.exact import Gaussian
from visionkl.learning.twin import TwinGaussianProcess
from visionkl.learning.twin_search import OwnSamples, SharedSamples, TwinCriterion, inverse_of

CRITERIA = ("kl", "hsic")


@parametrize_with_checks(
    [
        TwinGaussianProcess(),
        TwinGaussianProcess(criterion="hsic", degrees=(2, 2)),
        TwinGaussianProcess(n_neighbors=5),
    ]
)
@pytest.mark.filterwarnings("ignore:.*neighbours were asked for")
def test_scikit_learn_is_content(estimator, check):
    check(estimator)


def s_shape(n, seed):
    """One x may have three r."""
    random = np.random.default_rng(seed)
    r = random.uniform(size=n)
    return (r + 0.3 * np.sin(2 * np.pi * r) + 0.05 * random.normal(size=n))[:, None], r


@pytest.fixture(scope="module")
def smooth():
    random = np.random.default_rng(0)
    X = random.uniform(-1, 1, size=(120, 3))
    Y = np.stack([np.sin(2 * X[:, 0]), X[:, 1] * X[:, 2], 100 * np.cos(X[:, 0] + X[:, 1])], axis=1)
    return X[:90], Y[:90], X[90:], Y[90:]


class Plain:
    """The plain process for one test point after another, as METHODS §9 writes it; slow."""

    def __init__(self, X, Y, sigma, output_sigma, noise):
        self.X, self.Y, self.sigma, self.output_sigma, self.noise = X, Y, sigma, output_sigma, noise
        identity = noise * np.eye(len(X))
        self.K = self.gram(X, X, sigma)
        self.K_inverse = np.linalg.inv(self.K + identity)
        self.G_inverse = np.linalg.inv(self.gram(Y, Y, output_sigma) + identity)

    @staticmethod
    def gram(A, B, sigma):
        return np.exp(-0.5 * sigma**2 * ((A[:, None] - B) ** 2).sum(axis=-1))

    def kl(self, x, y):
        k = self.gram(x[None], self.X, self.sigma)[0]
        g = self.gram(y[None], self.Y, self.output_sigma)[0]
        u = self.K_inverse @ k
        eta = 1 + self.noise - k @ u
        return 1 - 2 * g @ u - eta * np.log(1 + self.noise - g @ self.G_inverse @ g)

    def hsic(self, x, y):
        """Minus the part of (m − 1)² HSIC of the samples and the new one that depends on y."""
        K, G = (self.gram(*[np.vstack([rows, new])] * 2, s) for rows, new, s in
                ((self.X, x, self.sigma), (self.Y, y, self.output_sigma)))  # fmt: skip
        H = np.eye(len(K)) - 1 / len(K)
        return -np.trace(H @ K @ H @ G)

    def predict(self, X, criterion):
        start = self.gram(X, self.X, self.sigma) @ self.K_inverse @ (self.Y - self.Y.mean(axis=0))
        found = []
        unit = 1 / self.output_sigma
        for x, y in zip(X, start + self.Y.mean(axis=0), strict=True):
            answer = optimize.minimize(
                lambda z, x=x: getattr(self, criterion)(x, z * unit), y / unit, options={"gtol": 1e-7}
            )
            found.append(answer.x * unit)
        return np.array(found)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_degree_one_is_the_plain_process(smooth, criterion):
    X, Y, X_new, _ = smooth
    Y = Y[:, :2]
    process = TwinGaussianProcess(
        criterion=criterion, degrees=(1, 1), kernel=Gaussian(1.0), output_kernel=Gaussian(2.0), tol=1e-8
    )
    plain = Plain(X, Y, 1.0, 2.0, 1e-2)
    found = process.fit(X, Y).predict(X_new[:8])
    wanted = plain.predict(X_new[:8], criterion)
    inside = (np.abs(wanted - Y.mean(axis=0)) < 0.5 + np.abs(Y - Y.mean(axis=0)).max(axis=0)).all(axis=1)
    assert inside.sum() >= 6
    np.testing.assert_allclose(found[inside], wanted[inside], atol=2e-4)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("own", [False, True])
def test_slopes_by_finite_differences(criterion, own):
    random = np.random.default_rng(0)
    n, m, d = 3, 20, 4
    outputs = random.normal(size=(n, m, d)) if own else random.normal(size=(m, d))
    root = random.normal(size=(n, m, m) if own else (m, m)) / m
    inverse = 0.02 * np.matmul(root, np.swapaxes(root, -1, -2))
    samples = (OwnSamples if own else SharedSamples)(outputs, inverse)
    coefficients = (0.0, 0.3, 0.0, 0.5, 0.2)
    eta = random.uniform(0.1, 1, size=n) if criterion == "kl" else None
    criterion_of = TwinCriterion(samples, coefficients, random.normal(size=(n, m)), eta, 0.01)
    points, which = random.normal(size=(n, d)), np.array([2, 0, 1])
    _, slopes = criterion_of(points, which)
    for j in range(d):
        step = 1e-6 * (np.arange(d) == j)
        above, below = criterion_of(points + step, which)[0], criterion_of(points - step, which)[0]
        np.testing.assert_allclose((above - below) / 2e-6, slopes[:, j], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_values_against_the_definition(criterion):
    """With polynomials, up to a constant, from the matrices themselves."""
    random = np.random.default_rng(0)
    X, Y, x = random.normal(size=(30, 2)), random.normal(size=(30, 3)), random.normal(size=(1, 2))
    process = TwinGaussianProcess(
        criterion=criterion, degrees=(2, 3), kernel=Gaussian(0.8), output_kernel=Gaussian(0.7), max_steps=0
    ).fit(X, Y)
    phi, psi = process.transform_.input_kernel_, process.transform_.output_kernel_
    gram, column = phi(X), phi(x, X)[0]
    noise = 1e-2 * gram[0, 0], 1e-2 * float(psi.diagonal(Y)[0])
    u = np.linalg.solve(gram + noise[0] * np.eye(30), column)
    eta = gram[0, 0] + noise[0] - column @ u

    def kl(y):
        p = psi(y[None], Y)[0]
        top = float(psi.diagonal(y[None])[0])
        left = top + noise[1] - p @ np.linalg.solve(psi(Y) + noise[1] * np.eye(30), p)
        return -2 * p @ u - eta * np.log(left)

    def hsic(y):
        K, G = phi(np.vstack([X, x])), psi(np.vstack([Y, y]))
        H = np.eye(31) - 1 / 31
        return -np.trace(H @ K @ H @ G)

    from visionkl.learning import twin

    seen = []
    original = twin.minimise_all
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            twin,
            "minimise_all",
            lambda evaluate, *a, **k: seen.append(evaluate) or original(evaluate, *a, **k),
        )
        _, found_eta = process.predict(x, return_uncertainty=True)
    assert found_eta[0] == pytest.approx(eta)
    points = random.normal(size=(5, 3))
    scaled = (points - process.output_mean_) / process.output_width_
    ours = [seen[0](z[None], np.array([0]))[0][0] for z in scaled]
    theirs = [(kl if criterion == "kl" else hsic)(y) for y in points]
    np.testing.assert_allclose(np.diff(ours), np.diff(theirs), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("n_neighbors", [None, 25])
def test_together_is_one_by_one(smooth, criterion, n_neighbors):
    X, Y, X_new, _ = smooth
    process = TwinGaussianProcess(criterion=criterion, n_neighbors=n_neighbors, tol=1e-7).fit(X, Y)
    together = process.predict(X_new)
    alone = np.concatenate([process.predict(x[None]) for x in X_new])
    np.testing.assert_allclose(together / process.output_width_, alone / process.output_width_, atol=1e-5)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_all_but_one_neighbour_is_nearly_all(smooth, criterion):
    X, Y, X_new, _ = smooth
    settings = {"criterion": criterion, "degrees": (11, 11)}
    some, everyone = (
        TwinGaussianProcess(**settings, n_neighbors=n).fit(X, Y / Y.std(axis=0)) for n in (89, None)
    )
    np.testing.assert_allclose(some.transform_.beta_, everyone.transform_.beta_)
    assert np.median(np.abs(some.predict(X_new) - everyone.predict(X_new))) < 0.02


def test_smooth_functions_are_learned(smooth):
    X, Y, X_new, Y_new = smooth
    Y, Y_new = Y / Y.std(axis=0), Y_new / Y.std(axis=0)
    little = {"input_noise": 1e-4, "output_noise": 1e-4}
    assert TwinGaussianProcess(**little).fit(X, Y).score(X_new, Y_new) > 0.97
    assert TwinGaussianProcess(**little, n_neighbors=40).fit(X, Y).score(X_new, Y_new) > 0.9
    assert TwinGaussianProcess(criterion="hsic", degrees=(11, 11)).fit(X, Y).score(X_new, Y_new) > 0.6


def test_better_than_kernel_ridge_where_outputs_are_multivalued():
    errors = []
    for seed in range(3):
        (X, r), (X_new, r_new) = s_shape(250, seed), s_shape(500, 100 + seed)
        found = [
            TwinGaussianProcess(degrees=degrees).fit(X, r).predict(X_new) for degrees in ((1, 1), (1, 11))
        ]
        gammas = (1.0, 10.0, 30.0)
        found += [
            KernelRidge(kernel="rbf", gamma=gamma, alpha=1e-3).fit(X, r).predict(X_new) for gamma in gammas
        ]
        errors.append([np.abs(one - r_new).mean() for one in found])
    plain, mapped, *ridges = np.mean(errors, axis=0)
    assert mapped < plain
    assert mapped < min(ridges)


def test_uncertainty_grows_with_distance(smooth):
    X, Y, X_new, _ = smooth
    for n_neighbors in (None, 20):
        process = TwinGaussianProcess(n_neighbors=n_neighbors).fit(X, Y)
        _, near = process.predict(X_new, return_uncertainty=True)
        _, far = process.predict(X_new + 5, return_uncertainty=True)
        assert near.shape == (30,)
        assert near.max() < 0.1 < far.min()


def test_far_from_all_samples_answers_stay_in_reach(smooth):
    X, Y, X_new, _ = smooth
    for criterion in CRITERIA:
        process = TwinGaussianProcess(criterion=criterion).fit(X, Y)
        found = process.predict(X_new + 100)
        assert (found >= Y.min(axis=0) - process.output_width_ - 1e-9).all()
        assert (found <= Y.max(axis=0) + process.output_width_ + 1e-9).all()


def test_no_steps_give_the_answer_of_kernel_regression(smooth):
    X, Y, X_new, _ = smooth
    process = TwinGaussianProcess(max_steps=0, kernel=Gaussian(1.0)).fit(X, Y)
    ridge = KernelRidge(kernel="rbf", gamma=0.5, alpha=1e-2).fit(X, Y - Y.mean(axis=0))
    np.testing.assert_allclose(process.predict(X_new), ridge.predict(X_new) + Y.mean(axis=0), rtol=1e-6)


def test_shapes_and_precision(smooth):
    X, Y, X_new, _ = smooth
    flat, column = (TwinGaussianProcess().fit(X, y).predict(X_new) for y in (Y[:, 0], Y[:, :1]))
    assert flat.shape == (30,)
    assert column.shape == (30, 1)
    np.testing.assert_array_equal(flat, column[:, 0])
    found, eta = (
        TwinGaussianProcess()
        .fit(X.astype(np.float32), Y)
        .predict(X_new.astype(np.float32), return_uncertainty=True)
    )
    assert found.dtype == eta.dtype == np.float32


def test_units_do_not_matter(smooth):
    X, Y, X_new, _ = smooth
    plain = TwinGaussianProcess(tol=1e-8).fit(X, Y)
    scaled = TwinGaussianProcess(tol=1e-8).fit(1e5 * X + 3e6, 1e-4 * Y - 7)
    np.testing.assert_allclose(
        (scaled.predict(1e5 * X_new + 3e6) + 7) * 1e4, plain.predict(X_new), rtol=1e-4, atol=1e-3
    )


def test_widths_of_single_outputs(smooth):
    X, Y, X_new, _ = smooth
    each = TwinGaussianProcess(output_kernel=Gaussian(0.5 / Y.std(axis=0))).fit(X, Y)
    scaled = TwinGaussianProcess(output_kernel=Gaussian(0.5)).fit(X, Y / Y.std(axis=0))
    np.testing.assert_allclose(each.predict(X_new), scaled.predict(X_new) * Y.std(axis=0), atol=1e-3)


def test_a_factor_of_few_columns_does_what_the_inverse_does():
    random = np.random.default_rng(0)
    for d, narrow in ((1, True), (40, False)):
        Z = random.normal(size=(120, d))
        gram = Gaussian(1.0)(Z) + 1e-3 * np.eye(120)
        root = np.linalg.cholesky(gram)
        inverse = inverse_of(gram.copy(), root, 1e-3)
        assert (inverse.shape[1] < 120) == narrow
        rows = Gaussian(1.0)(random.normal(size=(10, d)), Z)
        solved = SharedSamples(Z, inverse).solve(rows, np.arange(10))
        explained = np.einsum("ij,ij->i", rows, solved)
        np.testing.assert_allclose(
            explained, np.einsum("ij,ij->i", rows, np.linalg.solve(gram, rows.T).T), atol=1e-8
        )


def test_repeated_samples_without_noise_are_told_of(smooth):
    X, Y, X_new, _ = smooth
    settings = {"input_noise": 0.0, "output_noise": 0.0}
    with pytest.warns(UserWarning, match="singular with 'input_noise' = 0"):
        process = TwinGaussianProcess(**settings).fit(np.vstack([X, X]), np.vstack([Y, Y]))
    assert np.isfinite(process.predict(X_new)).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TwinGaussianProcess().fit(np.vstack([X, X]), np.vstack([Y, Y])).predict(X_new)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_constant_features_and_outputs(smooth, criterion):
    X, Y, X_new, _ = smooth
    padded, new = (np.column_stack([rows, np.full(len(rows), 3.0)]) for rows in (X, X_new))
    found = TwinGaussianProcess(criterion=criterion, kernel=Gaussian(1.0)).fit(padded, Y).predict(new)
    wanted = TwinGaussianProcess(criterion=criterion, kernel=Gaussian(1.0)).fit(X, Y).predict(X_new)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    with pytest.warns(UserWarning, match="do not depend on inputs"):
        constant = TwinGaussianProcess(criterion=criterion).fit(X, np.full(len(X), 5.0))
    assert np.isfinite(constant.predict(X_new)).all()
    with pytest.warns(UserWarning, match="do not depend on inputs"):
        blind = TwinGaussianProcess(criterion=criterion).fit(np.ones((90, 2)), Y)
    assert np.isfinite(blind.predict(np.ones((3, 2)))).all()


def test_fewer_samples_than_neighbours(smooth):
    X, Y, X_new, _ = smooth
    with pytest.warns(UserWarning, match="200 neighbours were asked for, but there are 90 samples"):
        process = TwinGaussianProcess(n_neighbors=200).fit(X, Y)
    np.testing.assert_array_equal(process.predict(X_new), TwinGaussianProcess().fit(X, Y).predict(X_new))


def test_bad_input(smooth):
    X, Y, *_ = smooth
    for parameter, value in (
        ("criterion", "l2"),
        ("output_kernel", "chi2"),
        ("input_noise", -1),
        ("n_neighbors", 1),
        ("max_steps", 1.5),
        ("tol", "small"),
    ):
        with pytest.raises(UsageError, match=f"'{parameter}' parameter of TwinGaussianProcess"):
            TwinGaussianProcess(**{parameter: value}).fit(X, Y)
    with pytest.raises(UsageError, match="σ above 0"):
        TwinGaussianProcess(output_kernel=Gaussian(0.0)).fit(X, Y)
    with pytest.raises(DataError, match="take 'n_neighbors'"):
        TwinGaussianProcess(max_memory=1000).fit(X, Y)
    with pytest.raises(ValueError, match="NaN"):
        TwinGaussianProcess().fit(np.where(X > 0.9, np.nan, X), Y)
    with pytest.raises(ValueError, match="minimum of 2 is required"):
        TwinGaussianProcess().fit(X[:1], Y[:1])
    with pytest.raises(DataError, match="Negative values"):
        TwinGaussianProcess(kernel="chi2").fit(X, Y)


def test_other_input_kernels(smooth):
    X, Y, X_new, Y_new = smooth
    process = TwinGaussianProcess(kernel="exp_chi2").fit(X + 1, Y / Y.std(axis=0))
    assert process.score(X_new + 1, Y_new / Y.std(axis=0)) > 0.9
