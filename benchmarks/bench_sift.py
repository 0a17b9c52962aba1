"""Dense SIFT, against VLFeat's with its flat window and against OpenCV's SIFT at the same places."""

from collections.abc import Iterator

import numpy as np
from harness import Contestant, Setting, row
from PIL import Image

from visionkl.features.sift import dense_sift

STEP = 3
BIN_SIZES = (4, 6, 8, 10, 12)


@row("sift", f"dense SIFT, step {STEP}, {len(BIN_SIZES)} sizes", threads=(1, 2), rounds=7)
def sift(setting: Setting) -> Iterator[Contestant]:
    grey = np.asarray(Image.fromarray(setting.picture).convert("L"))
    found = describe(grey, "flat", setting.threads)
    setting.notes.append(f"{len(found)} descriptors; VLFeat has one thread")
    yield Contestant("visionkl", "ours", lambda: _discard(describe(grey, "flat", setting.threads)))
    exact = "visionkl, exact window"
    yield Contestant(exact, "peer", lambda: _discard(describe(grey, "gaussian", setting.threads)))
    options = {"bin_sizes": BIN_SIZES, "step": STEP}
    yield setting.peers.contestant("VLFeat", "vlfeat_sift", {"grey": grey}, **options)
    arrays = {"grey": grey, "positions": found.positions, "sizes": found.sizes}
    yield setting.peers.contestant("OpenCV SIFT", "opencv_sift", arrays, threads=setting.threads)
    yield Contestant("writing the descriptors", "limit", lambda: _discard(found.values.copy()))


def describe(grey: np.ndarray, window: str, threads: int) -> object:
    return dense_sift(grey, step=STEP, bin_sizes=BIN_SIZES, window=window, n_jobs=threads)


def _discard(value: object) -> None:
    """Let a result go: a contestant's return value is its time."""
