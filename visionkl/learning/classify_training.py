"""How an image classifier is trained, step by step, so that what was interrupted can go on.

1. Of each channel, principal components and Gaussians are learned on a sample of descriptors.
2. A sample of pictures is encoded, and codewords are learned on their vectors.
3. All pictures are encoded, some at a time, and straight away turned into codes, which go to a file; those of
   the sample are not encoded again. With `coding="none"` the vectors themselves go to a file.
4. The machines of all classes are learned together, on the mapped file. With several costs, a fifth of the
   pictures is held out, and the machines are learned with and without them at every cost; the best counts.

What a step leaves is a file in the work folder, and a step whose file is there is not done again; a file of
codes that is not complete is gone on with. Nothing depends on the number of threads, on where it was
interrupted, or on how many pictures are encoded at a time, so the classifier is the same to the last bit; but
on a GPU, where sums are made in no fixed order, the last digits may differ.

At no time are there more vectors in memory than those of some pictures, and the sample of step 2 lies in a
mapped file of at most half of `max_memory`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
from sklearn.metrics import average_precision_score

from visionkl.backend.dispatch import CPU, Device, choose_device
from visionkl.coding.codebooks import Codebooks
from visionkl.coding.pq import ProductQuantizer
from visionkl.core.errors import DataError
from visionkl.core.files import atomic_write
from visionkl.core.observer import Observer, Stage
from visionkl.core.rng import stream
from visionkl.datasets.labels import LabelledPictures
from visionkl.features.fisher_channels import ChannelVectors
from visionkl.features.local import LocalDescriptors
from visionkl.features.sift import DenseSIFT
from visionkl.learning.classifier_settings import ClassifierSettings
from visionkl.learning.classify import Learned, make_encoder, make_encoders
from visionkl.learning.routes import Problem, Settings, Solution, choose_route, make_rows, solve
from visionkl.parallel.shards import map_rows, write_rows
from visionkl.solvers.rows import Rows

#: Pictures whose descriptors the Gaussians are learned from, and how many descriptors: of each picture, and
#: for each Gaussian.
DESCRIBED_PICTURES = 1000
DESCRIPTORS_A_PICTURE, DESCRIPTORS_A_GAUSSIAN = 100, 1000
#: Vectors that codewords are learned from, for each codeword, and how often they are gone over.
VECTORS_A_CODEWORD = 16
QUANTIZER_PASSES = 20
#: Pictures that are encoded at a time.
PICTURES_A_BLOCK = 32
# To choose the cost, one picture of so many is held out.
_PARTS = 5

_TOLERANCE = 1e-3
_MOST_PASSES = 10_000

Vectors = npt.NDArray[np.float32]


def plan(settings: ClassifierSettings) -> list[str]:
    """Name the steps."""
    coded = ["codewords", "codes"] if settings.coding == "pq" else ["vectors"]
    return [*(f"Gaussians of {channel} descriptors" for channel in settings.channels), *coded, "machines"]


def count_done(settings: ClassifierSettings, folder: Path) -> int:
    """Count the steps whose results are in a work folder."""
    there = [(folder / name).is_file() for name in _files(settings)]
    return there.index(False) if False in there else len(there)


def _files(settings: ClassifierSettings) -> list[str]:
    """Name the files that steps leave; the last leaves none."""
    coded = ["codewords.npz", "codes.bin"] if settings.coding == "pq" else ["vectors.bin"]
    return [*(f"gaussians_{channel}.npz" for channel in settings.channels), *coded]


def train(
    data: LabelledPictures,
    settings: ClassifierSettings,
    *,
    folder: Path | None = None,
    n_jobs: int | None = None,
    max_memory: int = 8 << 30,
    observer: Observer | None = None,
    device: str | Device = CPU,
) -> Learned:
    """Train a classifier, from where the work folder stands.

    Parameters
    ----------
    data : LabelledPictures
    settings : ClassifierSettings
    folder : Path, optional
        Work folder, with what earlier calls with the same data and settings left; a temporary one by default.
    n_jobs : int, optional
        Threads; all usable cores by default.
    max_memory : int
        Bytes that training may use.
    observer : Observer, optional
    device : str
        Where pictures are described and encoded, and the solver's passes made: "cpu", "cuda" (an error where
        no GPU computes), "cuda:1", or "auto": a GPU if there is one.
    """
    where = choose_device(device, "ImageClassifier")
    data.check_learnable()
    observer = observer or Observer()
    if folder is not None:
        return _Trainer(data, settings, folder, n_jobs, max_memory, observer, where).run()
    with tempfile.TemporaryDirectory(prefix="visionkl-") as temporary:
        return _Trainer(data, settings, Path(temporary), n_jobs, max_memory, observer, where).run()


class _Trainer:
    """One training: what all its steps share."""

    def __init__(
        self,
        data: LabelledPictures,
        settings: ClassifierSettings,
        folder: Path,
        n_jobs: int | None,
        max_memory: int,
        observer: Observer,
        device: Device,
    ) -> None:
        self.data, self.settings, self.folder = data, settings, folder
        self.n_jobs, self.max_memory, self.observer = n_jobs, max_memory, observer
        self.device = device
        self.n_done = count_done(settings, folder)

    def run(self) -> Learned:
        """Do all steps that are not done yet."""
        learned = [self._gaussians(number, name) for number, name in enumerate(self.settings.channels)]
        vectors = ChannelVectors(make_encoders(self.settings, learned, self.n_jobs, str(self.device)))
        n_channels, shape = len(learned), (len(self.data), vectors.n_features)
        notes: dict[str, Any] = {"n_pictures": shape[0], "n_features": shape[1]}
        notes["float_bytes"] = 4 * shape[0] * shape[1]
        books: Codebooks | None = None
        if self.settings.coding == "none":
            rows = write_rows(self.folder / "vectors.bin", shape, np.float32, self._told("vectors", vectors))
            self._finish(n_channels, {"bytes": rows.nbytes})
        else:
            books = self._codewords(vectors)
            rows = self._codes(vectors, books)
            notes |= {"n_codewords": books.n_codewords, "codebook_bytes": books.words.nbytes}
        notes["data_bytes"] = rows.nbytes
        weights, bias, more = self._machines(rows, books)
        return Learned(self.data.classes, self.data.exclusive, vectors, weights, bias, {**notes, **more})

    # -- 1: Gaussians ----------------------------------------------------------------------------------------

    def _gaussians(self, number: int, channel: str) -> dict[str, npt.NDArray[Any]]:
        def learn() -> dict[str, npt.NDArray[Any]]:
            chosen = self._some_pictures("described pictures", DESCRIBED_PICTURES)
            pictures = [self.data.pictures[i] for i in chosen]
            encoder = make_encoder(self.settings, channel, self.n_jobs, str(self.device))
            with self.observer.stage("describing", len(pictures)) as stage:
                encoder.set_params(
                    descriptors=_Counted(encoder.descriptors, stage),
                    n_samples=max(
                        DESCRIPTORS_A_GAUSSIAN * self.settings.n_gaussians,
                        DESCRIPTORS_A_PICTURE * len(pictures),
                    ),
                )
                return encoder.fit(pictures).arrays()

        return self._kept(number, f"gaussians_{channel}.npz", learn)

    def _some_pictures(self, what: str, most: int) -> list[int]:
        n = len(self.data)
        return sorted(stream(self.settings.seed, what).choice(n, min(n, most), replace=False).tolist())

    # -- 2: codewords ----------------------------------------------------------------------------------------

    def _sample(self, vectors: ChannelVectors) -> list[int]:
        """Choose the pictures whose vectors codewords are learned from."""
        room = self.max_memory // 2 // (4 * vectors.n_features)
        wanted = min(VECTORS_A_CODEWORD * self.settings.n_codewords, room)
        chosen = self._some_pictures("coded pictures", max(wanted, 1))
        if len(chosen) < 4:
            raise DataError(
                f"{self.data.name}: codewords cannot be learned from the vectors of {len(chosen)} "
                "picture(s); give more pictures or memory, or learn without codes (coding none)."
            )
        return chosen

    def _codewords(self, vectors: ChannelVectors) -> Codebooks:
        def learn() -> dict[str, npt.NDArray[Any]]:
            chosen = self._sample(vectors)
            sample = write_rows(
                self.folder / "sample.bin",
                (len(chosen), vectors.n_features),
                np.float32,
                self._told("encoding a sample", vectors, chosen),
            )
            n_codewords = min(self.settings.n_codewords, len(chosen) // 2)
            quantizer = ProductQuantizer(
                n_codewords,
                block_size=min(self.settings.block_size, vectors.n_features),
                max_iter=QUANTIZER_PASSES,
                max_samples=len(chosen),
                random_state=self.settings.seed,
                n_jobs=self.n_jobs,
            )
            with self.observer.stage("learning codewords"):
                return {"words": quantizer.fit(sample).codebooks_}

        number = len(self.settings.channels)
        words = self._kept(number, "codewords.npz", learn, lambda kept: {"codewords": kept["words"].shape[1]})
        return Codebooks(words["words"], vectors.n_features)

    # -- 3: codes --------------------------------------------------------------------------------------------

    def _codes(self, vectors: ChannelVectors, books: Codebooks) -> npt.NDArray[Any]:
        chosen = self._sample(vectors)
        path = self.folder / "sample.bin"
        known: dict[int, Vectors] = {}
        if path.is_file():
            sample = map_rows(path, (len(chosen), vectors.n_features), np.float32)
            known = dict(zip(chosen, sample, strict=True))
        blocks_from = self._told(
            "coding", vectors, known=known, finish=lambda v: books.encode(v, self.n_jobs, self.device)
        )
        codes = write_rows(
            self.folder / "codes.bin", (len(self.data), books.n_blocks), books.code_dtype, blocks_from
        )
        path.unlink(missing_ok=True)
        self._finish(len(self.settings.channels) + 1, {"bytes": codes.nbytes})
        return codes

    def _told(
        self,
        stage_name: str,
        vectors: ChannelVectors,
        chosen: Sequence[int] | None = None,
        known: dict[int, Vectors] | None = None,
        finish: Callable[[Vectors], npt.NDArray[Any]] = np.asarray,
    ) -> Callable[[int], Iterator[npt.NDArray[Any]]]:
        """Encode the chosen pictures from a row on, some at a time; tell how far it is."""
        numbers = range(len(self.data)) if chosen is None else chosen

        def blocks_from(first: int) -> Iterator[npt.NDArray[Any]]:
            with self.observer.stage(stage_name, len(numbers)) as stage:
                stage.advance(first)
                for start in range(first, len(numbers), PICTURES_A_BLOCK):
                    some = numbers[start : start + PICTURES_A_BLOCK]
                    yield finish(self._vectors_of(some, vectors, known or {}))
                    stage.advance(len(some))

        return blocks_from

    def _vectors_of(
        self, numbers: Sequence[int], vectors: ChannelVectors, known: dict[int, Vectors]
    ) -> Vectors:
        rows = np.empty((len(numbers), vectors.n_features), np.float32)
        places = [place for place, number in enumerate(numbers) if number not in known]
        for place, number in enumerate(numbers):
            if number in known:
                rows[place] = known[number]
        if places:
            pictures = [self.data.pictures[numbers[place]] for place in places]
            rows[places] = next(vectors.blocks(pictures, len(pictures)))
        return rows

    # -- 4: machines -----------------------------------------------------------------------------------------

    def _machines(
        self, data: npt.NDArray[Any], books: Codebooks | None
    ) -> tuple[Vectors, npt.NDArray[np.float64], dict[str, Any]]:
        settings, signs = self.settings, self.data.signs
        rows, _ = make_rows(data, books, "auto", self.n_jobs, self.device)
        costs = sorted(settings.cost)
        weights = (signs != 0).astype(np.float64)
        held = self._held_out() if len(costs) > 1 else None
        parts = [weights] if held is None else [weights, weights * ~held[:, None]]
        problems = [
            Problem(np.where(column > 0, 1.0, -1.0), np.ascontiguousarray(counted))
            for part in parts
            for column, counted in zip(signs.T, part.T, strict=True)
        ]
        taken, reason = choose_route(
            "auto", rows, len(problems), settings.loss, _TOLERANCE, None, "ImageClassifier"
        )
        with self.observer.stage("learning"):
            answer = solve(
                # With one matrix of inner products a pass costs so little that there may be many; the solver
                # would change its mind after some hundred.
                taken if taken == "gram" else "auto",
                rows,
                problems,
                [1 / (cost * len(signs)) for cost in costs],
                None,
                Settings(settings.loss, 0.0, 1.0, _TOLERANCE, _MOST_PASSES, settings.seed, self.n_jobs),
                "ImageClassifier",
            )
        n_classes = len(self.data.classes)
        best, tried = 0, {}
        if held is not None:
            tried = {
                cost: self._score_held(rows, solutions[n_classes:], held)
                for cost, solutions in zip(costs, answer.solutions, strict=True)
            }
            best = int(np.argmax(list(tried.values())))
        chosen = answer.solutions[best][:n_classes]
        w = np.stack([solution.w for solution in chosen])
        if books is not None:
            w = books.join(w.reshape(n_classes, books.n_blocks, books.block_size))
        facts = {
            "cost": costs[best],
            "held_out": {str(cost): round(score, 4) for cost, score in tried.items()},
            "route": reason if answer.route == taken else answer.reason,
            "gap": float(max(solution.gap for solution in chosen)),
        }
        self._finish(len(_files(settings)), {"cost": costs[best], "route": answer.route, "gap": facts["gap"]})
        return w.astype(np.float32), np.array([solution.bias for solution in chosen]), facts

    def _held_out(self) -> npt.NDArray[np.bool_]:
        """Choose pictures to hold out, a fifth of those that show the same."""
        held = np.zeros(len(self.data), bool)
        _, groups = np.unique(self.data.signs, axis=0, return_inverse=True)
        random = stream(self.settings.seed, "held out")
        order = random.permutation(len(self.data))
        # Pictures that show the same stand together, so that every fifth of them is held out.
        order = order[np.argsort(groups.ravel()[order], kind="stable")]
        held[order[::_PARTS]] = True
        return held

    def _score_held(self, rows: Rows, solutions: Sequence[Solution], held: npt.NDArray[np.bool_]) -> float:
        """Score machines on pictures that they do not know: accuracy, or mean of average precisions."""
        scores = rows.scores(np.stack([solution.w for solution in solutions])).T[held]
        scores = scores + np.array([solution.bias for solution in solutions])
        signs = self.data.signs[held]
        if self.data.exclusive:
            return float((signs[np.arange(len(signs)), scores.argmax(axis=1)] > 0).mean())
        precisions = [
            average_precision_score(column[column != 0] > 0, score[column != 0])
            for column, score in zip(signs.T, scores.T, strict=True)
            if (column > 0).any()
        ]
        return float(np.mean(precisions)) if precisions else 0.0

    # -- what steps leave ------------------------------------------------------------------------------------

    def _kept(
        self,
        number: int,
        name: str,
        make: Callable[[], dict[str, npt.NDArray[Any]]],
        figures: Callable[[dict[str, npt.NDArray[Any]]], dict[str, Any]] = lambda kept: {},
    ) -> dict[str, npt.NDArray[Any]]:
        """Read the arrays that a step left; or do the step, and keep them."""
        path = self.folder / name
        if number < self.n_done:
            try:
                with np.load(path, allow_pickle=False) as kept:
                    return {key: kept[key] for key in kept.files}
            except (OSError, ValueError, EOFError, KeyError, BadZipFile) as error:
                raise DataError(f"{path}: damaged ({error}); remove it to have it made again.") from None
        arrays = make()
        with atomic_write(path, "wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        self._finish(number, figures(arrays))
        return arrays

    def _finish(self, number: int, figures: dict[str, Any]) -> None:
        """Tell that a step is done, unless it was done before."""
        if number >= self.n_done:
            self.observer.record(figures)
            self.observer.done(number + 1)


class _Counted:
    """An extractor that tells how many pictures it has described."""

    def __init__(self, extractor: DenseSIFT, stage: Stage) -> None:
        self.extractor = extractor
        self.stage = stage
        self.device = extractor.device

    def extract(self, image: npt.NDArray[np.uint8]) -> LocalDescriptors:
        """Describe a picture, and count it."""
        found = self.extractor.extract(image)
        self.stage.advance()
        return found
