"""A small trainer in place of the real one, and the command that is run with it.

It does nothing clever but keeps its promises to observers: so tests are quick, and interrupts come when they
are wanted.
"""

from dataclasses import replace

import numpy as np

from visionkl.core.image import read_image
from visionkl.detection import plan
from visionkl.detection.initialise import warped_cells
from visionkl.detection.model import Component, MixtureModel, Part
from visionkl.detection.samples import Samples
from visionkl.features.hog import mirror
from visionkl.run.train_detector import main

ARGUMENTS = ["--data", "data", "--category", "digger"]


class Trainer:
    """Four steps, each of which changes the model; may be told to fail before one of them."""

    def __init__(self):
        self.fails_before, self.error = None, None
        self.seen = {}

    def plan(self, settings):
        return ["codebooks", "roots", "parts", "boxes"]

    def train_on(self, data, settings, *, n_jobs=None, executor=None, folder=None,
                 max_memory=None, observer=None, state=None, start=None, device=None):  # fmt: skip
        n = len(data.pictures)
        self.seen = {"n_pictures": n, "max_memory": max_memory, "settings": settings}
        model = first_model(data, settings) if state is None else state.model
        for number in range(0 if state is None else state.n_done, 4):
            with observer.stage("mining", n) as stage:
                stage.advance(n)
            observer.record({"objective": 1 / (1 + number), **({"negatives": 5} if number else {})})
            if number == self.fails_before:
                raise self.error
            model = replace(model, components=tuple(shifted(c, number) for c in model.components))
            observer.checkpoint(plan.TrainingState(number + 1, model, (samples(2),), (samples(3),)))
        return model


def first_model(data, settings):
    cells = np.array(
        [
            warped_cells(read_image(picture.path), box, (6, 9), 8)
            for picture in data.pictures
            for box in picture.all_boxes
        ]
    )
    root = cells.mean(axis=0) - cells.mean(axis=(0, 1, 2))
    parts = (Part(root[:4, :4], (2, 3), [0.1, 0, 0.1, 0]),) if settings.n_parts else ()
    bias = -0.3 * float((root**2).sum())
    one = Component(root, parts, bias)
    other = Component(mirror(root), tuple(part.mirrored(9) for part in parts), bias)
    return MixtureModel(data.label, (one, other), interval=3)


def shifted(component, number):
    """Add something that must happen once in each step."""
    return replace(component, bias=component.bias - 0.01 * (number + 1))


def samples(n):
    rng = np.random.default_rng(n)
    features = rng.integers(0, 256, (8, n)).astype(np.uint8)
    return Samples(features, np.zeros((n, 1, 2), np.int16), np.ones(n, np.uint8), np.zeros((n, 4), np.int32))


def run(capsys, *arguments):
    capsys.readouterr()
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def last_line(text):
    return text.splitlines()[-1]
