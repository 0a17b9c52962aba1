"""The detector: a model, and pictures in which to find its objects.

>>> from visionkl.detection.detector import DPMDetector            # doctest: +SKIP
>>> detector = DPMDetector.load("bicycle.safetensors")             # doctest: +SKIP
>>> detector.detect("street.jpg").plot("street.jpg")               # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from visionkl.backend.dispatch import CPU, Device, choose_device, device_of, to_host
from visionkl.backend.gpu.device import enough_memory
from visionkl.backend.threads import run_tasks, thread_count
from visionkl.coding.hog_codes import coded_pyramids, encode_pyramid
from visionkl.core.errors import UsageError
from visionkl.core.image import read_image
from visionkl.core.types import Detections
from visionkl.detection.boxes import boxes_in_picture, filter_boxes, regress_boxes
from visionkl.detection.matching import Matcher
from visionkl.detection.model import MixtureModel
from visionkl.detection.settings import TrainingSettings
from visionkl.detection.suppress import suppress
from visionkl.features.hog import N_CHANNELS
from visionkl.features.pyramid import FeaturePyramid, feature_pyramid

if TYPE_CHECKING:
    from visionkl.coding.codebooks import Codebooks
    from visionkl.coding.pq import ProductQuantizer
    from visionkl.datasets.base import Dataset
    from visionkl.detection.plan import Observer

Picture = npt.ArrayLike | str | Path


class DPMDetector:
    """Finds objects of one class with a mixture of deformable part models.

    Parameters
    ----------
    coding : ProductQuantizer or None, optional
        How HOG cells become codes. None trains and searches on plain cells. By default `n_blocks` and
        `n_codewords` of the settings count.
    n_jobs : int, optional
        Processes for training; all usable cores by default.
    **settings
        Anything of `visionkl.detection.settings.TrainingSettings`: `n_components=3`, `n_parts=8`, ...

    Attributes
    ----------
    model : MixtureModel
        What was learned, or given to `from_model`.
    label : str
        The class it finds.
    threshold : float
        Score above which it reports by default.
    """

    def __init__(
        self,
        *,
        coding: ProductQuantizer | Literal["default"] | None = "default",
        n_jobs: int | None = None,
        **settings: Any,
    ) -> None:
        self.coding = coding
        self.n_jobs = n_jobs
        self.settings = training_settings(coding, settings)
        self._matcher: Matcher | None = None
        self._matcher_on_gpu: Matcher | None = None

    @classmethod
    def from_model(cls, model: MixtureModel) -> DPMDetector:
        """Make a detector of a model that is there already."""
        detector = cls()
        detector._matcher = Matcher(model)
        return detector

    def fit(
        self,
        dataset: Dataset,
        label: str,
        *,
        start: DPMDetector | None = None,
        observer: Observer | None = None,
        device: str | Device = CPU,
    ) -> DPMDetector:
        """Learn to find the objects of a class.

        Parameters
        ----------
        dataset : Dataset
            With labelled boxes, such as `visionkl.VOC`. Pictures without the object are what it is told apart
            from; where there are none, the surroundings of the objects are.
        label : str
            The class.
        start : DPMDetector, optional
            Begin with what this one has learned, be it published or your own: its views, parts and cell size
            are kept, whatever the settings, and what they look for is learned anew.
        observer : visionkl.detection.plan.Observer, optional
            Told how training goes.
        device : str
            Where pictures are described and searched, and the solver's passes made: "cpu", "cuda" (an error
            where no GPU computes), "cuda:1", or "auto": a GPU if there is one.

        Returns
        -------
        DPMDetector
            Itself.
        """
        from visionkl.detection.training import train

        model = train(
            dataset,
            label,
            self.settings,
            n_jobs=self.n_jobs,
            observer=observer,
            start=start.model if start else None,
            device=device,
        )
        self._matcher, self._matcher_on_gpu = Matcher(model), None
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Leave what lies on a GPU behind: other processes have no use for it."""
        return {**self.__dict__, "_matcher_on_gpu": None}

    @property
    def model(self) -> MixtureModel:
        """What was learned."""
        return self.matcher.model

    @property
    def matcher(self) -> Matcher:
        """The model, ready for matching."""
        if self._matcher is None:
            raise UsageError("This DPMDetector has not been trained: call fit, or load a model.")
        return self._matcher

    def matcher_on(self, device: Device) -> Matcher:
        """Return the model, ready for matching on a device; it stays on the last GPU that it was used on."""
        if not device.is_gpu:
            return self.matcher
        if self._matcher_on_gpu is None or self._matcher_on_gpu.device != device:
            self._matcher_on_gpu = Matcher(self.model, device)
        return self._matcher_on_gpu

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
        device: str | Device = CPU,
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
        device : str
            "cpu", "cuda" (an error where no GPU computes), "cuda:1", or "auto": a GPU if there is one. The
            search stays on the GPU until it is known which boxes to report.

        Returns
        -------
        Detections
            Best first, boxes cut off at the picture's border; components and part boxes filled in.
        """
        return detect_all([self], image, threshold=threshold, overlap=overlap, n_jobs=n_jobs, device=device)

    def detect_in(
        self, pyramid: FeaturePyramid, *, threshold: float, overlap: float, n_jobs: int | None
    ) -> Detections:
        """Find objects in a pyramid that has this model's cell size, interval, octaves and padding."""
        device = device_of(*pyramid.levels)
        with device.use():
            placements = self.matcher_on(device).match(pyramid, threshold, n_jobs)
            roots, parts = filter_boxes(self.model, pyramid, placements)
            predicted = regress_boxes(self.model, placements.components, roots, parts, pyramid.image_size)
            boxes, rows = boxes_in_picture(predicted, pyramid.image_size)
            kept = rows[suppress(boxes[rows], placements.scores[rows], overlap=overlap)]
            # Only now does anything leave the device.
            corners, scores, components, of_parts = (
                to_host(array[kept]) for array in (boxes, placements.scores, placements.components, parts)
            )
        return Detections(corners, scores, (self.label,) * len(scores), components, of_parts)

    def save(self, path: str | Path) -> None:
        """Write the model to a `.safetensors` file; `visionkl.load` reads it."""
        from visionkl.store import save

        save(self.model, path)

    def __repr__(self) -> str:
        return f"<DPMDetector {self.model if self._matcher else 'not trained'}>"


def training_settings(coding: Any, settings: Mapping[str, Any]) -> TrainingSettings:
    """Put settings together with those that a quantiser stands for."""
    names = [field.name for field in fields(TrainingSettings)]
    for name in settings:
        if name not in names:
            raise UsageError(
                f"DPMDetector has no parameter {name!r}; there are coding, n_jobs, {', '.join(names)}."
            )
    if isinstance(coding, str):
        return TrainingSettings(**settings)
    if coding is None:
        return TrainingSettings(**{**settings, "n_blocks": 0})
    n_blocks, _ = coding.blocks(N_CHANNELS)
    return TrainingSettings(**{**settings, "n_blocks": n_blocks, "n_codewords": coding.n_codewords})


def detect_all(
    detectors: Sequence[DPMDetector],
    image: Picture,
    *,
    threshold: float | None = None,
    overlap: float = 0.5,
    n_jobs: int | None = None,
    device: str | Device = CPU,
) -> Detections:
    """Find the objects of several detectors in a picture.

    Detectors of one kind share the feature pyramid, and with equal codebooks its codes. Parameters and result
    are those of `DPMDetector.detect`. Overlaps count within a detector only.
    """
    if not detectors:
        raise UsageError("detect_all: no detectors were given.")
    where = choose_device(device, "detect")
    picture = read_image(image) if isinstance(image, str | Path) else image
    kinds: dict[tuple[int, int], list[DPMDetector]] = {}
    for detector in detectors:
        kinds.setdefault((detector.model.cell_size, detector.model.interval), []).append(detector)
    found: dict[DPMDetector, Detections] = {}
    with where.use(), enough_memory("the picture's search"):
        for alike in kinds.values():
            found |= zip(alike, _detect_alike(alike, picture, threshold, overlap, n_jobs, where), strict=True)
    return Detections.concatenate(found[detector] for detector in detectors).sorted()


def _detect_alike(
    detectors: Sequence[DPMDetector],
    picture: npt.ArrayLike,
    threshold: float | None,
    overlap: float,
    n_jobs: int | None,
    device: Device,
) -> list[Detections]:
    """Find the objects of detectors whose cell sizes and intervals are the same."""
    models = [detector.model for detector in detectors]
    interval = models[0].interval
    extra_octave = any(model.extra_octave for model in models)
    pyramids = _pyramids(
        picture,
        [model.codebooks for model in models],
        cell_size=models[0].cell_size,
        interval=interval,
        padding=tuple(np.max([model.padding for model in models], axis=0).tolist()),
        extra_octave=extra_octave,
        part_octave=any(model.n_parts for model in models if model.extra_octave == extra_octave),
        n_jobs=n_jobs,
        device=device,
    )
    # Many detectors take turns as wholes, each with its tables in a core's cache; few are cut into levels.
    # A GPU is kept busy by one thread.
    many = len(detectors) >= 2 * thread_count(n_jobs) and not device.is_gpu

    def search(task: tuple[DPMDetector, FeaturePyramid]) -> Detections:
        detector, pyramid = task
        model = detector.model
        own = pyramid if model.extra_octave == extra_octave else pyramid.from_level(interval)
        return detector.detect_in(
            own.framed(model.padding),
            threshold=model.threshold if threshold is None else threshold,
            overlap=overlap,
            n_jobs=1 if many else n_jobs,
        )

    return run_tasks(search, zip(detectors, pyramids, strict=True), n_jobs if many else 1)


def _pyramids(
    picture: npt.ArrayLike, books: Sequence[Codebooks | None], *, n_jobs: int | None, **settings: Any
) -> list[FeaturePyramid]:
    """Compute a pyramid for each of some detectors: of plain cells, or codes, shared by equal codebooks."""
    different = {_key(own): own for own in books if own is not None}
    if None in books:
        plain = feature_pyramid(picture, n_jobs=n_jobs, **settings)
        coded = [encode_pyramid(plain, own, n_jobs) for own in different.values()]
    else:
        coded = coded_pyramids(picture, list(different.values()), n_jobs=n_jobs, **settings)
    by_words = dict(zip(different, coded, strict=True))
    return [plain if own is None else by_words[_key(own)] for own in books]


def _key(books: Codebooks) -> tuple[tuple[int, ...], bytes]:
    return books.words.shape, books.words.tobytes()
