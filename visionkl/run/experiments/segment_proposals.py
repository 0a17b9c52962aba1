"""Segments proposed of the pictures of a VOC split, beside the objects that are there.

They take some seconds a picture, so a folder keeps them, and how long they took, by settings and picture: an
interrupted run goes on where it was.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from visionkl._version import __version__
from visionkl.core.errors import UsageError
from visionkl.datasets.base import Example
from visionkl.datasets.voc import VOC, ObjectMasks, read_object_masks
from visionkl.features.pictures import Picture, PictureCache, digest, settings_of
from visionkl.features.segments import FigureGround, Segments
from visionkl.run.console import Console

_CACHE_BYTES = 16e9


@dataclass(frozen=True, eq=False)
class Proposals:
    """A picture, the segments proposed of it, and the objects that are there."""

    example: Example
    segments: Segments
    objects: ObjectMasks
    overlaps: npt.NDArray[np.float64]  # (segments, objects)
    seconds: float


def propose(
    dataset: VOC, n_segments: int, n_pictures: int | None, cache: Path, console: Console
) -> list[Proposals]:
    """Propose segments picture by picture; all cores work on one, so that the time is that of one picture.

    Parameters
    ----------
    dataset : VOC
        With masks.
    n_segments : int
        Segments a picture, at most.
    n_pictures : int, optional
        Only so many pictures, spread evenly over the split.
    cache : Path
        Folder that keeps segments.
    console : Console
    """
    proposer = FigureGround(n_segments, n_jobs=console.jobs)
    with console.compiling():
        proposer.transform([np.zeros((60, 80, 3), np.uint8)])
    kept = PictureCache(cache, _CACHE_BYTES)
    n = len(dataset) if n_pictures is None else min(n_pictures, len(dataset))
    places = np.unique(np.linspace(0, len(dataset) - 1, n).astype(int))
    proposals = []
    for place in console.track(places.tolist(), f"segments of {dataset.split} pictures"):
        example = dataset[place]
        objects = read_object_masks(example, dataset.classes)
        segments, seconds = _segments(proposer, example, kept)
        overlaps = segments.overlaps(objects.masks, objects.void)
        proposals.append(Proposals(example, segments, objects, overlaps, seconds))
    if not any(len(made.objects) for made in proposals):
        raise UsageError(f"bench segments: {dataset.name} has no objects in its masks; give another split.")
    return proposals


def _segments(proposer: FigureGround, example: Example, cache: PictureCache) -> tuple[Segments, float]:
    """Propose segments of a picture, or find those that were kept; and tell the seconds that they took."""
    settings = settings_of(proposer, "bench segments")
    key = digest(f"visionkl {__version__}", *settings, Picture(example, example.id).identity())
    known = cache.recall(key)
    if known is not None and known.keys() == {"labels", "members", "scores", "seconds"}:
        return Segments(known["labels"], known["members"], known["scores"]), float(known["seconds"])
    image = example.image()
    started = time.perf_counter()
    (found,) = proposer.transform([image])
    seconds = time.perf_counter() - started
    arrays = {"labels": found.labels, "members": found.members, "scores": found.scores}
    cache.remember(key, arrays | {"seconds": np.array(seconds)})
    return found, seconds
