"""Generate the sample set: the command `sample`.

The story: generate the pictures, or find them where they were generated before, and say how to go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visionkl.run.console import Console, run_command

#: Where commands that are told nothing look for the sample set.
SAMPLE_FOLDER = Path("datasets/sample")


@dataclass(frozen=True)
class SampleOptions:
    """Generate a small data set to try things out with, in VOC's layout.

    Drawings of three kinds of jointed machines in cluttered scenes, with boxes, poses, flags and masks. The
    same settings give the same files. A folder that holds something else is never touched.

    Parameters
    ----------
    out : Path
        Folder to write to, new or empty.
    n_train : int
        Pictures in the split train.
    n_val : int
        Pictures in the split val.
    n_test : int
        Pictures in the split test.
    seed : int
        Another seed gives other pictures.
    """

    out: Path = SAMPLE_FOLDER
    n_train: int = 240
    n_val: int = 160
    n_test: int = 120
    seed: int = 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_command(SampleOptions, sample, argv, name="sample")


def sample(options: SampleOptions, console: Console) -> dict[str, Any]:
    """Generate the sample set; what is returned is the document of `--json`."""
    from visionkl.datasets.sample import make_sample_set
    from visionkl.datasets.voc import VOC

    console.note("generating pictures, some seconds ...")
    folder = make_sample_set(
        options.out,
        n_train=options.n_train,
        n_val=options.n_val,
        n_test=options.n_test,
        seed=options.seed,
        n_jobs=console.jobs,
    )
    counts = {split: len(VOC(folder, split=split)) for split in ("train", "val", "test")}
    console.result(f"{folder}: " + ", ".join(f"{n} pictures in {split}" for split, n in counts.items()))
    console.note(f"take stock of it with: visionkl inspect-data {folder}")
    return {"folder": str(folder), "pictures": counts}


def generate_if_missing(data: Path | None, console: Console) -> None:
    """Generate the sample set if it is what a command is to work on, and is not there yet."""
    if data == SAMPLE_FOLDER and not SAMPLE_FOLDER.exists():
        from visionkl.datasets.sample import make_sample_set

        console.note("generating the sample set, some seconds ...")
        make_sample_set(SAMPLE_FOLDER, n_jobs=console.jobs)
