"""Small data sets on disk, written by the tests themselves."""

from pathlib import Path

import numpy as np
from PIL import Image


def write_picture(path, size=(100, 80), seed=0):
    """Save a noisy picture of `(width, height)`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def voc_object(name="dog", box=(11, 21, 50, 60), **tags):
    """One `<object>`; further tags come before the box."""
    extra = "".join(f"<{tag}>{value}</{tag}>" for tag, value in tags.items())
    corners = "".join(
        f"<{tag}>{value}</{tag}>" for tag, value in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True)
    )
    return f"<object><name>{name}</name>{extra}<bndbox>{corners}</bndbox></object>"


def voc_xml(*objects, size=(100, 80)):
    """A whole annotation; `size=None` leaves the size out."""
    written = (
        f"<size><width>{size[0]}</width><height>{size[1]}</height><depth>3</depth></size>" if size else ""
    )
    return f"<annotation><filename>ignored.jpg</filename>{written}{''.join(objects)}</annotation>"


class Devkit:
    """A VOC folder that is filled step by step."""

    def __init__(self, folder):
        self.folder = Path(folder)
        (self.folder / "ImageSets" / "Main").mkdir(parents=True)
        (self.folder / "Annotations").mkdir()
        (self.folder / "JPEGImages").mkdir()

    def add(self, id, *objects, size=(100, 80), xml=None, picture=True):
        if picture:
            write_picture(self.folder / "JPEGImages" / f"{id}.jpg", size or (100, 80))
        text = voc_xml(*objects, size=size) if xml is None else xml
        (self.folder / "Annotations" / f"{id}.xml").write_text(text)
        return self

    def list(self, name, *lines, image_set="Main"):
        (self.folder / "ImageSets" / image_set).mkdir(exist_ok=True)
        (self.folder / "ImageSets" / image_set / f"{name}.txt").write_text("".join(f"{x}\n" for x in lines))
        return self
