"""Pictures as features take them, and a folder that keeps what was computed of them.

Wherever a transformer takes pictures, each may be an array, a path, an `Example` of a data set, or the local
descriptors of a picture, which were computed before; a data set is a sequence of examples. Pictures are
decoded one by one, when they are needed, and not kept.

The folder of a `PictureCache` holds a file for each result. A file's name is a digest of all that the result
depends on: settings, what was learned, and the picture, which is known by its path, size and time of last
change, or by its contents. So results of other settings may lie in the same folder, and a changed picture is
computed anew.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import threading
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from visionkl.backend.dispatch import CPU, Device
from visionkl.core.errors import DataError, UsageError
from visionkl.core.files import writable_folder, write_whole
from visionkl.core.image import read_image
from visionkl.core.validation import check_picture
from visionkl.datasets.base import Example
from visionkl.features.local import Extractor, LocalDescriptors

_FILE_NAME = re.compile(r"[0-9a-f]{64}\.np[yz]")
# A folder that is full is emptied by a little more than it must, so as not to search it for every new file.
_LEAVE = 0.9


class Picture:
    """A picture that is decoded when it is needed.

    Parameters
    ----------
    item : ndarray, str, Path, Example or LocalDescriptors
    name : str
        What complaints call it, unless it has a path.
    """

    def __init__(self, item: Any, name: str) -> None:
        self.item: Any = item.path if isinstance(item, Example) else item
        self.is_file = isinstance(self.item, str | os.PathLike)
        self.name = str(self.item) if self.is_file else name

    def describe(self, extractor: Extractor, device: Device = CPU) -> LocalDescriptors:
        """Compute the local descriptors, or return those that are there.

        Parameters
        ----------
        extractor : Extractor
        device : visionkl.backend.dispatch.Device
            Where the values are wanted: if it is a GPU, what can compute there does.
        """
        if isinstance(self.item, LocalDescriptors):
            return self.item
        return extractor.extract(on_device(extractor, self.pixels(), device))

    def pixels(self) -> npt.NDArray[Any]:
        """Decode the picture: `(rows, cols, 3)`, or `(rows, cols)` of an array that is grey."""
        if isinstance(self.item, LocalDescriptors):
            raise DataError(f"{self.name}: descriptors alone do not do here; give the picture itself.")
        if self.is_file:
            return read_image(self.item)
        image = check_picture(self.item, self.name)
        grey = np.ndim(self.item) == 2 or np.shape(self.item)[2] == 1
        return np.ascontiguousarray(image[:, :, 0]) if grey else image

    def identity(self) -> str:
        """Tell this picture from others, and from what its file held before."""
        if self.is_file:
            try:
                status = os.stat(self.item)
            except OSError as error:
                raise DataError(f"{self.name}: the file cannot be read ({error.strerror}).") from None
            return f"{os.path.abspath(self.item)}\n{status.st_size}\n{status.st_mtime_ns}"
        if isinstance(self.item, LocalDescriptors):
            item = self.item
            return digest("descriptors", item.values, item.positions, item.sizes, str(item.image_size))
        return digest("array", np.asarray(self.item))


def on_device(extractor: Extractor, image: npt.NDArray[Any], device: Device) -> Any:
    """Bring a picture to a device if the extractor takes it there."""
    return device.put(image) if hasattr(extractor, "device") else image


def as_pictures(X: Any, owner: str) -> list[Picture]:
    """Return the pictures that are in `X`, and complain of what is none."""
    accepted = "a list of pictures (arrays, paths, or LocalDescriptors) or a data set"
    single = isinstance(X, str | os.PathLike | LocalDescriptors | Example)
    if isinstance(X, np.ndarray):
        # (n, rows, cols) are grey pictures; with three columns they are one picture in colour.
        single = X.dtype != object and X.dtype.kind in "uif" and (X.ndim == 2 or X.shape[2:] == (3,))
    if single:
        raise DataError(f"{owner}: X must be {accepted}, not one picture; put it into a list.")
    if not isinstance(X, Sequence | np.ndarray) and not hasattr(X, "__getitem__"):
        raise DataError(f"{owner}: X must be {accepted}, not {type(X).__name__}.")
    if not len(X):
        raise DataError(f"{owner}: there are no pictures; X must be {accepted}.")
    pictures = []
    for number, item in enumerate(X):
        if not isinstance(item, np.ndarray | str | os.PathLike | Example | LocalDescriptors):
            raise DataError(
                f"{owner}: X must be {accepted}; its item number {number} is of type {type(item).__name__}."
            )
        pictures.append(Picture(item, f"{owner}: picture number {number}"))
    return pictures


def digest(*parts: str | npt.NDArray[Any]) -> str:
    """Summarise texts and arrays, with their shapes and dtypes, in 64 letters.

    Examples
    --------
    >>> digest("a", np.zeros(2)) == digest("a", np.zeros(2)), digest("ab") == digest("a", "b")
    (True, False)
    """
    summary = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            content: Any = part.encode()
            head = f"text {len(content)}\n"
        else:
            content = np.ascontiguousarray(part).data
            head = f"{part.dtype.str} {part.shape}\n"
        summary.update(head.encode())
        summary.update(content)
    return summary.hexdigest()


def settings_of(estimator: Any, owner: str, without: Sequence[str] = ()) -> list[str]:
    """Write down all settings of an estimator, and of those in it, that its results depend on.

    Parameters
    ----------
    estimator : BaseEstimator
        Others do not tell their settings, nor do functions, and are complained of.
    owner : str
        Who complains.
    without : sequence of str
        Settings that make no difference; `n_jobs` never does, and `device` in the last digits only.
    """
    kind = type(estimator)
    if not isinstance(estimator, BaseEstimator):
        name = getattr(estimator, "__name__", kind.__name__)
        raise UsageError(
            f"{owner}: vectors are cached by the settings of what computes them, and a {name} does not tell "
            "its settings; derive it from scikit-learn's BaseEstimator, or leave 'cache' out."
        )
    lines = [f"{kind.__module__}.{kind.__qualname__}"]
    for name, value in sorted(estimator.get_params(deep=False).items()):
        if name in ("n_jobs", "device") or name in without:
            continue
        if callable(value) or isinstance(value, BaseEstimator):
            lines += [f"{name}.{line}" for line in settings_of(value, owner)]
        else:
            lines.append(f"{name}={value!r}")
    return lines


class PictureCache:
    """A folder that keeps what was computed of pictures: vectors, or rows of them, and what was learned.

    Parameters
    ----------
    folder : str or Path
        Made if need be.
    max_bytes : float
        When the folder holds more, what was not used for the longest time is deleted.
    """

    def __init__(self, folder: str | Path, max_bytes: float) -> None:
        self.folder = writable_folder(folder)
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._n_bytes = sum(status.st_size for _, status in self._files())

    def get(self, key: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32] | None:
        """Return what was kept, or None where there is nothing, or nothing of this shape that can be read.

        Parameters
        ----------
        key : str
            Digest of all that the result depends on, the picture's identity among it.
        shape : tuple of int
        """
        found = self._load(f"{key}.npy")
        fits = found is not None and found.dtype == np.float32 and found.shape == shape
        return found if fits else None

    def put(self, key: str, result: npt.NDArray[np.float32]) -> None:
        """Keep a result."""
        content = io.BytesIO()
        np.save(content, result)
        self._write(f"{key}.npy", content.getvalue())

    def recall(self, key: str) -> dict[str, npt.NDArray[Any]] | None:
        """Return arrays that were learned, by name, or None where there are none that can be read."""
        return self._load(f"{key}.npz")

    def remember(self, key: str, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Keep arrays that were learned."""
        content = io.BytesIO()
        np.savez(content, **arrays)  # type: ignore[arg-type]
        self._write(f"{key}.npz", content.getvalue())

    def _load(self, name: str) -> Any:
        path = self.folder / name[:2] / name
        try:
            found = np.load(path, allow_pickle=False)
            os.utime(path)
            return dict(found) if name.endswith("z") else found
        except (OSError, ValueError, EOFError, TypeError, BadZipFile, zlib.error):
            return None

    def _write(self, name: str, content: bytes) -> None:
        path = self.folder / name[:2] / name
        path.parent.mkdir(exist_ok=True)
        write_whole(path, content, "vector")
        with self._lock:
            self._n_bytes += len(content)
            if self._n_bytes > self.max_bytes:
                self._make_room()

    def _files(self) -> list[tuple[Path, os.stat_result]]:
        """Find the vectors that are in the folder; other files are none of ours."""
        found = []
        for path in self.folder.glob("??/*.np[yz]"):
            if _FILE_NAME.fullmatch(path.name):
                with suppress(FileNotFoundError):  # another process made room
                    found.append((path, path.stat()))
        return found

    def _make_room(self) -> None:
        files = sorted(self._files(), key=lambda file: file[1].st_mtime_ns)
        self._n_bytes = sum(status.st_size for _, status in files)
        for path, status in files:
            if self._n_bytes <= _LEAVE * self.max_bytes:
                break
            path.unlink(missing_ok=True)
            self._n_bytes -= status.st_size
