"""Posterior sampling that knows what is still outstanding."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, cast

import numpy as np

from belated.core.inputs import Matrix, Row, Vector
from belated.exceptions import InvalidInput
from belated.model.model import Model
from belated.policies.policy import Choice, Policy

#: Above this many rows half of the draws are used: scoring all of them is what a choice costs.
MANY_ROWS = 32


@dataclass(frozen=True)
class DelayedThompson(Policy):
    """Draw θ from the posterior with pending decisions counted, and choose its best row.

    A pool of draws around θ̂ is kept with the model: one of them, taken at random, chooses, and the
    propensity is the share of draws that agree; equal rows divide it evenly. θ̂ itself is always
    the current one; the deviations are drawn anew when decisions have grown by a tenth. The shares
    of the other actions are known, and kept with a decision's request, only with a floor: to count
    them all takes longer.

    Args:
        scale: of the deviations; 1 is the textbook, .7 costs less regret.
        draws: in the pool; propensities are multiples of its inverse.
        refresh: the growth in decisions after which the pool is drawn anew; 0 for every choice.

    >>> from belated import Bernoulli
    >>> policy = DelayedThompson(2, Bernoulli())
    >>> model = Model(policy.start, policy.family)
    >>> choice = policy.choose(model, np.eye(2), np.random.default_rng(0))
    >>> 0.0 < choice.propensity < 1.0
    True
    """

    _: KW_ONLY
    scale: float = 0.7
    draws: int = 64
    refresh: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        whole = isinstance(self.draws, int) and self.draws >= 2
        if not (self.scale >= 0 and whole and self.refresh >= 0):
            message = f"scale={self.scale!r}, draws={self.draws!r}, refresh={self.refresh!r}"
            raise InvalidInput(f"{message}: at least 0, 2 and 0, draws whole", self.draws)

    def choose(self, model: Model, rows: Any, rng: np.random.Generator) -> Choice:
        """The best row of one draw (Alg. 2, l. 10–11)."""
        pool = self.pool(model, len(rows), rng)
        if self.floor:
            table = model.table(rows)
            best = model.winners(table, pool)
            shares = np.bincount(best, minlength=len(rows)) / len(best)
            return self.mixed(model, rows, rng, _divided(table, shares))
        index, share, mean, weight = model.sampled(rows, pool, rng.random())
        return Choice(index, share, mean, weight)

    def pool(self, model: Model, count: int, rng: np.random.Generator) -> Row:
        """Deviations from θ̂, a draw a column: those at hand, or new ones for ``count`` rows."""
        key, decisions = ("pool", self.scale, self.draws), model.decisions
        pool, at = model.derived.get(key, (None, 0))
        if pool is None or decisions - at >= self.refresh * decisions:
            draws = self.draws if count <= MANY_ROWS else (self.draws + 1) // 2
            _, roots = model.stacked()
            blocks, size, _ = roots.shape
            pool = np.ones((blocks, size + 1, draws), dtype=np.float32)  # the last: for the means
            pool[:, :-1] = self.scale * (roots @ rng.standard_normal((blocks, size, draws)))
            model.derived[key] = pool, decisions
        return cast(Row, pool)


def _divided(rows: Matrix, shares: Vector) -> Vector:
    """The same shares, divided evenly among equal rows: a draw names only the first of them."""
    for index in np.flatnonzero(shares):
        twins = (rows == rows[index]).all(axis=1)
        shares[twins] = shares[twins].mean()
    return shares
