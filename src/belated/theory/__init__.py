"""The quantities of the theory, as functions.

The paper is Blanchet, Xu, Zhou, *Delay-Adaptive Learning in Generalized Linear Contextual
Bandits*. Widths of confidence and lengths of warm-up are here, as the paper's policies need them.
"""

from belated.theory.warmups import least_slope, threshold, warmup_chernoff, warmup_paper
from belated.theory.widths import width_log, width_paper, width_spectral, width_tight

__all__ = [
    "least_slope",
    "threshold",
    "warmup_chernoff",
    "warmup_paper",
    "width_log",
    "width_paper",
    "width_spectral",
    "width_tight",
]
