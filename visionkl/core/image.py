"""Pictures from files: always upright, always RGB, always 8 bits, or one clear sentence.

Pillow decodes. EXIF rotation is applied; grey, palette, CMYK and 16-bit files become RGB; transparency is
laid over white. A truncated file is an error and is never half-decoded: a grey lower half would quietly spoil
training. A picture whose EXIF block is damaged is taken as upright, since its pixels are whole.

Segmentation masks are the exception: in a palette file the number of the colour *is* the label, so
`read_mask` returns the numbers and converts nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from visionkl.core.errors import DataError

#: File endings that a folder of pictures is searched for.
PICTURE_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"}
)

_EXIF_ORIENTATION = 0x0112

#: What makes a picture of each EXIF orientation upright; 1 is upright already.
_UPRIGHT_BY = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_SWAPS_SIDES = frozenset({5, 6, 7, 8})


def read_image(path: str | Path) -> npt.NDArray[np.uint8]:
    """Read a picture as uint8 RGB `(rows, cols, 3)`.

    Parameters
    ----------
    path : str or Path
        A file in any format that Pillow reads; of several frames the first is taken.

    Returns
    -------
    ndarray of uint8, shape (rows, cols, 3)

    Raises
    ------
    DataError
        If the file is missing, is no picture, or is damaged; the message names the file.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "grey.png"
    >>> Image.new("L", (4, 2), 128).save(path)
    >>> read_image(path).shape, int(read_image(path).max())
    ((2, 4, 3), 128)
    """
    with _opened(path) as picture:
        picture.load()
        turn = _UPRIGHT_BY.get(_orientation(picture))
        return _as_rgb(picture if turn is None else picture.transpose(turn))


def image_size(path: str | Path) -> tuple[int, int]:
    """Read `(width, height)` of an upright picture from its header, without decoding it."""
    with _opened(path) as picture:
        width, height = picture.size
        return (height, width) if _orientation(picture) in _SWAPS_SIDES else (width, height)


def read_mask(path: str | Path) -> npt.NDArray[np.uint8]:
    """Read a segmentation mask: the palette's indices (or grey values), never its colours.

    Parameters
    ----------
    path : str or Path
        A palette or grey file with 8 bits a pixel, such as VOC's `SegmentationClass/*.png`.

    Returns
    -------
    ndarray of uint8, shape (rows, cols)
        Numbers of classes or objects; in VOC 0 is background and 255 the void along borders.

    Raises
    ------
    DataError
        If the file is missing, damaged, or a colour picture, whose values are no numbers of classes.
    """
    with _opened(path) as picture:
        picture.load()
        if picture.mode not in ("P", "L"):
            raise DataError(
                f"{path}: a mask must be a palette or grey picture with 8 bits a pixel, not {picture.mode!r}."
            )
        return np.array(picture)


@contextmanager
def _opened(path: str | Path) -> Iterator[Image.Image]:
    """Open a picture; whatever goes wrong until it is closed becomes one sentence that names the file."""
    try:
        with Image.open(path) as picture:
            yield picture
    except (DataError, MemoryError):
        raise
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file.") from None
    except UnidentifiedImageError:
        empty = Path(path).stat().st_size == 0
        what = "the file is empty" if empty else "this is not a picture in a format that can be read"
        raise DataError(f"{path}: {what}.") from None
    except Image.DecompressionBombError as error:
        raise DataError(
            f"{path}: the picture has too many pixels to be decoded ({_first_line(error)})."
        ) from None
    except Exception as error:  # on damaged files Pillow's decoders raise nearly anything
        if Path(path).is_dir():
            raise DataError(f"{path}: this is a folder, not a picture.") from None
        if isinstance(error, OSError) and error.errno is not None:
            raise DataError(f"{path}: the file cannot be read ({error.strerror}).") from None
        raise DataError(
            f"{path}: the picture is damaged and cannot be decoded ({_first_line(error)})."
        ) from None


def _orientation(picture: Image.Image) -> int:
    try:
        return int(picture.getexif().get(_EXIF_ORIENTATION, 1))
    except Exception:  # a damaged EXIF block raises nearly anything; the pixels are whole
        return 1


def _as_rgb(picture: Image.Image) -> npt.NDArray[np.uint8]:
    if picture.mode.startswith("I") or picture.mode == "F":
        grey = _as_bytes(np.asarray(picture, dtype=np.float64), picture.mode)
        return np.repeat(grey[:, :, None], 3, axis=2)
    if picture.has_transparency_data:
        # Pillow has no direct way from premultiplied grey ("La") to RGBA.
        coloured = (picture.convert("LA") if picture.mode == "La" else picture).convert("RGBA")
        white = Image.new("RGBA", coloured.size, (255, 255, 255, 255))
        picture = Image.alpha_composite(white, coloured)
    return np.array(picture.convert("RGB"))


def _as_bytes(values: npt.NDArray[np.float64], mode: str) -> npt.NDArray[np.uint8]:
    """Bring grey values of 16 and 32 bits to 0..255.

    16-bit files span 0..65535. Files of 32-bit integers or floats do not say what they span: values up to
    255 are taken as they are (floats up to 1 as fractions of white), larger ones as 16-bit.
    """
    values = np.nan_to_num(values, nan=0.0, posinf=np.inf, neginf=-np.inf)
    largest = values.max(initial=0.0)
    if mode.startswith("I;16") or largest > 255:
        values = values / 257.0
    elif mode == "F" and largest <= 1:
        values = values * 255.0
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
