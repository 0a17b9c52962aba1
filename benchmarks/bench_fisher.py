"""Fisher vectors and the mixtures they need, against scikit-image, VLFeat and scikit-learn.

The rows are dense SIFT descriptors of the picture, brought to 80 principal components; the mixture has 256
Gaussians.
"""

import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from harness import Contestant, Setting, row
from limits import matrix_product

from visionkl.core.rng import stream
from visionkl.features.densities import Mixture
from visionkl.features.fisher import FisherVector
from visionkl.features.gmm import DiagonalGMM, _Learner
from visionkl.features.local import LocalDescriptors
from visionkl.features.sift import dense_sift

N_ROWS, N_COMPONENTS, SIZE = 20_000, 256, 80
N_PASSES = 5
# Where peers save their results, as often as they run.
RESULTS = tempfile.TemporaryDirectory()
# Multiply-adds of a row: logarithms of densities, and sums over posteriors.
WORK = 2 * 2 * SIZE * N_COMPONENTS


def descriptors(picture: npt.NDArray[np.uint8]) -> LocalDescriptors:
    """Return some of the picture's descriptors, on their principal components."""
    return _descriptors(picture.tobytes(), picture.shape)


@cache
def _descriptors(picture: bytes, shape: tuple[int, ...]) -> LocalDescriptors:
    found = dense_sift(np.frombuffer(picture, np.uint8).reshape(shape))
    found = found[found.values.any(axis=1)]  # equal rows would need a floor for variances, and those differ
    found = found[np.sort(stream(0, "rows").choice(len(found), N_ROWS, replace=False))]
    centred = found.values - found.values.mean(axis=0)
    directions = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :SIZE]
    values = np.ascontiguousarray(100 * centred @ directions, np.float32)
    return LocalDescriptors(values, found.positions, found.sizes, found.image_size)


@row(
    "fisher", f"Fisher vector of {N_ROWS} descriptors, {N_COMPONENTS} Gaussians, {SIZE} components", rounds=7
)
def fisher(setting: Setting) -> Iterator[Contestant]:
    found = descriptors(setting.picture)
    mixture = DiagonalGMM(N_COMPONENTS, max_iter=5, min_variance=0.01).fit(found.values).mixture_
    learned = {"weights": mixture.weights, "means": mixture.means, "variances": mixture.variances}
    place = {"mean": np.zeros(SIZE), "components": np.eye(SIZE), "place_scale": np.ones(1)}
    ours = FisherVector(N_COMPONENTS, n_pca=None, n_jobs=1).adopt({**learned, **place})
    plain = FisherVector(N_COMPONENTS, n_pca=None, power=1, norm="none").adopt({**learned, **place})
    setting.notes.append(
        "ours and VLFeat's with power and norm; ours makes a projection to principal components, too"
    )
    yield Contestant("visionkl", "ours", lambda: _discard(ours.encode(found)))
    arrays = {"rows": found.values, **learned}
    for name, function, expected in (
        ("scikit-image", "skimage_fisher", plain.encode(found)),
        ("VLFeat", "vlfeat_fisher", ours.encode(found)),
    ):
        path = Path(RESULTS.name) / f"{function}.npy"
        yield setting.peers.contestant(name, function, arrays, save=str(path))
        if path.is_file():
            _demand_equal(expected, np.load(path), 2e-3)  # square roots lift what is nearly zero
    yield Contestant("sgemm of all products", "limit", matrix_product(N_ROWS * WORK, 1))


@row(
    "mixture",
    f"{N_PASSES} passes of EM, {N_ROWS} rows, {N_COMPONENTS} Gaussians, {SIZE} features",
    threads=(1, 2),
    rounds=3,
)
def mixtures(setting: Setting) -> Iterator[Contestant]:
    rows = descriptors(setting.picture).values
    learner = _Learner(rows, 1e-6, setting.threads)
    start = learner.start(N_COMPONENTS, stream(0, "start"))
    arrays = {"rows": rows, "weights": start.weights, "means": start.means, "variances": start.variances}

    def learn() -> tuple[Mixture, list[float], bool]:
        return learner.improve(start, N_PASSES, tol=0)

    yield Contestant("visionkl", "ours", lambda: _discard(learn()))
    path = Path(RESULTS.name) / "likelihood.npy"
    yield setting.peers.contestant(
        "scikit-learn",
        "sklearn_mixture",
        arrays,
        n_passes=N_PASSES,
        threads=setting.threads,
        save=str(path),
    )
    if path.is_file():
        setting.notes.append(
            f"mean log-likelihood before the last pass: ours {learn()[1][-1]:.4f}, "
            f"scikit-learn's {float(np.load(path)):.4f}"
        )
    limit = matrix_product(N_PASSES * N_ROWS * WORK, setting.threads)
    yield Contestant("sgemm of all products", "limit", limit)


def _demand_equal(ours: npt.NDArray[np.float32], theirs: npt.NDArray[np.float32], tolerance: float) -> None:
    worst = float(np.abs(ours - theirs).max())
    if not worst <= tolerance:
        raise AssertionError(f"The contestants disagree by {worst:g}: their times cannot be compared.")


def _discard(value: object) -> None:
    """Let a result go: a contestant's return value is its time."""
