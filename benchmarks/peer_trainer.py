"""Runs in the peers' environment: trains and applies dlib's detector, in a process that holds nothing else.

Reads one JSON line, answers with one for training and one for detection; `children.py` watches its memory.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import dlib


def train(request: dict[str, Any], folder: Path) -> Any:
    """Train on dlib's XML list of pictures and boxes, and return the detector."""
    options = dlib.simple_object_detector_training_options()
    options.C = request["cost"]
    options.num_threads = request["threads"]
    options.add_left_right_image_flips = True
    path = str(folder / "detector.svm")
    start, computed = time.perf_counter(), sum(os.times()[:4])
    dlib.train_simple_object_detector(request["list"], path, options)
    answer(
        "training",
        seconds=time.perf_counter() - start,
        cpu_seconds=sum(os.times()[:4]) - computed,
        version=dlib.__version__,
    )
    if dlib.simple_object_detector(path).upsampling_amount:
        raise RuntimeError("dlib enlarged the pictures: a box is too small for its window")
    return dlib.fhog_object_detector(path)


def detect(detector: Any, request: dict[str, Any]) -> None:
    """Search the test pictures, and save what was found: by picture, rows of corners and score."""
    found = {}
    start = time.perf_counter()
    for image_id, path in request["pictures"].items():
        boxes, scores, _ = detector.run(dlib.load_rgb_image(path), 0, request["threshold"])
        found[image_id] = [
            [box.left(), box.top(), box.right() + 1, box.bottom() + 1, score]
            for box, score in zip(boxes, scores, strict=True)
        ]
    seconds = time.perf_counter() - start
    Path(request["found"]).write_text(json.dumps(found), encoding="utf-8")
    answer("detection", seconds_a_picture=seconds / max(len(found), 1))


def answer(phase: str, **values: Any) -> None:
    """Tell that a phase is done, and wait until its memory has been looked at."""
    print(json.dumps({"phase": phase, **values}), flush=True)
    sys.stdin.readline()


def main() -> None:
    """Answer one request."""
    request = json.loads(sys.stdin.readline())
    with tempfile.TemporaryDirectory() as folder:
        detect(train(request, Path(folder)), request)


if __name__ == "__main__":
    main()
