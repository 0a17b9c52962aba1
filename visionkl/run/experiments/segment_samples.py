"""Samples for kernel learning out of segments: masks, their classes, and channels of features.

A training sample is the mask of an object, or a proposed segment that overlaps an object by so much; it has
the class of the object that it overlaps most. Test samples are the masks of objects, and the proposed
segments that overlap one by more than a half: what a classifier sees where nobody draws masks. Objects of
classes that no training mask has are left out of the test, since nothing can be learned of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

import numpy as np
import numpy.typing as npt

from visionkl.core.errors import DataError
from visionkl.core.rng import stream
from visionkl.features.channels import SEGMENT_CHANNELS, known_channel
from visionkl.run.console import Console
from visionkl.run.experiments.channel_blocks import Block, Rows, describe
from visionkl.run.experiments.segment_proposals import Proposals

#: A proposed segment of a test picture that overlaps an object by more is a test sample.
TEST_OVERLAP = 0.5


@dataclass(frozen=True, eq=False)
class Samples:
    """Segments that are described: first those to learn from, then masks to test on, then proposals.

    Parameters
    ----------
    names : list of str
        Of the channels.
    blocks : list of ndarray of float32, shape (n, width)
        A histogram of each segment, for each channel.
    labels : ndarray of str, shape (n,)
    pictures : ndarray of int, shape (n,)
        Number of the picture that each is of.
    drawn : ndarray of bool, shape (n,)
        Whether it is the mask of an object, not a proposal.
    n_train, n_masks : int
        How many are to learn from, and masks to test on.
    """

    names: list[str]
    blocks: list[Block]
    labels: npt.NDArray[np.str_]
    pictures: npt.NDArray[np.intp]
    drawn: npt.NDArray[np.bool_]
    n_train: int
    n_masks: int

    @property
    def train(self) -> slice:
        """Rows to learn from, in random order."""
        return slice(0, self.n_train)

    @property
    def masks(self) -> slice:
        """Rows of the masks of objects to test on."""
        return slice(self.n_train, self.n_train + self.n_masks)

    @property
    def proposals(self) -> slice:
        """Rows of the proposed segments to test on."""
        return slice(self.n_train + self.n_masks, len(self.labels))


class _Chosen(Sequence[npt.NDArray[np.bool_]]):
    """The masks of each picture's objects and of some of its proposals, made when they are asked for."""

    def __init__(self, proposals: Sequence[Proposals], rows: Sequence[Rows]) -> None:
        self.proposals, self.rows = proposals, rows
        pairs = zip(proposals, rows, strict=True)
        self.counts: Sequence[int] = [len(made.objects) + len(own) for made, own in pairs]

    def __len__(self) -> int:
        return len(self.proposals)

    @overload
    def __getitem__(self, place: int) -> npt.NDArray[np.bool_]: ...

    @overload
    def __getitem__(self, place: slice) -> _Chosen: ...

    def __getitem__(self, place: int | slice) -> npt.NDArray[np.bool_] | _Chosen:
        if isinstance(place, slice):
            return _Chosen(self.proposals[place], self.rows[place])
        made = self.proposals[place]
        return np.concatenate([made.objects.masks, made.segments[self.rows[place]].masks])


def make_samples(
    train: Sequence[Proposals],
    test: Sequence[Proposals],
    *,
    min_overlap: float,
    max_proposals: int,
    n_words: int,
    cache: Path,
    seed: int,
    console: Console,
) -> Samples:
    """Choose segments of training and test pictures, and describe them by the eight channels.

    Parameters
    ----------
    train, test : sequence of Proposals
    min_overlap : float
        Least overlap of a proposal to learn from with an object.
    max_proposals : int
        Proposals a picture, at most: those that overlap objects most.
    n_words : int
        Words of each vocabulary; they are learned from the training pictures.
    cache : Path
        Folder that keeps channels.
    seed : int
        Of the order of training samples.
    console : Console
    """
    least = [min_overlap] * len(train) + [np.nextafter(TEST_OVERLAP, 1)] * len(test)
    everything = [*train, *test]
    rows = [_fitting(made, low, max_proposals) for made, low in zip(everything, least, strict=True)]
    chosen = _Chosen(everything, rows)
    labels = np.concatenate([_labels(made, own) for made, own in zip(everything, rows, strict=True)])
    pictures = np.repeat(np.arange(len(everything)), chosen.counts)
    drawn = np.concatenate(
        [np.arange(n) < len(made.objects) for n, made in zip(chosen.counts, everything, strict=True)]
    )
    order, n_train, n_masks = _ordered(labels, pictures < len(train), drawn, seed)
    wanted = {name: known_channel(name, n_words=n_words) for name in SEGMENT_CHANNELS}
    examples = [made.example for made in everything]
    names, blocks = describe(wanted, examples, np.arange(len(train)), cache, console, chosen)
    for number, block in enumerate(blocks):
        blocks[number] = block[order]
    return Samples(names, blocks, labels[order], pictures[order], drawn[order], n_train, n_masks)


def _fitting(made: Proposals, least: float, most: int) -> Rows:
    """Return the proposals that overlap an object by at least so much, best first, at most so many."""
    best = made.overlaps.max(axis=1, initial=0)
    order = np.argsort(-best, kind="stable")[:most]
    return order[best[order] >= least]


def _labels(made: Proposals, rows: Rows) -> npt.NDArray[np.str_]:
    """Return the classes of the objects, and of those that proposals overlap most."""
    names = np.array(made.objects.labels, dtype=np.str_)
    return np.concatenate([names, names[made.overlaps[rows].argmax(axis=1)]]) if len(rows) else names


def _ordered(
    labels: npt.NDArray[np.str_], learned: npt.NDArray[np.bool_], drawn: npt.NDArray[np.bool_], seed: int
) -> tuple[Rows, int, int]:
    """Return the rows in the order of `Samples`, and how many are to learn from, and masks to test on."""
    known = np.unique(labels[learned & drawn])
    if len(known) < 2:
        raise DataError(
            "bench segments: the training masks must be of two classes or more to tell them apart, and there "
            f"is {known[0] if len(known) else 'none'}; give more pictures or another --train-split."
        )
    tested = ~learned & np.isin(labels, known)
    train = stream(seed, "order of segments").permutation(np.flatnonzero(learned))
    masks, proposals = np.flatnonzero(tested & drawn), np.flatnonzero(tested & ~drawn)
    if not len(masks):
        raise DataError(
            "bench segments: no test mask is of a class that the training masks have; give more pictures."
        )
    return np.concatenate([train, masks, proposals]), len(train), len(masks)
