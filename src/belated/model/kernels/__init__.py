"""Kernels: the inner loops, compiled if Numba is installed, otherwise based on NumPy and BLAS.

Importing Numba takes half a second, so ``import belated`` does not import it; the first call of
:func:`best` imports it in a thread. Plain and compiled kernels are the same functions. Only the
*primitives* that they call differ, because BLAS and a compiler are fast at different things.
"""

from belated.model.kernels.arrival import (
    best as best,
    complete as complete,
    page_kernels as page_kernels,
)
from belated.model.kernels.compiler import compiled as compiled, compiled_pages as compiled_pages
from belated.model.kernels.sets import (
    Kernels as Kernels,
    PageKernels as PageKernels,
    plain as plain,
)
from belated.model.kernels.source import (
    LEFT as LEFT,
    MAX_ETA as MAX_ETA,
    MAX_WEIGHT as MAX_WEIGHT,
    TIE as TIE,
    TINY as TINY,
    amend as amend,
    bernoulli_link as bernoulli_link,
    count as count,
    finite as finite,
    gaussian_link as gaussian_link,
    greatest as greatest,
    learn as learn,
    poisson_link as poisson_link,
    proximal as proximal,
    sampled as sampled,
    score as score,
    unlearn as unlearn,
    upper as upper,
    winners as winners,
)
