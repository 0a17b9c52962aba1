"""HOG cells and the HOG pyramid, against dlib's fHOG (the same 31 channels) and the plainer HOG of others."""

from collections.abc import Iterator

import numpy as np
from harness import Contestant, Quoted, Setting, row

from visionkl.features.hog import hog
from visionkl.features.pyramid import feature_pyramid

_EARLIER = "measured once, one thread, on a 2-core x86-64 machine; not part of this run"


@row("pyramid", "HOG pyramid, 10 levels an octave and the 4-px octave", threads=(1, 2))
def pyramid(setting: Setting) -> Iterator[Contestant | Quoted]:
    picture, threads = setting.picture, setting.threads
    levels = feature_pyramid(picture, n_jobs=1).levels
    megabytes = sum(level.nbytes for level in levels) / 1e6
    setting.notes.append(
        f"{len(levels)} levels, {megabytes:.1f} MB; dlib resamples bilinearly and in 8 bits, "
        "ours averages areas in double precision as the published models were trained"
    )
    yield Contestant("visionkl", "ours", lambda: _discard(feature_pyramid(picture, n_jobs=threads)))
    yield setting.peers.contestant(
        "dlib fHOG", "dlib_pyramid", {"picture": picture}, interval=10, cell_size=8, threads=threads
    )
    yield Contestant("writing the levels", "limit", lambda: _discard([level.copy() for level in levels]))
    if threads == 1:
        yield Quoted("FFLD2", 0.080, _EARLIER)
        yield Quoted("voc-release5", 0.24, _EARLIER)


@row("hog", "HOG of one picture, 8-px cells")
def one_scale(setting: Setting) -> Iterator[Contestant]:
    picture = setting.picture
    cells = hog(picture)
    setting.notes.append(
        "OpenCV and scikit-image compute Dalal and Triggs' HOG: 9 orientations, 2 × 2 blocks"
    )
    yield Contestant("visionkl", "ours", lambda: _discard(hog(picture)))
    yield setting.peers.contestant("OpenCV", "opencv_hog", {"picture": picture}, cell_size=8)
    yield setting.peers.contestant("scikit-image", "skimage_hog", {"picture": picture}, cell_size=8)
    as_float = picture.astype(np.float32)
    yield Contestant("reading the pixels", "limit", lambda: _discard((as_float.sum(), cells.copy())))


def _discard(value: object) -> None:
    """Let a result go: a contestant's return value is its time."""
