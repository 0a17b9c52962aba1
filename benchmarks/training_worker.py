"""Trains and applies a detector of ours, in a process that does nothing else.

Reads one JSON line, answers with one for training and, if there are pictures to search, one for detection;
`children.py` watches its memory.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # visionkl from this clone

from visionkl.datasets.voc import VOC
from visionkl.detection import plan, training
from visionkl.detection.detector import DPMDetector
from visionkl.detection.settings import TrainingSettings
from visionkl.evaluation.search import search
from visionkl.store import load


class CacheMeter(plan.Observer):
    """Notes how large the cache of hard negatives becomes."""

    def __init__(self) -> None:
        self.largest = 0

    def checkpoint(self, state: plan.TrainingState) -> None:
        """Look at the cache after a step of the plan."""
        self.largest = max(self.largest, sum(samples.nbytes for samples in state.negatives))


def train(request: dict[str, Any]) -> DPMDetector:
    """Train with the settings that are asked for."""
    data = VOC(request["root"], year=request["year"], split=request["train"])
    settings = TrainingSettings(**request["settings"])
    start_from = load(request["start"]).model if request.get("start") else None
    cache = CacheMeter()
    start, computed = time.perf_counter(), sum(os.times()[:4])
    model = training.train(
        data,
        request["label"],
        settings,
        n_jobs=request["threads"],
        max_memory=request["max_memory"],
        observer=cache,
        start=start_from,
    )
    answer(
        "training",
        seconds=time.perf_counter() - start,
        cpu_seconds=sum(os.times()[:4]) - computed,
        cache_bytes=cache.largest,
        model=str(model),
    )
    return DPMDetector.from_model(model)


def detect(detector: DPMDetector, request: dict[str, Any]) -> None:
    """Search the test pictures, and save what was found: by picture, rows of corners and score."""
    data = VOC(request["root"], year=request["year"], split=request["test"])
    found = {}
    start = time.perf_counter()
    for example, detections in search({request["label"]: detector}, data, n_jobs=request["threads"]):
        rows = zip(detections.boxes.tolist(), detections.scores.tolist(), strict=True)
        found[example.id] = [[*box, score] for box, score in rows]
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
    detector = train(request)
    if request.get("test"):
        detect(detector, request)


if __name__ == "__main__":
    main()
