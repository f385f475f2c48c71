"""The kernels and their primitives, in one file because Numba caches machine code by file.

A posterior covariance is stored as an upper triangular root S with S Sᵀ = H⁻¹. The standard
deviation of a row is ‖Sᵀx‖. A rank-one step of S changes H to H + w x xᵀ without a factorization:
S ← S T, where T is upper triangular, v = Sᵀx and T Tᵀ = I - w/(1 + w ‖v‖²) v vᵀ. The step is
computed row by row, in one pass over half of the matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Matrix, Row, Vector
from belated.model.kernels.lapack import daxpy, ddot, dgemm, dgemv

#: The block of each row; 0 if there are no blocks.
Blocks = NDArray[np.int64]
#: Relative difference below which scores are tied.
TIE = 1e-12
#: A rank-one step can remove a row only if more than this share of its direction remains.
LEFT = 1e-6
#: Changes of a linear predictor up to this size are made in one Newton step.
SMALL = 0.05
#: A very small positive number.
TINY = 1e-300
#: Limit of linear predictors: exp(±700) is still a float64.
MAX_ETA = 700.0
#: Maximum weight of a row. Rewards are at most 1e9, so larger weights are not meaningful.
MAX_WEIGHT = 1e12
#: Maximum change of a linear predictor in one step.
FAR = 1e30

_SINGLE, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)

# --- primitives: implemented differently for BLAS and for the compiler -----------------------
#
# BLAS is column-major, so it can read a C-ordered matrix as its transpose without copying. With any
# other layout, calls that overwrite an argument would silently write to a copy. Unlike NumPy, BLAS
# does not warn about values that are not finite, so kernels check the result.


def shift(root: Matrix, weight: float, v: Vector) -> Vector:
    """Update S ← S T in place, which adds w x xᵀ to H for v = Sᵀx; return the previous S v."""
    parts = root * v
    sums = parts.cumsum(axis=1)
    u: Vector = sums[:, -1].copy()
    sums -= parts
    totals = 1.0 + (weight * v * v).cumsum()
    last = np.ones(len(v))
    last[1:] = totals[:-1]
    root *= np.sqrt(last / totals)
    sums *= weight * v / np.sqrt(last * totals)
    root -= sums
    return u


def left(x: Vector, root: Matrix) -> Vector:
    """Return Sᵀ x."""
    v: Vector = dgemv(1.0, root.T, x)
    return v


def lengths(rows: Matrix, blocks: Blocks, roots: Matrix) -> Vector:
    """Return ‖Sᵀx‖ for each row x, where S is the root of the row's block."""
    if len(roots) == 1:
        spread = dgemm(1.0, roots[0].T, rows.T).T
    else:
        spread = np.array([dgemv(1.0, roots[k].T, x) for k, x in zip(blocks, rows, strict=True)])
    squares = np.vecdot(spread, spread)
    return np.sqrt(squares, squares)  # type: ignore[no-any-return]  # vecdot is untyped


def bounds(rows: Matrix, blocks: Blocks, theta: Matrix, roots: Matrix, width: float) -> Vector:
    """Return xᵀθ + width · ‖Sᵀx‖ for each row x, with the θ and the root S of the row's block."""
    widths = lengths(rows, blocks, roots)
    if len(theta) > 1:
        return (
            np.array([ddot(x, theta[k]) for k, x in zip(blocks, rows, strict=True)])
            + width * widths
        )
    scores: Vector = dgemv(1.0, rows.T, theta[0], width, widths, 0, 1, 0, 1, 1, 1)
    return scores


def predictors(rows: Matrix, blocks: Blocks, theta: Matrix) -> Vector:
    """Return xᵀθ for each row x, with the θ of the row's block."""
    means: Vector
    if len(theta) > 1:
        means = np.vecdot(rows, theta[blocks])
        return means
    means = dgemv(1.0, rows.T, theta[0], 0.0, np.empty(len(rows)), 0, 1, 0, 1, 1, 1)
    return means


def winners(rows: Matrix, blocks: Blocks, means: Vector, pools: Row) -> NDArray[np.int64]:
    """Return the index of the row with the largest mean plus deviation, for each pool column.

    The last row of each pool consists of ones, so that one product computes means and deviations.
    """
    # float32 is precise enough for random draws, and scoring them dominates the cost of a choice.
    table = np.empty((rows.shape[0], pools.shape[1]), dtype=np.float32)
    table[:, :-1] = rows
    table[:, -1] = means
    if len(pools) == 1:
        scores = pools[0].T.dot(table.T)
    else:
        scores = np.array([x.dot(pools[k]) for k, x in zip(blocks, table, strict=True)]).T
    best: NDArray[np.int64] = scores.argmax(axis=1)  # a contiguous axis is ten times faster
    return best


def twins(rows: Matrix, blocks: Blocks, index: int) -> NDArray[np.bool_]:
    """Return a mask of the rows that are equal to the row at ``index``, including that row."""
    # One product rules out nearly all other rows, so that only a few are compared in full.
    weights = np.arange(1.0, 1.0 + rows.shape[1])
    sums, size = rows @ weights, np.abs(rows[index]) @ weights
    equal: NDArray[np.bool_] = np.abs(sums - sums[index]) <= 1e-9 * size
    equal &= blocks == blocks[index]
    equal[equal] = (rows[equal] == rows[index]).all(axis=1)
    return equal


def link(family: Any, eta: float) -> tuple[float, float]:
    """Return a family's mean and slope at η; built-in families are passed by number."""
    result: tuple[float, float]
    result = LINKS[family](eta) if type(family) is int else family.mean_and_slope(eta)
    return result


def _loop_shift(root: Matrix, weight: float, v: Vector) -> Vector:
    size = root.shape[0]
    scales, gains, u = np.empty(size), np.empty(size), np.empty(size)
    last = 1.0
    for j in range(size):
        norm = last + weight * v[j] * v[j]
        scales[j] = math.sqrt(last / norm)
        gains[j] = weight * v[j] / math.sqrt(last * norm)
        last = norm
    for i in range(size):
        total = 0.0
        # Slices avoid checks for negative indices in compiled code.
        row, keep, take, each_v = root[i, i:], scales[i:], gains[i:], v[i:]
        for j in range(row.shape[0]):
            before = row[j]
            row[j] = before * keep[j] - total * take[j]
            total += before * each_v[j]
        u[i] = total
    return u


def _loop_left(x: Vector, root: Matrix) -> Vector:
    v = np.zeros(root.shape[1])
    for i in range(root.shape[0]):
        row, tail, number = root[i, i:], v[i:], x[i]
        for j in range(row.shape[0]):
            tail[j] += number * row[j]
    return v


def _loop_lengths(rows: Matrix, blocks: Blocks, roots: Matrix) -> Vector:
    norms = np.empty(rows.shape[0])
    if roots.shape[0] == 1:
        spread = np.dot(rows, roots[0])
    else:
        spread = np.empty(rows.shape)
        for i in range(rows.shape[0]):
            spread[i] = left(rows[i], roots[blocks[i]])
    for i in range(rows.shape[0]):
        total = 0.0
        for j in range(spread.shape[1]):
            total += spread[i, j] * spread[i, j]
        norms[i] = math.sqrt(total)
    return norms


def _loop_bounds(
    rows: Matrix, blocks: Blocks, theta: Matrix, roots: Matrix, width: float
) -> Vector:
    return predictors(rows, blocks, theta) + width * lengths(rows, blocks, roots)


def _loop_predictors(rows: Matrix, blocks: Blocks, theta: Matrix) -> Vector:
    means: Vector = np.empty(rows.shape[0])
    if theta.shape[0] == 1:
        means = np.dot(rows, theta[0])
        return means
    for i in range(rows.shape[0]):
        means[i] = ddot(rows[i], theta[blocks[i]])
    return means


def _loop_winners(rows: Matrix, blocks: Blocks, means: Vector, pools: Row) -> NDArray[np.int64]:
    best = np.zeros(pools.shape[2], dtype=np.int64)
    greatest = np.full(pools.shape[2], -np.inf, dtype=np.float32)
    table = rows.astype(np.float32)
    products = np.dot(table, pools[0, :-1]) if pools.shape[0] == 1 else table
    for i in range(rows.shape[0]):
        scores = products[i] if pools.shape[0] == 1 else np.dot(table[i], pools[blocks[i], :-1])
        mean = np.float32(means[i])
        for j in range(scores.shape[0]):
            score = scores[j] + mean
            if score > greatest[j]:
                greatest[j] = score
                best[j] = i
    return best


def _loop_twins(rows: Matrix, blocks: Blocks, index: int) -> NDArray[np.bool_]:
    equal = np.zeros(rows.shape[0], dtype=np.bool_)
    for i in range(rows.shape[0]):
        equal[i] = blocks[i] == blocks[index]
        for j in range(rows.shape[1]):
            if rows[i, j] != rows[index, j]:
                equal[i] = False
                break
    return equal


def _loop_ddot(x: Vector, y: Vector) -> float:
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i] * y[i]
    return total


def _loop_daxpy(x: Vector, y: Vector, n: int, a: float) -> None:
    for i in range(x.shape[0]):
        y[i] += a * x[i]


def _numbered_link(family: int, eta: float) -> tuple[float, float]:
    if family == 0:
        return gaussian_link(eta)
    if family == 1:
        return bernoulli_link(eta)
    return poisson_link(eta)


SWAPPED: dict[Any, Callable[..., Any]] = {
    shift: _loop_shift,
    left: _loop_left,
    lengths: _loop_lengths,
    bounds: _loop_bounds,
    predictors: _loop_predictors,
    winners: _loop_winners,
    twins: _loop_twins,
    ddot: _loop_ddot,
    daxpy: _loop_daxpy,
    link: _numbered_link,
}

# --- links: mean and slope of one linear predictor -------------------------------------------


def gaussian_link(eta: float) -> tuple[float, float]:
    """Return the mean η and the slope 1."""
    return eta, 1.0


def bernoulli_link(eta: float) -> tuple[float, float]:
    """Return p = 1/(1 + e^-η) and p (1 - p), without overflow or cancellation."""
    decay = math.exp(-abs(eta))
    total = 1.0 + decay
    return (1.0 if eta >= 0.0 else decay) / total, decay / (total * total)


def poisson_link(eta: float) -> tuple[float, float]:
    """Return e^η twice, with η limited to ±700."""
    mean = math.exp(max(-MAX_ETA, min(eta, MAX_ETA)))
    return mean, mean


#: Links, by family number.
LINKS = (gaussian_link, bernoulli_link, poisson_link)


# --- kernels: the same source for Python and for the compiler --------------------------------


def finite(x: Vector) -> bool:
    """Return whether all numbers and their squares are finite."""
    return bool(abs(ddot(x, x)) < math.inf)


def score(rows: Matrix, blocks: Blocks, theta: Matrix, roots: Matrix) -> tuple[Vector, Vector]:
    """Return the linear predictor of each row and its standard deviation ‖Sᵀx‖."""
    return predictors(rows, blocks, theta), lengths(rows, blocks, roots)


def upper(
    rows: Matrix,
    blocks: Blocks,
    theta: Matrix,
    roots: Matrix,
    width: float,
    u: float,
    family: Any,
) -> tuple[int, int, float, float]:
    """Find the row with the largest xᵀθ + width ‖Sᵀx‖; ``u`` in [0, 1) breaks ties.

    Returns its index, the number of tied rows, its mean and its slope; NaN if a row is not finite.
    """
    # With a width of 0, standard deviations that are not finite would go unnoticed.
    scores = bounds(rows, blocks, theta, roots, width if width > 0.0 else TINY)
    index, ties = greatest(scores, u)
    if ties == 0:
        return index, 1, math.nan, math.nan
    mean, slope = link(family, ddot(rows[index], theta[blocks[index]]))
    return index, ties, mean, slope


def greatest(scores: Vector, u: float) -> tuple[int, int]:
    """Return the index of the largest score and the number of tied scores; ``u`` breaks ties.

    The number is 0 if a score is not finite. ``scores`` is modified.
    """
    index = int(scores.argmax())
    best = float(scores[index])  # if any score is NaN, argmax returns its index
    if not abs(best) < math.inf:
        return index, 0
    near = best - TIE * (1.0 + abs(best))
    scores[index] = -math.inf
    ties = 1
    if float(scores[scores.argmax()]) >= near:
        scores[index] = best
        tied = np.flatnonzero(scores >= near)
        ties = len(tied)
        index = int(tied[int(u * ties)])
    return index, ties


def sampled(
    rows: Matrix, blocks: Blocks, theta: Matrix, pools: Row, u: float, family: Any
) -> tuple[int, float, float, float]:
    """Find the best row for the draw at ``u``; return its index, share of draws, mean and slope.

    Mean and slope are NaN if a row is not finite. Identical rows have equal shares; the remainder
    of ``u`` chooses among them.
    """
    means = predictors(rows, blocks, theta)
    if not finite(means):
        return 0, 1.0, math.nan, math.nan
    best = winners(rows, blocks, means, pools)
    draws = len(best)
    place = int(u * draws)
    index = int(best[place])
    agreeing = int(np.count_nonzero(best == index))
    ties = 1
    near = np.abs(means - means[index]) <= TIE * (1.0 + abs(means[index]))
    if np.count_nonzero(near) > 1:
        equal = twins(rows, blocks, index)
        ties = int(np.count_nonzero(equal))
        agreeing = int(np.count_nonzero(equal[best]))
        index = int(np.flatnonzero(equal)[int((u * draws - place) * ties)])
    mean, slope = link(family, float(means[index]))
    return index, agreeing / (draws * ties), mean, slope


def count(root: Matrix, x: Vector, weight: float) -> float:
    """Update H ← H + w x xᵀ, where 1 + w q > 0 for q = xᵀH⁻¹x.

    Returns q. If the row or its weight is not finite, returns NaN and changes nothing.
    """
    v = left(x, root)
    q: float = ddot(v, v)
    scaled = 1.0 + weight * q
    if not abs(scaled) < math.inf:
        return math.nan
    if scaled > LEFT:
        shift(root, weight, v)
    return q


def count_all(roots: Matrix, rows: Matrix, blocks: Blocks, weights: Vector) -> int:
    """Run :func:`count` for each row until one is not finite; return how many rows were added."""
    for k in range(rows.shape[0]):
        q = count(roots[blocks[k]], rows[k], weights[k])
        if q != q:
            return k
    return len(rows)


def argmax_ucb_all(
    rows: Matrix,
    blocks: Blocks,
    ends: NDArray[np.int64],
    theta: Matrix,
    roots: Matrix,
    width: float,
    us: Vector,
    shares: Vector,
    gram: bool,
    dispersion: float,
    family: Any,
    found: Matrix,
) -> int:
    """Run ``upper`` for several tables of rows in turn, counting each chosen row.

    ``ends`` holds the index after the last row of each table. Each choice adds the fraction in
    ``shares`` of its weight; with ``gram`` that weight is 1. The index, ties, mean and weight of
    each choice are written to ``found``. Returns the number of tables processed, which is smaller
    if a row is not finite.
    """
    start = 0
    for k in range(ends.shape[0]):
        table, numbers = rows[start : ends[k]], blocks[start : ends[k]]
        index, ties, mean, slope = upper(table, numbers, theta, roots, width, us[k], family)
        if mean != mean:
            return k
        weight = min(slope / dispersion, MAX_WEIGHT)
        found[k, 0], found[k, 1], found[k, 2], found[k, 3] = index, ties, mean, weight
        if shares[k] > 0.0:
            q = count(roots[numbers[index]], table[index], shares[k] * (1.0 if gram else weight))
            if q != q:
                return k
        start = ends[k]
    return len(ends)


def learn(
    root: Matrix, theta: Vector, x: Vector, y: float, family: Any, dispersion: float
) -> float:
    """Learn from a reward: move θ along H⁻¹x by the proximal step, then update H ← H + w x xᵀ.

    Returns w. If the row is not finite, returns NaN and changes nothing.
    """
    v = left(x, root)
    q = ddot(v, v)
    if not q < math.inf:
        return math.nan
    step, weight = proximal(family, y, ddot(x, theta), q, dispersion)
    # shift returns S Sᵀx = H⁻¹x for the previous H, as the proximal step requires.
    daxpy(shift(root, weight, v), theta, len(theta), step)
    return weight


def unlearn(
    root: Matrix,
    theta: Vector,
    x: Vector,
    y: float,
    weight: float,
    family: Any,
    dispersion: float,
    cap: float,
) -> float:
    """Retract a reward: exactly if it is Gaussian, otherwise with one Newton step up to ``cap``.

    ``weight`` is the weight of the row in H. Returns the share 1 - w q of the row's direction that
    remains, or NaN if the row or its weight is not finite. Nothing changes unless the share is
    above LEFT.
    """
    v = left(x, root)
    q: float = ddot(v, v)
    remains = 1.0 - weight * q
    if not abs(remains) < math.inf:
        return math.nan
    if remains > LEFT:
        mean, _ = link(family, ddot(x, theta))
        step = capped(-(y - mean) / dispersion / remains, q, cap)
        daxpy(shift(root, -weight, v), theta, len(theta), step)
    return remains


def amend(root: Matrix, theta: Vector, x: Vector, step: float, cap: float) -> bool:
    """Update θ ← θ + step H⁻¹x, moving xᵀθ by at most ``cap``; False if the row is not finite."""
    v = left(x, root)
    q = ddot(v, v)
    if not q < math.inf:
        return False
    daxpy(shift(root, 0.0, v), theta, len(theta), capped(step, q, cap))
    return True


def capped(step: float, q: float, cap: float) -> float:
    """Return the step along H⁻¹x, shortened so that xᵀθ moves by at most ``cap``."""
    if abs(step) * q > cap:
        return math.copysign(cap / q, step)
    return step


def proximal(family: Any, y: float, eta: float, q: float, dispersion: float) -> tuple[float, float]:
    """Compute the proximal step of a reward: the z that maximizes log p(y | z) - (z - η)²/(2 q).

    Returns (z - η)/q, by which θ moves along H⁻¹x, and the weight g'(z)/φ. The solution is bounded
    by the data, whereas an explicit step for a surprisingly large count could overflow.
    """
    scale = q / dispersion
    mean, slope = link(family, eta)
    gap = scale * (y - mean)
    newton = gap / (1.0 + scale * slope)
    if q == 0.0 or abs(newton) <= SMALL:  # a single Newton step is accurate enough
        weight = slope / dispersion
        return newton / q if q > 0.0 else 0.0, weight if weight < MAX_WEIGHT else MAX_WEIGHT
    # f(move) = move - scale (y - g(η + move)) is increasing and has its zero between 0 and gap.
    low = max(min(0.0, gap), -FAR)
    high = min(max(0.0, gap), FAR)
    move = 0.0
    last = 2.0 * (high - low)
    for _ in range(200):
        target = move + newton
        # Use the Newton step if it stays in the interval and is at most half as long as the last
        # step; otherwise bisect.
        if not (low <= target <= high and 0.0 < 2.0 * abs(newton) <= last):
            target = 0.5 * (low + high)
        last = abs(target - move)
        move = target
        mean, slope = link(family, eta + move)
        gap = scale * (y - mean) - move
        newton = gap / (1.0 + scale * slope)  # NaN if both overflow; the next step then bisects
        if abs(newton) <= 1e-9 * (1.0 + abs(eta + move)):
            break
        if gap > 0.0:
            low = move
        else:
            high = move
    return move / q, min(slope / dispersion, MAX_WEIGHT)
