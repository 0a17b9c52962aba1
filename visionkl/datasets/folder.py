"""A folder of pictures, or a folder of class folders.

=============================  ==============================================================
`holiday/a.jpg, b.png, ...`    pictures without labels; `classes` is empty
`flowers/daisy/a.jpg, ...`     the name of each folder is the label of the pictures below it
=============================  ==============================================================

A picture's id is its path inside the folder without the ending, such as `daisy/a`; where that stands for two
files, the ending is kept. Hidden files and folders are passed over.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from visionkl.core.errors import DataError
from visionkl.core.image import PICTURE_SUFFIXES
from visionkl.datasets.base import Dataset, Example, OnBadData


class ImageFolder(Dataset):
    """A folder of pictures, or a folder of class folders.

    Parameters
    ----------
    root : str or Path
        The folder.
    on_bad_data : {"raise", "skip"}
        What a pass over the data set (`visionkl.datasets.base.usable`) does with a picture that cannot be
        read.

    Examples
    --------
    >>> import tempfile
    >>> root = Path(tempfile.mkdtemp())
    >>> for name in ("daisy/1.jpg", "daisy/2.jpg", "tulip/1.jpg"):
    ...     (root / name).parent.mkdir(exist_ok=True)
    ...     (root / name).touch()
    >>> flowers = ImageFolder(root)
    >>> flowers.classes, [(example.id, example.label) for example in flowers]
    (('daisy', 'tulip'), [('daisy/1', 'daisy'), ('daisy/2', 'daisy'), ('tulip/1', 'tulip')])
    """

    def __init__(self, root: str | Path, *, on_bad_data: OnBadData = "raise") -> None:
        root = Path(root)
        if not root.is_dir():
            raise DataError(f"{root}: there is no such folder.")
        loose = pictures_in(root)
        folders = sorted(entry.name for entry in os.scandir(root) if _is_visible_folder(entry))
        by_class = {name: list(pictures_below(root / name)) for name in folders}
        if not loose and not any(by_class.values()):
            endings = ", ".join(sorted(PICTURE_SUFFIXES))
            raise DataError(f"{root}: there are no pictures in this folder (files that end in {endings}).")
        mixed = next((name for name, names in by_class.items() if names), None) if loose else None
        if mixed is not None:
            raise DataError(
                f"{root}: this folder holds pictures ({loose[0]}) beside folders with pictures ({mixed}); "
                f"give a folder that holds only the one or only the other."
            )
        empty = next((name for name, names in by_class.items() if not names), None)
        if empty is not None and not loose:
            raise DataError(f"{root / empty}: this class folder holds no pictures; fill it or remove it.")
        classes = () if loose else tuple(folders)
        names = loose or [f"{label}/{name}" for label in classes for name in by_class[label]]
        stems = Counter(os.path.splitext(name)[0] for name in names)
        examples = []
        for name in names:
            stem = os.path.splitext(name)[0]
            label = name.split("/")[0] if classes else None
            examples.append(Example(name if stems[stem] > 1 else stem, root / name, label=label))
        super().__init__(root.resolve().name, classes, examples, on_bad_data=on_bad_data)


def pictures_in(folder: Path) -> list[str]:
    """Names of the pictures in a folder itself, known by their endings, in alphabetical order."""
    return sorted(entry.name for entry in os.scandir(folder) if _is_picture(entry.name) and entry.is_file())


def pictures_below(folder: Path) -> Iterator[str]:
    """Paths, inside a folder, of the pictures in it and in all folders below, in a fixed order."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        inside = Path(place).relative_to(folder)
        yield from (str((inside / name).as_posix()) for name in sorted(names) if _is_picture(name))


def _is_picture(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in PICTURE_SUFFIXES and not name.startswith(".")


def _is_visible_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir() and not entry.name.startswith(".")
