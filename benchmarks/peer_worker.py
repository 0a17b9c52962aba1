"""Runs in the peers' environment: reads one JSON request a line, answers with one JSON line.

Each peer function takes its arrays and options, does its work once, and returns the seconds taken, measured
around the peer's call alone. Reading arrays and shaping them as the peer wants them is not counted.
"""

import ctypes
import functools
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import skimage
import skimage.feature

FHOG_LIBRARY = Path(__file__).resolve().parent / ".peers" / "fhog.so"


def dlib_pyramid(picture: np.ndarray, interval: int, cell_size: int, threads: int) -> float:
    """Build dlib's HOG pyramid, with the octave of half cells."""
    library = _fhog_library()
    cells, levels = ctypes.c_long(), ctypes.c_int()
    pixels = picture.ctypes.data_as(ctypes.c_void_p)
    sizes = (*picture.shape[:2], interval, cell_size, threads)
    return float(library.fhog_pyramid(pixels, *sizes, ctypes.byref(cells), ctypes.byref(levels)))


@functools.cache
def _fhog_library() -> ctypes.CDLL:
    if not FHOG_LIBRARY.is_file():
        raise RuntimeError("it was not compiled; 'python benchmarks/peers.py install' needs g++")
    library = ctypes.CDLL(str(FHOG_LIBRARY))
    library.fhog_pyramid.restype = ctypes.c_double
    library.dlib_version.restype = ctypes.c_char_p
    return library


def skimage_hog(picture: np.ndarray, cell_size: int) -> float:
    """Compute scikit-image's HOG of one scale: 9 unsigned orientations, blocks of 2 × 2 cells."""
    options = {"pixels_per_cell": (cell_size, cell_size), "cells_per_block": (2, 2), "channel_axis": -1}
    return _seconds(lambda: skimage.feature.hog(picture, orientations=9, feature_vector=False, **options))


def skimage_lbp(grey: np.ndarray, save: str) -> float:
    """Compute scikit-image's uniform, rotation-invariant local binary patterns."""
    found = []
    seconds = _seconds(lambda: found.append(skimage.feature.local_binary_pattern(grey, 8, 1, "uniform")))
    np.save(save, found[0])
    return seconds


def opencv_hog(picture: np.ndarray, cell_size: int) -> float:
    """Compute OpenCV's HOG of one scale: 9 unsigned orientations, blocks of 2 × 2 cells."""
    rows, cols = (size // cell_size * cell_size for size in picture.shape[:2])
    descriptor = cv2.HOGDescriptor(
        (cols, rows), (2 * cell_size, 2 * cell_size), (cell_size, cell_size), (cell_size, cell_size), 9
    )
    cropped = np.ascontiguousarray(picture[:rows, :cols])
    return _seconds(lambda: descriptor.compute(cropped))


def opencv_nms(boxes: np.ndarray, scores: np.ndarray, overlap: float) -> float:
    """Suppress overlapping boxes with OpenCV (intersection over union)."""
    corner_and_size = np.column_stack([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]]).astype(np.float64)
    return _seconds(lambda: cv2.dnn.NMSBoxes(corner_and_size, scores, 0.0, overlap))


def opencv_sift(grey: np.ndarray, positions: np.ndarray, sizes: np.ndarray, threads: int) -> float:
    """Compute OpenCV's SIFT at given places, upright, smoothed as ours are: one call for each size."""
    calls = []
    for size in np.unique(sizes):
        edge = float(size) / 4  # of a bin
        places = positions[sizes == size] - 0.5
        keypoints = [cv2.KeyPoint(float(x), float(y), edge / 1.5, 0, 0, 0) for x, y in places]
        calls.append((cv2.SIFT_create(sigma=edge / 6), keypoints))
    return _seconds(lambda: [detector.compute(grey, keypoints) for detector, keypoints in calls])


def vlfeat_sift(grey: np.ndarray, bin_sizes: list[int], step: int) -> float:
    """Compute VLFeat's dense SIFT with the flat window, smoothed as ours are."""
    library = _vlfeat()
    picture = np.ascontiguousarray(grey, np.float32)
    smoothed = np.empty_like(picture)
    rows, cols = picture.shape

    def describe(bin_size: int) -> None:
        sigma = max((bin_size / 6) ** 2 - 0.25, 1e-6) ** 0.5
        library.vl_imsmooth_f(smoothed.ctypes.data, cols, picture.ctypes.data, cols, rows, cols, sigma, sigma)
        dsift = library.vl_dsift_new_basic(cols, rows, step, bin_size)
        dsift.contents.use_flat_window = 1
        library.vl_dsift_process(dsift, smoothed.ctypes.data)
        library.vl_dsift_delete(dsift)

    return _seconds(lambda: [describe(bin_size) for bin_size in bin_sizes])


def vlfeat_fisher(
    rows: np.ndarray, weights: np.ndarray, means: np.ndarray, variances: np.ndarray, save: str
) -> float:
    """Encode rows with VLFeat, with square roots and norm, on one thread, and save the vector."""
    library = _vlfeat()
    library.vl_set_num_threads(1)
    arrays = [np.ascontiguousarray(array, np.float32) for array in (means, variances, weights, rows)]
    at_means, at_variances, at_weights, at_rows = (array.ctypes.data for array in arrays)
    vector = np.empty(2 * means.size, np.float32)
    single, root_and_norm = 1, 1 | 2

    def encode() -> None:
        library.vl_fisher_encode(
            vector.ctypes.data,
            single,
            at_means,
            means.shape[1],
            means.shape[0],
            at_variances,
            at_weights,
            at_rows,
            len(rows),
            root_and_norm,
        )

    seconds = _seconds(encode)
    np.save(save, vector)
    return seconds


def vlfeat_sdca(vectors: np.ndarray, y: np.ndarray, regularisation: float, gap: float, save: str) -> float:
    """Learn a support vector machine with VLFeat's dual coordinate ascent, and save weights and bias."""
    library = _vlfeat()
    n, dim = vectors.shape
    single, ascent = 1, 2
    learned = []

    def learn() -> None:
        dataset = library.vl_svmdataset_new(single, vectors.ctypes.data, dim, n)
        machine = library.vl_svm_new_with_dataset(ascent, dataset, y.ctypes.data, regularisation)
        library.vl_svm_set_epsilon(machine, gap)
        library.vl_svm_set_bias_multiplier(machine, 1.0)
        library.vl_svm_train(machine)
        model = np.ctypeslib.as_array(library.vl_svm_get_model(machine), (dim,))
        learned.append(np.append(model, library.vl_svm_get_bias(machine)))
        library.vl_svm_delete(machine)
        library.vl_svmdataset_delete(dataset)

    seconds = _seconds(learn)
    np.save(save, learned[0])
    return seconds


def skimage_fisher(
    rows: np.ndarray, weights: np.ndarray, means: np.ndarray, variances: np.ndarray, save: str
) -> float:
    """Encode rows with scikit-image on one thread, and save what the formula's vector is."""
    with _blas_threads(1):
        mixture = _mixture(rows, weights, means, variances, n_passes=1)
        results = []
        seconds = _seconds(lambda: results.append(skimage.feature.fisher_vector(rows, mixture)))
    _, by_mean, by_deviation = np.split(results[0], [len(weights), len(weights) + means.size])
    np.save(save, np.concatenate([by_mean, -by_deviation]))
    return seconds


def sklearn_mixture(
    rows: np.ndarray,
    weights: np.ndarray,
    means: np.ndarray,
    variances: np.ndarray,
    n_passes: int,
    threads: int,
    save: str,
) -> float:
    """Learn with scikit-learn from a given start, and save the likelihood.

    The time is that of passes alone: what a fit with one pass takes is taken off.
    """
    with _blas_threads(threads):
        fit = functools.partial(_mixture, rows, weights, means, variances, learn=True)
        first = _seconds(lambda: fit(n_passes=1))
        results = []
        seconds = _seconds(lambda: results.append(fit(n_passes=n_passes + 1)))
    np.save(save, results[0].lower_bounds_[n_passes - 1])
    return seconds - first


def _mixture(
    rows: np.ndarray,
    weights: np.ndarray,
    means: np.ndarray,
    variances: np.ndarray,
    n_passes: int,
    learn: bool = False,
) -> Any:
    """Make scikit-learn's mixture of given Gaussians, and learn from there."""
    from sklearn.mixture import GaussianMixture

    warnings.simplefilter("ignore")  # it would say that it has not converged
    # In the rows' precision: it would compute in double precision otherwise.
    weights, means, variances = (array.astype(rows.dtype) for array in (weights, means, variances))
    mixture = GaussianMixture(
        len(weights),
        covariance_type="diag",
        weights_init=weights,
        means_init=means,
        precisions_init=1 / variances,
        tol=0,
        max_iter=n_passes,
    )
    if learn:
        return mixture.fit(rows)
    mixture.weights_, mixture.means_, mixture.covariances_ = weights, means, variances
    mixture.precisions_cholesky_ = 1 / np.sqrt(variances)
    return mixture


def _blas_threads(threads: int) -> Any:
    from threadpoolctl import threadpool_limits

    return threadpool_limits(threads)


class _DsiftFilter(ctypes.Structure):
    """The beginning of VLFeat's VlDsiftFilter: 13 sizes, and whether the window is flat."""

    _fields_ = (("sizes", ctypes.c_int * 13), ("use_flat_window", ctypes.c_int))


@functools.cache
def _vlfeat() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libvl.so.1")
    except OSError:
        raise RuntimeError("libvl.so.1 is not here (Debian: sudo apt-get install libvlfeat1)") from None
    pointer, size, real = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_double
    library.vl_get_version_string.restype = ctypes.c_char_p
    library.vl_imsmooth_f.argtypes = [pointer, size, pointer, size, size, size, real, real]
    library.vl_dsift_new_basic.restype = ctypes.POINTER(_DsiftFilter)
    library.vl_dsift_process.argtypes = [ctypes.POINTER(_DsiftFilter), pointer]
    library.vl_dsift_delete.argtypes = [ctypes.POINTER(_DsiftFilter)]
    library.vl_set_num_threads.argtypes = [size]
    library.vl_fisher_encode.argtypes = [
        pointer, ctypes.c_uint32, pointer, size, size, pointer, pointer, pointer, size, ctypes.c_int,
    ]  # fmt: skip
    library.vl_svmdataset_new.argtypes = [ctypes.c_uint32, pointer, size, size]
    library.vl_svmdataset_new.restype = pointer
    library.vl_svm_new_with_dataset.argtypes = [ctypes.c_int, pointer, pointer, real]
    library.vl_svm_new_with_dataset.restype = pointer
    library.vl_svm_get_model.restype = ctypes.POINTER(real)
    library.vl_svm_get_bias.restype = real
    for function, *more in (
        (library.vl_svm_set_epsilon, real),
        (library.vl_svm_set_bias_multiplier, real),
        (library.vl_svm_train,),
        (library.vl_svm_get_model,),
        (library.vl_svm_get_bias,),
        (library.vl_svm_delete,),
        (library.vl_svmdataset_delete,),
    ):
        function.argtypes = [pointer, *more]
    return library


def faiss_learn(rows: np.ndarray, n_blocks: int, threads: int, save: str) -> float:
    """Learn 256 codewords for each block with faiss, as it does by default, and save them."""
    faiss = _faiss(threads)
    quantizer = faiss.ProductQuantizer(rows.shape[1], n_blocks, 8)
    quantizer.cp.min_points_per_centroid = 1  # it would warn of few rows, block by block
    seconds = _seconds(lambda: quantizer.train(rows))
    np.save(save, faiss.vector_to_array(quantizer.centroids).reshape(n_blocks, 256, -1))
    return seconds


def faiss_encode(cells: np.ndarray, words: np.ndarray, threads: int) -> float:
    """Code cells with known codewords, in as many bytes as there are blocks."""
    faiss = _faiss(threads)
    quantizer = faiss.ProductQuantizer(cells.shape[1], words.shape[0], 8)
    faiss.copy_array_to_vector(words.ravel(), quantizer.centroids)
    return _seconds(lambda: quantizer.compute_codes(cells))


def skglm_group_lasso(
    features: np.ndarray,
    targets: np.ndarray,
    size: int,
    strength: float,
    tol: float,
    threads: int,
    save: str,
) -> float:
    """Solve a group lasso of groups of one size with skglm, and save the weights."""
    from skglm import GroupLasso

    model = GroupLasso(groups=size, alpha=strength, tol=tol, fit_intercept=True)
    with _blas_threads(threads):
        seconds = _seconds(lambda: model.fit(features, targets))
    np.save(save, np.ravel(model.coef_))
    return seconds


def _faiss(threads: int) -> Any:
    try:
        import faiss
    except ImportError:
        raise RuntimeError("it is not installed; run 'python benchmarks/peers.py install' again") from None
    faiss.omp_set_num_threads(threads)
    return faiss


def version_for(function: str) -> str:
    """Say which version of a peer a function uses; complains if that peer cannot run."""
    if function.startswith("faiss"):
        return str(_faiss(1).__version__)
    if function.startswith("sklearn"):
        import sklearn

        return str(sklearn.__version__)
    if function.startswith("skglm"):
        import skglm

        return str(skglm.__version__)
    if function.startswith("vlfeat"):
        return _vlfeat().vl_get_version_string().decode()
    if function.startswith("dlib"):
        return _fhog_library().dlib_version().decode()
    return cv2.__version__ if function.startswith("opencv") else skimage.__version__


def _seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@functools.lru_cache(maxsize=8)
def _array(path: str) -> np.ndarray:
    return np.load(path)


def main() -> None:
    """Answer requests until the input ends."""
    peers = (
        dlib_pyramid,
        skimage_hog,
        skimage_lbp,
        opencv_hog,
        opencv_nms,
        opencv_sift,
        vlfeat_sift,
        vlfeat_fisher,
        vlfeat_sdca,
        skimage_fisher,
        sklearn_mixture,
        faiss_learn,
        faiss_encode,
        skglm_group_lasso,
        version_for,
    )
    functions = {peer.__name__: peer for peer in peers}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            cv2.setNumThreads(request["options"].get("threads", 1))
            arrays = {name: _array(path) for name, path in request["arrays"].items()}
            answer = {"value": functions[request["function"]](**arrays, **request["options"])}
        except Exception as error:  # the asking side reports it
            answer = {"error": str(error) or type(error).__name__}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
