"""Thompson sampling that accounts for pending rewards."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, cast

import numpy as np

from belated.core.inputs import Matrix, Row, Vector
from belated.exceptions import InvalidInput
from belated.model.model import Model
from belated.policies.policy import Choice, Policy

#: Number of rows above which half as many draws are used, because scoring then dominates the cost.
MANY_ROWS = 32


@dataclass(frozen=True)
class DelayedThompson(Policy):
    """Sample θ from the posterior, including pending decisions, and choose the best row for it.

    The model caches a pool of draws around θ̂. A random draw from the pool makes the choice. The
    propensity is the share of draws that agree with it; identical rows share it evenly. θ̂ is always
    up to date; the deviations are drawn again when the number of decisions has grown by a tenth.
    The shares of the other actions are computed, and stored with the decision's request, only if
    there is a floor, because counting all of them is slower.

    Args:
        scale: multiplier of the deviations; 1 is the textbook value, but 0.7 has less regret.
        draws: number of draws in the pool; propensities are multiples of its inverse.
        refresh: relative growth in the number of decisions after which the pool is drawn again;
            0 means that a new pool is drawn for every choice.

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
            values = f"scale={self.scale!r}, draws={self.draws!r}, refresh={self.refresh!r}"
            message = "`scale` and `refresh` must be at least 0, and `draws` an integer above 1"
            raise InvalidInput(f"{message}; got {values}", self.draws)

    def choose(self, model: Model, rows: Any, rng: np.random.Generator) -> Choice:
        """Choose the best row for one draw of θ (Alg. 2, l. 10–11)."""
        pool = self.pool(model, len(rows), rng)
        if self.floor:
            table = model.table(rows)
            best = model.winners(table, pool)
            shares = np.bincount(best, minlength=len(rows)) / len(best)
            return self.mixed(model, rows, rng, _divided(table, shares))
        index, share, mean, weight = model.sampled(rows, pool, rng.random())
        return Choice(index, share, mean, weight)

    def pool(self, model: Model, count: int, rng: np.random.Generator) -> Row:
        """Return deviations from θ̂, one draw per column; draw again for ``count`` rows if due."""
        key, decisions = ("pool", self.scale, self.draws), model.decisions
        pool, at = model.derived.get(key, (None, 0))
        if pool is None or decisions - at >= self.refresh * decisions:
            draws = self.draws if count <= MANY_ROWS else (self.draws + 1) // 2
            _, roots = model.stacked()
            blocks, size, _ = roots.shape
            # The last row multiplies the means.
            pool = np.ones((blocks, size + 1, draws), dtype=np.float32)
            pool[:, :-1] = self.scale * (roots @ rng.standard_normal((blocks, size, draws)))
            model.derived[key] = pool, decisions
        return cast(Row, pool)


def _divided(rows: Matrix, shares: Vector) -> Vector:
    """Divide shares evenly among identical rows, because a draw selects only the first of them."""
    for index in np.flatnonzero(shares):
        twins = (rows == rows[index]).all(axis=1)
        shares[twins] = shares[twins].mean()
    return shares
