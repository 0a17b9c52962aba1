"""Learning codewords: k-means in each block of the features, without an estimator around it.

`ProductQuantizer` is that estimator, for users; training detectors takes this module, which does not load
scikit-learn.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from visionkl.backend.cpu.kmeans import learn_words
from visionkl.backend.threads import run_tasks
from visionkl.core.errors import DataError, UsageError
from visionkl.core.rng import stream
from visionkl.core.validation import parameter_error

_DEFAULT_BLOCK_SIZE = 8
# Rows to learn from: more than this for each codeword hardly change it.
_SAMPLES_A_CODEWORD = 256
_ENOUGH_BLOCKS = 8

FloatArray = npt.NDArray[np.float32]


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

        def learn(block: int) -> tuple[FloatArray, int, int]:
            return learn_words(
                np.ascontiguousarray(rows[:, block * block_size : (block + 1) * block_size]),
                self.n_codewords,
                stream(self.seed, "product quantizer", "block", block),
                max_iter=self.max_iter,
                tol=self.tol,
                batch_size=self.batch_size,
                n_jobs=1 if share_blocks else self.n_jobs,
            )

        learned = run_tasks(learn, range(n_blocks), self.n_jobs if share_blocks else 1)
        codebooks = np.zeros((n_blocks, self.n_codewords, block_size), np.float32)
        for block, (words, _, _) in enumerate(learned):
            codebooks[block, :, : words.shape[1]] = words
        self._warn_of_copies([n_different for _, n_different, _ in learned])
        return codebooks, max(n_iter for _, _, n_iter in learned)

    def _warn_of_copies(self, n_different: list[int]) -> None:
        few = [block for block, n in enumerate(n_different) if n < self.n_codewords]
        if few:
            warnings.warn(
                f"ProductQuantizer: block {few[0]} has only {n_different[few[0]]} different rows for "
                f"{self.n_codewords} codewords, so that some codewords are copies ({len(few)} of "
                f"{len(n_different)} blocks are like this); fewer codewords would do.",
                stacklevel=4,
            )
