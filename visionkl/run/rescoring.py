"""Results files scored anew by context, with a file that `train_context` wrote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from visionkl.core.errors import DataError, UsageError
from visionkl.core.types import Detections
from visionkl.datasets.base import listing
from visionkl.datasets.voc import VOC
from visionkl.evaluation.results import read_all_voc_results, read_voc_image_ids, voc_results_writer
from visionkl.evaluation.voc import check_image_ids
from visionkl.run.console import Console
from visionkl.store import read_context


class ContextFile:
    """A context rescorer from a file.

    Parameters
    ----------
    path : Path
    classes : sequence of str
        Those that were looked for, which must be those that it was learned with.
    """

    def __init__(self, path: Path, classes: Sequence[str]) -> None:
        self.path = path
        self.rescorer = read_context(path)
        learned = self.rescorer.classes_
        if set(classes) != set(learned):
            raise UsageError(
                f"{path}: this context was learned with the classes {listing(learned)}, but those that are "
                f"scored here are {listing(classes)}; they must be the same."
            )

    def rescore_files(self, results: Path, dataset: VOC, folder: Path, console: Console) -> None:
        """Write the results files of one folder to another, with new scores."""
        classes = self.rescorer.classes_
        covered = read_voc_image_ids(results, dataset.split)
        found = read_all_voc_results(results, dataset.split, classes)
        check_image_ids(found, dataset, str(results))
        wanted = {example.id for example in dataset} if covered is None else set(covered)
        folder.mkdir(exist_ok=True)
        with voc_results_writer(folder, dataset.split, classes) as write:
            for example in console.track(dataset, "rescoring"):
                if example.id not in wanted:
                    continue
                try:
                    size = example.size()
                except DataError as error:
                    if dataset.on_bad_data == "raise":
                        raise
                    console.warn(f"left out: {error}")
                    continue
                write(example.id, self.rescorer.rescore(found.get(example.id, Detections()), size))
