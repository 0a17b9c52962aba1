"""Fixtures that many tests share."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def realdata() -> Path:
    """Folder with real pictures and published models; tests that use it skip where it is absent."""
    beside_the_clone = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("VISIONKL_TEST_DATA", beside_the_clone))
    if not folder.is_dir():
        pytest.skip("no real data here: set VISIONKL_TEST_DATA to run this test")
    return folder
