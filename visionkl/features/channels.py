"""Channels: named descriptions of pictures, or of regions of them, made in one pass (METHODS §7, §11).

Fundamentals
------------
Kernel learning wants many descriptions of the same samples, each a block of numbers with a kernel of its own.
A *channel* is what is described (words of SIFT descriptors, a PHOG, an LBP histogram, a Fisher vector) and
where (`visionkl.features.regions`): in a mask's foreground, background, box or contour, or in the picture as
a whole. Known by name are

======================  ====================================================================  ============
name                    what                                                                  where
======================  ====================================================================  ============
`"color_words_fg"`      words of dense SIFT of grey and two opponent colours                  foreground
`"color_words_bg"`      the same words                                                        background
`"grey_words_fg"`       words of dense SIFT of grey                                           foreground
`"grey_words_bg"`       the same words                                                        background
`"phog_contour"`        PHOG of Canny's edges, 3 levels, 20 directions                        contour
`"phog_fg"`             PHOG of Canny's edges, 3 levels, 20 directions                        foreground
`"phog_gradient"`       PHOG of all gradients, 3 levels, 20 directions                        foreground
`"lbp"`                 uniform patterns of 8 points, a pyramid of 3 levels                   foreground
`"color_words"`         words of the opponent colours in a pyramid of 3 levels                whole
`"phow"`                words of grey in a pyramid of 3 levels                                whole
`"phog_20"`             PHOG of Canny's edges, 3 levels, 20 directions                        whole
`"phog_40"`             PHOG of Canny's edges, 3 levels, 40 signed directions                 whole
`"lbp_whole"`           uniform patterns of 8 points, a pyramid of 3 levels                   whole
======================  ====================================================================  ============

The first eight, `SEGMENT_CHANNELS`, are those of the published experiment on segments, with Canny's edges in
the place of a learned boundary detector's; `PHOG(edges=...)` takes one. `"phog_20"`, `"phog_40"` and
`"phow"`, `PICTURE_CHANNELS`, are those of the one on ImageNet.

Any other channel is given as an encoder and a region: `Channels({"texture": (LBP(16, 2.0), "foreground")})`.

Implementation
--------------
Channels with equal encoders share them: what is learned is learned once, and what does not depend on the
region is computed once a picture. Words are learned from whole pictures. All blocks of a picture are made
while its pixels are in memory, and each may be kept in a folder, as may what was learned; a file there is
known by a digest of the channel's settings, of what was learned, of the picture and of its masks, so that
other settings never find it.

If unsure, take the first eight for segments, and `PICTURE_CHANNELS` for pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from visionkl._version import __version__
from visionkl.backend.threads import run_tasks
from visionkl.core.errors import DataError, UsageError
from visionkl.core.validation import check_choice, check_number, parameter_error
from visionkl.features.lbp import LBP
from visionkl.features.phog import PHOG
from visionkl.features.pictures import Picture, PictureCache, as_pictures, digest, settings_of
from visionkl.features.regions import REGIONS, WITHOUT_MASK, Mask, Region, check_masks
from visionkl.features.sift import DenseSIFT
from visionkl.features.words import BagOfWords

Blocks = list[npt.NDArray[np.float32]]

_PYRAMID = (1, (2, 2), (4, 4))
# Pictures under way at a time, in threads.
_PICTURES_AT_ONCE = 32


class Encoder(Protocol):
    """Whatever describes regions of pictures: `BagOfWords`, `FisherVector`, `PHOG`, `LBP`, ...

    It is a scikit-learn estimator besides.
    """

    def fit(self, X: Any) -> Any:
        """Learn from pictures."""
        ...

    def prepare(self, image: npt.NDArray[Any]) -> Any:
        """Compute what does not depend on the region."""
        ...

    def encode_region(self, prepared: Any, region: Region) -> npt.NDArray[np.float32]:
        """Describe a region of a picture that was prepared."""
        ...

    def fingerprint(self) -> str:
        """Return a digest of all that vectors depend on, besides the picture."""
        ...

    def get_feature_names_out(self) -> Sequence[str]:
        """Name the numbers of a vector."""
        ...


def _words(color: str, n_words: int, cells: Any = (1,)) -> BagOfWords:
    sift = DenseSIFT(step=4, bin_sizes=(4, 6, 8, 10), color=color, normalisation="root")
    return BagOfWords(n_words, cells=cells, descriptors=sift, n_samples=60 * n_words)


#: What is known by name: given a number of words, the encoder and the region.
_KNOWN: dict[str, Callable[[int], tuple[Any, str]]] = {
    "color_words_fg": lambda n: (_words("opponent", n), "foreground"),
    "color_words_bg": lambda n: (_words("opponent", n), "background"),
    "grey_words_fg": lambda n: (_words("grey", n), "foreground"),
    "grey_words_bg": lambda n: (_words("grey", n), "background"),
    "phog_contour": lambda n: (PHOG(), "contour"),
    "phog_fg": lambda n: (PHOG(), "foreground"),
    "phog_gradient": lambda n: (PHOG(edges="gradient"), "foreground"),
    "lbp": lambda n: (LBP(), "foreground"),
    "color_words": lambda n: (_words("opponent", n, _PYRAMID), "whole"),
    "phow": lambda n: (_words("grey", n, _PYRAMID), "whole"),
    "phog_20": lambda n: (PHOG(), "whole"),
    "phog_40": lambda n: (PHOG(40, signed=True), "whole"),
    "lbp_whole": lambda n: (LBP(), "whole"),
}

#: The eight channels of the published experiment on segments.
SEGMENT_CHANNELS = tuple(_KNOWN)[:8]
#: The three of that on whole pictures.
PICTURE_CHANNELS = ("phog_20", "phog_40", "phow")


def known_channel(name: str, *, n_words: int = 500) -> tuple[Any, str]:
    """Return the encoder and the region of a channel that is known by name.

    Parameters
    ----------
    name : str
        See the top of this module.
    n_words : int
        Words of its vocabulary, if it has one.

    Examples
    --------
    >>> known_channel("phog_40")
    (PHOG(n_orientations=40, signed=True), 'whole')
    """
    check_choice("known_channel", "name", name, tuple(_KNOWN))
    return _KNOWN[name](check_number("known_channel", "n_words", n_words, low=1, integer=True))


class Channels(TransformerMixin, BaseEstimator):
    """Describes pictures, or segments of them, by several named channels.

    Parameters
    ----------
    channels : sequence of str, or mapping of str to encoder or (encoder, region), optional
        Known names, or encoders by the names they get; without a region they describe the whole picture. See
        the top of this module. By default the eight `SEGMENT_CHANNELS`.
    n_words : int
        Words of each vocabulary, for channels that are given by name.
    n_jobs : int, optional
        Threads; all usable cores by default.
    cache : str or Path, optional
        Folder that keeps blocks for another time; see `visionkl.features.pictures`.
    cache_bytes : float
        Size of that folder, above which the blocks that were not used for the longest time are deleted.

    Attributes
    ----------
    names_ : list of str
    widths_ : list of int
        Numbers of each channel, as `FourierMKLClassifier(channels=...)` takes them.
    regions_ : list of str
    encoders_ : list
        The fitted encoder of each channel; equal ones are the same object.

    Examples
    --------
    >>> pictures = [np.random.default_rng(k).integers(0, 256, (64, 64, 3), dtype=np.uint8) for k in range(3)]
    >>> masks = np.zeros((2, 64, 64), bool)
    >>> masks[0, 10:40, 10:50] = masks[1, 30:, :20] = True
    >>> channels = Channels(["grey_words_fg", "phog_contour", "lbp"], n_words=10).fit(pictures)
    >>> [block.shape for block in channels.transform(pictures, masks=[masks, masks[:1], masks[:0]])]
    [(3, 10), (3, 420), (3, 1239)]
    """

    def __init__(
        self,
        channels: Any = None,
        *,
        n_words: int = 500,
        n_jobs: int | None = None,
        cache: Any = None,
        cache_bytes: float = 16e9,
    ) -> None:
        self.channels = channels
        self.n_words = n_words
        self.n_jobs = n_jobs
        self.cache = cache
        self.cache_bytes = cache_bytes

    def fit(self, X: Any, y: object = None, *, masks: Any = None) -> Channels:
        """Learn the words, Gaussians and so on of all channels.

        Parameters
        ----------
        X : list of ndarray, str or Path; or Dataset
            Pictures.
        y : None
            Not used.
        masks : None
            Not used: what is learned is learned from whole pictures.

        Returns
        -------
        self
        """
        if self.n_jobs is not None:
            check_number("Channels", "n_jobs", self.n_jobs, low=1, integer=True)
        wanted = self._wanted()
        pictures = as_pictures(X, "Channels")
        cache = self._open_cache()
        seen = digest(*(picture.identity() for picture in pictures)) if cache else ""
        fitted: dict[str, Any] = {}
        encoders = []
        for encoder, _ in wanted.values():
            key = _key(encoder)
            if key not in fitted:
                own = clone(encoder).set_params(n_jobs=self.n_jobs)
                fitted[key] = own.fit(X) if cache is None else _fit_once(own, X, digest(key, seen), cache)
            encoders.append(fitted[key])
        self.names_ = list(wanted)
        self.regions_ = [region for _, region in wanted.values()]
        self.encoders_ = encoders
        self.widths_ = [len(encoder.get_feature_names_out()) for encoder in encoders]
        return self

    def transform(self, X: Any, masks: Any = None) -> Blocks:
        """Describe pictures, or segments of them.

        Parameters
        ----------
        X : list of ndarray, str or Path; or Dataset
            Pictures.
        masks : sequence of array_like of bool, shape (n_segments, rows, cols), optional
            The segments of each picture, of which there may be none. A sequence that makes them when it is
            asked need not hold them all.

        Returns
        -------
        list of ndarray of float32, shape (n, width)
            A block for each channel, in the order of `names_`, with a row for each picture, or for each
            segment of the first picture, of the second, and so on. `FourierMKLClassifier` takes such a list.
        """
        check_is_fitted(self)
        pictures = as_pictures(X, "Channels")
        self._check_regions(masks is not None)
        if masks is not None and len(masks) != len(pictures):
            raise DataError(
                f"Channels: there are {len(pictures)} pictures, but masks of {len(masks)}; give an array of "
                "masks for each picture."
            )
        cache = self._open_cache()
        prints = self._fingerprints() if cache else []

        def describe(number: int) -> Blocks:
            picture = pictures[number]
            own = None if masks is None else masks[number]
            return self._cached(picture, own, cache, prints) if cache else self._blocks(picture, own)

        parts: list[Blocks] = []
        for start in range(0, len(pictures), _PICTURES_AT_ONCE):
            stop = min(start + _PICTURES_AT_ONCE, len(pictures))
            parts += run_tasks(describe, range(start, stop), self.n_jobs)
        return [np.concatenate(blocks) for blocks in zip(*parts, strict=True)]

    def fit_transform(self, X: Any, y: object = None, masks: Any = None) -> Blocks:
        """Learn from pictures, and describe them or their segments; see `fit` and `transform`."""
        return self.fit(X, y).transform(X, masks)

    def _open_cache(self) -> PictureCache | None:
        return None if self.cache is None else PictureCache(self.cache, self.cache_bytes)

    def _wanted(self) -> dict[str, tuple[Any, str]]:
        """Return the encoder and the region of each channel, by name."""
        given = SEGMENT_CHANNELS if self.channels is None else self.channels
        if isinstance(given, Mapping):
            found = {}
            for name, value in given.items():
                encoder, region = value if isinstance(value, tuple) and len(value) == 2 else (value, "whole")
                found[name] = self._checked(name, encoder, region)
        else:
            if isinstance(given, str) or not isinstance(given, Sequence):
                accepted = "a list of names, or a mapping of names to encoders, or to pairs (encoder, region)"
                raise parameter_error("Channels", "channels", accepted, given)
            unknown = [name for name in given if name not in _KNOWN]
            if unknown or len(set(given)) < len(given):
                accepted = f"different names out of {', '.join(_KNOWN)}"
                raise parameter_error("Channels", "channels", accepted, given)
            found = {name: known_channel(name, n_words=self.n_words) for name in given}
        if not found:
            raise parameter_error("Channels", "channels", "at least one channel", given)
        return found

    def _checked(self, name: str, encoder: Any, region: Any) -> tuple[Any, str]:
        complete = all(hasattr(encoder, method) for method in ("prepare", "encode_region", "fingerprint"))
        if isinstance(encoder, type) or not complete or not isinstance(encoder, BaseEstimator):
            accepted = f"for {name!r} an encoder such as BagOfWords(), FisherVector(), PHOG() or LBP()"
            raise parameter_error("Channels", "channels", accepted, encoder)
        if region not in REGIONS:
            accepted = f"for {name!r} a region, one of {', '.join(map(repr, REGIONS))}"
            raise parameter_error("Channels", "channels", accepted, region)
        return encoder, region

    def _check_regions(self, masked: bool) -> None:
        for name, region in zip(self.names_, self.regions_, strict=True):
            if not masked and region not in WITHOUT_MASK:
                raise DataError(
                    f"Channels: the channel {name!r} describes the {region} of masks, and there are no "
                    "masks; give some, or leave it out."
                )

    def _fingerprints(self) -> list[str]:
        of_encoder = {id(encoder): encoder.fingerprint() for encoder in self.encoders_}
        pairs = zip(self.encoders_, self.regions_, strict=True)
        return [digest(of_encoder[id(encoder)], region) for encoder, region in pairs]

    def _cached(self, picture: Picture, masks: Any, cache: PictureCache, prints: list[str]) -> Blocks:
        """Return the blocks of a picture out of the cache, if all are there, and put them there if not."""
        identity = [picture.identity()]
        n = 1
        if masks is not None:
            array = np.asarray(masks)
            identity += [str(array.shape), digest(np.packbits(array != 0))]
            n = len(array)
        keys = [digest(own, *identity) for own in prints]
        blocks = [cache.get(key, (n, width)) for key, width in zip(keys, self.widths_, strict=True)]
        found = [block for block in blocks if block is not None]
        if len(found) == len(blocks):
            return found
        made = self._blocks(picture, masks, [k for k, block in enumerate(blocks) if block is None])
        for k, block in enumerate(blocks):
            if block is None:
                cache.put(keys[k], made[k])
                blocks[k] = made[k]
        return [block for block in blocks if block is not None]

    def _blocks(self, picture: Picture, masks: Any, numbers: Sequence[int] | None = None) -> Blocks:
        """Make the blocks of a picture: all, or those of some channels; the others are empty."""
        image = picture.pixels()
        own = None if masks is None else check_masks(picture.name, masks, image.shape)
        n = 1 if own is None else len(own)
        wanted = range(len(self.names_)) if numbers is None else numbers
        blocks = [np.zeros((n, width), np.float32) for width in self.widths_]
        if n == 0:
            return blocks
        encoders = {id(self.encoders_[k]): self.encoders_[k] for k in wanted}
        done = run_tasks(lambda key: encoders[key].prepare(image), encoders, self.n_jobs)
        prepared = dict(zip(encoders, done, strict=True))

        def describe(row: int) -> None:
            regions = _Regions(image.shape, None if own is None else own[row])
            for k in wanted:
                encoder = self.encoders_[k]
                blocks[k][row] = encoder.encode_region(prepared[id(encoder)], regions[self.regions_[k]])

        run_tasks(describe, range(n), self.n_jobs)
        return blocks

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.no_validation = True
        return tags


class _Regions(dict[str, Region]):
    """The regions of one mask, or of a picture without any, each made when it is first asked for."""

    def __init__(self, shape: tuple[int, ...], mask: Mask | None) -> None:
        super().__init__()
        self.shape, self.mask = shape, mask

    def __missing__(self, kind: str) -> Region:
        self[kind] = Region.whole(self.shape) if self.mask is None else Region.of(self.mask, kind)
        return self[kind]


def _key(encoder: Any) -> str:
    """Tell encoders of other settings apart; one whose settings are not told is like no other."""
    try:
        return digest(f"visionkl {__version__}", *settings_of(encoder, "Channels"))
    except UsageError:
        return f"{id(encoder)}"


def _fit_once(encoder: Any, X: Any, key: str, cache: PictureCache) -> Any:
    """Learn from pictures, or take over what was learned from the same ones with the same settings."""
    # Without a seed, or without settings that are told, learning is different each time.
    if not hasattr(encoder, "adopt") or not isinstance(encoder.random_state, int):
        return encoder.fit(X)
    settings_of(encoder, "Channels")
    known = cache.recall(key)
    if known is not None:
        return encoder.adopt(known)
    cache.remember(key, encoder.fit(X).arrays())
    return encoder
