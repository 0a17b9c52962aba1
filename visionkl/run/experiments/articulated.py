"""A walking figure: silhouettes, and the joint angles that made them.

Published experiments with twin Gaussian processes took descriptors of silhouettes rendered with Poser, and
joint angles. That data set cannot be had, so this one is made here, in the same spirit: a skeleton in three
dimensions walks, each frame at a random moment, stride, heading and build; its limbs are drawn as thick
lines, seen from the side without perspective; the descriptor is the share of every cell of a grid that the
figure covers. Which leg is in front cannot be seen in a silhouette, nor whether the figure heads towards the
viewer or away: one descriptor belongs to two poses, or nearly so.

>>> figures = walking_figures(3, seed=0)
>>> figures.descriptors.shape, figures.angles.shape, len(figures.names)
((3, 96), (3, 12), 12)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from visionkl.core.rng import stream

Array = npt.NDArray[np.float64]

#: The angles, in degrees.
ANGLES = (
    "heading",
    "lean",
    "left hip",
    "right hip",
    "left knee",
    "right knee",
    "left shoulder",
    "right shoulder",
    "left elbow",
    "right elbow",
    "left arm, sideways",
    "right arm, sideways",
)
#: Pixels of a silhouette, and cells of the descriptor: rows and columns.
_PIXELS = (60, 40)
_CELLS = (12, 8)
#: Height of the picture, where a figure is about 1.75 high.
_HEIGHT = 2.3
#: How far above the lower edge the ground is.
_GROUND = 0.12


@dataclass(frozen=True, eq=False)
class Figures:
    """Silhouettes of figures with their poses.

    Parameters
    ----------
    silhouettes : ndarray of bool, shape (n, rows, cols)
    descriptors : ndarray of float64, shape (n, 96)
        Shares of the cells of a grid that are covered, between 0 and 1.
    angles : ndarray of float64, shape (n, 12)
        Degrees.
    names : tuple of str
        Of the angles.
    """

    silhouettes: npt.NDArray[np.bool_]
    descriptors: Array
    angles: Array
    names: tuple[str, ...] = ANGLES


def walking_figures(n: int, seed: int) -> Figures:
    """Draw so many frames of walking figures.

    Parameters
    ----------
    n : int
    seed : int

    Returns
    -------
    Figures
    """
    random = stream(seed, "walking figures")
    angles = _poses(n, random)
    build = 1 + 0.05 * random.standard_normal((n, 2))  # length of limbs, and their thickness
    silhouettes = np.stack([_draw(*frame) for frame in zip(np.radians(angles), build, strict=True)])
    rows, cols = _PIXELS[0] // _CELLS[0], _PIXELS[1] // _CELLS[1]
    cells = silhouettes.reshape(n, _CELLS[0], rows, _CELLS[1], cols).mean(axis=(2, 4))
    return Figures(silhouettes, cells.reshape(n, -1), angles)


def _poses(n: int, random: np.random.Generator) -> Array:
    """Return angles of frames, shape (n, 12), in degrees."""
    moment = random.uniform(0, 2 * np.pi, n)
    stride, swing = random.uniform(0.5, 1.3, n), random.uniform(0.4, 1.4, n)
    sideways = 8 + 14 * random.uniform(size=n)

    def leg(phase: Array) -> tuple[Array, Array]:
        bent = np.maximum(np.sin(phase - 0.6), 0) ** 2  # the knee bends while the leg swings forward
        return 28 * stride * np.sin(phase + 0.4) + 4, 8 + 52 * stride * bent

    def arm(phase: Array) -> tuple[Array, Array]:
        return -24 * swing * np.sin(phase + 0.4), 14 + 16 * swing * (1 - np.sin(phase + 0.4))

    (left_hip, left_knee), (right_hip, right_knee) = leg(moment), leg(moment + np.pi)
    (left_shoulder, left_elbow), (right_shoulder, right_elbow) = arm(moment), arm(moment + np.pi)
    heading = random.uniform(-65, 65, n)
    angles = np.stack(
        [
            heading,
            4 + 4 * stride,
            *(left_hip, right_hip, left_knee, right_knee),
            *(left_shoulder, right_shoulder, left_elbow, right_elbow),
            *(sideways, sideways),
        ],
        axis=1,
    )
    return angles + np.where(np.arange(12) == 0, 0.0, 2.0) * random.standard_normal(angles.shape)


def _draw(angles: Array, build: Array) -> npt.NDArray[np.bool_]:
    """Draw one figure."""
    ends, thickness = _skeleton(angles, build)
    scale = _PIXELS[0] / _HEIGHT
    y, x = np.mgrid[: _PIXELS[0], : _PIXELS[1]]
    places = np.stack([(x + 0.5 - _PIXELS[1] / 2) / scale, (_PIXELS[0] - y - 0.5) / scale - _GROUND], axis=-1)
    start, along = ends[:, 0], ends[:, 1] - ends[:, 0]
    away = places[:, :, None] - start
    share = np.einsum("rcld,ld->rcl", away, along) / np.maximum((along**2).sum(axis=1), 1e-9)
    nearest = away - np.clip(share, 0, 1)[..., None] * along
    return ((nearest**2).sum(axis=-1) <= thickness**2).any(axis=-1)


def _skeleton(angles: Array, build: Array) -> tuple[Array, Array]:
    """Return where limbs begin and end in the picture, shape (n_limbs, 2, 2), and their thickness.

    The figure's own axes are forward, up and left; its heading turns forward and left towards the viewer.
    """
    heading, lean, *joints = angles
    hips, knees, shoulders, elbows, sideways = (joints[k : k + 2] for k in range(0, 10, 2))
    long, thick = build
    pelvis = np.array([0.0, 0.98, 0.0])
    chest = pelvis + 0.5 * np.array([np.sin(lean), np.cos(lean), 0.0])
    limbs = [(pelvis, chest, 0.12), (chest, chest + np.array([0.03, 0.2, 0.0]), 0.1)]
    for side in (0, 1):
        left = np.array([0.0, 0.0, 1.0 if side == 0 else -1.0])
        hip, shoulder = pelvis + 0.1 * left, chest + 0.18 * left
        knee = hip + 0.45 * _down(hips[side])
        limbs += [(hip, knee, 0.075), (knee, knee + 0.48 * _down(hips[side] - knees[side]), 0.055)]
        outward = np.sin(sideways[side]) * left
        elbow = shoulder + 0.3 * (np.cos(sideways[side]) * _down(shoulders[side]) + outward)
        wrist = elbow + 0.3 * (np.cos(sideways[side]) * _down(shoulders[side] + elbows[side]) + outward)
        limbs += [(shoulder, elbow, 0.05), (elbow, wrist, 0.042)]
    across = np.array([np.cos(heading), 0.0, np.sin(heading)])
    ends = np.array([[[point @ across, point[1]] for point in limb[:2]] for limb in limbs])
    return ends * long, np.array([limb[2] for limb in limbs]) * thick


def _down(angle: float) -> Array:
    """Return the direction of a limb that hangs at an angle, swung forward."""
    return np.array([np.sin(angle), -np.cos(angle), 0.0])
