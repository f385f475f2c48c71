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
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy.linalg.blas import daxpy, ddot, dgemv, dger

from belated.exceptions import MissingExtra
from belated.inputs import Matrix, Vector

#: Scores closer than this, relative to their size, are ties.
TIE = 1e-12
#: A row may be taken out by a rank-one step as long as this share of its direction remains.
LEFT = 1e-6
#: A linear predictor that moves by less than this moves in one Newton step.
SMALL = 0.05
#: Beyond this a linear predictor is held: exp(±700) is still a float64.
MAX_ETA = 700.0

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


def score(rows: Matrix, theta: Vector, root: Matrix) -> tuple[Vector, Vector]:
    """The linear predictor of each row and its standard deviation ‖Sᵀx‖."""
    return rows.dot(theta), lengths(rows.dot(root))


def upper(
    rows: Matrix, theta: Vector, root: Matrix, width: float, u: float, family: Any
) -> tuple[int, int, float, float]:
    """The row with the greatest xᵀθ + width ‖Sᵀx‖; ties are drawn by ``u`` in [0, 1).

    Returns its index, how many rows tied, its mean and its slope: NaN if a row was not finite.
    """
    scores = blend(rows, theta, width, lengths(rows.dot(root)))
    index = int(scores.argmax())
    best = float(scores[index])  # argmax finds a NaN first: a finite best proves them all finite
    if not math.isfinite(best):
        return index, 1, math.nan, math.nan
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


def count(root: Matrix, x: Vector, weight: float) -> float:
    """H ← H + w x xᵀ, where 1 + w q > 0 for q = xᵀH⁻¹x.

    Returns q; nothing is changed unless it is finite.
    """
    v = left(x, root)
    q: float = ddot(v, v)
    scaled = 1.0 + weight * q
    if math.isfinite(q) and scaled > LEFT:
        r = math.sqrt(scaled)
        deflate(root, weight / (r * (r + 1.0)), v)
    return q


def learn(
    root: Matrix, theta: Vector, x: Vector, y: float, family: Any, dispersion: float
) -> float:
    """One reward: θ moves along H⁻¹x by its proximal step, then H ← H + w x xᵀ.

    Returns w; NaN, and nothing is changed, if the row is not finite.
    """
    v = left(x, root)
    q = ddot(v, v)
    eta = ddot(x, theta)
    if not (math.isfinite(q) and math.isfinite(eta)):
        return math.nan
    step, weight = proximal(family, y, eta, q, dispersion)
    r = math.sqrt(1.0 + weight * q)
    # deflate gives S Sᵀx = H⁻¹x for H before the shift, as the proximal step wants it.
    daxpy(deflate(root, weight / (r * (r + 1.0)), v), theta, len(theta), step)
    return weight


def unlearn(
    root: Matrix, theta: Vector, x: Vector, y: float, family: Any, dispersion: float, cap: float
) -> float:
    """Take one reward back: exact for Gaussian rewards, else one Newton step of at most ``cap``.

    The weight the row has in H is not remembered, but is at most what H holds in its direction.
    Returns the weight taken out; NaN, and nothing is changed, if the row is not finite.
    """
    v = left(x, root)
    q = ddot(v, v)
    eta = ddot(x, theta)
    if not (math.isfinite(q) and math.isfinite(eta)):
        return math.nan
    mean, slope = link(family, eta)
    weight = slope / dispersion
    if weight * q > 1.0 - LEFT:
        weight = (1.0 - LEFT) / q
    step = -(y - mean) / dispersion / (1.0 - weight * q)
    if abs(step) * q > cap:
        step = math.copysign(cap / q, step)
    r = math.sqrt(1.0 - weight * q)
    daxpy(deflate(root, -weight / (r * (r + 1.0)), v), theta, len(theta), step)
    return weight


def proximal(family: Any, y: float, eta: float, q: float, dispersion: float) -> tuple[float, float]:
    """The step of one reward: argmax over z of log p(y | z) - (z - η)²/(2 q).

    Returns (y - g(z))/φ, by which θ moves along H⁻¹x, and the weight g'(z)/φ. The solution is
    bounded by the data, where an explicit step of a surprising count would overflow.
    """
    scale = q / dispersion
    z = eta
    mean, slope = link(family, z)
    gap = scale * (y - mean)
    change = gap / (1.0 + scale * slope)
    if abs(change) <= SMALL:  # one Newton step is as good as all of them, and exact for Gaussian
        return change / q if q > 0.0 else 0.0, slope / dispersion
    # f(z) = z - η - scale (y - g(z)) increases, and changes sign between η and the explicit step.
    low = min(eta, eta + gap)
    high = max(eta, eta + gap)
    last = 2.0 * abs(gap)
    for _ in range(200):
        target = z + gap / (1.0 + scale * slope)
        # Newton where it stays inside and at least halves its step, else the middle.
        if not (low <= target <= high and 2.0 * abs(target - z) <= last):
            target = 0.5 * (low + high)
        last = abs(target - z)
        z = target
        mean, slope = link(family, z)
        gap = eta - z + scale * (y - mean)
        if abs(gap) <= 1e-7 * (1.0 + abs(z)):
            break
        if gap > 0.0:
            low = z
        else:
            high = z
    return (y - mean) / dispersion, slope / dispersion


# --- the two sets ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Kernels:
    """A set of kernels, plain or compiled."""

    score: Callable[[Matrix, Vector, Matrix], tuple[Vector, Vector]]
    upper: Callable[[Matrix, Vector, Matrix, float, float, Any], tuple[int, int, float, float]]
    count: Callable[[Matrix, Vector, float], float]
    learn: Callable[[Matrix, Vector, Vector, float, Any, float], float]
    unlearn: Callable[[Matrix, Vector, Vector, float, Any, float, float], float]


_PLAIN = Kernels(score, upper, count, learn, unlearn)


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
    for helper in (gaussian_link, bernoulli_link, poisson_link, proximal):
        register_jitable(helper)
    jit = numba.njit(cache=True, **options)
    return Kernels(*(jit(kernel) for kernel in (score, upper, count, learn, unlearn)))


def _always(loop: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: loop


@cache
def best() -> Kernels:
    """The compiled kernels where numba is installed, else the plain ones."""
    return compiled() if find_spec("numba") else plain()
