"""A small model to test with."""

import numpy as np
import pytest

from visionkl.detection.model import Component, MixtureModel, Part


def random_model(seed: int = 0, **settings: object) -> MixtureModel:
    """Two components with parts of two sizes, one part with less, and the mirror image of the first."""
    rng = np.random.default_rng(seed)

    def filter_(rows: int, cols: int) -> np.ndarray:
        return rng.standard_normal((rows, cols, 32)).astype(np.float32) / 10

    def part(rows: int, cols: int, x: int, y: int) -> Part:
        deformation = np.array(
            [rng.uniform(0.01, 0.3), rng.normal() / 50, rng.uniform(0.01, 0.3), rng.normal() / 50]
        )
        return Part(filter_(rows, cols), (x, y), deformation)

    first = Component(
        filter_(4, 5),
        (part(3, 3, 0, 0), part(3, 3, 5, 4), part(2, 4, 3, 1)),
        bias=-0.5,
        scale_bias=np.array([0.0, 0.1, -0.2]),
        box_weights=rng.normal(size=(4, 9)) / 20,
    )
    mirrored = Component(
        first.root[:, ::-1],
        tuple(p.mirrored(5) for p in first.parts),
        first.bias,
        first.scale_bias,
        first.box_weights,
    )
    second = Component(filter_(5, 3), (part(3, 3, 2, 2),), bias=-0.7)
    settings = {"interval": 4, "threshold": -1.0, "max_displacement": 3, **settings}
    return MixtureModel("thing", (first, mirrored, second), **settings)


@pytest.fixture
def model() -> MixtureModel:
    return random_model()
