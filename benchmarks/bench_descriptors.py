"""PHOG and LBP of a picture, and all channels of a hundred of its segments."""

import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
from harness import Contestant, Setting, row
from PIL import Image

from visionkl.core.rng import stream
from visionkl.features.channels import Channels
from visionkl.features.lbp import lbp
from visionkl.features.phog import phog

N_SEGMENTS = 100
N_ORIENTATIONS = 20
# Where peers save their results, as often as they run.
RESULTS = tempfile.TemporaryDirectory()


def grey(setting: Setting) -> npt.NDArray[np.uint8]:
    return np.asarray(Image.fromarray(setting.picture).convert("L"))


@row("lbp", "uniform local binary patterns of one picture, 8 points, radius 1")
def patterns(setting: Setting) -> Iterator[Contestant]:
    picture = grey(setting)
    ours = lbp(picture, patterns="uniform rotation")
    yield Contestant("visionkl", "ours", lambda: _discard(lbp(picture, patterns="uniform rotation")))
    path = Path(RESULTS.name) / "lbp.npy"
    yield setting.peers.contestant("scikit-image", "skimage_lbp", {"grey": picture}, save=str(path))
    if path.is_file():
        inner = np.s_[2:-2, 2:-2]
        same = (np.load(path)[inner] == ours[inner]).mean()
        if not same > 0.98:
            raise AssertionError(f"The contestants agree on {same:.1%} of the pixels only.")
        setting.notes.append(f"the same label at {same:.2%} of the pixels")


@row("phog", f"PHOG of all gradients of one picture, 3 levels, {N_ORIENTATIONS} directions")
def gradients(setting: Setting) -> Iterator[Contestant]:
    picture = grey(setting)
    options = {"n_orientations": N_ORIENTATIONS, "edges": "gradient"}

    def bare() -> None:
        """Smooth, take gradients, and count them in one histogram of the whole picture."""
        smooth = cv2.GaussianBlur(picture.astype(np.float32), (0, 0), 1.4)
        dx, dy = cv2.Sobel(smooth, cv2.CV_32F, 1, 0), cv2.Sobel(smooth, cv2.CV_32F, 0, 1)
        lengths, angles = cv2.cartToPolar(dx, dy)
        labels = (angles * np.float32(N_ORIENTATIONS / np.pi)).astype(np.int32) % N_ORIENTATIONS
        np.bincount(labels.ravel(), lengths.ravel(), N_ORIENTATIONS)

    cv2.setNumThreads(setting.threads)
    yield Contestant("visionkl", "ours", lambda: _discard(phog(picture, **options)))
    yield Contestant("OpenCV's gradients, one histogram", "limit", bare)


@row("channels", f"all eight channels of {N_SEGMENTS} segments of one picture", threads=(1, 2), rounds=3)
def channels(setting: Setting) -> Iterator[Contestant]:
    masks = segments(setting.picture.shape[:2])
    fitted = Channels(n_jobs=setting.threads).fit([setting.picture])
    sizes = masks.mean(axis=(1, 2))
    setting.notes.append(f"segments cover {sizes.min():.1%} to {sizes.max():.1%} of the picture; 500 words")
    setting.notes.append("aimed at: less than 5 s on two cores")
    yield Contestant("visionkl", "ours", lambda: _discard(fitted.transform([setting.picture], [masks])))


@cache
def segments(shape: tuple[int, int]) -> npt.NDArray[np.bool_]:
    """Draw blobs of many sizes: where smooth noise is high within an ellipse."""
    random = stream(0, "benchmark segments")
    y, x = np.mgrid[: shape[0], : shape[1]]
    masks = np.zeros((N_SEGMENTS, *shape), bool)
    for mask in masks:
        size = random.uniform(0.05, 0.6, 2) * shape
        centre = random.uniform(0.2, 0.8, 2) * shape
        noise = cv2.GaussianBlur(random.normal(0, 1, shape), (0, 0), 8) * 16
        mask[:] = ((y - centre[0]) / size[0]) ** 2 + ((x - centre[1]) / size[1]) ** 2 + 0.3 * noise < 1
    return masks[masks.any(axis=(1, 2))]


def _discard(value: object) -> None:
    """Let a result go: a contestant's return value is its time."""
