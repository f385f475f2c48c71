"""Problems that change, and the same that do not; half-lives, and delays in rounds.

d = 10, 20 actions, logistic rewards, |θ| = 3. Rows are drawn on the sphere in every round
(``fresh``), or are the same 20 throughout (``fixed``). θ stays; is another one from the middle of
the run on; or walks on its sphere and has forgotten its direction after some 4,000 rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np

from belated import Bernoulli, DelayedUCB, delays
from belated.core.inputs import Matrix, Vector
from belated.delays import DelayProcess
from belated.model.families import Family
from belated.simulation.environments import GLM, Environment, draw_theta, fixed, fresh

Kind = Literal["stays", "replaced", "walks"]
#: Rounds after which a walk has forgotten its direction.
CORRELATION = 4_000
#: Half-lives in rounds, which are a second apart; None forgets nothing.
SINGLE = (None, 5000, 2000, 1000, 500, 250, 150)


@dataclass(frozen=True, eq=False)
class Changing:
    """The rows of ``start`` under a θ that changes."""

    start: GLM
    kind: Kind
    seed: int
    family: Family = field(default_factory=Bernoulli)

    @property
    def dim(self) -> int:
        return self.start.dim

    def rounds(self, horizon: int, rng: np.random.Generator) -> Iterator[tuple[Matrix, Vector]]:
        path = self._path(horizon)
        for theta, (rows, _) in zip(path, self.start.rounds(horizon, rng), strict=True):
            yield rows, self.family.mean(rows @ theta)

    def reward(self, mean: float, u: float) -> float:
        return self.start.reward(mean, u)

    def _path(self, horizon: int) -> Matrix:
        """θ in each round."""
        rng = np.random.default_rng([self.seed, 20])
        path = np.tile(self.start.theta, (horizon, 1))
        if self.kind == "replaced":
            path[horizon // 2 :] = draw_theta(self.dim, 3.0, rng)
        elif self.kind == "walks":
            step = math.sqrt(2.0 / ((self.dim - 1) * CORRELATION))
            length = float(np.linalg.norm(self.start.theta))
            unit = self.start.theta / length
            for t, move in enumerate(rng.normal(size=(horizon, self.dim))):
                path[t] = length * unit
                unit = unit + step * (move - (move @ unit) * unit)
                unit /= np.linalg.norm(unit)
        return path


def changing(seed: int, rows: Callable[[int], GLM], kind: Kind) -> Environment:
    start = rows(seed)
    return start if kind == "stays" else Changing(start, kind, seed)


def policy(half_life: int | str | None) -> Callable[[Environment], DelayedUCB]:
    text = f"{half_life}s" if isinstance(half_life, int) else half_life
    return lambda world: DelayedUCB(world.dim, Bernoulli(), half_life=text)


def name_of(half_life: int | str | None) -> str:
    return "none" if half_life is None else str(half_life)


POLICIES = {name_of(half_life): policy(half_life) for half_life in ("auto", *SINGLE)}
ROWS: dict[str, Callable[[int], GLM]] = {"fresh": fresh, "fixed": fixed}
WORLDS: dict[str, Callable[[int], Environment]] = {
    f"{kind}, {rows}": partial(changing, rows=make, kind=kind)
    for kind in ("stays", "replaced", "walks")
    for rows, make in ROWS.items()
}
DELAYS: dict[str, DelayProcess] = {
    "0": delays.Constant(0),
    "geo100": delays.Geometric(mean=100),
    "geo1000": delays.Geometric(mean=1000),
    "batch1000": delays.Batched(1000),
}
