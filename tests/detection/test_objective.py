"""Parameters, samples and the training objective: features times parameters is the score of the matching."""

import numpy as np
import pytest

from tests.detection.conftest import random_model
from visionkl.detection.matching import Matcher, Placements
from visionkl.detection.model import MixtureModel
from visionkl.detection.objective import HingeOracle
from visionkl.detection.parameters import Parameters, with_mirrors, without_mirrors
from visionkl.detection.samples import CodedCells, PlainCells, Samples, collect_samples
from visionkl.features.pyramid import FeaturePyramid, feature_pyramid

IMAGE = np.random.default_rng(5).integers(0, 256, (90, 110, 3)).astype(np.uint8)


@pytest.fixture(scope="module")
def model() -> MixtureModel:
    components = with_mirrors(random_model().components[::2])
    return MixtureModel("thing", components, interval=4, max_displacement=3)


@pytest.fixture(scope="module")
def pyramid(model) -> FeaturePyramid:
    return feature_pyramid(IMAGE, interval=4, padding=model.padding)


@pytest.fixture(scope="module")
def placements(model, pyramid) -> Placements:
    return Matcher(model).match(pyramid, -2.0)


def as_codes(pyramid: FeaturePyramid, n_blocks: int) -> tuple[FeaturePyramid, FeaturePyramid, np.ndarray]:
    """The pyramid as codes of a small random codebook, as the cells they stand for, and the codebook."""
    codebooks = np.random.default_rng(0).random((n_blocks, 16, 32 // n_blocks), np.float32)
    codes, cells = [], []
    for level in pyramid.levels:
        blocks = level.reshape(*level.shape[:2], n_blocks, 1, -1)
        code = ((blocks - codebooks) ** 2).sum(axis=-1).argmin(axis=-1).astype(np.uint8)
        codes.append(code)
        cells.append(
            np.stack([codebooks[m][code[..., m]] for m in range(n_blocks)], axis=2).reshape(level.shape)
        )
    settings = (pyramid.scales, pyramid.cell_size, pyramid.interval, pyramid.padding, pyramid.image_size)
    return FeaturePyramid(tuple(codes), *settings), FeaturePyramid(tuple(cells), *settings), codebooks


def test_a_vector_gives_back_its_model(model):
    learned = without_mirrors(model)
    parameters = Parameters(learned)
    vector = parameters.vector(learned)
    again = with_mirrors(parameters.learned(vector))
    for mine, theirs in zip(model.components, again, strict=True):
        np.testing.assert_allclose(mine.root, theirs.root, rtol=1e-6)
        assert mine.bias == pytest.approx(theirs.bias)
        for a, b in zip(mine.parts, theirs.parts, strict=True):
            assert a.anchor == b.anchor
            np.testing.assert_allclose(a.weights, b.weights, rtol=1e-6)
            np.testing.assert_allclose(a.deformation, b.deformation, rtol=1e-6)
    assert (parameters.lower_bounds() <= np.maximum(vector, 0.01)).all()
    assert parameters.regularisation().shape == vector.shape


@pytest.mark.parametrize("n_blocks", [None, 1, 4])
def test_features_times_parameters_is_the_score(model, pyramid, n_blocks):
    source, cells, codebooks = (pyramid, pyramid, None) if n_blocks is None else as_codes(pyramid, n_blocks)
    placements = Matcher(model).match(cells, -2.0)
    assert len(set(placements.components.tolist())) >= 3
    samples = collect_samples(model, source, placements, picture=7)
    parameters = Parameters(without_mirrors(model))
    nothing = [some[np.zeros(len(some), bool)] for some in samples]
    oracle = HingeOracle(parameters, samples, nothing, 1.0, codebooks)
    margins = oracle.margins(parameters.vector(without_mirrors(model)))
    expected = np.concatenate([placements.scores[placements.components == c] for c in range(4)])
    np.testing.assert_allclose(margins, expected, atol=2e-3)
    assert (samples[0].keys[:, 0] == 7).all()


def test_the_gradient_is_the_slope(model, pyramid, placements):
    samples = collect_samples(model, pyramid, placements, picture=0)
    parameters = Parameters(without_mirrors(model))
    rng = np.random.default_rng(0)
    sides = [rng.random(len(some)) < 0.3 for some in samples]
    oracle = HingeOracle(
        parameters,
        [some[side] for some, side in zip(samples, sides, strict=True)],
        [some[~side] for some, side in zip(samples, sides, strict=True)],
        0.1,
        None,
    )
    vector = parameters.vector(without_mirrors(model))
    loss, gradient = oracle(vector)
    for _ in range(5):
        direction = rng.normal(size=vector.shape)
        step = 1e-5
        slope = (oracle(vector + step * direction)[0] - oracle(vector - step * direction)[0]) / (2 * step)
        assert slope == pytest.approx(gradient @ direction, rel=0.02, abs=0.05)
    assert loss == pytest.approx(0.1 * np.maximum(1 - oracle.margins(vector), 0).sum(), rel=1e-5)


def test_coded_and_decoded_cells_agree():
    rng = np.random.default_rng(0)
    codebooks = rng.normal(size=(2, 300, 16)).astype(np.float32)
    codes = rng.integers(0, 300, (5 * 2, 40)).astype(np.uint16)
    decoded = np.concatenate([codebooks[row % 2][codes[row]] for row in range(10)], axis=1)
    coded, plain = CodedCells(codes, codebooks), PlainCells(np.ascontiguousarray(decoded.T))
    weights = rng.normal(size=(5, 32)).astype(np.float32)
    np.testing.assert_allclose(coded.scores(weights), plain.scores(weights), atol=1e-3)
    shares = rng.normal(size=40).astype(np.float32)
    np.testing.assert_allclose(coded.total(shares), plain.total(shares), atol=1e-3)


def test_samples_know_what_is_new(model, pyramid, placements):
    some = collect_samples(model, pyramid, placements, picture=0)[0]
    half = some[np.arange(len(some)) % 2 == 0]
    np.testing.assert_array_equal(some.new_to(half), np.arange(len(some)) % 2 == 1)
    joined = Samples.join([half, some[some.new_to(half)]])
    assert len(joined) == len(some)
    assert joined.nbytes > 0
