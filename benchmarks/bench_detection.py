"""Whole detection with a part model, and where its time goes; and the suppression of overlapping boxes alone.

The model is the published bicycle model of VOC2007 where the tests' real data are present, and elsewhere one
of the same sizes with random weights, whose bias lets through about as many placements. On codes it is the
same model; codewords are learned from the picture's own cells.
"""

import cProfile
import pstats
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
from bench_coding import N_CODEWORDS, codebooks
from harness import Contestant, Quoted, Setting, row
from limits import matrix_product

from visionkl.core.rng import stream
from visionkl.detection.detector import DPMDetector, detect_all
from visionkl.detection.model import Component, MixtureModel, Part
from visionkl.detection.suppress import suppress
from visionkl.features.pyramid import feature_pyramid
from visionkl.store import load

#: Sizes of the bicycle model's roots; each component has a mirror image and 8 parts of 6 × 6 cells.
ROOTS = ((6, 11), (8, 9), (11, 5))
THRESHOLD = -1.0

N_MODELS = 20

#: Steps of a detection, by the function that does them: file and name. On codes, cells are coded while the
#: pyramid is computed, which does not count as its time.
STEPS = {
    "pyramid": ("features/pyramid.py", "feature_pyramid"),
    "coding": ("coding/codebooks.py", "encode_into"),
    "filter responses": ("detection/filters.py", "responses"),
    "distance transforms": ("detection/distance.py", "add"),
    "placing parts": ("detection/distance.py", "place_parts"),
    "suppression": ("detection/suppress.py", "suppress"),
}

_EARLIER = "measured once on a 2-core x86-64 machine, same detections; not part of this run"


@row("detection", "detection, 6 components of 8 parts, model loaded", threads=(1, 2), rounds=9)
def detection(setting: Setting) -> Iterator[Contestant | Quoted]:
    detector = published_detector(setting.data) or made_up_detector(setting.picture)
    threads = setting.threads

    def detect() -> int:
        return len(detector.detect(setting.picture, threshold=THRESHOLD, n_jobs=threads))

    setting.notes.append(f"{detector.model}; {detect()} detections")
    if threads == 1:
        setting.breakdown |= where_time_goes(detect)
    yield Contestant("visionkl", "ours", lambda: _discard(detect()))
    multiply_adds = filter_multiply_adds(detector.model, setting)
    yield Contestant("sgemm of all filters", "limit", matrix_product(multiply_adds, threads))
    if threads == 1:
        yield Quoted("FFLD2", 0.51, f"0.43 s and 0.08 s for its pyramid, {_EARLIER}")
        yield Quoted("voc-release5", 3.9, _EARLIER)
    if threads == 2:
        yield Quoted("FFLD2", 0.29, f"0.23 s and its pyramid, {_EARLIER}")
        yield Quoted("voc-release5", 2.4, _EARLIER)


@row(
    "coded-detection", "detection on codes, 6 components of 8 parts, model loaded", threads=(1, 2), rounds=15
)
def coded_detection(setting: Setting) -> Iterator[Contestant]:
    dense = published_detector(setting.data) or made_up_detector(setting.picture)
    threads = setting.threads

    def work(detector: DPMDetector) -> Callable[[], None]:
        return lambda: _discard(detector.detect(setting.picture, threshold=THRESHOLD, n_jobs=threads))

    one, two = (coded(dense, setting, n_blocks) for n_blocks in (1, 2))
    setting.notes.append(f"{dense.model}; {N_CODEWORDS} codewords")
    if threads == 1:
        work(one)()
        setting.breakdown |= where_time_goes(work(one))
    yield Contestant("visionkl, 1 code a cell", "ours", work(one))
    yield Contestant("visionkl, 2 codes a cell", "peer", work(two))
    yield Contestant("visionkl, dense", "peer", work(dense))


@row("twenty-models", f"{N_MODELS} such models on codes in one picture", threads=(1, 2), rounds=5)
def twenty_models(setting: Setting) -> Iterator[Contestant]:
    dense = published_detector(setting.data) or made_up_detector(setting.picture)
    detectors = [coded(dense, setting, 1) for _ in range(N_MODELS)]
    two_codes = [coded(dense, setting, 2) for _ in range(N_MODELS)]
    picture, threads = setting.picture, setting.threads

    def together(some: list[DPMDetector]) -> Callable[[], None]:
        return lambda: _discard(detect_all(some, picture, threshold=THRESHOLD, n_jobs=threads))

    def one_by_one() -> None:
        for detector in detectors:
            detector.detect(picture, threshold=THRESHOLD, n_jobs=threads)

    setting.notes.append(
        "each model has tables of its own; the codewords are the same, so the codes are shared"
    )
    yield Contestant("visionkl, 1 code a cell", "ours", together(detectors))
    yield Contestant("visionkl, 2 codes a cell", "peer", together(two_codes))
    yield Contestant("visionkl, 1 code a cell, one by one", "peer", one_by_one)


def coded(detector: DPMDetector, setting: Setting, n_blocks: int) -> DPMDetector:
    """Make a detector that searches codes with the same filters."""
    model = replace(detector.model, codebooks=codebooks(setting.picture, n_blocks))
    return DPMDetector.from_model(model)


def published_detector(data: Path | None) -> DPMDetector | None:
    """Load the bicycle model of VOC2007, where there is one."""
    return load(data / "voc_dpm_models" / "VOC2007_bicycle_final.mat") if data else None


def made_up_detector(picture: np.ndarray) -> DPMDetector:
    """Make a model of the bicycle model's sizes, with a bias that makes it fire now and then."""
    random = stream(0, "benchmark model")

    def weights(rows: int, cols: int) -> np.ndarray:
        return random.normal(0, 0.05, (rows, cols, 32)).astype(np.float32)

    def component(rows: int, cols: int, bias: float) -> Component:
        anchors = [(2 * cols * i // 4, 2 * (rows - 3) * j) for i in range(4) for j in range(2)]
        parts = tuple(
            Part(weights(6, 6), anchor, np.array([0.05, 0, 0.05, 0], np.float32)) for anchor in anchors
        )
        return Component(weights(rows, cols), parts, bias)

    pairs = [size for size in ROOTS for _ in range(2)]
    plain = DPMDetector.from_model(MixtureModel("made up", tuple(component(*size, 0.0) for size in pairs)))
    scores = plain.detect(picture, threshold=-np.inf, overlap=1.0).scores
    # A thousand placements before suppression is what the published models have on a photograph.
    bias = THRESHOLD - float(np.sort(scores)[-min(1000, len(scores))])
    components = tuple(Component(c.root, c.parts, bias) for c in plain.model.components)
    return DPMDetector.from_model(MixtureModel("made up", components))


def filter_multiply_adds(model: MixtureModel, setting: Setting) -> int:
    """Count the multiply-adds of all filters at all places, were each done by itself."""
    pyramid = feature_pyramid(setting.picture, padding=model.padding)
    total = 0
    for number in range(pyramid.interval, len(pyramid)):
        for component in model.components:
            parts = [(part.weights, number - pyramid.interval) for part in component.parts]
            for weights, level in [(component.root, number), *parts]:
                rows, cols = (pyramid.levels[level].shape[i] - weights.shape[i] + 1 for i in (0, 1))
                total += max(rows, 0) * max(cols, 0) * weights.size
    return total


def where_time_goes(work: Callable[[], object]) -> dict[str, float]:
    """Profile single-threaded work and return the seconds of each step, of the fastest of three runs."""
    best: dict[str, float] = {}
    for _ in range(3):
        profile = cProfile.Profile()
        profile.runcall(work)
        stats = pstats.Stats(profile)
        seconds = {
            step: sum(
                entry[3]
                for (path, _, function), entry in stats.stats.items()
                if function == name and Path(path).as_posix().endswith(file)
            )
            for step, (file, name) in STEPS.items()
        }
        if seconds["coding"]:
            seconds["pyramid"] -= seconds["coding"]
        else:
            del seconds["coding"]
        seconds["the rest"] = max(stats.total_tt - sum(seconds.values()), 0.0)
        if not best or sum(seconds.values()) < sum(best.values()):
            best = seconds
    return best


@row("suppression", "non-maximum suppression of 2000 boxes")
def suppression(setting: Setting) -> Iterator[Contestant]:
    random = stream(0, "boxes")
    corners = random.uniform(0, 400, (2000, 2))
    sizes = random.uniform(20, 200, (2000, 2))
    boxes = np.hstack([corners, corners + sizes])
    scores = random.uniform(0, 1, 2000).astype(np.float32)  # OpenCV takes no negative ones

    def ours() -> np.ndarray:
        return suppress(boxes, scores, overlap=0.5, measure="iou")

    theirs = cv2.dnn.NMSBoxes(np.hstack([corners, sizes]), scores, 0.0, 0.5)
    if sorted(ours()) != sorted(np.ravel(theirs)):
        raise AssertionError("The contestants keep other boxes: their times cannot be compared.")
    setting.notes.append(f"{len(theirs)} boxes stay, the same with both")
    yield Contestant("visionkl", "ours", lambda: _discard(ours()))
    arrays = {"boxes": boxes, "scores": scores}
    yield setting.peers.contestant("OpenCV NMSBoxes", "opencv_nms", arrays, overlap=0.5)
    yield Contestant("sorting the scores", "limit", lambda: _discard(np.argsort(-scores, kind="stable")))


def _discard(value: object) -> None:
    """Let a result go: a contestant's return value is its time."""
