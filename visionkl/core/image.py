"""Pictures from files: always upright, always RGB, always 8 bits, or one clear sentence.

Pillow decodes. EXIF rotation is applied; grey, palette, CMYK and 16-bit files become RGB; transparency is laid over white.
A truncated file is an error and is never half-decoded: a grey lower half would quietly spoil training.
"""

import warnings
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from visionkl.core.errors import DataError

#: File endings that a folder of pictures is searched for.
PICTURE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"})

_EXIF_ORIENTATION = 0x0112
_TRANSPOSING_ORIENTATIONS = frozenset({5, 6, 7, 8})


def read_image(path: str | Path) -> npt.NDArray[np.uint8]:
    """Read a picture as uint8 RGB `(rows, cols, 3)`.

    Parameters
    ----------
    path : str or Path
        A file in any format that Pillow reads.

    Returns
    -------
    ndarray of uint8, shape (rows, cols, 3)

    Raises
    ------
    DataError
        If the file is missing, is no picture, or is damaged; the message names the file.
    """
    try:
        with warnings.catch_warnings(), Image.open(path) as picture:
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            picture.load()
            return _as_rgb(ImageOps.exif_transpose(picture))
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file.") from None
    except IsADirectoryError:
        raise DataError(f"{path}: this is a folder, not a picture.") from None
    except UnidentifiedImageError:
        raise DataError(f"{path}: this is not a picture in a format that can be read.") from None
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        raise DataError(f"{path}: the picture is damaged and cannot be decoded ({_first_line(error)}).") from None


def image_size(path: str | Path) -> tuple[int, int]:
    """Read `(width, height)` of an upright picture from its header, without decoding it."""
    try:
        with warnings.catch_warnings(), Image.open(path) as picture:
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            width, height = picture.size
            turned = picture.getexif().get(_EXIF_ORIENTATION) in _TRANSPOSING_ORIENTATIONS
            return (height, width) if turned else (width, height)
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file.") from None
    except UnidentifiedImageError:
        raise DataError(f"{path}: this is not a picture in a format that can be read.") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{path}: the picture's header cannot be read ({_first_line(error)}).") from None


def _as_rgb(picture: Image.Image) -> npt.NDArray[np.uint8]:
    if picture.mode.startswith("I") or picture.mode == "F":
        values = np.asarray(picture, dtype=np.float64)
        # 16-bit files use the upper byte; "I" and "F" files that keep to 0..255 are taken as they are.
        if picture.mode.startswith("I;16") or values.max(initial=0) > 255:
            values = values / 257.0
        grey = np.clip(np.rint(values), 0, 255).astype(np.uint8)
        return np.repeat(grey[:, :, None], 3, axis=2)
    if picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info:
        coloured = picture.convert("RGBA")
        white = Image.new("RGBA", coloured.size, (255, 255, 255, 255))
        picture = Image.alpha_composite(white, coloured)
    return np.array(picture.convert("RGB"))


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
