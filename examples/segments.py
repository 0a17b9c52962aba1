"""Propose segments of generated pictures, and draw those that fit the objects best.

    python examples/segments.py [FOLDER]

Writes docs/segments.jpg: the objects with the segments that overlap them most, and the first segments of one
picture as they are ranked, before anybody knows what is in it.
"""

import sys
import tempfile

import visionkl as vkl
from visionkl.datasets.voc import read_object_masks
from visionkl.report.segments import plot_segments

N_BEST, N_FIRST = 4, 8


def main(folder: str | None = None) -> None:
    """Write docs/segments.jpg."""
    sample = vkl.make_sample_set(folder or tempfile.mkdtemp() + "/sample", n_train=5, n_val=1, n_test=1)
    data = vkl.VOC(sample, split="train", image_set="Segmentation")
    found = vkl.FigureGround(n_segments=100).transform(data)
    panels = []
    for example, segments in zip(data, found, strict=True):
        objects = read_object_masks(example, data.classes)
        if len(objects) and len(panels) < N_BEST:
            overlaps = segments.overlaps(objects.masks, objects.void)
            best, which = divmod(int(overlaps.argmax()), len(objects))
            title = f"{objects.labels[which]}, overlap {overlaps.max():.2f}"
            panels.append((example.image(), segments[best].masks[0], title))
    first, image = found[0], data[0].image()
    panels += [
        (image, mask, f"segment {number}") for number, mask in enumerate(first[:N_FIRST].masks, start=1)
    ]
    plot_segments(panels).savefig("docs/segments.jpg", dpi=110)


if __name__ == "__main__":
    main(*sys.argv[1:])
