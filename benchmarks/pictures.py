"""The picture that the benchmarks work on: 500 × 375 pixels, textured, the same everywhere.

Where the real data of the tests are present it is a photograph: the first of VOC2012 that has this size and
shows a bicycle. Elsewhere it is drawn here: noise of several grains, which has edges at all scales and
orientations as a photograph has, and some smooth discs. The time of HOG hardly depends on the content; how
many detections there are to suppress does.
"""

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from visionkl.core.image import image_size, read_image
from visionkl.core.rng import stream

WIDTH, HEIGHT = 500, 375


def drawn_picture() -> npt.NDArray[np.uint8]:
    """Draw the picture, uint8 RGB `(375, 500, 3)`."""
    random = stream(0, "benchmark picture")
    picture = np.full((HEIGHT, WIDTH, 3), 128.0)
    for grain in (2, 4, 8, 16, 32, 64):
        # Grains of coloured noise; coarser ones are stronger, as in photographs.
        noise = random.normal(0, 4 * grain**0.5, (HEIGHT // grain + 2, WIDTH // grain + 2, 3))
        picture += np.repeat(np.repeat(noise, grain, axis=0), grain, axis=1)[:HEIGHT, :WIDTH]
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    for _ in range(12):
        centre_x, centre_y, radius = random.uniform((0, 0, 10), (WIDTH, HEIGHT, 70))
        disc = np.hypot(x - centre_x, y - centre_y) < radius
        picture[disc] = 0.3 * picture[disc] + 0.7 * random.uniform(0, 255, 3)
    return np.clip(picture, 0, 255).astype(np.uint8)


def real_data() -> Path | None:
    """Find the folder with real pictures and published models, as the tests do; None where there is none."""
    beside_the_clone = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("VISIONKL_TEST_DATA", beside_the_clone))
    return folder if (folder / "voc_dpm_models").is_dir() else None


def benchmark_picture() -> tuple[npt.NDArray[np.uint8], str]:
    """Return the picture and what it is: a photograph where there is one, the drawn one elsewhere."""
    folder = real_data()
    if folder is not None:
        devkit = folder / "voc2012_subset" / "VOCdevkit" / "VOC2012"
        listed = (devkit / "ImageSets" / "Main" / "bicycle_val.txt").read_text(encoding="utf-8")
        for name in (line.split()[0] for line in listed.splitlines() if line.split()[-1] == "1"):
            path = devkit / "JPEGImages" / f"{name}.jpg"
            if image_size(path) == (WIDTH, HEIGHT):
                return read_image(path), f"VOC2012 photograph {name}"
    return drawn_picture(), "drawn by benchmarks/pictures.py"
