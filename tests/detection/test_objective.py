"""Parameters, samples and the training objective: features times parameters is the score of the matching."""

import numpy as np
import pytest

from tests.detection.conftest import random_model
from visionkl.coding.codebooks import Codebooks
from visionkl.detection import samples as samples_module
from visionkl.detection.matching import Matcher, Placements
from visionkl.detection.mining import sorted_by_root
from visionkl.detection.model import MixtureModel
from visionkl.detection.objective import PlacementRows, objective, solve
from visionkl.detection.parameters import Parameters, with_mirrors, without_mirrors
from visionkl.detection.samples import Samples, collect_samples
from visionkl.features.pyramid import FeaturePyramid, feature_pyramid
from visionkl.solvers.rows import CodedRows

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


def as_codes(pyramid: FeaturePyramid, n_blocks: int) -> tuple[FeaturePyramid, FeaturePyramid, Codebooks]:
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
    return (
        FeaturePyramid(tuple(codes), *settings),
        FeaturePyramid(tuple(cells), *settings),
        Codebooks(codebooks),
    )


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
    rows = PlacementRows(parameters, samples, codebooks)
    scores = rows.scores(parameters.vector(without_mirrors(model)))
    expected = np.concatenate([placements.scores[placements.components == c] for c in range(4)])
    np.testing.assert_allclose(scores, expected, atol=2e-3)
    assert (samples[0].keys[:, 0] == 7).all()


@pytest.mark.parametrize("n_blocks", [None, 2])
def test_sums_of_samples_are_those_of_their_features(model, pyramid, n_blocks):
    """`combine` is the transpose of `scores`, also for a part of the rows."""
    source, cells, codebooks = (pyramid, pyramid, None) if n_blocks is None else as_codes(pyramid, n_blocks)
    samples = collect_samples(model, source, Matcher(model).match(cells, -2.0), picture=0)
    parameters = Parameters(without_mirrors(model))
    rows = PlacementRows(parameters, samples, codebooks)
    rng = np.random.default_rng(0)
    first, last = rows.n_rows // 5, rows.n_rows - rows.n_rows // 7
    shares = rng.normal(size=(2, last - first))
    combined = rows.combine(shares, first)
    for _ in range(3):
        v = rng.normal(size=parameters.size)
        np.testing.assert_allclose(combined @ v, shares @ rows.scores(v)[first:last], rtol=1e-3, atol=0.05)


def test_placements_with_one_root_count_once(model, pyramid, placements):
    """Of several placements with the same root, the objective sees the best one."""
    samples = collect_samples(model, pyramid, placements, picture=0)
    parameters = Parameters(without_mirrors(model))
    vector = parameters.vector(without_mirrors(model))
    positives = [some[:5] for some in samples]
    negatives = [sorted_by_root(some[5:]) for some in samples]
    twice = [sorted_by_root(Samples.join([some, some])) for some in negatives]
    once = objective(parameters, vector, positives, negatives, None, (0.1, 0.3))
    assert objective(parameters, vector, positives, twice, None, (0.1, 0.3)) == pytest.approx(once)
    scores = PlacementRows(parameters, positives, None).scores(vector)
    alone = 0.5 * parameters.regularisation() @ vector**2
    losses = 3 * np.maximum(1 - scores, 0).sum()
    losses += np.maximum(1 + PlacementRows(parameters, negatives, None).scores(vector), 0).sum()
    assert once == pytest.approx(alone + 0.1 * losses, rel=1e-5)


def test_the_solution_is_better_than_its_neighbours(model, pyramid, placements):
    samples = collect_samples(model, pyramid, placements, picture=0)
    rng = np.random.default_rng(0)
    sides = [rng.random(len(some)) < 0.1 for some in samples]
    positives = [some[side] for some, side in zip(samples, sides, strict=True)]
    negatives = [sorted_by_root(some[~side]) for some, side in zip(samples, sides, strict=True)]
    parameters = Parameters(without_mirrors(model))
    start = parameters.vector(without_mirrors(model))
    result = solve(
        parameters, start, positives, negatives, None, costs=(0.01, 0.03), tol=1e-3, max_passes=500
    )
    assert result.converged
    assert (result.v >= parameters.lower_bounds()).all()
    best = objective(parameters, result.v, positives, negatives, None, (0.01, 0.03))
    assert best < objective(parameters, start, positives, negatives, None, (0.01, 0.03))
    for _ in range(10):
        other = np.maximum(
            result.v + 0.01 * rng.normal(size=start.shape) * np.abs(result.v).mean(),
            parameters.lower_bounds(),
        )
        assert objective(parameters, other, positives, negatives, None, (0.01, 0.03)) > best * (1 - 2e-3)


@pytest.mark.parametrize("n_blocks", [0, 2])
def test_picked_samples_are_those_of_the_joined(model, pyramid, placements, n_blocks, monkeypatch):
    """Those of codes lie as the solver reads them."""
    monkeypatch.setattr(samples_module, "_PICKED_TOGETHER", 5)
    coded, _, books = as_codes(pyramid, 2)
    both = [coded if n_blocks else pyramid] * 2
    many = [collect_samples(model, one, placements, number)[0] for number, one in enumerate(both)]
    rows = np.random.default_rng(0).permutation(2 * len(many[0]))[: len(many[0]) + 3]
    joined, picked = Samples.join(many)[rows], Samples.pick(many, rows)
    for name in ("features", "shifts", "octaves", "keys"):
        np.testing.assert_array_equal(getattr(picked, name), getattr(joined, name))
        assert getattr(picked, name).dtype == getattr(joined, name).dtype
    if n_blocks:
        assert np.shares_memory(CodedRows(picked.features, books.n_codewords).codes, picked.features)


def test_samples_know_what_is_new(model, pyramid, placements):
    some = collect_samples(model, pyramid, placements, picture=0)[0]
    half = some[np.arange(len(some)) % 2 == 0]
    np.testing.assert_array_equal(some.new_to(half), np.arange(len(some)) % 2 == 1)
    joined = Samples.join([half, some[some.new_to(half)]])
    assert len(joined) == len(some)
    assert joined.nbytes > 0


def test_shares_move_until_no_component_is_larger_than_another(model):
    """With these shares the weighted mean of the components' sizes is the largest of them."""
    learned = without_mirrors(model)
    parameters = Parameters(learned)
    assert parameters.shares == (0.5, 0.5)
    rng = np.random.default_rng(0)
    pull = rng.normal(size=parameters.size)
    pull[parameters.blocks[1].all] *= 5  # the second view is much clearer
    for _ in range(30):
        solution = pull / parameters.regularisation()  # of: share * weight * v² / 2 - pull * v
        parameters = Parameters(learned, parameters.next_shares(solution))
    plain = Parameters(learned, (1.0, 1.0)).regularisation()
    sizes = [float((plain * solution**2)[block.all].sum()) for block in parameters.blocks]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.01)
    assert sum(parameters.shares) == pytest.approx(1)
    assert parameters.shares[1] > 2 * parameters.shares[0]
