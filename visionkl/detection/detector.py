"""The detector: a model, and pictures in which to find its objects.

>>> from visionkl.detection.detector import DPMDetector            # doctest: +SKIP
>>> detector = DPMDetector.load("bicycle.safetensors")             # doctest: +SKIP
>>> detector.detect("street.jpg").plot("street.jpg")               # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from visionkl.core.errors import UsageError
from visionkl.core.image import read_image
from visionkl.core.types import Detections
from visionkl.detection.boxes import filter_boxes, regress_boxes
from visionkl.detection.matching import Matcher
from visionkl.detection.model import MixtureModel
from visionkl.detection.suppress import suppress
from visionkl.features.pyramid import FeaturePyramid, feature_pyramid

Picture = npt.ArrayLike | str | Path


class DPMDetector:
    """Finds objects of one class with a mixture of deformable part models.

    Parameters
    ----------
    model : MixtureModel

    Attributes
    ----------
    label : str
        The class it finds.
    threshold : float
        Score above which it reports by default.
    """

    def __init__(self, model: MixtureModel) -> None:
        self.model = model
        self._matcher = Matcher(model)

    @property
    def label(self) -> str:
        """The class it finds."""
        return self.model.label

    @property
    def threshold(self) -> float:
        """Score above which it reports by default."""
        return self.model.threshold

    def detect(
        self,
        image: Picture,
        *,
        threshold: float | None = None,
        overlap: float = 0.5,
        n_jobs: int | None = None,
    ) -> Detections:
        """Find objects in a picture.

        Parameters
        ----------
        image : array_like, shape (rows, cols) or (rows, cols, 3), or path
            Values 0..255.
        threshold : float, optional
            Report what scores above; the model's own threshold by default.
        overlap : float
            Of two detections, the worse goes if more than this share of it is covered by the better.
        n_jobs : int, optional
            Threads; all usable cores by default.

        Returns
        -------
        Detections
            Best first, boxes cut off at the picture's border; components and part boxes filled in.
        """
        return detect_all([self], image, threshold=threshold, overlap=overlap, n_jobs=n_jobs)

    def detect_in(
        self, pyramid: FeaturePyramid, *, threshold: float, overlap: float, n_jobs: int | None
    ) -> Detections:
        """Find objects in a pyramid that has this model's cell size, interval, octaves and padding."""
        placements = self._matcher.match(pyramid, threshold, n_jobs)
        roots, parts = filter_boxes(self.model, pyramid, placements)
        boxes = regress_boxes(self.model, placements.components, roots, parts, pyramid.image_size)
        # A regression far from its training data may turn a box inside out: such a box is empty and is
        # clipped away.
        boxes[:, 2:] = np.maximum(boxes[:, 2:], boxes[:, :2])
        found = Detections(
            boxes.astype(np.float32),
            placements.scores,
            (self.label,) * len(boxes),
            placements.components.astype(np.int32),
            parts.astype(np.float32),
        ).clip(*pyramid.image_size)
        return found[suppress(found.boxes, found.scores, overlap=overlap)]

    def save(self, path: str | Path) -> None:
        """Write the model to a `.safetensors` file; `visionkl.load` reads it."""
        from visionkl.store import save

        save(self.model, path)

    def __repr__(self) -> str:
        return f"<DPMDetector {self.model}>"


def detect_all(
    detectors: Sequence[DPMDetector],
    image: Picture,
    *,
    threshold: float | None = None,
    overlap: float = 0.5,
    n_jobs: int | None = None,
) -> Detections:
    """Find the objects of several detectors in a picture; detectors of one kind share the feature pyramid.

    Parameters and result are those of `DPMDetector.detect`. Overlaps count within a detector only.
    """
    if not detectors:
        raise UsageError("detect_all: no detectors were given.")
    picture = read_image(image) if isinstance(image, str | Path) else image
    kinds: dict[tuple[int, int], list[DPMDetector]] = {}
    for detector in detectors:
        kinds.setdefault((detector.model.cell_size, detector.model.interval), []).append(detector)
    found = {}
    for (cell_size, interval), alike in kinds.items():
        padding = tuple(np.max([detector.model.padding for detector in alike], axis=0).tolist())
        extra_octave = any(detector.model.extra_octave for detector in alike)
        pyramid = feature_pyramid(
            picture,
            cell_size=cell_size,
            interval=interval,
            padding=padding,
            extra_octave=extra_octave,
            n_jobs=n_jobs,
        )
        for detector in alike:
            own = pyramid if detector.model.extra_octave == extra_octave else pyramid.from_level(interval)
            found[detector] = detector.detect_in(
                own.framed(detector.model.padding),
                threshold=detector.threshold if threshold is None else threshold,
                overlap=overlap,
                n_jobs=n_jobs,
            )
    return Detections.concatenate(found[detector] for detector in detectors).sorted()
