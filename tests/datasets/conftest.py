"""Fixtures of the data sets' tests."""

import pytest

from tests.datasets.small_data import Devkit


@pytest.fixture
def devkit(tmp_path):
    """An empty `VOCdevkit/VOC2012`."""
    return Devkit(tmp_path / "VOCdevkit" / "VOC2012")
