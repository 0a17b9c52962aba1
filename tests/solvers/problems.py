"""Small problems, and slow, independent ways to solve them."""

import numpy as np
from scipy.optimize import minimize


def two_classes(n, d, seed=0, *, noise=0.5):
    """Correlated rows of two overlapping classes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) / np.sqrt(d)
    score = X @ rng.normal(size=d)
    y = np.where(score + noise * score.std() * rng.normal(size=n) > 0.2 * score.std(), 1, -1)
    y[:2] = 1, -1
    return X, y


def codes_and_books(n, n_blocks, n_codewords, size, seed=0):
    rng = np.random.default_rng(seed)
    books = rng.normal(size=(n_blocks, n_codewords, size))
    codes = rng.integers(0, n_codewords, (n, n_blocks)).astype(np.uint8)
    return codes, books


def decode(codes, books):
    return np.concatenate([books[m][codes[:, m]] for m in range(len(books))], axis=1)


def objective(w, X, y, strength, loss, weights=None):
    margins = y * (X @ w)
    weights = np.ones(len(y)) if weights is None else weights
    losses = {
        "hinge": np.maximum(1 - margins, 0),
        "squared_hinge": np.maximum(1 - margins, 0) ** 2,
        "logistic": np.log1p(np.exp(-margins)),
    }[loss]
    return strength / 2 * w @ w + (weights * losses).mean()


def solve_with_slacks(quadratic, rows, y, owners, strength, lower=None):
    """Minimise `strength/2 v Q v + mean over samples of max over rows of hinge` by a general solver.

    The variables are v and a slack for each sample; every row is a constraint of its owner's slack.
    """
    dim, n = quadratic.shape[0], owners.max() + 1
    signs = y[owners]

    def value(z):
        return strength / 2 * z[:dim] @ quadratic @ z[:dim] + z[dim:].mean()

    def gradient(z):
        return np.concatenate([strength * quadratic @ z[:dim], np.full(n, 1 / n)])

    member = np.eye(n)[owners]
    matrix = np.hstack([signs[:, None] * rows, member])
    constraint = {"type": "ineq", "fun": lambda z: matrix @ z - 1, "jac": lambda z: matrix}
    lowest = np.full(dim, -np.inf) if lower is None else lower
    start = np.concatenate([np.maximum(np.zeros(dim), lowest), np.full(n, 1.0)])
    start[dim:] = np.maximum(0, np.bincount(owners, minlength=n) * 0 + 1)
    for i in range(n):
        start[dim + i] = max(0, (1 - signs * (rows @ start[:dim]))[owners == i].max())
    bounds = [(low if np.isfinite(low) else None, None) for low in lowest] + [(0, None)] * n
    answer = minimize(
        value,
        start,
        jac=gradient,
        constraints=[constraint],
        bounds=bounds,
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-13},
    )
    assert answer.success, answer.message
    return answer.x[:dim], answer.fun
