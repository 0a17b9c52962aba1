"""k-means around the search of `pq`: seeds, means, and codewords that lost all their points.

Seeds come from greedy k-means++; then follow Lloyd's iterations, all of whose searches are exact.
"""

# Numba gives intrinsics a typing context that their callers do not see.
# mypy: disable-error-code="no-untyped-def, call-arg, var-annotated"

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from visionkl.backend.cpu.jit import compiled
from visionkl.backend.cpu.pq import encode, make_codebook
from visionkl.backend.cpu.simd import piece
from visionkl.backend.threads import run_tasks

# Seeds take a time that grows with the square of the codewords. So they are drawn from fewer points, and for
# very many codewords, where it hardly matters which, without trials.
_SEED_POINTS_A_WORD = 32
_MOST_SEED_POINTS = 65536
_SEED_TRIALS = 7
_MOST_WORDS_TO_TRY = 1024
_POINTS_A_TASK = 4096
# Points whose distances are kept in registers and the nearest cache while a seed is compared with them.
_CHUNK = 128

FloatArray = npt.NDArray[np.float32]


def learn_words(
    points: FloatArray,
    n_words: int,
    random: np.random.Generator,
    *,
    max_iter: int,
    tol: float,
    batch_size: int | None = None,
    n_jobs: int | None = None,
) -> tuple[FloatArray, int, int]:
    """Learn codewords that lie near all points.

    Parameters
    ----------
    points : ndarray of float32, shape (n, size)
        Contiguous and finite; at least as many as codewords.
    n_words : int
    random : numpy.random.Generator
    max_iter : int
        Passes over the points, at most.
    tol : float
        Learning ends when a pass improves the squared error by less than this share of it.
    batch_size : int, optional
        Move the codewords after each batch of so many points; after each pass by default.
    n_jobs : int, optional
        Threads; they do not change the codewords.

    Returns
    -------
    words : ndarray of float32, shape (n_words, size)
    n_different : int
        How many of them can differ: fewer than all if there are not enough different points.
    n_iter : int
        Passes made.
    """
    n = len(points)
    enough = max(min(_SEED_POINTS_A_WORD * n_words, _MOST_SEED_POINTS), 2 * n_words)
    drawn_from = points if n <= enough else points[np.sort(random.choice(n, enough, replace=False))]
    n_trials = _SEED_TRIALS if n_words <= _MOST_WORDS_TO_TRY else 1
    seeds = np.empty(n_words, np.int64)
    n_different = draw_seeds(np.ascontiguousarray(drawn_from.T), random.random((n_words, n_trials)), seeds)
    words = drawn_from[seeds]
    distances = np.empty(n, np.float32)
    codes = np.empty(n, np.uint16)
    counts = np.zeros(n_words, np.int64)
    error, n_iter, improving = np.inf, 0, True
    while improving and n_iter < max_iter:
        n_iter += 1
        if batch_size is None:
            find_words(points, words, codes, n_jobs)
            new_error = move_to_means(points, codes, words, counts, distances)
            seed_again(points, distances, counts, words)
        else:
            before, new_error = counts.copy(), 0.0
            order = random.permutation(n)
            for start in range(0, n, batch_size):
                batch = points[order[start : start + batch_size]]
                room = slice(0, len(batch))
                find_words(batch, words, codes[room], n_jobs)
                new_error += move_towards(batch, codes[room], words, counts, distances[room])
            seed_again(batch, distances[room], counts - before, words)
        improving = error - new_error > tol * new_error
        error = new_error
    return words, n_different, n_iter


def find_words(
    points: FloatArray, words: FloatArray, codes: npt.NDArray[np.uint16], n_jobs: int | None = None
) -> None:
    """Write the number of each point's nearest codeword into `codes`; of equally near ones the first."""
    book, channels = make_codebook(words), np.arange(words.shape[1])
    parts = [np.s_[i : i + _POINTS_A_TASK] for i in range(0, len(points), _POINTS_A_TASK)]
    run_tasks(lambda part: encode(points[part][None], channels, book, codes[part][None]), parts, n_jobs)


@compiled
def draw_seeds(columns, draws, seeds):
    """Draw seeds as the greedy k-means++ does.

    Points are likelier to be drawn the farther (squared) they are from the seeds so far; of some points
    drawn, the one that brings all points nearest to a seed is taken.

    Parameters
    ----------
    columns : ndarray of float32, shape (size, n)
        The points, transposed.
    draws : ndarray of float64, shape (n_seeds, n_trials)
        Random numbers in [0, 1).
    seeds : ndarray of int64, shape (n_seeds,)
        Receives the numbers of the points taken. When all points coincide with seeds, any are taken.

    Returns
    -------
    int
        How many seeds were taken before all points coincided with them.
    """
    n = columns.shape[1]
    n_chunks = (n + _CHUNK - 1) // _CHUNK
    nearest, candidate = np.full(n, np.inf, np.float32), np.empty(n, np.float32)
    best = np.empty(n, np.float32)
    totals, candidate_totals, best_totals = np.empty(n_chunks), np.empty(n_chunks), np.empty(n_chunks)
    n_different = 0
    for k in range(seeds.shape[0]):
        left = totals.sum() if k > 0 else np.inf
        n_different += int(left > 0)
        least = np.inf
        for trial in range(draws.shape[1] if k > 0 else 1):
            seed = _draw(nearest, totals, draws[k, trial]) if k > 0 else int(draws[0, 0] * n)
            _approach(columns, seed, nearest, candidate, candidate_totals)
            if trial == 0 or candidate_totals.sum() < least:
                seeds[k], least = seed, candidate_totals.sum()
                best, candidate = candidate, best
                best_totals, candidate_totals = candidate_totals, best_totals
        nearest, best = best, nearest
        totals, best_totals = best_totals, totals
    return n_different


@compiled
def _approach(columns, seed, nearest, approached, totals):
    """Lower the points' squared distances from seeds to those from a new one, where it is nearer."""
    size, n = columns.shape
    distances = np.empty(_CHUNK, np.float32)
    for chunk in range(totals.shape[0]):
        first = chunk * _CHUNK
        length = min(_CHUNK, n - first)
        distances[:] = 0
        for j in range(size):
            value, column = columns[j, seed], piece(columns, j * n + first, length)
            for i in range(length):
                distances[i] += (column[i] - value) * (column[i] - value)
        before, after = piece(nearest, first, length), piece(approached, first, length)
        # The compiler may add in any order, and does not always choose the same: in double precision, the sum
        # of so few numbers does not depend on it.
        total = 0.0
        for i in range(length):
            after[i] = distances[i] if distances[i] < before[i] else before[i]
            total += np.float64(after[i])
        totals[chunk] = total


@compiled
def _draw(weights, totals, draw):
    """Find the point at which the running sum of weights reaches a share of the whole."""
    whole = totals.sum()
    if not whole > 0:
        return int(draw * weights.shape[0])
    wanted = draw * whole
    chunk = 0
    while chunk < totals.shape[0] - 1 and wanted >= totals[chunk]:
        wanted -= totals[chunk]
        chunk += 1
    last = min((chunk + 1) * _CHUNK, weights.shape[0])
    chosen = -1
    for i in range(chunk * _CHUNK, last):
        if weights[i] > 0:  # rounding must not lead to a point that is a seed already
            chosen = i
            wanted -= weights[i]
            if wanted < 0:
                break
    return chosen if chosen >= 0 else int(np.argmax(weights))


@compiled
def move_to_means(points, codes, words, counts, distances):
    """Move each codeword to the mean of its points; those without points stay.

    Parameters
    ----------
    points : ndarray of float32, shape (n, size)
    codes : ndarray of int, shape (n,)
        The codeword of each point.
    words : ndarray of float32, shape (n_codewords, size)
        Changed in place.
    counts : ndarray of int64, shape (n_codewords,)
        Receives how many points each codeword has.
    distances : ndarray of float32, shape (n,)
        Receives the squared distances between points and their codewords, before these moved.

    Returns
    -------
    float
        The sum of the distances.
    """
    n, size = points.shape
    sums = np.zeros((words.shape[0], size))
    counts[:] = 0
    total = 0.0
    for i in range(n):
        point, start = piece(points, i * size, size), np.int64(codes[i]) * size
        word, own = piece(words, start, size), piece(sums, start, size)
        distance = np.float32(0)
        for j in range(size):
            distance += (point[j] - word[j]) * (point[j] - word[j])
            own[j] += point[j]
        distances[i] = distance
        total += float(distance)
        counts[codes[i]] += 1
    for word in range(words.shape[0]):
        if counts[word] > 0:
            for j in range(size):
                words[word, j] = sums[word, j] / counts[word]
    return total


@compiled
def move_towards(points, codes, words, counts, distances):
    """Move codewords towards the points of a batch, each by a share that falls with the points it has seen.

    Parameters and result as for `move_to_means`, but `counts` goes on counting.
    """
    n, size = points.shape
    total = 0.0
    for i in range(n):
        point, word = piece(points, i * size, size), piece(words, np.int64(codes[i]) * size, size)
        counts[codes[i]] += 1
        share = np.float32(1.0 / counts[codes[i]])
        distance = np.float32(0)
        for j in range(size):
            difference = point[j] - word[j]
            distance += difference * difference
            word[j] += share * difference
        distances[i] = distance
        total += float(distance)
    return total


@compiled
def seed_again(points, distances, counts, words):
    """Move each codeword without points to the worst coded point that is left; `distances` is used up."""
    for word in range(words.shape[0]):
        if counts[word] == 0:
            worst = int(np.argmax(distances))
            if distances[worst] > 0:
                distances[worst] = 0
                words[word] = points[worst]
