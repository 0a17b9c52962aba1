"""Detection on codes: what dense filters find on the decoded cells, up to the rounding of the tables."""

from dataclasses import replace

import numpy as np
import pytest

from tests.detection.conftest import random_model
from visionkl.coding.codebooks import Codebooks
from visionkl.coding.hog_codes import encode_pyramid, fit_cells, frame_cell
from visionkl.coding.pq import ProductQuantizer
from visionkl.core.image import read_image
from visionkl.detection.detector import DPMDetector, detect_all
from visionkl.detection.filters import TableFilters
from visionkl.detection.matching import Matcher
from visionkl.features.pyramid import feature_pyramid
from visionkl.interop.voc_dpm import read_voc_dpm

IMAGE = np.random.default_rng(5).integers(0, 256, (90, 110, 3)).astype(np.uint8)
KINDS = [(1, 256), (1, 512), (2, 256), (2, 300), (4, 16)]


def random_books(seed, n_blocks, n_codewords):
    """Codewords that are cells of the picture, and the frame's."""
    pyramid = feature_pyramid(IMAGE, interval=4)
    cells = np.concatenate([level[1:-1, 1:-1].reshape(-1, 32) for level in pyramid.levels])
    chosen = np.random.default_rng(seed).choice(len(cells), n_codewords - 1, replace=False)
    words = np.vstack([cells[chosen], frame_cell()])
    return Codebooks(words.reshape(n_codewords, n_blocks, -1).transpose(1, 0, 2))


def error_bound(model):
    """How far scores can be off: the tables of a component's root and parts, and float32 sums."""
    bounds = []
    for component in model.components:
        filters = [component.root, *(part.weights for part in component.parts)]
        tables = TableFilters(filters, model.codebooks, dtype="int16")
        bounds.append(sum(float(bound.sum()) for bound in tables.error_bounds))
    return max(bounds) + 1e-4


def both_pyramids(model, image):
    """The pyramid in codes, and the decoded one."""
    plain = feature_pyramid(
        image, interval=model.interval, padding=model.padding, extra_octave=model.extra_octave, n_jobs=1
    )
    coded = encode_pyramid(plain, model.codebooks, 1)
    return coded, replace(coded, levels=tuple(model.codebooks.decode(level) for level in coded.levels))


def check_against_dense(model, image):
    dense = Matcher(replace(model, codebooks=None))
    matcher = Matcher(model)
    coded, decoded = both_pyramids(model, image)
    bound = error_bound(model)
    for level in matcher.root_levels(coded):
        scores, expected = matcher.level_scores(coded, level), dense.level_scores(decoded, level)
        np.testing.assert_array_equal(np.isfinite(scores), np.isfinite(expected))
        possible = np.isfinite(expected)
        assert np.abs(scores[possible] - expected[possible]).max(initial=0) <= bound
    threshold = float(np.sort(dense.match(decoded, -np.inf).scores)[-100])
    ours = matcher.match(coded, threshold, 2)
    theirs = dense.match(decoded, threshold, 1)
    assert 50 < len(ours) < 200
    place_of = {
        (level, *root): i
        for i, (level, root) in enumerate(zip(theirs.levels, theirs.roots.tolist(), strict=True))
    }
    mine, yours = [], []
    for i, (level, root) in enumerate(zip(ours.levels, ours.roots.tolist(), strict=True)):
        other = place_of.pop((level, *root), None)
        if other is None:  # it just missed the threshold there
            assert ours.scores[i] <= threshold + bound
        else:
            mine.append(i)
            yours.append(other)
    assert (theirs.scores[list(place_of.values())] <= threshold + bound).all()
    np.testing.assert_allclose(ours.scores[mine], theirs.scores[yours], atol=bound)
    # Where two components or places are as good as equal, either may win.
    assert (ours.components[mine] == theirs.components[yours]).mean() > 0.9
    assert (ours.parts[mine] == theirs.parts[yours]).mean() > 0.9


@pytest.mark.parametrize(("n_blocks", "n_codewords"), KINDS)
def test_scores_and_placements_are_those_on_decoded_cells(n_blocks, n_codewords):
    check_against_dense(random_model(codebooks=random_books(0, n_blocks, n_codewords)), IMAGE)


@pytest.mark.parametrize("settings", [{"max_displacement": None}, {"extra_octave": True}, {"interval": 5}])
def test_so_are_those_of_other_kinds_of_models(settings):
    check_against_dense(random_model(1, codebooks=random_books(1, 2, 64), **settings), IMAGE)


@pytest.mark.realdata
@pytest.mark.parametrize("n_blocks", [1, 2, 4])
def test_a_published_model_on_codes(realdata, n_blocks):
    image = read_image(realdata / "voc_dpm_models" / "000034.png")
    cells = np.concatenate(
        [lv[1:-1, 1:-1].reshape(-1, 32) for lv in feature_pyramid(image, interval=5).levels]
    )
    quantizer = fit_cells(ProductQuantizer(256, n_blocks=n_blocks, max_iter=3, random_state=0), cells)
    model = read_voc_dpm(realdata / "voc_dpm_models" / "VOC2007_bicycle_final.mat")
    model = replace(model, codebooks=quantizer.books_)
    check_against_dense(model, image)


def test_the_detector_codes_what_it_searches():
    model = random_model(codebooks=random_books(0, 2, 256))
    detector = DPMDetector.from_model(model)
    coded, _ = both_pyramids(model, IMAGE)
    expected = detector.detect_in(coded, threshold=-1.5, overlap=0.5, n_jobs=1)
    assert len(expected) > 3
    for n_jobs in (1, 2):
        found = detector.detect(IMAGE, threshold=-1.5, n_jobs=n_jobs)
        assert found == expected.clip(110, 90).sorted()


def coded_detectors(*books):
    models = (random_model(seed, codebooks=own) for seed, own in enumerate(books))
    return [DPMDetector.from_model(replace(model, label=f"thing {i}")) for i, model in enumerate(models)]


@pytest.mark.parametrize("n_jobs", [1, 2, 5])  # as wholes, and cut into levels
def test_detectors_together_find_what_each_finds_alone(n_jobs):
    first, second = random_books(0, 1, 512), random_books(1, 2, 64)
    detectors = coded_detectors(first, second, first, first, second)
    together = detect_all(detectors, IMAGE, threshold=-1.5, n_jobs=n_jobs)
    for detector in detectors:
        alone = detector.detect(IMAGE, threshold=-1.5, n_jobs=1)
        assert len(alone) > 3
        assert together.filter(labels=detector.label) == alone


def test_plain_and_coded_detectors_work_side_by_side():
    detectors = coded_detectors(None, random_books(0, 1, 64), None, random_books(0, 1, 64))
    together = detect_all(detectors, IMAGE, threshold=-1.5)
    for detector in detectors:
        alone = detector.detect(IMAGE, threshold=-1.5)
        assert len(alone) > 3
        assert together.filter(labels=detector.label) == alone


def test_equal_codebooks_share_the_codes(monkeypatch):
    calls = []
    encode_into = Codebooks.encode_into

    def counted(self, cells, codes):
        calls.append(cells.shape)
        encode_into(self, cells, codes)

    monkeypatch.setattr(Codebooks, "encode_into", counted)
    one, same, other = random_books(0, 2, 64), random_books(0, 2, 64), random_books(1, 2, 64)

    def n_coded(*books):
        detectors = coded_detectors(*books)
        calls.clear()
        detect_all(detectors, IMAGE, n_jobs=1)
        return len(calls)

    alone = n_coded(one)
    assert alone > 0
    assert n_coded(one, same, one) == alone
    assert n_coded(one, same, other) == 2 * alone
