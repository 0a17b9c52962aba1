"""Where training starts: groups, sizes, facing, warped objects and parts."""

import numpy as np
import pytest

from visionkl.detection.initialise import (
    START_DEFORMATION,
    facing,
    group_by_aspect,
    place_parts,
    root_size,
    warped_cells,
)
from visionkl.features.hog import hog, mirror

RNG = np.random.default_rng(0)


def test_groups_go_from_low_to_tall():
    sizes = RNG.uniform(20, 200, (31, 2))
    groups = group_by_aspect(sizes, 3)
    assert sorted(np.concatenate(groups).tolist()) == list(range(31))
    assert {len(group) for group in groups} == {10, 11}
    aspects = [sizes[group, 1] / sizes[group, 0] for group in groups]
    assert aspects[0].max() <= aspects[1].min()
    assert aspects[1].max() <= aspects[2].min()


@pytest.mark.parametrize(("aspect", "scale"), [(0.5, 30), (1.0, 100), (2.5, 300)])
def test_roots_have_the_usual_shape_and_a_bounded_area(aspect, scale):
    widths = scale * RNG.uniform(0.9, 1.1, 50)
    rows, cols = root_size(np.column_stack([widths, widths * aspect]), 8)
    assert rows / cols == pytest.approx(aspect, rel=0.25)
    assert 2000 < rows * cols * 64 < 6500


def test_an_object_of_the_roots_size_is_not_warped():
    image = RNG.integers(0, 256, (160, 200, 3)).astype(np.uint8)
    cells = warped_cells(image, [40, 48, 40 + 5 * 8, 48 + 6 * 8], (6, 5), 8)
    np.testing.assert_array_equal(cells, hog(image[40:104, 32:88]))


def test_objects_at_the_border_are_warped_too():
    image = RNG.integers(0, 256, (60, 50, 3)).astype(np.uint8)
    for box in ([0, 0, 50, 60], [-10, -10, 20, 30], [45, 55, 50, 60]):
        assert warped_cells(image, box, (4, 7), 8).shape == (4, 7, 32)


def test_objects_are_turned_to_face_the_same_way():
    prototype = RNG.random((5, 6, 32), np.float32)
    turned = RNG.random(40) < 0.5
    noise = 0.3 * RNG.random((40, 5, 6, 32), np.float32)
    features = np.where(turned[:, None, None, None], mirror(prototype), prototype) + noise
    found = facing(features, np.random.default_rng(1))
    assert (found == turned).all() or (found == ~turned).all()


def test_parts_cover_the_strongest_places_once():
    root = np.zeros((6, 8, 32), np.float32)
    root[:3, :3] = 1.0
    root[3:, 5:] = 0.5
    root[0, 5:] = -9.0  # what speaks against the object attracts no part
    parts = place_parts(root, 3, 6)
    assert [part.anchor for part in parts[:2]] == [(0, 0), (10, 6)]
    for part in parts:
        assert part.weights.shape == (6, 6, 32)
        np.testing.assert_array_equal(part.deformation, START_DEFORMATION)
    assert np.linalg.norm(parts[0].weights) == pytest.approx(0.1, rel=1e-4)
    assert not parts[0].weights[:, :, 31].any()


def test_parts_are_never_larger_than_their_root():
    assert place_parts(np.ones((2, 9, 32), np.float32), 1, 6)[0].weights.shape == (4, 6, 32)
