"""The widths that are compared, each with the errors it is held against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from belated import DelayedUCB
from belated.theory import min_slope, width_log, width_paper, width_spectral, width_tight
from belated.theory.confidence import noise
from experiments.widths.errors import DIM, FAMILY

#: Columns of errors in the metric of the paper, and in that of this library.
PAPER, OURS = ("gram",), ("hessian", "rows", "best")
#: The probability with which a width may fail.
DELTA = 0.05
POLICY = DelayedUCB(DIM, FAMILY)


@dataclass(frozen=True)
class Width:
    """A width, as a function of a row of the table, and the columns with its errors."""

    of: Callable[[pd.Series], float]
    errors: tuple[str, ...]


def theory(function: Callable[..., float], second: str) -> Width:
    """A width of the theory, which is told ‖θ*‖ for its κ, and one more column."""

    def of(row: pd.Series) -> float:
        kappa, sigma = min_slope(FAMILY, row["norm"]), noise(FAMILY, row["norm"])
        return function(row["arrived"], row[second], DIM, delta=DELTA, sigma=sigma, kappa=kappa)

    return Width(of, PAPER)


WIDTHS = {
    "paper": theory(width_paper, "missing"),
    "tight": theory(width_tight, "missing"),
    "spectral": theory(width_spectral, "inflation"),
    "log": Width(lambda row: width_log(row["arrived"], 0.75), OURS),
    "default": Width(lambda row: width_log(row["arrived"], POLICY.alpha), OURS),
}
