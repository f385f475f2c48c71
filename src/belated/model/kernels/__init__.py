"""The inner loops, written once: they run as NumPy and BLAS, or compiled where numba is installed.

numba costs half a second to import, so the first call of :func:`best` has a thread load it, never
``import belated``. Plain and compiled kernels are the same functions: only the *primitives* they
call differ, because BLAS and a compiler are fast at different things.
"""

from belated.model.kernels.arrival import best, complete, page_kernels
from belated.model.kernels.compiler import compiled, compiled_pages
from belated.model.kernels.sets import Kernels, PageKernels, plain
from belated.model.kernels.source import (
    LEFT,
    MAX_ETA,
    MAX_WEIGHT,
    TIE,
    TINY,
    amend,
    bernoulli_link,
    count,
    finite,
    gaussian_link,
    greatest,
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
    "TINY",
    "Kernels",
    "PageKernels",
    "amend",
    "bernoulli_link",
    "best",
    "compiled",
    "compiled_pages",
    "complete",
    "count",
    "finite",
    "gaussian_link",
    "greatest",
    "learn",
    "page_kernels",
    "plain",
    "poisson_link",
    "proximal",
    "sampled",
    "score",
    "unlearn",
    "upper",
    "winners",
]
