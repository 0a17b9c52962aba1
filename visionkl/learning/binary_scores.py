"""Scores of binary kernel machines, without bits.

A score is Σ_k coef_k (2 s_k(x) − 1) + intercept. Stumps on the same feature add up to a step function of it,
so that a score is one table entry for each feature that is asked for, at the feature's rank among its
thresholds (`visionkl.backend.cpu.bits`): the cost does not grow with the stumps but for counting ranks. Many
classes have their tables side by side. Projections go through a block of rows at a time, by two products of
matrices. On a GPU there are bits after all: they are made there, and their bytes looked up in tables.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.backend.cpu.bits import score_stumps, score_stumps_in_lines
from visionkl.backend.cpu.codes import LANES
from visionkl.backend.dispatch import Device
from visionkl.backend.gpu.device import in_blocks
from visionkl.backend.scratch import aligned_empty, scratch
from visionkl.backend.threads import run_tasks
from visionkl.kernels.questions import (
    Projections,
    Questions,
    Stumps,
    dense_rows,
    encode,
    row_parts,
    rows_on_a_gpu,
)
from visionkl.learning.binary_kernel import signed_rows
from visionkl.solvers.rows import cut

Vector = npt.NDArray[np.float64]


class StumpScorer:
    """Linear functions of stumps' bits as tables.

    Parameters
    ----------
    stumps : Stumps
    coef : ndarray of float64, shape (k, n_maps)
    """

    def __init__(self, stumps: Stumps, coef: Vector) -> None:
        self.stumps = stumps
        self.k = len(coef)
        lanes = 1 if self.k == 1 else -(-self.k // LANES) * LANES
        counts = np.diff(stumps.ends)
        tables = aligned_empty((len(counts), int(counts.max()) + 1, lanes), np.float32)
        tables[:] = 0
        for table, start, stop in zip(tables, stumps.ends, stumps.ends[1:], strict=False):
            own = coef[:, start:stop]
            steps = np.concatenate([np.zeros((self.k, 1)), np.cumsum(own, axis=1)], axis=1)
            table[: stop - start + 1, : self.k] = (2 * steps - steps[:, -1:]).T
        self.tables = tables

    def scores(self, rows: Any, n_jobs: int | None = None) -> Vector:
        """Return scores `(n, k)` of checked rows, without intercepts."""
        questions = self.stumps.questions(rows.dtype)
        parts = row_parts(rows)
        out = np.empty((rows.shape[0], self.k))

        def fill(band: slice) -> None:
            room = self.stumps.room(rows.dtype)
            n, lanes = band.stop - band.start, self.tables.shape[2]
            if lanes == 1:
                single = np.zeros(n)
                score_stumps(parts, band.start, *questions, *room, self.tables[:, :, 0], single)
                out[band, 0] = single
                return
            sums = scratch("sums of lines", (1024, lanes), np.float32)
            lines = scratch("scores of stumps", (n, lanes), np.float64)
            lines[:] = 0
            count = (0,) * (lanes // LANES)
            score_stumps_in_lines(parts, band.start, *questions, *room, self.tables, sums, lines, count)
            out[band] = lines[:, : self.k]

        run_tasks(fill, cut(0, len(out), self.stumps.rows_a_task()), n_jobs)
        return out


class ProjectionScorer:
    """Linear functions of projections' bits.

    Parameters
    ----------
    projections : Projections
    coef : ndarray of float64, shape (k, n_maps)
    """

    def __init__(self, projections: Projections, coef: Vector) -> None:
        self.projections = projections
        self.coef = coef

    def scores(self, rows: Any, n_jobs: int | None = None) -> Vector:
        """Return scores `(n, k)` of checked rows, without intercepts."""
        asked = self.projections
        out = np.empty((rows.shape[0], len(self.coef)))

        def fill(band: slice) -> None:
            values = asked.project(rows[band])
            answers = (values > asked.thresholds.astype(values.dtype, copy=False)).astype(values.dtype)
            out[band] = 2 * (answers @ self.coef.T.astype(values.dtype)) - self.coef.sum(axis=1)

        run_tasks(fill, cut(0, len(out), asked.rows_a_task()), n_jobs)
        return out


def scores_there(questions: Questions, coef: Vector, rows: Any, device: Device) -> Vector:
    """Return scores `(n, k)` of checked rows, without intercepts, that are computed on a GPU.

    Parameters
    ----------
    questions : Questions
    coef : ndarray of float64, shape (k, n_maps)
    rows : ndarray or sparse matrix, shape (n, n_features)
        In ordinary memory, or on this GPU.
    device : visionkl.backend.dispatch.Device
    """
    n_maps = questions.n_maps
    padded = np.zeros((len(coef), 64 * -(-n_maps // 64)))
    padded[:, :n_maps] = coef
    scores = np.empty((rows.shape[0], len(coef)))

    def score(some: slice) -> None:
        bits = encode(questions, device.put(dense_rows(rows[some])))
        # With θ = 2 the rows are ±1.
        scores[some] = signed_rows(bits, np.full(n_maps, 2.0)).scores(padded).T

    with device.use():
        in_blocks(score, rows.shape[0], rows_on_a_gpu(questions, rows))
    return scores


def make_scorer(questions: Questions, coef: Vector) -> StumpScorer | ProjectionScorer:
    """Return what scores with weights of the answers."""
    if isinstance(questions, Stumps):
        return StumpScorer(questions, coef)
    assert isinstance(questions, Projections)
    return ProjectionScorer(questions, coef)
