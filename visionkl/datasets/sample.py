"""The sample set: a small detection data set that is generated, not downloaded.

Three classes of jointed objects (digger, robot, tricycle) in cluttered scenes, in the layout of the VOC2007
devkit with boxes, flags, poses and segmentation masks, so that the ordinary VOC reader reads it:

    folder/VOC2007/JPEGImages/000001.jpg, ...
    folder/VOC2007/Annotations/000001.xml, ...
    folder/VOC2007/SegmentationClass/000001.png, ...
    folder/VOC2007/SegmentationObject/000001.png, ...
    folder/VOC2007/ImageSets/Main/train.txt, val.txt, trainval.txt, test.txt, robot_train.txt, ...
    folder/VOC2007/ImageSets/Segmentation/train.txt, val.txt, trainval.txt, test.txt
    folder/sample_set.json              the settings, by which a finished set is known again

What the objects are is told in `sample_objects`, how scenes are painted and what the flags mean in
`sample_scenes`. Parts move so much, and so many loose ones lie about, that a rigid template loses to a part
model.

Each picture has a random stream of its own, named by the seed, its split and its number there. So the same
seed gives the same bytes whatever the number of threads (with the same versions of NumPy, OpenCV and Pillow),
and more training pictures leave the test pictures as they were.

If unsure, take the defaults: 240 + 160 + 120 pictures, about 100 objects a class to train on, made in
seconds.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import cv2
import numpy as np
from PIL import Image

from visionkl.backend.threads import usable_cores
from visionkl.core.boxes import to_voc
from visionkl.core.errors import DataError
from visionkl.core.rng import stream
from visionkl.core.validation import check_number
from visionkl.datasets.sample_objects import CLASSES
from visionkl.datasets.sample_scenes import Scene, SceneObject, draw_scene

#: Raised whenever the same settings give other pictures than before.
SAMPLE_SET_VERSION = 1

_STAMP = "sample_set.json"
_YEAR_FOLDER = "VOC2007"
_VOID = 255


def make_sample_set(
    folder: str | os.PathLike[str],
    *,
    n_train: int = 240,
    n_val: int = 160,
    n_test: int = 120,
    seed: int = 0,
    n_jobs: int | None = None,
) -> Path:
    """Generate the sample set, or find it again where it was generated before.

    Parameters
    ----------
    folder : str or path
        Where to write the devkit. It must not exist, be empty, or hold a sample set with the same settings;
        nothing is ever overwritten. The folder appears under its name only when it is complete.
    n_train, n_val, n_test : int
        Numbers of pictures; from 3 pictures on, a split shows every class.
    seed : int
        Another seed gives other pictures.
    n_jobs : int, optional
        Threads; all usable cores by default. They have no influence on the pictures.

    Returns
    -------
    Path
        The folder, to be read as `VOC(folder, year="2007", split="train")`.

    Raises
    ------
    DataError
        If the folder holds something else, or cannot be written.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as scratch:
    ...     devkit = make_sample_set(Path(scratch) / "sample", n_train=3, n_val=0, n_test=0)
    ...     (devkit / "VOC2007/ImageSets/Main/robot_train.txt").read_text().splitlines()
    ['000001 -1', '000002  1', '000003 -1']
    """
    folder = Path(folder)
    counts = {"train": n_train, "val": n_val, "test": n_test}
    for split, count in counts.items():
        check_number("make_sample_set", f"n_{split}", count, low=0, integer=True)
    check_number("make_sample_set", "seed", seed, integer=True)
    n_jobs = usable_cores() if n_jobs is None else n_jobs
    check_number("make_sample_set", "n_jobs", n_jobs, low=1, integer=True)
    stamp = {
        "what": "visionkl sample set",
        "version": SAMPLE_SET_VERSION,
        "classes": list(CLASSES),
        **{f"n_{split}": int(count) for split, count in counts.items()},
        "seed": int(seed),
    }
    if _is_made(folder, stamp):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # The set grows in a folder inside a temporary one, which is for its owner alone: this one is not.
        workshop = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".partial", dir=folder.parent))
        try:
            unfinished = workshop / folder.name
            _write_devkit(unfinished / _YEAR_FOLDER, counts, int(seed), n_jobs)
            (unfinished / _STAMP).write_text(json.dumps(stamp, indent=2) + "\n", encoding="utf-8")
            _move_into_place(unfinished, folder, stamp)
        finally:
            shutil.rmtree(workshop, ignore_errors=True)
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"{folder}: cannot write the sample set here ({reason}); choose another.") from None
    return folder


def _is_made(folder: Path, stamp: dict[str, Any]) -> bool:
    """Tell a finished set from a free place, and refuse everything else."""
    if not folder.exists():
        return False
    if not folder.is_dir():
        raise DataError(f"{folder}: this is a file; the sample set needs a new or empty folder.")
    if not any(folder.iterdir()):
        return False
    try:
        found = json.loads((folder / _STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict) or found.get("what") != stamp["what"]:
        raise DataError(
            f"{folder}: the folder holds something other than a sample set; choose a new or empty folder."
        )
    if found != stamp:
        differing = ", ".join(
            f"{name} {found.get(name)!r} instead of {wanted!r}"
            for name, wanted in stamp.items()
            if found.get(name) != wanted
        )
        raise DataError(
            f"{folder}: the folder holds a sample set with other settings ({differing}); "
            f"choose another folder or delete this one."
        )
    n_wanted = sum(stamp[name] for name in ("n_train", "n_val", "n_test"))
    n_found = len(list((folder / _YEAR_FOLDER / "JPEGImages").glob("*.jpg")))
    if n_found != n_wanted:
        raise DataError(
            f"{folder}: the sample set holds {n_found} pictures instead of {n_wanted}; delete the folder."
        )
    return True


def _move_into_place(unfinished: Path, folder: Path, stamp: dict[str, Any]) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
    try:
        unfinished.rename(folder)
    except OSError:
        # Somebody else may have made the same set meanwhile, which is as good.
        if not _is_made(folder, stamp):
            raise


# -- writing -------------------------------------------------------------------------------------------------


def _write_devkit(root: Path, counts: dict[str, int], seed: int, n_jobs: int) -> None:
    for name in (
        "JPEGImages",
        "Annotations",
        "SegmentationClass",
        "SegmentationObject",
        "ImageSets/Main",
        "ImageSets/Segmentation",
    ):
        (root / name).mkdir(parents=True)
    tasks = list(_tasks(counts))
    # A pool of its own, which on an error waits for pictures under way before the folder is removed.
    with ThreadPoolExecutor(n_jobs) as pool:
        shown = list(pool.map(lambda task: _write_picture(root, seed, *task), tasks))
    lists: dict[str, list[tuple[str, dict[str, int]]]] = {"train": [], "val": [], "trainval": [], "test": []}
    for (image_id, split, _), presence in zip(tasks, shown, strict=True):
        lists[split].append((image_id, presence))
    lists["trainval"] = lists["train"] + lists["val"]
    for split, rows in lists.items():
        _write_lines(root / "ImageSets/Main" / f"{split}.txt", [image_id for image_id, _ in rows])
        _write_lines(root / "ImageSets/Segmentation" / f"{split}.txt", [image_id for image_id, _ in rows])
        for name in CLASSES:
            _write_lines(
                root / "ImageSets/Main" / f"{name}_{split}.txt",
                [f"{image_id} {presence[name]:2d}" for image_id, presence in rows],
            )


def _tasks(counts: dict[str, int]) -> Iterator[tuple[str, str, int]]:
    """Picture id, split, and number within the split of all pictures."""
    so_far = 0
    for split, count in counts.items():
        for number in range(count):
            so_far += 1
            yield f"{so_far:06d}", split, number


def _write_lines(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


def _write_picture(root: Path, seed: int, image_id: str, split: str, number: int) -> dict[str, int]:
    """Paint and write one picture; returns by class 1: there, 0: only difficult ones are, -1: not there."""
    rng = stream(seed, "sample set", split, number)
    scene = draw_scene(rng, _choose_labels(rng, number))
    Image.fromarray(scene.image).save(
        root / "JPEGImages" / f"{image_id}.jpg", quality=int(rng.integers(65, 93))
    )
    _annotation(image_id, scene).write(root / "Annotations" / f"{image_id}.xml", encoding="utf-8")
    _write_masks(root, image_id, scene)
    presence = dict.fromkeys(CLASSES, -1)
    for thing in scene.objects:
        presence[thing.label] = max(presence[thing.label], 0 if thing.difficult else 1)
    return presence


def _choose_labels(rng: np.random.Generator, number: int) -> tuple[str, ...]:
    """Let classes take turns, so that each split has all of them; a third of the pictures shows more."""
    names = list(CLASSES)
    if number >= len(names) and rng.uniform() < 0.08:
        return ()
    more = rng.integers(len(names), size=int(rng.choice([0, 1, 2], p=[0.65, 0.25, 0.1])))
    return (names[number % len(names)], *(names[k] for k in more))


def _annotation(image_id: str, scene: Scene) -> ElementTree.ElementTree:
    rows, cols = scene.image.shape[:2]
    root = ElementTree.Element("annotation")
    _add(root, folder=_YEAR_FOLDER, filename=f"{image_id}.jpg")
    _add(
        ElementTree.SubElement(root, "source"),
        database="visionkl sample set",
        annotation="generated",
        image="generated",
    )
    _add(ElementTree.SubElement(root, "size"), width=cols, height=rows, depth=3)
    _add(root, segmented=1)
    for thing in scene.objects:
        _add_object(ElementTree.SubElement(root, "object"), thing)
    ElementTree.indent(root, "\t")
    return ElementTree.ElementTree(root)


def _add_object(element: ElementTree.Element, thing: SceneObject) -> None:
    _add(
        element,
        name=thing.label,
        pose=thing.pose,
        truncated=int(thing.truncated),
        occluded=int(thing.occluded),
        difficult=int(thing.difficult),
    )
    xmin, ymin, xmax, ymax = (int(value) for value in to_voc(thing.box))
    _add(ElementTree.SubElement(element, "bndbox"), xmin=xmin, ymin=ymin, xmax=xmax, ymax=ymax)


def _add(element: ElementTree.Element, **children: object) -> None:
    for name, value in children.items():
        ElementTree.SubElement(element, name).text = str(value)


def _write_masks(root: Path, image_id: str, scene: Scene) -> None:
    """Write VOC's palette masks: numbers, and void along borders and on difficult objects."""
    names = list(CLASSES)
    class_of = np.zeros(256, np.uint8)
    object_of = np.zeros(256, np.uint8)
    for number, thing in enumerate(scene.objects, start=1):
        class_of[number] = _VOID if thing.difficult else 1 + names.index(thing.label)
        object_of[number] = _VOID if thing.difficult else number
    border = cv2.morphologyEx(scene.owners, cv2.MORPH_GRADIENT, np.ones((3, 3), np.uint8)) > 0
    for folder, numbers in (("SegmentationClass", class_of), ("SegmentationObject", object_of)):
        values = numbers[scene.owners]
        values[border] = _VOID
        mask = Image.fromarray(values)
        mask.putpalette(_VOC_PALETTE)
        mask.save(root / folder / f"{image_id}.png")


def _voc_palette() -> bytes:
    """Make VOC's 256 colours: the bits of a label, taken in threes, fill red, green and blue from the top."""
    labels = np.arange(256)
    colours = np.zeros((256, 3), np.uint8)
    for plane in range(8):
        for channel in range(3):
            colours[:, channel] |= (((labels >> (3 * plane + channel)) & 1) << (7 - plane)).astype(np.uint8)
    return colours.tobytes()


_VOC_PALETTE = _voc_palette()
