"""Learning on codes is learning on decoded vectors, by any expansion and route, from memory and files."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import SVC

import visionkl as vkl
from visionkl.coding.codebooks import Codebooks
from visionkl.coding.codes import CodeArray
from visionkl.core.errors import DataError, UsageError
from visionkl.learning.svm import BundleSVC, BundleSVR


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    chosen = y < 5
    return X[chosen].astype(np.float32) / 16, y[chosen]


@pytest.fixture(scope="module")
def coded(digits):
    """Codes of blocks of 7 of 64 features, so that the last is not full; and the decoded vectors."""
    quantizer = vkl.ProductQuantizer(32, block_size=7).fit(digits[0])
    codes = quantizer.transform(digits[0])
    return codes, quantizer.inverse_transform(codes), digits[1]


def objectives(model, X, y, C):
    scores = X @ model.coef_.T + model.intercept_
    losses = np.maximum(1 - np.where(y[:, None] == model.classes_, 1, -1) * scores, 0).sum(axis=0)
    return ((model.coef_**2).sum(axis=1) + model.intercept_**2) / 2 + C * losses


@pytest.mark.parametrize(
    ("route", "expansion"),
    [("bundle", "delayed"), ("bundle", "immediate"), ("bundle", "dense"), ("gram", "auto"), ("rows", "auto")],
)
def test_codes_are_decoded_vectors(coded, route, expansion):
    codes, decoded, y = coded
    on_vectors = BundleSVC(0.3, route="bundle", tol=1e-4).fit(decoded, y)
    on_codes = BundleSVC(0.3, route=route, expansion=expansion, tol=1e-4).fit(codes, y)
    np.testing.assert_allclose(
        objectives(on_codes, decoded, y, 0.3), objectives(on_vectors, decoded, y, 0.3), rtol=2e-4
    )
    assert on_codes.coef_.shape == (5, 64)
    assert on_codes.n_features_in_ == codes.shape[1]
    assert on_codes.expansion_ == (expansion if expansion != "auto" else "delayed")
    by_hand = decoded @ on_codes.coef_.T + on_codes.intercept_
    np.testing.assert_allclose(on_codes.decision_function(codes), by_hand, atol=1e-4)  # by tables
    np.testing.assert_allclose(on_codes.decision_function(codes[:9]), by_hand[:9], atol=1e-4)  # decoded


def test_two_classes_and_regression_on_codes(coded):
    codes, decoded, y = coded
    two = BundleSVC(0.3, route="bundle", tol=1e-5).fit(codes, y == 3)
    np.testing.assert_allclose(
        two.decision_function(codes), decoded @ two.coef_[0] + two.intercept_, atol=1e-4
    )
    on_codes = BundleSVR(0.3, route="bundle", tol=1e-5).fit(codes, y)
    on_vectors = BundleSVR(0.3, route="bundle", tol=1e-5).fit(decoded, y)
    np.testing.assert_allclose(on_codes.predict(codes), on_vectors.predict(decoded), atol=0.05)


def test_more_codewords_than_a_byte_holds(digits):
    X, y = digits
    quantizer = vkl.ProductQuantizer(300, block_size=16, max_iter=3).fit(X)
    codes = quantizer.transform(X)
    assert codes.dtype == np.uint16
    model = BundleSVC(0.3, route="bundle").fit(codes, y)
    by_hand = quantizer.inverse_transform(codes) @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(model.decision_function(codes), by_hand, atol=1e-4)


def test_a_pipeline_needs_no_more_than_its_steps(digits):
    X, y = digits
    pipeline = make_pipeline(vkl.ProductQuantizer(32, block_size=8), vkl.BundleSVC(C=10)).fit(X[::2], y[::2])
    assert pipeline[-1].expansion_ == "delayed"
    assert pipeline.score(X[1::2], y[1::2]) > 0.95
    again = pickle.loads(pickle.dumps(pipeline))
    np.testing.assert_array_equal(again.decision_function(X), pipeline.decision_function(X))


def test_a_pipeline_in_hellingers_metric(digits):
    X, y = digits
    root = FunctionTransformer(np.sqrt)
    pipeline = make_pipeline(root, vkl.ProductQuantizer(32, block_size=8), BundleSVC(1.0)).fit(X, y)
    exact = BundleSVC(1.0).fit(np.sqrt(X), y)
    assert abs(pipeline.score(X, y) - exact.score(X, y)) < 0.02


def test_searches_pick_rows_of_codes(coded):
    codes, _, y = coded
    assert cross_val_score(BundleSVC(0.3), codes, y, cv=3).min() > 0.9
    search = GridSearchCV(BundleSVC(), {"C": [1e-4, 0.3]}, cv=2, n_jobs=2).fit(codes, y)
    assert search.best_params_ == {"C": 0.3}
    pipeline = make_pipeline(vkl.ProductQuantizer(16, max_iter=3), BundleSVC(0.3))
    grid = {"productquantizer__block_size": [8, 32]}
    found = GridSearchCV(pipeline, grid, cv=2).fit(coded[1], y)
    assert found.best_params_ == {"productquantizer__block_size": 8}


@pytest.mark.parametrize("route", ["bundle", "gram", "rows"])
def test_codes_in_a_file(coded, tmp_path, route):
    codes, _, y = coded
    path = tmp_path / "codes.npy"
    np.save(path, codes)
    stored = np.load(path, mmap_mode="r")
    books = codes.books
    in_memory = BundleSVC(0.3, route=route).fit(codes, y)
    in_file = BundleSVC(0.3, route=route, codebooks=books).fit(stored, y)
    with_books = BundleSVC(0.3, route=route).fit(CodeArray(stored, books), y)
    np.testing.assert_array_equal(in_file.coef_, in_memory.coef_)
    np.testing.assert_array_equal(with_books.coef_, in_memory.coef_)
    np.testing.assert_array_equal(in_file.decision_function(stored), in_memory.decision_function(codes))


def test_cloning_keeps_codebooks(coded):
    model = BundleSVC(codebooks=coded[0].books)
    assert clone(model).codebooks is coded[0].books
    assert copy.deepcopy(coded[0]).books is coded[0].books


def test_which_operations_keep_codebooks(coded):
    codes = coded[0]
    books = codes.books
    keeping = [
        codes[3:9],
        codes[[1, 2]],
        codes[np.arange(len(codes)) % 2 == 0],
        codes[5],
        codes[2:, :],
        codes[[4, 1], ...],
        codes.copy(),
        pickle.loads(pickle.dumps(codes)),
    ]
    for some in keeping:
        np.testing.assert_array_equal(some.books.words, books.words)
    losing = [codes[:, ::-1], codes[:, 0], codes.T, codes + 1, codes[..., ::-1], codes[codes > 3]]
    assert all(some.books is None for some in losing)
    assert all(CodeArray(codes[:0], books).books is books for _ in range(1))


def test_bad_codes(coded):
    codes, decoded, y = coded
    plain = np.asarray(codes)
    with pytest.raises(DataError, match="give 'codebooks'"):
        BundleSVC().fit(plain, y)
    with pytest.raises(DataError, match="codes lie in 0"):
        BundleSVC(codebooks=codes.books).fit(plain + np.uint8(200), y)
    with pytest.raises(DataError, match="codes are integers"):
        BundleSVC(codebooks=codes.books).fit(plain.astype(float), y)
    with pytest.raises(DataError, match="blocks"):
        BundleSVC(codebooks=codes.books).fit(plain[:, 1:], y)
    with pytest.raises(DataError, match="labels"):
        BundleSVC(codebooks=codes.books).fit(plain, y[1:])
    with pytest.raises(DataError, match="0 sample"):
        BundleSVC(codebooks=codes.books).fit(plain[:0], y[:0])
    with pytest.raises(UsageError, match="metric of their codebooks"):
        BundleSVC(codebooks=codes.books, metric=np.eye(len(plain[0]))).fit(plain, y)
    with pytest.raises(UsageError, match="'books_' of a fitted"):
        BundleSVC(codebooks=vkl.ProductQuantizer()).fit(plain, y)
    model = BundleSVC(tol=0.1).fit(codes, y)
    with pytest.raises(DataError, match="trained on codes"):
        model.predict(decoded)
    others = CodeArray(plain, Codebooks(codes.books.words * 2, 64))
    with pytest.raises(DataError, match="other codebooks"):
        model.predict(others)


def test_codes_in_the_metric_of_an_additive_kernel():
    """Histograms are mapped so that inner products are the χ² kernel, and then coded."""
    random = np.random.default_rng(5)
    y = np.arange(400) % 2
    shapes = np.where(y[:, None] == 1, np.linspace(0.3, 2, 16), np.linspace(2, 0.3, 16))
    X = random.gamma(shapes).astype(np.float32)
    X /= X.sum(axis=1, keepdims=True)
    train, test = slice(0, 300), slice(300, None)
    mapped = make_pipeline(vkl.HomogeneousMap("chi2"), vkl.ProductQuantizer(64, block_size=4))
    codes = mapped.fit_transform(X[train])
    decoded = codes.books.decode(codes)
    exact = vkl.kernel_matrix(X[train], kernel="chi2")
    assert np.abs(decoded @ decoded.T - exact).mean() < 0.05 * exact.mean()
    ours = make_pipeline(mapped, BundleSVC(C=10)).fit(X[train], y[train])
    theirs = SVC(C=10, kernel="precomputed").fit(exact, y[train])
    expected = theirs.score(vkl.kernel_matrix(X[test], X[train], kernel="chi2"), y[test])
    assert expected > 0.9
    assert ours.score(X[test], y[test]) >= expected - 0.05
