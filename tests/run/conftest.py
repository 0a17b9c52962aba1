"""Small models, and pictures in which they find something."""

import shutil
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


# -- two shapes, pictures of them in devkit layout, and a model for each -------------------------------------


def shape(label):
    y, x = np.mgrid[:64, :64] - 31.5
    inside = (abs(x) < 8) | (abs(y) < 8) if label == "cross" else abs(np.hypot(x, y) - 20) < 7
    return np.where(inside, 230, 60).astype(np.uint8)[:, :, None]


def make_model(label):
    features = hog(np.repeat(shape(label), 3, axis=2)).copy()
    features[:, :, -1] = 0
    weights = features - features.mean(axis=(0, 1))
    return MixtureModel(
        label, (Component(weights, bias=-0.5 * float((weights * features).sum())),), interval=5
    )


XML_OBJECT = """<object><name>{}</name><difficult>{:d}</difficult><bndbox>
<xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax><ymax>{}</ymax></bndbox></object>"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A devkit with ten pictures, and two model files."""
    root = tmp_path_factory.mktemp("made")
    folder = root / "VOC2007"
    for name in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (folder / name).mkdir(parents=True)
    rng = np.random.default_rng(0)
    ids = [f"{number:06d}" for number in range(1, 11)]
    for number, image_id in enumerate(ids):
        image = rng.integers(100, 130, (130, 210, 3), dtype=np.uint8)
        objects = []
        for place, label in enumerate(("cross", "ring")):
            if number % 3 == place or number % 3 == 2:
                x, y = 10 + 110 * place + int(rng.integers(0, 20)), int(rng.integers(5, 60))
                image[y : y + 64, x : x + 64] = shape(label)
                # The filter sees the middle of the shape; corners count from 1, last pixel included.
                objects.append(XML_OBJECT.format(label, number == 9, x + 9, y + 9, x + 56, y + 56))
        Image.fromarray(image).save(folder / "JPEGImages" / f"{image_id}.jpg", quality=95)
        size = "<size><width>210</width><height>130</height><depth>3</depth></size>"
        (folder / "Annotations" / f"{image_id}.xml").write_text(
            f"<annotation><filename>{image_id}.jpg</filename>{size}{''.join(objects)}</annotation>"
        )
    (folder / "ImageSets" / "Main" / "val.txt").write_text("\n".join(ids) + "\n")
    (folder / "ImageSets" / "Main" / "train.txt").write_text("000001\n")
    for label in ("cross", "ring"):
        save(make_model(label), root / f"{label}.safetensors")
    return root


@pytest.fixture
def devkit(made, tmp_path, monkeypatch):
    """A copy to spoil, and the current folder."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path
