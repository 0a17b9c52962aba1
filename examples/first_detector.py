"""From pictures to a detector and its score, in about two minutes: a first look at all the layers.

    python examples/first_detector.py [digger|robot|tricycle]

It generates the sample set (drawn machines in cluttered scenes), makes a part model from the training
pictures, saves it, searches the test pictures with it, prints the average precision and draws what was found.

The model is made in closed form, without iterations: each filter is a linear discriminant, the mean of the
object's HOG cells less the mean of the background's, divided by the background's covariance (Hariharan, Malik
and Ramanan, ECCV 2012). Parts are the 6 × 6 windows at twice the resolution where the root filter has most
energy. Nothing learns where parts should go or which negatives are hard: that is what training is for.
"""

import sys
from collections.abc import Iterator, Sequence

import cv2
import numpy as np

import visionkl as vkl
from visionkl.core.files import fresh_folder
from visionkl.core.rng import stream
from visionkl.detection.model import Component, MixtureModel, Part
from visionkl.features.hog import mirror
from visionkl.report.plots import save_detections

CELL, ROOT_CELLS, PART_CELLS, N_PARTS = 8, 60, 6, 8
ROOT_SHARE = 0.3  # of the vote; the parts share the rest
STIFFNESS = 0.05  # of a part's vote, lost when it moves by one cell
Objects = list[tuple[vkl.Example, np.ndarray, str]]


def main(label: str = "digger", *, n_train: int = 240, n_test: int = 120) -> None:
    """Go all the way from generated pictures to an average precision."""
    print("Generating pictures ...")
    devkit = vkl.make_sample_set("datasets/sample", n_train=n_train, n_test=n_test, n_jobs=2)
    train = vkl.VOC(devkit, split="train")
    test = vkl.VOC(devkit, split="test")
    print(f"{train}\n{test}\n\nMaking a model of {label!r} ...")
    detector = vkl.DPMDetector.from_model(make_model(train, label))
    folder = fresh_folder("runs/first_detector")
    detector.save(folder / f"{label}.safetensors")
    print(f"{detector.model}\n")

    print(f"Searching {len(test)} test pictures ...")
    print(vkl.evaluate_voc({label: detector}, test).table())

    shown = [example for example in test if label in example.annotation.labels][:12]
    for example in shown:
        found = detector.detect(example.path).filter(min_score=0.5)
        save_detections(folder / f"{example.id}.jpg", example.path, found)
    print(f"The model and {len(shown)} pictures are in {folder}.")


def make_model(train: vkl.Dataset, label: str) -> MixtureModel:
    """Make two components, for slim and for wide objects, and their mirror images."""
    objects = [
        (example, box, pose)
        for example in train
        for box, name, pose, hard, cut in zip(
            example.annotation.boxes,
            example.annotation.labels,
            example.annotation.poses,
            example.annotation.difficult,
            example.annotation.truncated,
            strict=True,
        )
        if name == label and not hard and not cut
    ]
    aspects = np.array([(box[2] - box[0]) / (box[3] - box[1]) for _, box, _ in objects])
    elsewhere = [example for example in train if label not in example.annotation.labels]
    part_statistics = background(elsewhere, PART_CELLS, PART_CELLS)
    components: list[Component] = []
    for wide in (False, True):
        chosen = np.flatnonzero((aspects > np.median(aspects)) == wide)
        aspect = float(np.median(aspects[chosen]))
        rows = round((ROOT_CELLS / aspect) ** 0.5)
        size = rows, round(rows * aspect)
        component = make_component([objects[i] for i in chosen], size, elsewhere, part_statistics)
        components += [component, mirrored(component)]
    return MixtureModel(label, tuple(components), interval=5, threshold=0.0)


def make_component(
    objects: Objects,
    size: tuple[int, int],
    elsewhere: Sequence[vkl.Example],
    part_statistics: tuple[np.ndarray, np.ndarray],
) -> Component:
    """Make a root filter and its parts: voters for which the average object counts 1, the background -1."""
    root, bias = discriminant(cells_of(objects, size), *background(elsewhere, *size))
    fine = cells_of(objects, (2 * size[0], 2 * size[1]))
    energy = np.kron((np.maximum(root, 0) ** 2).sum(axis=2), np.ones((2, 2)))
    share = (1 - ROOT_SHARE) / N_PARTS
    bias *= ROOT_SHARE
    parts = []
    for _ in range(N_PARTS):
        windows = np.lib.stride_tricks.sliding_window_view(energy, (PART_CELLS, PART_CELLS)).sum(axis=(2, 3))
        y, x = (int(i) for i in np.unravel_index(windows.argmax(), windows.shape))
        energy[y : y + PART_CELLS, x : x + PART_CELLS] = 0
        weights, part_bias = discriminant(fine[:, y : y + PART_CELLS, x : x + PART_CELLS], *part_statistics)
        parts.append(Part(share * weights, (x, y), share * np.array([STIFFNESS, 0, STIFFNESS, 0])))
        bias += share * part_bias
    return Component(ROOT_SHARE * root, tuple(parts), bias)


def mirrored(component: Component) -> Component:
    """Turn a component round: objects face both ways."""
    cols = component.root.shape[1]
    parts = tuple(part.mirrored(cols) for part in component.parts)
    return Component(mirror(component.root), parts, component.bias)


def discriminant(positives: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> tuple[np.ndarray, float]:
    """Linear discriminant of windows `(n, rows, cols, 32)` against the background, and its bias."""
    centre = positives.mean(axis=0)
    direction = np.linalg.solve(covariance, centre.ravel() - mean)
    weights = direction * (2 / (direction @ (centre.ravel() - mean)))
    bias = -float(weights @ (centre.ravel() + mean)) / 2
    return weights.reshape(centre.shape).astype(np.float32), bias


def cells_of(objects: Objects, size: tuple[int, int]) -> np.ndarray:
    """HOG cells `(n, rows, cols, 32)` of objects stretched to one size; those that face left are mirrored."""
    rows, cols = size
    cells = []
    for example, (x1, y1, x2, y2), pose in objects:
        # The stretched picture has one cell more on every side, which HOG drops.
        scale_x, scale_y = CELL * cols / (x2 - x1), CELL * rows / (y2 - y1)
        stretch = np.array([[scale_x, 0, CELL - x1 * scale_x], [0, scale_y, CELL - y1 * scale_y]])
        to_size = ((cols + 2) * CELL, (rows + 2) * CELL)
        patch = cv2.warpAffine(
            example.image(), stretch, to_size, flags=cv2.INTER_AREA, borderMode=cv2.BORDER_REPLICATE
        )
        found = vkl.hog(patch, cell_size=CELL)
        cells.append(mirror(found) if pose == "Left" else found)
    return np.array(cells)


def background(pictures: Sequence[vkl.Example], rows: int, cols: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and (regularised) covariance of windows of HOG cells in pictures without the object."""
    windows = np.array(list(random_windows(pictures, rows, cols)))
    covariance = np.cov(windows, rowvar=False) + 0.01 * np.eye(windows.shape[1])
    return windows.mean(axis=0), covariance


def random_windows(pictures: Sequence[vkl.Example], rows: int, cols: int) -> Iterator[np.ndarray]:
    """Three windows from each level of each picture's pyramid."""
    random = stream(0, "background", rows, cols)
    for example in pictures:
        for level in vkl.feature_pyramid(example.image(), interval=3).levels:
            down, across = level.shape[0] - rows, level.shape[1] - cols
            if down >= 0 and across >= 0:
                for _ in range(3):
                    y, x = random.integers(down + 1), random.integers(across + 1)
                    yield level[y : y + rows, x : x + cols].ravel()


if __name__ == "__main__":
    main(*sys.argv[1:])
