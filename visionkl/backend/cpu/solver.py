"""Loops of the solvers: the bundle's small problem, sums over codes, and dual coordinate descent."""

import numpy as np

from visionkl.backend.cpu.jit import compiled, compiled_exactly


@compiled_exactly
def improve_pairs(quadratic, linear, order, ends, x, accuracy, n_steps):  # type: ignore[no-untyped-def]
    """Minimise `x Q x / 2 - c x` over `x ≥ 0` step by step, each step moving weight between two numbers.

    Parts take turns; each time, the pair of the part that gains most moves. Numbers that belong to no part
    move by themselves.

    Parameters
    ----------
    quadratic : ndarray of float64, shape (m, m)
    linear : ndarray of float64, shape (m,)
    order : ndarray of int64, shape (m,)
        The numbers, part after part; those without a part come last.
    ends : ndarray of int64, shape (n_parts + 1,)
        Where in `order` the parts begin, and where the last one ends. The sum over each part is kept.
    x : ndarray of float64, shape (m,)
        A feasible start, improved in place.
    accuracy : float
        Stop when the objective is proven to be within this of the optimum.
    n_steps : int
        Stop after so many.

    Returns
    -------
    bool
        Whether the accuracy was reached.
    """
    m, n_parts = len(x), len(ends) - 1
    gradient = -linear.copy()
    for t in range(m):
        if x[t] != 0.0:
            for u in range(m):
                gradient[u] += x[t] * quadratic[t, u]
    n_done = 0
    while n_done < n_steps:
        gap = 0.0
        n_before = n_done
        for part in range(n_parts):
            taker = -1
            for r in range(ends[part], ends[part + 1]):
                if taker < 0 or gradient[order[r]] < gradient[taker]:
                    taker = order[r]
            giver, best_step, best_gain = -1, 0.0, 0.0
            for r in range(ends[part], ends[part + 1]):
                t = order[r]
                fall = gradient[t] - gradient[taker]
                if x[t] <= 0.0 or fall <= 0.0:
                    continue
                gap += x[t] * fall
                bend = quadratic[t, t] + quadratic[taker, taker] - 2.0 * quadratic[t, taker]
                step = x[t]
                if bend * step > fall:
                    step = fall / bend
                gain = step * (fall - 0.5 * bend * step)
                if gain > best_gain:
                    giver, best_step, best_gain = t, step, gain
            if giver >= 0:
                n_done += 1
                x[taker] += best_step
                x[giver] = 0.0 if best_step == x[giver] else x[giver] - best_step
                for u in range(m):
                    gradient[u] += best_step * (quadratic[taker, u] - quadratic[giver, u])
        for r in range(ends[n_parts], m):
            t = order[r]
            if quadratic[t, t] > 0.0:
                step = max(-gradient[t] / quadratic[t, t], -x[t])
                if step != 0.0:
                    n_done += 1
                    gap -= step * (gradient[t] + 0.5 * step * quadratic[t, t])
                    x[t] += step
                    for u in range(m):
                        gradient[u] += step * quadratic[t, u]
        if gap <= accuracy or n_done == n_before:
            # While parts took turns the others moved on: only now is the gap what it seems.
            gap = 0.0
            for part in range(n_parts):
                lowest = np.inf
                for r in range(ends[part], ends[part + 1]):
                    lowest = min(lowest, gradient[order[r]])
                for r in range(ends[part], ends[part + 1]):
                    gap += x[order[r]] * (gradient[order[r]] - lowest)
            for r in range(ends[n_parts], m):
                t = order[r]
                if quadratic[t, t] > 0.0:
                    step = max(-gradient[t] / quadratic[t, t], -x[t])
                    gap -= step * (gradient[t] + 0.5 * step * quadratic[t, t])
            if gap <= accuracy or n_done == n_before:
                return gap <= accuracy
    return False


@compiled
def look_up(codes, first, last, tables, scores):  # type: ignore[no-untyped-def]
    """Add up the table entries that the codes of each sample point at.

    Samples are last: along a row, one table of a kilobyte stays in the first-level cache, which makes this
    four times as fast as going from sample to sample.

    Parameters
    ----------
    codes : ndarray of uint8 or uint16, shape (n_blocks, n)
    first, last : int
        The samples to go over.
    tables : ndarray of float32, shape (n_blocks, n_codewords)
    scores : ndarray of float64, shape (last - first,)
        Added to.
    """
    n_blocks, n = codes.shape[0], last - first
    in_fours = n_blocks - n_blocks % 4
    for m in range(0, in_fours, 4):
        table_0, table_1, table_2, table_3 = tables[m], tables[m + 1], tables[m + 2], tables[m + 3]
        # Counted from 0, an index is known not to be negative.
        code_0, code_1 = codes[m, first:last], codes[m + 1, first:last]
        code_2, code_3 = codes[m + 2, first:last], codes[m + 3, first:last]
        for i in range(n):
            pair = table_0[code_0[i]] + table_1[code_1[i]]
            scores[i] += pair + (table_2[code_2[i]] + table_3[code_3[i]])
    for m in range(in_fours, n_blocks):
        code, table = codes[m, first:last], tables[m]
        for i in range(n):
            scores[i] += table[code[i]]


@compiled_exactly
def scatter(codes, first_block, last_block, samples, shares, tables):  # type: ignore[no-untyped-def]
    """Add shares of samples to the table entries that their codes point at.

    Four blocks at a time, so that one addition need not wait for another.

    Parameters
    ----------
    codes : ndarray of uint8 or uint16, shape (n_blocks, n)
    first_block, last_block : int
        The blocks to go over.
    samples : ndarray of uint32, shape (m,)
        The samples that have a share, rising.
    shares : ndarray of float64, shape (m,)
    tables : ndarray of float64, shape (n_blocks, n_codewords)
        Added to.
    """
    end_of_fours = last_block - (last_block - first_block) % 4
    for block in range(first_block, end_of_fours, 4):
        code_0, code_1, code_2, code_3 = codes[block], codes[block + 1], codes[block + 2], codes[block + 3]
        table_0, table_1 = tables[block], tables[block + 1]
        table_2, table_3 = tables[block + 2], tables[block + 3]
        for j in range(len(samples)):
            i, share = samples[j], shares[j]
            table_0[code_0[i]] += share
            table_1[code_1[i]] += share
            table_2[code_2[i]] += share
            table_3[code_3[i]] += share
    for block in range(end_of_fours, last_block):
        code, table = codes[block], tables[block]
        for j in range(len(samples)):
            table[code[samples[j]]] += shares[j]
