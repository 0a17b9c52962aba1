"""Train a detector from Python, score it and draw what it finds: a first look at all the layers.

    python examples/first_detector.py [digger|robot|tricycle]

It generates the sample set (drawn machines in cluttered scenes), trains a part model on the training
pictures, saves it, searches the test pictures, prints the average precision and draws what was found.
`tools/train_detector.py` does the same on data of your own, with checkpoints and a report.
"""

import sys
from contextlib import AbstractContextManager

import visionkl as vkl
from visionkl.core.files import fresh_folder
from visionkl.detection.plan import Observer, Stage
from visionkl.report.plots import save_detections


class Teller(Observer):
    """Prints what training is doing."""

    def stage(self, name: str, total: int | None = None) -> AbstractContextManager[Stage]:
        """Print the name of a stage."""
        print(f"  {name} ...", flush=True)
        return super().stage(name, total)


def main(label: str = "digger", *, n_train: int = 240, n_test: int = 120) -> None:
    """Go all the way from generated pictures to an average precision."""
    print("Generating pictures ...")
    devkit = vkl.make_sample_set("datasets/sample", n_train=n_train, n_test=n_test)
    train, test = vkl.VOC(devkit, split="train"), vkl.VOC(devkit, split="test")

    print(f"Training a detector of {label!r} on {len(train)} pictures:")
    detector = vkl.DPMDetector(n_components=2, n_parts=8, part_rounds=2)
    detector.fit(train, label, observer=Teller())
    folder = fresh_folder("runs/first_detector")
    detector.save(folder / f"{label}.safetensors")
    print(detector.model)

    print(f"Searching {len(test)} test pictures ...")
    print(vkl.evaluate_voc({label: detector}, test).table())

    shown = [example for example in test if label in example.annotation.labels][:12]
    for example in shown:
        save_detections(folder / f"{example.id}.jpg", example.path, detector.detect(example.path))
    print(f"The model and {len(shown)} pictures are in {folder}.")


if __name__ == "__main__":
    main(*sys.argv[1:])
