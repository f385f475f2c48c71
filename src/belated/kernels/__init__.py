"""The inner loops, written once: they run as NumPy and BLAS, or compiled where numba is installed.

numba costs half a second to import, so it is loaded by the first call of :func:`best`, never by
``import belated``. Plain and compiled kernels are the same functions: only the *primitives* they
call differ, because BLAS and a compiler are fast at different things.
"""

from belated.kernels.sets import Kernels, best, compiled, plain
from belated.kernels.source import (
    LEFT,
    MAX_ETA,
    MAX_WEIGHT,
    TIE,
    amend,
    bernoulli_link,
    count,
    finite,
    gaussian_link,
    learn,
    poisson_link,
    proximal,
    sampled,
    score,
    unlearn,
    upper,
    winners,
)

__all__ = [
    "LEFT",
    "MAX_ETA",
    "MAX_WEIGHT",
    "TIE",
    "Kernels",
    "amend",
    "bernoulli_link",
    "best",
    "compiled",
    "count",
    "finite",
    "gaussian_link",
    "learn",
    "plain",
    "poisson_link",
    "proximal",
    "sampled",
    "score",
    "unlearn",
    "upper",
    "winners",
]
