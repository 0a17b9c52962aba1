"""Annotations in PASCAL VOC's XML: VOC itself, ImageNet's boxes, and what labelling programs write.

An `<object>` has a name, a `<bndbox>` and some flags; only its direct children count, so the `<part>`s of
VOC's person layout, which are named boxes too, do not pass for objects. Corners count from 1 and include the
last pixel, and may have decimals (VOC2011 and later); this module turns them into boxes. A flag that is
missing is false.

A box whose corners coincide is refused as empty, although inclusive corners make it one pixel wide: it is the
mark of a click where a box should have been drawn.

XML is parsed by defusedxml: a file that declares entities is refused before they are expanded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal
from xml.etree.ElementTree import Element, ParseError

import numpy as np
from defusedxml import DefusedXmlException
from defusedxml.ElementTree import parse

from visionkl.core.boxes import clip as clip_boxes
from visionkl.core.boxes import from_voc
from visionkl.core.errors import DataError
from visionkl.core.image import image_size
from visionkl.core.types import Annotation
from visionkl.datasets.base import check_boxes, listing

_CORNERS = ("xmin", "ymin", "xmax", "ymax")
_FLAG_VALUES = {"": False, "0": False, "1": True, "unspecified": False, "false": False, "true": True}


def read_voc_xml(
    path: Path,
    picture: Path,
    classes: tuple[str, ...] | None = None,
    *,
    others: Literal["raise", "drop"] = "raise",
    clip: bool = False,
) -> Annotation:
    """Read the objects of a picture.

    Parameters
    ----------
    path : Path
        The XML file.
    picture : Path
        The picture, whose header is asked for the size if the XML does not tell it.
    classes : tuple of str, optional
        The classes that may occur; any by default.
    others : {"raise", "drop"}
        What to do with an object of another class.
    clip : bool
        Whether boxes are cut off at the picture's border.

    Returns
    -------
    Annotation

    Raises
    ------
    DataError
        If the file is missing, is not such an XML, or an object in it cannot be used.
    """
    root = _parsed(path)
    objects = [(number, element) for number, element in enumerate(root.findall("object"), start=1)]
    labels = [_label(path, number, element) for number, element in objects]
    if classes is not None:
        known = [label in classes for label in labels]
        if others == "raise" and not all(known):
            stranger = labels[known.index(False)]
            raise DataError(
                f"{path}: there is an object of the class {stranger!r}, which the data set does not have; "
                f"it has {listing(classes)}."
            )
        objects = [pair for pair, keep in zip(objects, known, strict=True) if keep]
        labels = [label for label, keep in zip(labels, known, strict=True) if keep]
    size = _size(path, root, picture)
    corners = np.array([_corners(path, *pair) for pair in objects], dtype=np.float64).reshape(-1, 4)

    def describe(row: int) -> str:
        written = ", ".join(f"{name} {value:g}" for name, value in zip(_CORNERS, corners[row], strict=True))
        return f"{path}: the box of object number {objects[row][0]} ({labels[row]}; {written})"

    boxes = from_voc(corners)
    check_boxes(boxes, size, describe, sides_above=1.0)  # coinciding inclusive corners are one pixel apart
    return Annotation(
        boxes=clip_boxes(boxes, *size) if clip else boxes,
        labels=tuple(labels),
        poses=tuple((element.findtext("pose") or "").strip() for _, element in objects),
        **{
            name: np.array([_flag(path, *pair, name) for pair in objects], dtype=bool)
            for name in ("difficult", "truncated", "occluded")
        },
    )


def labels_in(path: Path) -> set[str]:
    """Names of the classes that occur in an XML file."""
    root = _parsed(path)
    return {_label(path, number, element) for number, element in enumerate(root.findall("object"), start=1)}


def _parsed(path: Path) -> Element:
    try:
        root: Element | None = parse(path).getroot()
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such annotation file.") from None
    except DefusedXmlException:
        raise DataError(
            f"{path}: the XML declares entities, which can be an attack and are not read; "
            f"remove them from the file's DOCTYPE."
        ) from None
    except ParseError as error:
        raise DataError(f"{path}: this is not well-formed XML ({error}).") from None
    except OSError as error:
        raise DataError(f"{path}: the file cannot be read ({error.strerror}).") from None
    except (ValueError, LookupError) as error:  # an encoding that is unknown, or not kept to
        raise DataError(f"{path}: this is not well-formed XML ({error}).") from None
    if root is None or root.tag != "annotation":
        raise DataError(
            f"{path}: this is not a VOC annotation, whose outermost element is <annotation>, "
            f"not <{'' if root is None else root.tag}>."
        )
    return root


def _label(path: Path, number: int, element: Element) -> str:
    label = (element.findtext("name") or "").strip()
    if not label:
        raise DataError(f"{path}: object number {number} has no <name>.")
    return label


def _size(path: Path, root: Element, picture: Path) -> tuple[int, int]:
    try:
        width, height = (int(float(root.findtext(f"size/{side}") or 0)) for side in ("width", "height"))
    except (ValueError, OverflowError):
        width = height = 0
    if width > 0 and height > 0:
        return width, height
    try:
        return image_size(picture)
    except DataError as error:
        raise DataError(
            f"{path}: the XML does not tell the picture's size, and neither does the picture ({error})"
        ) from None


def _corners(path: Path, number: int, element: Element) -> list[float]:
    written = [element.findtext(f"bndbox/{name}") for name in _CORNERS]
    try:
        return [float(value) for value in written]  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise DataError(
            f"{path}: the box of object number {number} must have the numbers {', '.join(_CORNERS)} in its "
            f"<bndbox>, not {', '.join(repr(value) for value in written)}."
        ) from None


def _flag(path: Path, number: int, element: Element, name: str) -> bool:
    written = (element.findtext(name) or "").strip()
    if written.lower() not in _FLAG_VALUES:
        raise DataError(f"{path}: <{name}> of object number {number} must be 0 or 1, not {written!r}.")
    return _FLAG_VALUES[written.lower()]
