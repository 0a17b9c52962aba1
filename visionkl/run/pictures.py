"""From what a person types to a list of pictures: files, folders and patterns.

Each argument is a file, a folder (its pictures, by name; with `recursive` those of its sub-folders, too) or a
pattern such as `"photos/2024-*/*.jpg"`, where `**` stands for any number of folders. A picture that is named
twice is taken once. Every picture gets an id for results files: the file's name without ending, and where two
share it, the path.
"""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from visionkl.core.errors import DataError
from visionkl.core.image import PICTURE_SUFFIXES
from visionkl.run.console import Console


def find_pictures(arguments: Iterable[str], *, recursive: bool = False) -> list[Path]:
    """List the pictures that arguments stand for, in their order.

    Parameters
    ----------
    arguments : iterable of str
        Files, folders and patterns.
    recursive : bool
        Whether folders are searched with their sub-folders.

    Returns
    -------
    list of Path

    Raises
    ------
    DataError
        If an argument stands for no picture; the message says which.
    """
    found: dict[Path, Path] = {}
    for argument in arguments:
        for path in _pictures_of(argument, recursive):
            found.setdefault(path.resolve(), path)
    return list(found.values())


def picture_ids(paths: Sequence[Path]) -> list[str]:
    """Name pictures for results files: by file name, and by path where names repeat.

    Examples
    --------
    >>> picture_ids([Path("a/001.jpg"), Path("b/001.jpg"), Path("b/002.jpg")])
    ['a/001', 'b/001', '002']
    """
    spellings = [
        [path.stem for path in paths],
        [_inner_path(path.with_suffix("")) for path in paths],
        [_inner_path(path) for path in paths],
    ]
    counts = [Counter(names) for names in spellings]
    ids: list[str] = []
    taken: set[str] = set()
    for choices in zip(*spellings, strict=True):
        unique = (name for name, count in zip(choices, counts, strict=True) if count[name] == 1)
        name = chosen = next(unique, choices[-1])
        number = 1
        while chosen in taken:
            number += 1
            chosen = f"{name}-{number}"
        taken.add(chosen)
        ids.append(chosen)
    return ids


def readable(
    paths: Sequence[Path], on_bad_data: str, console: Console
) -> tuple[list[Path], list[dict[str, str]]]:
    """Decode every picture once: little beside what follows, and no surprise in the middle.

    Parameters
    ----------
    paths : sequence of Path
    on_bad_data : {"stop", "skip"}
        Whether to complain of pictures that cannot be read, or to leave them out.
    console : Console

    Returns
    -------
    readable : list of Path
    skipped : list of dict
        Path and reason of those that were left out.
    """
    from visionkl.core.image import read_image

    good, skipped = [], []
    for path in console.track(paths, "checking pictures"):
        try:
            read_image(path)
            good.append(path)
        except DataError as error:
            skipped.append({"picture": str(path), "reason": str(error)})
    if skipped and on_bad_data == "stop":
        others = f" (and {len(skipped) - 1} more like it)" if len(skipped) > 1 else ""
        for bad in skipped[1:]:
            console.warn(bad["reason"])
        raise DataError(f"{skipped[0]['reason'].rstrip('.')}{others}; --on-bad-data skip goes on without it.")
    for bad in skipped:
        console.warn(f"{bad['reason'].rstrip('.')}; skipped.")
    if not good:
        raise DataError(f"none of the {len(paths)} pictures can be read.")
    return good, skipped


def looks_like_picture_argument(argument: str) -> bool:
    """Whether an argument is meant as a picture, a folder or a pattern, rather than as a model file."""
    return (
        Path(argument).suffix.lower() in PICTURE_SUFFIXES
        or glob.has_magic(argument)
        or Path(argument).is_dir()
    )


def _pictures_of(argument: str, recursive: bool) -> list[Path]:
    path = Path(argument)
    endings = ", ".join(sorted(PICTURE_SUFFIXES))
    if path.is_dir():
        pictures = sorted(file for file in path.glob("**/*" if recursive else "*") if _is_picture(file))
        if not pictures:
            hint = "" if recursive else "; --recursive looks into its sub-folders, too"
            raise DataError(f"{argument}: this folder holds no pictures ({endings}){hint}.")
        return pictures
    if path.exists() or not glob.has_magic(argument):
        if not path.exists():
            raise DataError(f"{argument}: there is no such picture or folder.")
        return [path]
    pictures = sorted(file for name in glob.glob(argument, recursive=True) if _is_picture(file := Path(name)))
    if not pictures:
        raise DataError(f"{argument}: no picture matches this pattern ({endings}).")
    return pictures


def _is_picture(path: Path) -> bool:
    # macOS leaves "._name.jpg" beside pictures on foreign disks: not a picture.
    return path.suffix.lower() in PICTURE_SUFFIXES and not path.name.startswith(".") and path.is_file()


def _inner_path(path: Path) -> str:
    """Write a path such that it stays inside a folder to which it is appended."""
    return "/".join(part for part in path.parts if part not in (path.anchor, "..", "."))
