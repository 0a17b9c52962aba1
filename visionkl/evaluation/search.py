"""Detectors over a whole data set, picture after picture.

Pictures are decoded one by one and none is kept, so memory does not grow with the data set. Part-based
detectors of several classes share one feature pyramid a picture; other detectors are called one after the
other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from visionkl.backend.dispatch import CPU, Device, choose_device
from visionkl.core.errors import DataError, UsageError
from visionkl.core.types import Detections
from visionkl.datasets.base import Dataset, Example, OnBadData, usable

#: Part models are trained with a margin of 1: what scores below -1 is as good as certainly nothing. A
#: detector's
#: own threshold is meant for showing; an average precision needs the whole curve.
LOWEST_SCORE = -1.1


class Detector(Protocol):
    """What can be evaluated: anything that finds boxes in a picture."""

    def detect(self, image: Any, *, threshold: float | None = None, n_jobs: int | None = None) -> Detections:
        """Find objects in a picture, uint8 RGB `(rows, cols, 3)`; without a threshold, down to its own."""
        ...


def search(
    detectors: Mapping[str, Detector],
    dataset: Dataset,
    *,
    threshold: float = LOWEST_SCORE,
    n_jobs: int | None = None,
    device: str | Device = CPU,
    on_bad_data: OnBadData | None = None,
    on_skip: Callable[[Example, DataError], None] | None = None,
) -> Iterator[tuple[Example, Detections]]:
    """Search all pictures of a data set.

    Parameters
    ----------
    detectors : mapping of str to Detector
        By the class that they look for; their detections get this label.
    dataset : Dataset
    threshold : float
        The lowest score that is kept.
    n_jobs : int, optional
        Threads that search a picture; all usable cores by default.
    device : str
        Where part-based detectors search: "cpu", "cuda" (an error where no GPU computes), "cuda:1", or
        "auto": a GPU if there is one. Others choose for themselves.
    on_bad_data, on_skip
        What happens to a picture or annotation that cannot be read: see `visionkl.datasets.base.usable`.

    Yields
    ------
    example : Example
    detections : Detections
        Of all detectors.
    """
    where = choose_device(device, "search")
    if device != "auto" and where.is_gpu:
        _check_takes_device(detectors, where)
    find = _shared_search(detectors, where) or _search_one_by_one(detectors, where)
    for example, image in usable(dataset, on_bad_data, on_skip=on_skip):
        yield example, find(image, threshold, n_jobs)


Find = Callable[[npt.NDArray[np.uint8], float, int | None], Detections]


def _check_takes_device(detectors: Mapping[str, Detector], device: Device) -> None:
    from visionkl.detection.detector import DPMDetector

    for label, detector in detectors.items():
        if not isinstance(detector, DPMDetector):
            raise UsageError(
                f"search: part-based detectors alone search on {device}, and that of {label!r} is a "
                f"{type(detector).__name__}; leave 'device' out, and have it choose its own."
            )


def _shared_search(detectors: Mapping[str, Detector], device: Device) -> Find | None:
    """Search with one pyramid for all, if all are part-based detectors whose labels tell them apart."""
    # Here, not above: scoring results that are there already needs no compiler.
    from visionkl.detection.detector import DPMDetector, detect_all

    models = [detector for detector in detectors.values() if isinstance(detector, DPMDetector)]
    classes = {model.label: label for label, model in zip(detectors, models, strict=False)}
    if len(classes) < len(detectors):
        return None

    def find(image: npt.NDArray[np.uint8], threshold: float, n_jobs: int | None) -> Detections:
        found = detect_all(models, image, threshold=threshold, n_jobs=n_jobs, device=device)
        return replace(found, labels=tuple(classes[label] for label in found.labels))

    return find


def _search_one_by_one(detectors: Mapping[str, Detector], device: Device) -> Find:
    from visionkl.detection.detector import DPMDetector

    def find(image: npt.NDArray[np.uint8], threshold: float, n_jobs: int | None) -> Detections:
        found = []
        for label, detector in detectors.items():
            own = {"device": device} if isinstance(detector, DPMDetector) else {}
            some = detector.detect(image, threshold=threshold, n_jobs=n_jobs, **own)
            found.append(replace(some, labels=(label,) * len(some)))
        return Detections.concatenate(found)

    return find
