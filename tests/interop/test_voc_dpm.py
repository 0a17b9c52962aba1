"""Reading the published models, and refusing what is none."""

import numpy as np
import pytest
import scipy.io

from visionkl.core.errors import ModelFileError
from visionkl.features.hog import mirror
from visionkl.interop.voc_dpm import read_voc_dpm


@pytest.mark.realdata
def test_reads_mixtures_with_mirrored_components(realdata):
    model = read_voc_dpm(realdata / "voc_dpm_models" / "VOC2007_bicycle_final.mat")
    assert model.label == "bicycle"
    assert [c.root.shape[:2] for c in model.components] == [(7, 11)] * 2 + [(9, 9)] * 2 + [(11, 6)] * 2
    assert all(len(c.parts) == 8 for c in model.components)
    for original, image in zip(model.components[::2], model.components[1::2], strict=True):
        np.testing.assert_array_equal(image.root, mirror(original.root))
        for part, theirs in zip(original.parts, image.parts, strict=True):
            mine = part.mirrored(original.root.shape[1])
            assert mine.anchor == theirs.anchor
            np.testing.assert_array_equal(mine.weights, theirs.weights)
            np.testing.assert_array_equal(mine.deformation, theirs.deformation)


@pytest.mark.realdata
def test_reads_the_model_with_an_extra_octave(realdata):
    model = read_voc_dpm(realdata / "voc_dpm_models" / "INRIA_person_final.mat")
    assert model.extra_octave
    assert len(model.components) == 2


@pytest.mark.realdata
def test_a_model_cut_short_is_refused(realdata, tmp_path):
    whole = (realdata / "voc_dpm_models" / "VOC2007_bus_final.mat").read_bytes()
    for size in (0, 50, 200, len(whole) // 2, len(whole) - 1000):
        short = tmp_path / "short.mat"
        short.write_bytes(whole[:size])
        with pytest.raises(ModelFileError, match=r"short\.mat"):
            read_voc_dpm(short)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ModelFileError, match="no such file"):
        read_voc_dpm(tmp_path / "nowhere.mat")


@pytest.mark.parametrize(
    "content", [{"other": 1}, {"model": 3}, {"model": {"features": {"bias": 10, "dim": 31}}}]
)
def test_matlab_files_that_are_no_models_are_refused(tmp_path, content):
    scipy.io.savemat(tmp_path / "x.mat", content)
    with pytest.raises(ModelFileError, match=r"x\.mat"):
        read_voc_dpm(tmp_path / "x.mat")
