"""Fisher vectors: how a picture's local descriptors differ from a mixture of Gaussians (METHODS §11).

Fundamentals
------------
Descriptors are brought to `d` principal components, and a mixture of `K` Gaussians with diagonal covariances
is learned on them (`visionkl.features.gmm`). A picture with `N` descriptors `x` is then described by the
gradient of their mean log-likelihood with respect to means and standard deviations, scaled by the Fisher
information:

    u_k = 1 / (N √π_k)   Σ_x γ_k(x)  (x - μ_k) / σ_k
    v_k = 1 / (N √(2π_k)) Σ_x γ_k(x) [((x - μ_k) / σ_k)² - 1]

where `γ_k(x)` are the posteriors. Of each cell (`visionkl.features.cells`) there is such a vector, of its own
descriptors; a cell without any has zeros. The layout is

    cell 0: u_1 ... u_K, v_1 ... v_K;  cell 1: u_1 ... u_K, v_1 ... v_K;  ...

with `d` numbers in each `u_k` and `v_k`: `2 K d` numbers a cell, 40 960 for 256 Gaussians on 80 components.

Numbers are then replaced by their signed power, `sign(z) |z|^power`, and the vector of each cell is divided
by its l2 norm (`norm="l2"`), or each `u_k` and `v_k` is by its own (`norm="intra"`), so that no Gaussian
speaks louder than others. Last, the whole vector is divided by its norm. With `power=1` and `norm="none"` the
gradients stay as they are.

Implementation
--------------
The sums over descriptors are products of matrices, block by block, in float32; they are added up in float64,
once for every region that cells have in common. Against float64 throughout, vectors are off by about 1e-5 of
their norm. That needs Gaussians that are not too narrow for their distance from the middle, and descriptors
do have such: those of plain areas are all zero. So no variance falls below a hundredth of the component's.

scikit-image's `fisher_vector` puts `K` derivatives with respect to weights in front and gives `v`
the opposite sign, without the power and the norm.

Descriptors may be augmented by their place: after the principal components stand `x` and `y`, relative to
the picture's middle and size, and the logarithm of the relative size (`augment="position"`), which says in
`3 · 2 K` numbers what cells say in several vectors.

If unsure, take 256 Gaussians, 80 components and `cells=(1, 3)`; for a first look, 64 Gaussians on 64
components and one cell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from visionkl.backend.dispatch import CPU, Device, device_of, kept_on, to_host
from visionkl.core.errors import DataError
from visionkl.core.validation import check_choice, check_number, parameter_error
from visionkl.features.cells import count_cells, regions, relative_places
from visionkl.features.densities import BLOCK_ROWS, Densities, Mixture, add_sums
from visionkl.features.encoder import PictureEncoder
from visionkl.features.gmm import DiagonalGMM
from visionkl.features.local import LocalDescriptors

# Descriptors to learn from, for each Gaussian.
_SAMPLES_A_COMPONENT = 1000
# Least variance, as a share of that of all descriptors; see the module's page.
_MIN_VARIANCE = 0.01

FloatArray = npt.NDArray[np.float32]


class FisherVector(PictureEncoder):
    """Encodes pictures as improved Fisher vectors, as a scikit-learn transformer.

    Parameters
    ----------
    n_components : int
        Gaussians.
    n_pca : int, optional
        Principal components of descriptors; None takes all.
    cells : sequence of int or of (rows, cols)
        Grids of cells, each with a Fisher vector of its own: `(1, 3)` is the whole picture and three
        horizontal strips; see `visionkl.features.cells`.
    whiten : bool
        Scale principal components to unit variance before the Gaussians are learned. It changes where
        learning starts, and nothing else.
    augment : {"none", "position"}
        Whether places and sizes stand beside the principal components.
    power : float
        Exponent of the signed power; 1 leaves numbers as they are.
    norm : {"l2", "intra", "none"}
        Normalisation: of cells, of each Gaussian's numbers, or none.
    descriptors : extractor, optional
        What computes local descriptors: an object with `extract(image)`; `DenseSIFT()` by default.
    n_samples : int, optional
        Descriptors to learn from; a thousand for each Gaussian by default.
    random_state : int, RandomState instance or None
        Seed; None is different each time.
    n_jobs : int, optional
        Threads; all usable cores by default.
    device : str
        "cpu", "cuda", "cuda:1" and so on, or "auto": where Gaussians are learned and pictures encoded; dense
        SIFT descriptors are then computed there, too, and stay. The vectors come back.
    cache : str or Path, optional
        Folder that keeps vectors for another time; see `visionkl.features.pictures`.
    cache_bytes : float
        Size of that folder, above which the vectors that were not used for the longest time are deleted.

    Attributes
    ----------
    mixture_ : Mixture
        `weights`, `means` and `variances`.
    mean_ : ndarray of float64, shape (n_descriptor_values_,)
    components_ : ndarray of float64, shape (n_pca, n_descriptor_values_)
        Principal components of descriptors, with the scale that `whiten` asks for.
    place_scale_ : float
        What places are multiplied by before they stand beside principal components.
    extractor_ : extractor
    grids_ : tuple of (rows, cols)

    Examples
    --------
    >>> from visionkl.features.local import LocalDescriptors
    >>> random = np.random.default_rng(0)
    >>> def describe():
    ...     values = random.normal(size=(500, 16)).astype(np.float32)
    ...     places = random.uniform(0, 100, (500, 2)).astype(np.float32)
    ...     return LocalDescriptors(values, places, np.full(500, 8, np.float32), (100, 100))
    >>> pictures = [describe() for _ in range(10)]
    >>> fisher = FisherVector(n_components=4, n_pca=8, cells=(1, 3)).fit(pictures)
    >>> fisher.transform(pictures).shape  # 4 cells · 2 · 4 Gaussians · 8 components
    (10, 256)
    """

    def __init__(
        self,
        n_components: int = 256,
        *,
        n_pca: int | None = 80,
        cells: Any = (1,),
        whiten: bool = False,
        augment: Literal["none", "position"] = "none",
        power: float = 0.5,
        norm: Literal["l2", "intra", "none"] = "l2",
        descriptors: Any = None,
        n_samples: int | None = None,
        random_state: Any = 0,
        n_jobs: int | None = None,
        device: str = "cpu",
        cache: Any = None,
        cache_bytes: float = 16e9,
    ) -> None:
        self.n_components = n_components
        self.n_pca = n_pca
        self.cells = cells
        self.whiten = whiten
        self.augment = augment
        self.power = power
        self.norm = norm
        self.descriptors = descriptors
        self.n_samples = n_samples
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.cache = cache
        self.cache_bytes = cache_bytes

    def _check_parameters(self) -> None:
        check_number(self._owner, "n_components", self.n_components, low=1, high=65536, integer=True)
        if self.n_pca is not None:
            check_number(self._owner, "n_pca", self.n_pca, low=1, integer=True)
        check_choice(self._owner, "whiten", self.whiten, (True, False))
        check_choice(self._owner, "augment", self.augment, ("none", "position"))
        check_number(self._owner, "power", self.power, low=0, high=1)
        check_choice(self._owner, "norm", self.norm, ("l2", "intra", "none"))

    def _samples_wanted(self) -> int:
        return _SAMPLES_A_COMPONENT * self.n_components

    def _learn(self, sample: LocalDescriptors, seed: int) -> dict[str, npt.NDArray[Any]]:
        n, length = sample.values.shape
        if self.n_pca is not None and self.n_pca > length:
            raise parameter_error(
                self._owner, "n_pca", f"at most the length of the descriptors, {length}", self.n_pca
            )
        needed = max(self.n_components, self.n_pca or length, 2)
        if n < needed:
            raise DataError(
                f"{self._owner}: the pictures gave {n} descriptors to learn from, but at least {needed} are "
                f"needed for {self.n_components} Gaussians on {self.n_pca or length} principal components; "
                "give more or larger pictures, or smaller 'n_components' and 'n_pca'."
            )
        mean, components, variances = _principal_components(sample.values, self.n_pca or length)
        if self.whiten:
            # Without variance there is nothing to scale.
            components /= np.sqrt(np.where(variances > 1e-12 * variances[0], variances, np.inf))[:, None]
        values = sample.values.astype(np.float32, copy=False)
        rows = values @ components.T.astype(np.float32)
        rows -= (components @ mean).astype(np.float32)
        place_scale = float(rows.std(dtype=np.float64)) or 1.0
        if self.augment == "position":
            rows = np.concatenate([rows, np.float32(place_scale) * _places(sample)], axis=1)
        mixture = DiagonalGMM(
            self.n_components,
            min_variance=_MIN_VARIANCE,
            random_state=seed,
            n_jobs=self.n_jobs,
            device=self.device,
        ).fit(rows)
        return {
            "mean": mean,
            "components": components,
            "place_scale": np.array([place_scale]),
            "weights": mixture.weights_,
            "means": mixture.means_,
            "variances": mixture.variances_,
        }

    def _learned(self) -> dict[str, npt.NDArray[Any]]:
        return {
            "mean": self.mean_,
            "components": self.components_,
            "place_scale": np.array([self.place_scale_]),
            "weights": self.mixture_.weights,
            "means": self.mixture_.means,
            "variances": self.mixture_.variances,
        }

    def _take_over(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        doubles = {name: np.asarray(array, dtype=np.float64) for name, array in arrays.items()}
        self.mean_, self.components_ = doubles["mean"], doubles["components"]
        self.place_scale_ = float(doubles["place_scale"][0])
        self.mixture_ = Mixture(doubles["weights"], doubles["means"], doubles["variances"])
        self.n_descriptor_values_ = len(self.mean_)
        self._n_features_out = count_cells(self.grids_) * 2 * self.mixture_.means.size
        self._ready = self._make_ready(CPU)

    def _make_ready(self, device: Device) -> _Ready:
        densities = Densities(self.mixture_, np.float32, device=device)
        n_pca = len(self.components_)
        factors, centre = 1 / densities.scale, densities.centre
        offset = (self.components_ @ self.mean_ + centre[:n_pca]) * factors[:n_pca]
        return _Ready(
            densities,
            device.put((self.components_.T * factors[:n_pca]).astype(np.float32)),
            device.put(offset.astype(np.float32)),
            (self.place_scale_ * factors[n_pca:]).astype(np.float32),
            (centre[n_pca:] * factors[n_pca:]).astype(np.float32),
        )

    def _encode_prepared(self, descriptors: LocalDescriptors) -> FloatArray:
        home = device_of(descriptors.values)
        device = home if home.is_gpu else self._device()
        ready = self._ready
        if device.is_gpu:
            ready = kept_on(device, self.mixture_, lambda: self._make_ready(device))
        densities = ready.densities
        sums = np.zeros((count_cells(self.grids_), densities.n_components, densities.n_features))
        for rows, cells in regions(descriptors, self.grids_):
            own = self._sums(ready, descriptors, rows)
            for cell in cells:
                sums[cell] += own
        vectors = fisher_gradients(sums, self.mixture_, densities).astype(np.float32)
        return _normalise(vectors, self.power, self.norm).ravel()

    def _sums(
        self, ready: _Ready, descriptors: LocalDescriptors, rows: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        """Sum up the features of some descriptors, weighted by posteriors."""
        densities = ready.densities
        with densities.device.use():
            total = densities.device.namespace.zeros((densities.n_components, densities.n_features))
        # On a GPU memory is CuPy's to keep, and blocks that do not fit are tried again.
        rooms = None if densities.device.is_gpu else densities.room()

        def add_up(some: slice) -> None:
            block = descriptors[rows[some]]
            feature_room, posterior_room = rooms or densities.room(len(block))
            features, posteriors = feature_room[: len(block)], posterior_room[: len(block)]
            self._scale_into(ready, block, features[:, : densities.size])
            densities.complete(features)
            _, n_relevant = densities.posteriors(features, posteriors)
            add_sums(posteriors, features, n_relevant, total)

        densities.go_over(add_up, len(rows))
        return to_host(total)

    def _scale_into(self, ready: _Ready, block: LocalDescriptors, scaled: FloatArray) -> None:
        """Write the principal components, and places, scaled as the densities want them."""
        device, n_pca = ready.densities.device, ready.projection.shape[1]
        values = device.put(block.values).astype(np.float32, copy=False)
        device.namespace.matmul(values, ready.projection, out=scaled[:, :n_pca])
        scaled[:, :n_pca] -= ready.offset
        if self.augment == "position":
            scaled[:, n_pca:] = device.put(_places(block) * ready.place_factors - ready.place_offset)


@dataclass(frozen=True, eq=False)
class _Ready:
    """What was learned, ready for encoding on a device.

    One map projects descriptors and scales them as the densities want them.
    """

    densities: Densities
    projection: Any
    offset: Any
    place_factors: FloatArray
    place_offset: FloatArray


def _principal_components(
    values: npt.NDArray[Any], n: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the mean of rows, the directions in which they vary most, and their variances there."""
    mean = values.mean(axis=0, dtype=np.float64)
    covariance = np.zeros((len(mean), len(mean)))
    for start in range(0, len(values), BLOCK_ROWS):
        block = values[start : start + BLOCK_ROWS] - mean
        covariance += block.T @ block
    variances, directions = np.linalg.eigh(covariance / max(len(values) - 1, 1))
    return mean, directions.T[::-1][:n].copy(), variances[::-1][:n]


def fisher_gradients(
    sums: npt.NDArray[np.float64], mixture: Mixture, densities: Densities
) -> npt.NDArray[np.float64]:
    """Make Fisher vectors of sums of features weighted by posteriors.

    Parameters
    ----------
    sums : ndarray of float64, shape (n_cells, n_components, 2d + 1)
        Of scaled rows, of their squares, and of ones.
    mixture : Mixture
    densities : Densities
        Of that mixture.

    Returns
    -------
    ndarray of float64, shape (n_cells, 2, n_components, d)
        `u` and `v` of all Gaussians; zero for cells without rows.
    """
    size = densities.size
    first, second, counts = sums[..., :size], sums[..., size:-1], sums[..., -1:]
    means, variances = densities.means, densities.variances
    n = np.maximum(counts.sum(axis=1, keepdims=True), 1)
    root = np.sqrt(mixture.weights)[:, None]
    gradients = np.empty((len(sums), 2, *means.shape))
    gradients[:, 0] = (first - counts * means) / (n * root * np.sqrt(variances))
    gradients[:, 1] = second - 2 * means * first + counts * (means**2 - variances)
    gradients[:, 1] /= n * np.sqrt(2) * root * variances
    return gradients


def _normalise(vectors: FloatArray, power: float, norm: str) -> FloatArray:
    """Normalise `(n_cells, 2, n_components, d)` in place."""
    if power != 1:
        signs = np.sign(vectors)
        np.abs(vectors, out=vectors)
        np.power(vectors, np.float32(power), out=vectors)
        vectors *= signs
    if norm != "none":
        axes = (1, 2, 3) if norm == "l2" else (3,)
        _divide(vectors, np.sqrt(np.square(vectors).sum(axis=axes, keepdims=True)))
        _divide(vectors, np.sqrt(np.square(vectors).sum()))
    return vectors


def _divide(vectors: FloatArray, norms: Any) -> None:
    np.divide(vectors, norms, out=vectors, where=norms > 0)


def _places(descriptors: LocalDescriptors) -> FloatArray:
    """Return places relative to the picture's middle, and logarithms of relative sizes: `(n, 3)`."""
    positions, sizes = relative_places(descriptors)
    # A size of zero has no logarithm.
    return np.column_stack([positions - np.float32(0.5), np.log(np.maximum(sizes, np.float32(1e-6)))])
