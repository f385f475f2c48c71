"""The inner loops, written once: they run as NumPy and BLAS, or compiled where numba is installed.

A posterior covariance is kept as a root S with S Sᵀ = H⁻¹. A row's standard deviation is ‖Sᵀx‖,
and H + w x xᵀ is reached by one rank-one step of S, without a factorisation:
v = Sᵀx, r = √(1 + w ‖v‖²), S ← S - w/(r (r + 1)) (S v) vᵀ.

numba costs half a second to import, so it is loaded by the first call of :func:`best`, never by
``import belated``. Plain and compiled kernels are the same functions: only the *primitives* they
call differ, because BLAS and a compiler are fast at different things.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import astuple, dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import daxpy, ddot, dgemv, dger

from belated.exceptions import MissingExtra
from belated.inputs import Matrix, Row, Vector

#: Scores closer than this, relative to their size, are ties.
TIE = 1e-12
#: A row may be taken out by a rank-one step as long as this share of its direction remains.
LEFT = 1e-6
#: A linear predictor that moves by less than this moves in one Newton step.
SMALL = 0.05
#: Beyond this a linear predictor is held: exp(±700) is still a float64.
MAX_ETA = 700.0
#: No row counts for more: rewards are at most 1e9, so no information of this size is real.
MAX_WEIGHT = 1e12
#: No linear predictor moves further in one step.
FAR = 1e30

# --- primitives: what BLAS and a compiler do differently -------------------------------------
#
# BLAS is column-major: the transpose of a C-ordered matrix is the same memory in its order. On any
# other layout its overwriting calls would silently fill a copy.


def deflate(root: Matrix, gain: float, v: Vector) -> Vector:
    """S ← S - gain (S v) vᵀ, in place; returns S v as it was."""
    u: Vector = root.dot(v)
    dger(-gain, v, u, 1, 1, root.T, 0, 0, 1)
    return u


def left(x: Vector, root: Matrix) -> Vector:
    """Sᵀ x."""
    v: Vector = x.dot(root)
    return v


def blend(rows: Matrix, theta: Vector, width: float, deviations: Vector) -> Vector:
    """X θ + width · deviations, in the memory of the latter."""
    scores: Vector = dgemv(1.0, rows.T, theta, width, deviations, 0, 1, 0, 1, 1, 1)
    return scores


def lengths(rows: Matrix) -> Vector:
    """The length of each row."""
    squares = np.vecdot(rows, rows)
    return np.sqrt(squares, squares)  # type: ignore[no-any-return]  # vecdot is untyped


def winners(rows: Matrix, theta: Vector, pool: Row) -> NDArray[np.int64]:
    """The best row of θ plus each column of the pool."""
    # float32: a draw is random anyway, and scoring all of them is what a choice costs.
    drawn = pool + theta.astype(np.float32)[:, None]
    best: NDArray[np.int64] = rows.astype(np.float32).dot(drawn).argmax(axis=0)
    return best


def link(family: Any, eta: float) -> tuple[float, float]:
    """Mean and slope of a family; compiled code knows the built-in ones by their number."""
    both: tuple[float, float] = family.mean_and_slope(eta)
    return both


def _loop_deflate(root: Matrix, gain: float, v: Vector) -> Vector:
    u = np.empty(root.shape[0])
    for i in range(root.shape[0]):
        total = 0.0
        for j in range(root.shape[1]):
            total += root[i, j] * v[j]
        u[i] = total
        total *= gain
        for j in range(root.shape[1]):
            root[i, j] -= total * v[j]
    return u


def _loop_left(x: Vector, root: Matrix) -> Vector:
    v = np.zeros(root.shape[1])
    for i in range(root.shape[0]):
        for j in range(root.shape[1]):
            v[j] += x[i] * root[i, j]
    return v


def _loop_blend(rows: Matrix, theta: Vector, width: float, deviations: Vector) -> Vector:
    for i in range(rows.shape[0]):
        total = width * deviations[i]
        for j in range(rows.shape[1]):
            total += rows[i, j] * theta[j]
        deviations[i] = total
    return deviations


def _loop_lengths(rows: Matrix) -> Vector:
    found = np.empty(rows.shape[0])
    for i in range(rows.shape[0]):
        total = 0.0
        for j in range(rows.shape[1]):
            total += rows[i, j] * rows[i, j]
        found[i] = math.sqrt(total)
    return found


def _loop_winners(rows: Matrix, theta: Vector, pool: Row) -> NDArray[np.int64]:
    scores = np.dot(rows.astype(np.float32), pool)
    best = np.zeros(scores.shape[1], dtype=np.int64)
    greatest = np.full(scores.shape[1], -np.inf, dtype=np.float32)
    for i in range(scores.shape[0]):
        mean = np.float32(0.0)
        for j in range(rows.shape[1]):
            mean += np.float32(rows[i, j] * theta[j])
        for j in range(scores.shape[1]):
            score = scores[i, j] + mean
            if score > greatest[j]:
                greatest[j] = score
                best[j] = i
    return best


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


_SWAPPED: dict[Any, Callable[..., Any]] = {
    deflate: _loop_deflate,
    left: _loop_left,
    blend: _loop_blend,
    lengths: _loop_lengths,
    winners: _loop_winners,
    ddot: _loop_ddot,
    daxpy: _loop_daxpy,
    link: _numbered_link,
}

# --- links: mean and slope of one linear predictor -------------------------------------------


def gaussian_link(eta: float) -> tuple[float, float]:
    """η and 1."""
    return eta, 1.0


def bernoulli_link(eta: float) -> tuple[float, float]:
    """p = 1/(1 + e^-η) and p (1 - p), without overflow or cancellation."""
    decay = math.exp(-min(abs(eta), MAX_ETA))
    total = 1.0 + decay
    return (1.0 if eta >= 0.0 else decay) / total, decay / (total * total)


def poisson_link(eta: float) -> tuple[float, float]:
    """e^η twice, held at ±700."""
    mean = math.exp(max(-MAX_ETA, min(eta, MAX_ETA)))
    return mean, mean


# --- kernels: one source ---------------------------------------------------------------------


def finite(x: Vector) -> bool:
    """Whether every number is, and none so large that its square is not."""
    return math.isfinite(ddot(x, x))


def score(rows: Matrix, theta: Vector, root: Matrix) -> tuple[Vector, Vector]:
    """The linear predictor of each row and its standard deviation ‖Sᵀx‖."""
    return rows.dot(theta), lengths(rows.dot(root))


def upper(
    rows: Matrix, theta: Vector, root: Matrix, width: float, u: float, family: Any
) -> tuple[int, int, float, float]:
    """The row with the greatest xᵀθ + width ‖Sᵀx‖; ties are drawn by ``u`` in [0, 1).

    Returns its index, how many rows tied, its mean and its slope: NaN if a row was not finite.
    """
    if not finite(rows.ravel()):
        return 0, 1, math.nan, math.nan
    scores = blend(rows, theta, width, lengths(rows.dot(root)))
    index = int(scores.argmax())
    best = float(scores[index])
    near = best - TIE * (1.0 + abs(best))
    scores[index] = -math.inf
    ties = 1
    if scores[scores.argmax()] >= near:
        scores[index] = best
        tied = np.flatnonzero(scores >= near)
        ties = len(tied)
        index = int(tied[int(u * ties)])
    mean, slope = link(family, ddot(rows[index], theta))
    return index, ties, mean, slope


def sampled(
    rows: Matrix, theta: Vector, pool: Row, drawn: int, family: Any
) -> tuple[int, int, float, float]:
    """The best row of one draw, how many draws agree, its mean and slope: NaN if not finite."""
    if not finite(rows.ravel()):
        return 0, 1, math.nan, math.nan
    best = winners(rows, theta, pool)
    index = int(best[drawn])
    mean, slope = link(family, ddot(rows[index], theta))
    return index, int(np.count_nonzero(best == index)), mean, slope


def count(root: Matrix, x: Vector, weight: float) -> float:
    """H ← H + w x xᵀ, where 1 + w q > 0 for q = xᵀH⁻¹x.

    Returns q; NaN, and nothing is changed, if the row or its weight is not finite.
    """
    if not (finite(x) and math.isfinite(weight)):
        return math.nan
    v = left(x, root)
    q: float = ddot(v, v)
    scaled = 1.0 + weight * q
    if scaled > LEFT:
        r = math.sqrt(scaled)
        deflate(root, weight / (r * (r + 1.0)), v)
    return q


def learn(
    root: Matrix, theta: Vector, x: Vector, y: float, family: Any, dispersion: float
) -> float:
    """One reward: θ moves along H⁻¹x by its proximal step, then H ← H + w x xᵀ.

    Returns w; NaN, and nothing is changed, if the row is not finite.
    """
    if not finite(x):
        return math.nan
    v = left(x, root)
    q = ddot(v, v)
    step, weight = proximal(family, y, ddot(x, theta), q, dispersion)
    r = math.sqrt(1.0 + weight * q)
    # deflate gives S Sᵀx = H⁻¹x for H before the shift, as the proximal step wants it.
    daxpy(deflate(root, weight / (r * (r + 1.0)), v), theta, len(theta), step)
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
    """Take one reward back: exact for Gaussian rewards, else one Newton step of at most ``cap``.

    ``weight`` is what the row has in H. Returns the share 1 - w q of its direction that remains;
    nothing is changed unless it is above LEFT. NaN if the row or its weight is not finite.
    """
    if not (finite(x) and math.isfinite(weight)):
        return math.nan
    v = left(x, root)
    q: float = ddot(v, v)
    remains = 1.0 - weight * q
    if remains > LEFT:
        mean, _ = link(family, ddot(x, theta))
        step = capped(-(y - mean) / dispersion / remains, q, cap)
        r = math.sqrt(remains)
        daxpy(deflate(root, -weight / (r * (r + 1.0)), v), theta, len(theta), step)
    return remains


def amend(root: Matrix, theta: Vector, x: Vector, step: float, cap: float) -> bool:
    """θ ← θ + step H⁻¹x, by which xᵀθ moves at most ``cap``; False if the row is not finite."""
    if not finite(x):
        return False
    v = left(x, root)
    q = ddot(v, v)
    daxpy(deflate(root, 0.0, v), theta, len(theta), capped(step, q, cap))
    return True


def capped(step: float, q: float, cap: float) -> float:
    """The step along H⁻¹x, so short that xᵀθ moves at most ``cap``."""
    if abs(step) * q > cap:
        return math.copysign(cap / q, step)
    return step


def proximal(family: Any, y: float, eta: float, q: float, dispersion: float) -> tuple[float, float]:
    """The step of one reward: argmax over z of log p(y | z) - (z - η)²/(2 q).

    Returns (z - η)/q, by which θ moves along H⁻¹x, and the weight g'(z)/φ. The solution is
    bounded by the data, where an explicit step of a surprising count would overflow.
    """
    scale = q / dispersion
    mean, slope = link(family, eta)
    gap = scale * (y - mean)
    newton = gap / (1.0 + scale * slope)
    if q == 0.0 or abs(newton) <= SMALL:  # one Newton step is as good as all of them
        return newton / q if q > 0.0 else 0.0, min(slope / dispersion, MAX_WEIGHT)
    # f(move) = move - scale (y - g(η + move)) increases, and has its zero between 0 and gap.
    low = max(min(0.0, gap), -FAR)
    high = min(max(0.0, gap), FAR)
    move = 0.0
    last = 2.0 * (high - low)
    for _ in range(200):
        target = move + newton
        # Newton where it stays inside and at least halves its step, else the middle.
        if not (low <= target <= high and 0.0 < 2.0 * abs(newton) <= last):
            target = 0.5 * (low + high)
        last = abs(target - move)
        move = target
        mean, slope = link(family, eta + move)
        gap = scale * (y - mean) - move
        newton = gap / (1.0 + scale * slope)  # NaN where both overflow: then the middle is next
        if abs(newton) <= 1e-9 * (1.0 + abs(eta + move)):
            break
        if gap > 0.0:
            low = move
        else:
            high = move
    return move / q, min(slope / dispersion, MAX_WEIGHT)


# --- the two sets ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Kernels:
    """A set of kernels, plain or compiled."""

    score: Callable[[Matrix, Vector, Matrix], tuple[Vector, Vector]]
    upper: Callable[[Matrix, Vector, Matrix, float, float, Any], tuple[int, int, float, float]]
    sampled: Callable[[Matrix, Vector, Row, int, Any], tuple[int, int, float, float]]
    count: Callable[[Matrix, Vector, float], float]
    learn: Callable[[Matrix, Vector, Vector, float, Any, float], float]
    unlearn: Callable[[Matrix, Vector, Vector, float, float, Any, float, float], float]
    amend: Callable[[Matrix, Vector, Vector, float, float], bool]


_PLAIN = Kernels(score, upper, sampled, count, learn, unlearn, amend)


def plain() -> Kernels:
    """The kernels as NumPy and BLAS calls."""
    return _PLAIN


@cache
def compiled() -> Kernels:
    """The kernels compiled by numba; the machine code is kept between processes.

    Raises:
        MissingExtra: numba is not installed.
    """
    try:
        import numba
        from numba.extending import overload, register_jitable
    except ImportError:
        raise MissingExtra("compiling the kernels", "fast") from None
    # Sums may be reordered, as BLAS does; NaN and inf keep their meaning, they are checked for.
    options: Any = {"fastmath": {"reassoc", "contract", "arcp", "nsz"}}
    for primitive, loop in _SWAPPED.items():
        overload(primitive, jit_options=options, strict=False)(_always(loop))
    for helper in (gaussian_link, bernoulli_link, poisson_link, finite, capped, proximal):
        register_jitable(helper)
    jit = numba.njit(cache=True, **options)
    return Kernels(*(jit(kernel) for kernel in astuple(_PLAIN)))


def _always(loop: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: loop


@cache
def best() -> Kernels:
    """The compiled kernels where numba is installed, else the plain ones."""
    return compiled() if find_spec("numba") else plain()
