"""The steps of multiple binary kernel learning, on packed bits (METHODS §8).

1. `guess`: what each class answers to a question more often than the rest do.
2. `learn_theta`: the weights θ of the questions, by a support vector machine that tells whether a sample
   answers like its class.
3. `signed_rows`: the bits as rows of the explicit map, for the support vector machines of all classes.

Bits are never unpacked. A byte of bits is a product quantiser's code: it stands for eight numbers ±1, so the
rows of `visionkl.solvers.coded`, and with them all routes to a support vector machine, take it as it is.
Answers to guesses have a third value, 0, where a class has no guess; four of them make a byte.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from visionkl.backend.cpu.bits import count_ones, pack_responses
from visionkl.backend.dispatch import CPU, Device
from visionkl.backend.threads import run_tasks
from visionkl.kernels.questions import Bytes
from visionkl.learning.routes import Problem, Settings, Solution, solve
from visionkl.solvers.coded import TableRows
from visionkl.solvers.rows import cut

Vector = npt.NDArray[np.float64]
Signs = npt.NDArray[np.int8]
Numbers = npt.NDArray[np.intp]

# Bytes, and rows, that a thread goes over at a time.
_BYTES_A_TASK = 64
_ROWS_A_TASK = 256


def guess(bits: Bytes, numbers: Numbers, n_jobs: int | None = None) -> Signs:
    """Guess how the classes answer: 1 if more often with yes than the rest do, by fraction; -1 if less often.

    Parameters
    ----------
    bits : ndarray of uint8, shape (n, n_bytes)
    numbers : ndarray of int, shape (n,)
        The class of each sample.
    n_jobs : int, optional

    Returns
    -------
    ndarray of int8, shape (n_classes, 8 n_bytes)
        0 where both answer alike.

    Examples
    --------
    >>> guess(np.uint8([[0b011], [0b001], [0b101]]), np.array([0, 0, 1]))[:, :4]
    array([[ 0,  1, -1,  0],
           [ 0, -1,  1,  0]], dtype=int8)
    """
    sizes = np.bincount(numbers)[:, None]
    counts = np.zeros((len(sizes), 8 * bits.shape[1]), np.int64)
    run_tasks(
        lambda some: count_ones(bits, numbers, some.start, some.stop, counts),
        cut(0, bits.shape[1], _BYTES_A_TASK),
        n_jobs,
    )
    others = counts.sum(axis=0) - counts
    # The fractions, multiplied by both sizes: integers are equal when they should be.
    return np.sign(counts * (len(bits) - sizes) - others * sizes).astype(np.int8)


def draw_pairs(
    numbers: Numbers, n_samples: int, negatives: float, random: np.random.Generator
) -> tuple[Numbers, Numbers, Vector]:
    """Choose which samples are asked about whose guesses.

    Positives are samples and their own classes, all of them or `n_samples`, as many of each class as there
    are. Negatives are pairs of a sample and another class; classes of samples are balanced, as far as there
    are pairs.

    Returns
    -------
    samples, classes : ndarray of int, shape (m,)
    labels : ndarray of float64, shape (m,)
        1 and -1.
    """
    members = [np.flatnonzero(numbers == number) for number in range(numbers.max() + 1)]
    n_classes = len(members)
    share = -(-n_samples // n_classes)
    own = [random.choice(some, min(share, len(some)), replace=False) for some in members]
    if len(numbers) <= n_samples:
        own = members
    positives = np.concatenate(own)
    share = int(np.ceil(negatives * len(positives) / n_classes))
    asked, whose = [positives], [numbers[positives]]
    for number, some in enumerate(members):
        n_pairs = len(some) * (n_classes - 1)
        pairs = random.choice(n_pairs, min(share, n_pairs), replace=False)
        others = pairs % (n_classes - 1)
        asked.append(some[pairs // (n_classes - 1)])
        whose.append(others + (others >= number))
    samples = np.concatenate(asked)
    labels = np.where(np.arange(len(samples)) < len(positives), 1.0, -1.0)
    return samples, np.concatenate(whose), labels


def response_rows(
    bits: Bytes,
    signs: Signs,
    samples: Numbers,
    classes: Numbers,
    n_maps: int,
    n_jobs: int | None = None,
    device: Device = CPU,
) -> TableRows:
    """Return answers, ±1 or 0 and divided by √n_maps, as rows, which a device goes over."""
    codes = np.empty((len(samples), 2 * bits.shape[1]), np.uint8)
    run_tasks(
        lambda some: pack_responses(bits, samples, classes, signs, some.start, codes[some]),
        cut(0, len(codes), _ROWS_A_TASK),
        n_jobs,
    )
    answers = np.array([0, 1, -1, 0], np.float32)[(np.arange(256)[:, None] >> [0, 2, 4, 6]) & 3]
    words = np.broadcast_to(answers / np.float32(np.sqrt(n_maps)), (codes.shape[1], 256, 4))
    return TableRows(codes, words, n_jobs=n_jobs, device=device)


def learn_theta(
    bits: Bytes,
    signs: Signs,
    pairs: tuple[Numbers, Numbers, Vector],
    n_maps: int,
    C: float,
    settings: Settings,
    owner: str,
    device: Device = CPU,
) -> tuple[Vector, Solution]:
    """Learn weights of the questions: those of a machine that tells own from others' guesses, none negative.

    Parameters
    ----------
    bits : ndarray of uint8, shape (n, n_bytes)
    signs : ndarray of int8, shape (n_classes, 8 n_bytes)
        The guesses.
    pairs : samples, classes and labels
        From `draw_pairs`.
    n_maps : int
    C : float
    settings : Settings
    owner : str
    device : visionkl.backend.dispatch.Device
        Where the machine's passes are made.

    Returns
    -------
    theta : ndarray of float64, shape (n_maps,)
    solution : Solution
        The machine.
    """
    samples, classes, labels = pairs
    rows = response_rows(bits, signs, samples, classes, n_maps, settings.n_jobs, device)
    problem = Problem(labels, np.ones(len(labels)))
    answer = solve("auto", rows, [problem], [1 / (C * len(labels))], None, settings, owner)
    solution = answer.solutions[0][0]
    return np.maximum(solution.w[:n_maps], 0.0), solution


def signed_rows(bits: Bytes, theta: Vector, n_jobs: int | None = None, device: Device = CPU) -> TableRows:
    """Return bits as ±√(θ/2), in rows that a device goes over; bits on a GPU stay there.

    With a constant √(Σθ/2) beside them their inner products are those of the explicit map, Σ θ [equal],
    because 2 [s = s'] = 1 + (2s − 1)(2s' − 1).
    """
    scales = np.zeros((bits.shape[1], 8), np.float32)
    scales.reshape(-1)[: len(theta)] = np.sqrt(theta / 2)
    numbers = np.arange(256, dtype=np.uint8)[:, None]
    signs = 2 * np.unpackbits(numbers, axis=1, bitorder="little").astype(np.float32) - 1
    return TableRows(bits, signs[None] * scales[:, None], n_jobs=n_jobs, device=device)
