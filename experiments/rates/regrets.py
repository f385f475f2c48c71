"""The table of the sweep, as tables with a row for each seed and a column for each x."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from experiments.rates.fits import Array
from experiments.rates.problems import (
    ARMS,
    BASE,
    DIMS,
    HORIZON,
    MEANS,
    with_arms,
    with_dim,
    with_mean,
)


class Regrets:
    """Regrets of one table, paired by seed.

    Args:
        table: with columns environment, delay, seed, round and regret.
    """

    def __init__(self, table: pd.DataFrame) -> None:
        sizes = table.groupby(["environment", "delay", "round"])["seed"].nunique()
        #: How many seeds: of most cells, and of those with geometric delays.
        self.seeds, self.more_seeds = int(sizes.min()), int(sizes.max())
        cells = ["environment", "delay", "round"]
        self._wide = table.pivot_table("regret", "seed", cells)

    @property
    def means(self) -> Array:
        """Mean delays above 0."""
        return np.array(MEANS[1:], dtype=float)

    def at(self, world: str, delay: str, t: int = HORIZON) -> pd.Series:
        """One cell: a regret for each seed."""
        return self._wide[world, delay, t].dropna()

    def pair(self, world: str, one: str, other: str) -> tuple[pd.Series, pd.Series]:
        """Two delays, for the seeds that both have."""
        pair = pd.concat([self.at(world, one), self.at(world, other)], axis=1).dropna()
        return pair.iloc[:, 0], pair.iloc[:, 1]

    def over_rounds(self, world: str, delay: str, rounds: Sequence[int]) -> Array:
        """A column for each round."""
        return paired([self.at(world, delay, t) for t in rounds])

    def over_dims(self, world: str) -> Array:
        """A column for each number of features."""
        return paired([self.at(with_dim(world, dim), BASE) for dim in DIMS])

    def over_arms(self, world: str) -> Array:
        """A column for each number of actions."""
        return paired([self.at(with_arms(world, n), BASE) for n in ARMS])

    def extra(self, world: str, t: int) -> Array:
        """A column for each mean delay: regret above that without delay."""
        none = self.at(world, "0", t)
        return paired([self.at(world, with_mean(m), t) - none for m in MEANS[1:]])


def paired(columns: Sequence[pd.Series]) -> Array:
    """These columns, for the seeds that all of them have."""
    return pd.concat(columns, axis=1).dropna().to_numpy()
