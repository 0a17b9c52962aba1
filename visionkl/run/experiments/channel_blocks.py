"""What experiments with channels share: describing pictures or segments, and kernels of what comes out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from visionkl.features.channels import Channels
from visionkl.kernels.exact import ExpChi2, Linear
from visionkl.kernels.homogeneous import HomogeneousMap
from visionkl.run.console import Console

Block = npt.NDArray[np.float32]
Rows = npt.NDArray[np.intp]

_AT_ONCE = 32


class Masks(Protocol):
    """Masks of the segments of each picture, and how many there are of each."""

    counts: Sequence[int]

    def __getitem__(self, place: slice) -> Sequence[npt.NDArray[np.bool_]]:
        """Return the masks of some pictures, `(n_segments, rows, cols)` of each."""
        ...


def describe(
    wanted: Any,
    pictures: Sequence[Any],
    learn_from: Rows,
    cache: Path | None,
    console: Console,
    masks: Masks | None = None,
) -> tuple[list[str], list[Block]]:
    """Learn channels from some pictures, and describe all, or their segments.

    Parameters
    ----------
    wanted : mapping
        As `Channels` takes it.
    pictures : sequence
    learn_from : ndarray of int
        Numbers of pictures.
    cache : Path, optional
        Folder that keeps what was computed.
    console : Console
    masks : Masks, optional
        The segments to describe.

    Returns
    -------
    names : list of str
    blocks : list of ndarray of float32, shape (n_pictures or n_segments, width)
    """
    channels = Channels(wanted, n_jobs=console.jobs, cache=cache)
    console.note(f"learning {len(wanted)} channels from {len(learn_from)} pictures ...")
    channels.fit([pictures[k] for k in learn_from])
    places = np.cumsum([0, *([1] * len(pictures) if masks is None else masks.counts)])
    blocks = [np.empty((places[-1], width), np.float32) for width in channels.widths_]
    with console.progress("describing", len(pictures)) as progress:
        for start in range(0, len(pictures), _AT_ONCE):
            stop = min(start + _AT_ONCE, len(pictures))
            some = [pictures[k] for k in range(start, stop)]
            made = channels.transform(some, None if masks is None else masks[start:stop])
            for block, own in zip(blocks, made, strict=True):
                block[places[start] : places[stop]] = own
            progress.advance(len(some))
    return channels.names_, blocks


def exact_kernel(block: Block, train: Rows) -> npt.NDArray[np.float64]:
    """Return the kernel between all samples: exponential χ² of histograms, linear of other vectors."""
    return (Linear() if block.min() < 0 else ExpChi2.of(block[train]))(block).astype(np.float64)


def gaussian_inputs(block: Block, train: Rows) -> Block:
    """Map and scale a channel so that the gaussian kernel with σ = 1 of it is that of its kind.

    That is the exponential χ² kernel of histograms, whose width is their mean distance; of other vectors, the
    gaussian of their mean squared distance.
    """
    if block.min() < 0:
        spread = 2 * float(block[train].var(axis=0, dtype=np.float64).sum())
        return block * np.float32(np.sqrt(2 / spread))
    mapped = HomogeneousMap().fit(block[train]).transform(block)
    mapped *= np.float32(np.sqrt(2 / ExpChi2.of(block[train]).width))
    return mapped
