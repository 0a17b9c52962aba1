"""Draw the picture at the top of the README, with the model that the README's first command trains.

    python tools/train_detector.py && python examples/readme_picture.py [MODEL]

Above, two test pictures with what was found; below, the filters that found the first: the root, and the parts
at their anchors.
"""

import sys
from collections.abc import Sequence

import numpy as np
from PIL import Image

import visionkl as vkl
from visionkl.core.boxes import area
from visionkl.detection.model import Component
from visionkl.features.hog import glyphs
from visionkl.report.plots import render_detections

HEIGHT, GAP = 360, 6


def main(model: str = "runs/train-digger/digger.safetensors") -> None:
    """Write docs/first_detector.jpg."""
    detector = vkl.load(model)
    pictures = surest(detector, vkl.VOC("datasets/sample", split="test"), 2)
    above = beside([render_detections(example.path, found) for example, found in pictures])
    component = detector.model.components[pictures[0][1].components[0]]
    below = beside([root_picture(component), parts_picture(component)])
    below = below.resize((above.width, round(below.height * above.width / below.width)))
    sheet = Image.new("RGB", (above.width, above.height + GAP + below.height), "white")
    sheet.paste(above, (0, 0))
    sheet.paste(below, (0, above.height + GAP))
    sheet.save("docs/first_detector.jpg", quality=88)


def surest(detector: vkl.DPMDetector, test: vkl.Dataset, n: int) -> list[tuple[vkl.Example, vkl.Detections]]:
    """Choose the landscape pictures in which the detector is surest of a large object."""
    ranked = []
    for example in test:
        width, height = example.size()
        found = detector.detect(example.path)
        if len(found) and width > height and area(found.boxes)[0] > width * height / 8:
            ranked.append((example, found))
    return sorted(ranked, key=lambda pair: -float(pair[1].scores[0]))[:n]


def root_picture(component: Component) -> np.ndarray:
    """Draw the root filter: what the whole object looks like, coarsely."""
    return glyphs(component.root, cell_pixels=40)


def parts_picture(component: Component) -> np.ndarray:
    """Draw the parts at their anchors, where the brightest of overlapping strokes shows."""
    rows, cols = (2 * size for size in component.root.shape[:2])
    canvas = np.zeros((rows * 20, cols * 20), np.uint8)
    for part in component.parts:
        x, y = part.anchor
        drawn = glyphs(part.weights, cell_pixels=20)
        place = canvas[y * 20 : y * 20 + drawn.shape[0], x * 20 : x * 20 + drawn.shape[1]]
        np.maximum(place, drawn, out=place)
    return canvas


def beside(pictures: Sequence[np.ndarray]) -> Image.Image:
    """Put pictures in a row, at one height."""
    panels = [Image.fromarray(picture).convert("RGB") for picture in pictures]
    sized = [panel.resize((round(panel.width * HEIGHT / panel.height), HEIGHT)) for panel in panels]
    row = Image.new("RGB", (sum(panel.width for panel in sized) + GAP * (len(sized) - 1), HEIGHT), "white")
    left = 0
    for panel in sized:
        row.paste(panel, (left, 0))
        left += panel.width + GAP
    return row


if __name__ == "__main__":
    main(*sys.argv[1:])
