"""Download PASCAL VOC: VOC2007 (trainval and test) and VOC2012 (trainval).

An archive is fetched by pooch, which checks it against its well-known MD5, and unpacked into
`VISIONKL_DATA`, where `VOC()` looks. What pooch does not have is added here: a download that breaks off is
taken up where it stopped (HTTP ranges), by itself within a call and, since the part is kept as
`<archive>.part`, by the next call after that. A part that turns out wrong is thrown away.

Unpacking is all or nothing as far as `VOC()` can see: files are written into a hidden folder beside their
place and moved there when all are whole, the lists that name them last. Members of an archive that are
neither files nor folders, or whose paths lead out of the folder, are refused before anything is written;
that is done here because the first releases of Python 3.11 lack tarfile's own filters.

The server of the challenge is slow at times. `mirror` takes the address of a folder with the same archives.
"""

from __future__ import annotations

import contextlib
import http.client
import logging
import os
import re
import shutil
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, BinaryIO

from visionkl.core.errors import DataError, UsageError, VisionklError
from visionkl.core.files import atomic_write, writable_folder
from visionkl.core.validation import check_choice
from visionkl.datasets.base import data_folder

#: Told the archive's name, the bytes that are there and the bytes that there will be (0 where unknown).
Progress = Callable[[str, int, int], None]

_CHUNK = 1 << 18
_TIMEOUT = 60.0  # seconds without a byte
_FRUITLESS_ATTEMPTS = 4  # in a row, before a download is given up
_WAIT = 2.0  # seconds after the first of them, doubled after each


class DownloadError(VisionklError):
    """A file that could not be fetched; what is there of it is kept for the next attempt."""


@dataclass(frozen=True)
class Archive:
    """An archive on a server: where it is, and the checksum by which it is known."""

    folder: str
    name: str
    md5: str


#: The archives of each year.
VOC_ARCHIVES = {
    "2007": (
        Archive(
            "http://host.robots.ox.ac.uk/pascal/VOC/voc2007",
            "VOCtrainval_06-Nov-2007.tar",
            "c52e279531787c972589f7e41ab4ae64",
        ),
        Archive(
            "http://host.robots.ox.ac.uk/pascal/VOC/voc2007",
            "VOCtest_06-Nov-2007.tar",
            "b6e924de25625d8de591ea690078ad9f",
        ),
    ),
    "2012": (
        Archive(
            "http://host.robots.ox.ac.uk/pascal/VOC/voc2012",
            "VOCtrainval_11-May-2012.tar",
            "6cd6e144f989b92b3379bac3b3de84fd",
        ),
    ),
}


def download_voc(
    year: str | int = "2007",
    root: str | Path | None = None,
    *,
    mirror: str | None = None,
    progress: Progress | None = None,
) -> Path:
    """Download and unpack PASCAL VOC; what is there already is left as it is.

    Parameters
    ----------
    year : {"2007", "2012"}
    root : str or Path, optional
        Where `VOCdevkit/VOC<year>` goes; by default `VISIONKL_DATA`, or `datasets` in the current folder.
    mirror : str, optional
        Address (http or https) of a folder that holds the archives under their original names.
    progress : callable, optional
        Called with the archive's name, the bytes that are there, and the bytes that there will be.

    Returns
    -------
    Path
        The folder `VOCdevkit`, to be read as `VOC(folder, year)`.

    Raises
    ------
    DownloadError
        If a server does not answer, or an archive has not the checksum that it should have.
    DataError
        If the folder cannot be written to.
    """
    check_choice("download_voc", "year", str(year), tuple(VOC_ARCHIVES))
    root = writable_folder(data_folder() if root is None else root).resolve()
    for archive in VOC_ARCHIVES[str(year)]:
        done = root / "VOCdevkit" / f".{archive.name}.unpacked"
        if done.exists():
            continue
        brought_along = (root / archive.name).exists()
        url = f"{(mirror or archive.folder).rstrip('/')}/{archive.name}"
        path = fetch(url, archive.md5, root, progress)
        unpack(path, root)
        with atomic_write(done) as file:
            file.write(f"{archive.md5}\n")
        if not brought_along:
            path.unlink()
    return root / "VOCdevkit"


# -- fetching ------------------------------------------------------------------------------------------------


def fetch(url: str, md5: str, folder: Path, progress: Progress | None = None) -> Path:
    """Fetch a file into a folder, unless it is there and has the right checksum.

    Parameters
    ----------
    url : str
        http or https.
    md5 : str
        Checksum in hexadecimal.
    folder : Path
        Where it goes, under its own name; a part that an earlier attempt has left there is completed.
    progress : callable, optional
        As in `download_voc`.

    Returns
    -------
    Path
        The file.
    """
    import pooch  # type: ignore[import-untyped]

    if not re.match(r"https?://", url):
        raise UsageError(f"{url}: the address of an archive must begin with http:// or https://.")
    name = url.rsplit("/", 1)[1]
    download = ResumingDownloader(folder / f"{name}.part", progress)
    try:
        with _quiet(pooch.get_logger()):
            return Path(pooch.retrieve(url, f"md5:{md5}", name, folder, downloader=download))
    except VisionklError:
        raise
    except ValueError:
        raise DownloadError(
            f"{url}: the file that came has not the checksum md5:{md5} and was thrown away; "
            f"try again, or give another mirror."
        ) from None
    except OSError as error:  # of the disk: those of the network end in the downloader
        raise DataError(f"{folder / name}: cannot write this file ({error.strerror or error}).") from None


class ResumingDownloader:
    """A downloader for pooch that takes up downloads where they stopped.

    Parameters
    ----------
    part : Path
        Where bytes are gathered, over as many calls as it takes.
    progress : callable, optional
        As in `download_voc`.
    """

    def __init__(self, part: Path, progress: Progress | None = None) -> None:
        self.part = part
        self.progress = progress

    def __call__(self, url: str, output_file: str, pooch: Any) -> None:
        """Download to `output_file`; pooch calls this and checks the checksum afterwards."""
        fruitless = 0
        while True:
            before = self._size()
            try:
                if self._attempt(url):
                    break
                reason = "the connection broke off"
            except urllib.error.HTTPError as error:
                reason = f"the server answers {error.code} ({error.reason})"
                error.close()
                if error.code < 500:
                    raise DownloadError(f"{url}: {reason}; give another mirror.") from None
            except urllib.error.URLError as error:
                reason = f"the server cannot be reached ({error.reason})"
            except (http.client.HTTPException, OSError) as error:
                reason = f"the connection broke off ({str(error) or type(error).__name__})"
            fruitless = 0 if self._size() > before else fruitless + 1
            if fruitless == _FRUITLESS_ATTEMPTS:
                raise DownloadError(
                    f"{url}: {reason}, {fruitless} times in a row; what is there is kept in {self.part}, "
                    f"and the next attempt goes on from it."
                )
            time.sleep(_WAIT * 2 ** max(fruitless - 1, 0))
        os.replace(self.part, output_file)

    def _size(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _attempt(self, url: str) -> bool:
        """Ask for what is missing and append it; tells whether the file is complete."""
        have = self._size()
        request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
                resumes = response.status == 206
                if resumes and _range_of(response)[0] != have:
                    raise http.client.HTTPException("the server sent another range than it was asked for")
                length = int(response.headers.get("Content-Length") or 0)
                start = have if resumes else 0
                return self._gather(response, start, start + length if length else 0)
        except urllib.error.HTTPError as error:
            if error.code != 416 or not have:
                raise
            # Nothing is left to send: the part is complete, or it is longer than the file and no part of it.
            if _range_of(error)[1] == have:
                return True
            self._discard()
            return False

    def _gather(self, response: BinaryIO, start: int, total: int) -> bool:
        done = start
        with self._writing():
            file = self.part.open("r+b" if start else "wb", buffering=0)
        with file:
            file.seek(start)
            while chunk := response.read(_CHUNK):
                with self._writing():
                    file.write(chunk)
                done += len(chunk)
                if self.progress is not None:
                    self.progress(self.part.name.removesuffix(".part"), done, total)
        return total == 0 or done == total

    def _discard(self) -> None:
        with self._writing():
            self.part.unlink()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Tell what the disk refuses from what the network does."""
        try:
            yield
        except OSError as error:
            raise DataError(f"{self.part}: cannot write this file ({error.strerror or error}).") from None


def _range_of(response: Any) -> tuple[int, int]:
    """First byte and length of the whole, of `Content-Range: bytes 100-199/1234` or `bytes */1234`."""
    match = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)", response.headers.get("Content-Range") or "")
    first, whole = match.groups() if match else (None, None)
    return (-1 if first is None else int(first)), (int(whole) if whole and whole.isdigit() else -1)


@contextlib.contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Keep notes from stderr: the progress callback says it all."""
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


# -- unpacking -----------------------------------------------------------------------------------------------


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar archive into a folder, safely and as a whole.

    Parameters
    ----------
    archive : Path
        Plain or compressed.
    folder : Path
        Files in it that the archive has, too, are replaced; others stay.

    Raises
    ------
    DataError
        If the archive is damaged, or holds a link, a device or a path that leads out of the folder. Nothing
        is left in the folder then.
    """
    writable_folder(folder)
    staging = Path(tempfile.mkdtemp(prefix=f".{archive.name}.", dir=folder))
    try:
        with tarfile.open(archive) as tar:
            members = [(member, _safe_path(archive, member)) for member in tar.getmembers()]
            for member, inside in members:
                target = staging / inside
                if member.isdir():
                    target.mkdir(parents=True, exist_ok=True)
                    continue
                target.parent.mkdir(parents=True, exist_ok=True)
                source = tar.extractfile(member)
                with target.open("wb") as file:
                    shutil.copyfileobj(source, file, _CHUNK)  # type: ignore[arg-type]
                if target.stat().st_size != member.size:
                    raise tarfile.ReadError("unexpected end of data")
        files = [inside for member, inside in members if member.isfile()]
        # Lists go last, so that a list never names a picture that is not there yet.
        for inside in sorted(files, key=lambda path: "ImageSets" in path.parts):
            (folder / inside).parent.mkdir(parents=True, exist_ok=True)
            os.replace(staging / inside, folder / inside)
    except (tarfile.TarError, EOFError) as error:
        raise DataError(f"{archive}: this is not a tar archive, or it is damaged ({error}).") from None
    except OSError as error:
        where = error.filename or folder
        raise DataError(
            f"{where}: cannot unpack {archive.name} to here ({error.strerror or error})."
        ) from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _safe_path(archive: Path, member: tarfile.TarInfo) -> PurePosixPath:
    # Windows' rules know more ways out than POSIX's: drives, and backslashes beside slashes.
    inside = PureWindowsPath(member.name)
    if inside.anchor or ".." in inside.parts:
        raise DataError(f"{archive}: the archive holds {member.name!r}, whose path leads out of the folder.")
    if not (member.isfile() or member.isdir()):
        raise DataError(
            f"{archive}: the archive holds {member.name!r}, which is neither a file nor a folder."
        )
    return PurePosixPath(inside.as_posix())
