"""A small model with a part, and pictures in which it finds something."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from visionkl.detection.model import Component, MixtureModel, Part
from visionkl.features.hog import hog
from visionkl.store import save


@pytest.fixture(scope="session")
def workbench(tmp_path_factory) -> Path:
    """Folder with `patch.safetensors`, and with `album/`: two pictures of the patch and one of nothing."""
    folder = tmp_path_factory.mktemp("workbench")
    rng = np.random.default_rng(3)
    image = np.full((120, 160, 3), 90.0) + rng.normal(size=(120, 160, 1))
    image[32:80, 48:112] += np.kron(rng.integers(0, 2, (6, 8)), np.ones((8, 8)))[:, :, None] * 120 - 30
    image = np.clip(image, 0, 255).astype(np.uint8)

    root = hog(image)[3:9, 5:13] - 0.1
    root[:, :, 31] = 0
    fine = hog(image, cell_size=4)[8:14, 12:18] - 0.1
    fine[:, :, 31] = 0
    part = Part(fine, (1, 1), np.array([0.1, 0, 0.1, 0], np.float32))
    perfect = float((root**2).sum())
    save(
        MixtureModel("patch", (Component(root, (part,)),), interval=4, threshold=perfect),
        folder / "patch.safetensors",
    )
    (folder / "album").mkdir()
    Image.fromarray(image).save(folder / "album" / "first.png")
    Image.fromarray(image).save(folder / "album" / "second.jpg", quality=95)
    Image.new("RGB", (100, 100), (120, 120, 120)).save(folder / "album" / "nothing.png")
    return folder
