"""Files that are either whole or not there, and run folders that are never overwritten.

A file is written under a temporary name in its own folder and moved into place when it is complete. Whoever
interrupts the program, or fills the disk, finds the old file or none, never half a file.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Literal

from visionkl.core.errors import DataError, VisionklError


@contextmanager
def atomic_write(path: str | Path, mode: Literal["w", "wb"] = "w") -> Iterator[IO[Any]]:
    """Open a file that appears, complete, when the block ends without an error.

    Parameters
    ----------
    path : str or Path
        Where the file goes; its folder must exist. An older file is replaced.
    mode : {"w", "wb"}
        Text (UTF-8, newlines as written) or bytes.

    Raises
    ------
    DataError
        If the folder is missing or cannot be written to.

    Examples
    --------
    >>> folder = Path(tempfile.mkdtemp())
    >>> with atomic_write(folder / "scores.txt") as file:
    ...     _ = file.write("0.5")
    >>> [path.name for path in folder.iterdir()]
    ['scores.txt']
    """
    path = Path(path)
    try:
        number, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError as error:
        raise _not_writable(path, error) from None
    try:
        text = mode == "w"
        with os.fdopen(
            number, mode, encoding="utf-8" if text else None, newline="" if text else None
        ) as file:
            yield file
        os.chmod(temporary, 0o666 & ~_umask())
        try:
            os.replace(temporary, path)
        except OSError as error:
            raise _not_writable(path, error) from None
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def write_whole(path: str | Path, content: str | bytes, what: str = "file") -> None:
    """Write a file in one go; where that fails, for want of space, say, an older file stays as it was.

    Parameters
    ----------
    path : str or Path
        Its folder must exist.
    content : str or bytes
    what : str
        What the complaint calls it.

    Raises
    ------
    DataError
        If the folder is missing or cannot be written to.
    VisionklError
        If writing fails.
    """
    try:
        with atomic_write(path, "w" if isinstance(content, str) else "wb") as file:
            file.write(content)
    except OSError as error:
        older = "the older one is still there" if Path(path).is_file() else "nothing was written"
        reason = error.strerror or error
        raise VisionklError(f"{path}: this {what} cannot be written ({reason}); {older}.") from None


def writable_folder(path: str | Path) -> Path:
    """Make a folder, with its parents, if need be, and make sure that files can be written into it.

    Commands call this before the work starts, so that an hour's work does not end at a read-only folder.
    """
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"{path}: cannot write into this folder ({reason}); choose another.") from None
    return path


def fresh_folder(path: str | Path) -> Path:
    """Make a new folder for a run; a name that is taken gets `-2`, `-3`, ..., so nothing is overwritten.

    Examples
    --------
    >>> parent = Path(tempfile.mkdtemp())
    >>> fresh_folder(parent / "bicycle").name, fresh_folder(parent / "bicycle").name
    ('bicycle', 'bicycle-2')
    """
    path = Path(path)
    candidate, number = path, 1
    while True:
        try:
            candidate.mkdir(parents=True, exist_ok=False)
            return candidate
        except FileExistsError:
            number += 1
            candidate = path.with_name(f"{path.name}-{number}")
        except OSError as error:
            reason = error.strerror or error
            raise DataError(f"{path}: cannot make this folder ({reason}); choose another.") from None


def _not_writable(path: Path, error: OSError) -> DataError:
    return DataError(f"{path}: cannot write this file ({error.strerror or error}); choose another folder.")


def _umask() -> int:
    # mkstemp's files are for their owner alone; a result gets the rights that any new file would have.
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
