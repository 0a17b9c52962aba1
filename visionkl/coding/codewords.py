"""Learning codewords: k-means in each block of the features, without an estimator around it.

`ProductQuantizer` is that estimator, for users; training detectors takes this module, which does not load
scikit-learn.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from visionkl.backend.cpu import kmeans
from visionkl.backend.cpu.pq import encode, make_codebook
from visionkl.backend.threads import run_tasks
from visionkl.core.errors import DataError, UsageError
from visionkl.core.rng import stream
from visionkl.core.validation import parameter_error

_DEFAULT_BLOCK_SIZE = 8
# Rows to learn from: more than this for each codeword hardly change it.
_SAMPLES_A_CODEWORD = 256
# Seeds take a time that grows with the square of the codewords. So they are drawn from fewer rows, and for
# very many codewords, where it hardly matters which, without trials.
_SEED_ROWS_A_CODEWORD = 32
_MOST_SEED_ROWS = 65536
_SEED_TRIALS = 7
_MOST_CODEWORDS_TO_TRY = 1024
_POINTS_A_TASK = 4096
_ENOUGH_BLOCKS = 8

FloatArray = npt.NDArray[np.float32]
Search = Callable[[FloatArray, FloatArray, npt.NDArray[np.uint16]], None]


def settle_blocks(n_features: int, n_blocks: int | None, block_size: int | None) -> tuple[int, int]:
    """Settle the number and the size of the blocks, as `ProductQuantizer` is asked for them."""
    if block_size is None:
        block_size = -(-n_features // n_blocks) if n_blocks else min(_DEFAULT_BLOCK_SIZE, n_features)
    n_needed = -(-n_features // block_size)
    if block_size > n_features:
        raise parameter_error(
            "ProductQuantizer", "block_size", f"at most the number of features, {n_features}", block_size
        )
    if n_blocks not in (None, n_needed):
        raise UsageError(
            f"ProductQuantizer: {n_features} features make {n_needed} blocks of {block_size}, "
            f"not {n_blocks}; "
            "give 'block_size' alone, or an 'n_blocks' that divides the number of features."
        )
    return n_needed, block_size


@dataclass(frozen=True)
class CodewordLearner:
    """How codewords are learned; the parameters are those of `ProductQuantizer`."""

    n_codewords: int
    max_samples: int | None = None
    batch_size: int | None = None
    max_iter: int = 50
    tol: float = 1e-5
    seed: int = 0
    n_jobs: int | None = None

    def learn(self, rows: FloatArray, n_blocks: int, block_size: int) -> tuple[FloatArray, int]:
        """Learn codewords `(n_blocks, n_codewords, block_size)`; says how many passes it took at most."""
        if len(rows) < self.n_codewords:
            raise DataError(
                f"ProductQuantizer: n_samples = {len(rows)} rows are too few to learn {self.n_codewords} "
                "codewords; give more rows or a smaller 'n_codewords'."
            )
        n_samples = self.max_samples or _SAMPLES_A_CODEWORD * self.n_codewords
        if len(rows) > n_samples:
            random = stream(self.seed, "product quantizer", "rows")
            rows = rows[np.sort(random.choice(len(rows), n_samples, replace=False))]
        # Threads share blocks if there are enough of them, and else the points of a block.
        share_blocks = n_blocks >= _ENOUGH_BLOCKS
        search = _search if share_blocks else _search_in_threads(self.n_jobs)

        def learn(block: int) -> tuple[FloatArray, int, int]:
            points = np.ascontiguousarray(rows[:, block * block_size : (block + 1) * block_size])
            return self._learn_block(points, stream(self.seed, "product quantizer", "block", block), search)

        learned = run_tasks(learn, range(n_blocks), self.n_jobs if share_blocks else 1)
        codebooks = np.zeros((n_blocks, self.n_codewords, block_size), np.float32)
        for block, (words, _, _) in enumerate(learned):
            codebooks[block, :, : words.shape[1]] = words
        self._warn_of_copies([n_different for _, n_different, _ in learned])
        return codebooks, max(n_iter for _, _, n_iter in learned)

    def _learn_block(
        self, points: FloatArray, random: np.random.Generator, search: Search
    ) -> tuple[FloatArray, int, int]:
        """Learn the codewords of a block; returns them, how many can differ, and the passes it took."""
        n = len(points)
        enough = max(min(_SEED_ROWS_A_CODEWORD * self.n_codewords, _MOST_SEED_ROWS), 2 * self.n_codewords)
        drawn_from = points if n <= enough else points[np.sort(random.choice(n, enough, replace=False))]
        n_trials = _SEED_TRIALS if self.n_codewords <= _MOST_CODEWORDS_TO_TRY else 1
        seeds = np.empty(self.n_codewords, np.int64)
        n_different = kmeans.draw_seeds(
            np.ascontiguousarray(drawn_from.T), random.random((self.n_codewords, n_trials)), seeds
        )
        words = drawn_from[seeds]
        distances = np.empty(n, np.float32)
        codes = np.empty(n, np.uint16)
        counts = np.zeros(self.n_codewords, np.int64)
        error, n_iter, improving = np.inf, 0, True
        while improving and n_iter < self.max_iter:
            n_iter += 1
            if self.batch_size is None:
                search(points, words, codes)
                new_error = kmeans.move_to_means(points, codes, words, counts, distances)
                kmeans.seed_again(points, distances, counts, words)
            else:
                before, new_error = counts.copy(), 0.0
                order = random.permutation(n)
                for start in range(0, n, self.batch_size):
                    batch = points[order[start : start + self.batch_size]]
                    room = slice(0, len(batch))
                    search(batch, words, codes[room])
                    new_error += kmeans.move_towards(batch, codes[room], words, counts, distances[room])
                kmeans.seed_again(batch, distances[room], counts - before, words)
            improving = error - new_error > self.tol * new_error
            error = new_error
        return words, n_different, n_iter

    def _warn_of_copies(self, n_different: list[int]) -> None:
        few = [block for block, n in enumerate(n_different) if n < self.n_codewords]
        if few:
            warnings.warn(
                f"ProductQuantizer: block {few[0]} has only {n_different[few[0]]} different rows for "
                f"{self.n_codewords} codewords, so that some codewords are copies ({len(few)} of "
                f"{len(n_different)} blocks are like this); fewer codewords would do.",
                stacklevel=4,
            )


def _search(points: FloatArray, words: FloatArray, codes: npt.NDArray[np.uint16]) -> None:
    encode(points[None], np.arange(words.shape[1]), make_codebook(words), codes[None])


def _search_in_threads(n_jobs: int | None) -> Search:
    def search(points: FloatArray, words: FloatArray, codes: npt.NDArray[np.uint16]) -> None:
        book, channels = make_codebook(words), np.arange(words.shape[1])
        parts = [np.s_[i : i + _POINTS_A_TASK] for i in range(0, len(points), _POINTS_A_TASK)]
        run_tasks(lambda part: encode(points[part][None], channels, book, codes[part][None]), parts, n_jobs)

    return search
