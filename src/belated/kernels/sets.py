"""The kernels as two sets: plain, and compiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

from belated.exceptions import MissingExtra
from belated.inputs import Matrix, Row, Vector
from belated.kernels.source import (
    SWAPPED,
    add_product,
    amend,
    argmax_ucb_all,
    bernoulli_link,
    capped,
    count,
    count_all,
    deflated,
    finite,
    gaussian_link,
    learn,
    poisson_link,
    proximal,
    sampled,
    score,
    span,
    spread_of,
    unlearn,
    upper,
)


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
    count_all: Callable[[Matrix, Matrix, Vector], int]
    argmax_ucb_all: Callable[..., int]


_PLAIN = Kernels(score, upper, sampled, count, learn, unlearn, amend, count_all, argmax_ucb_all)


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
    # Sums may be reordered, as BLAS does. NaN and inf keep their meaning, but in comparisons only:
    # math.isfinite is x - x == 0 in machine code, which reordering makes true.
    options: Any = {"fastmath": {"reassoc", "contract", "arcp", "nsz"}}
    for primitive, loop in SWAPPED.items():
        overload(primitive, jit_options=options, strict=False)(_always(loop))
    for helper in (
        gaussian_link, bernoulli_link, poisson_link, finite, capped, proximal, span, spread_of,
        add_product, deflated, upper, count,
    ):  # fmt: skip
        register_jitable(helper)
    jit = numba.njit(cache=True, **options)
    return Kernels(*(jit(kernel) for kernel in astuple(_PLAIN)))


def _always(loop: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: loop


@cache
def best() -> Kernels:
    """The compiled kernels where numba is installed, else the plain ones."""
    return compiled() if find_spec("numba") else plain()
