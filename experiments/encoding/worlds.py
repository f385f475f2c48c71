"""The same problems with hand-made rows and with rows that features make.

A record has numbers on very different scales, a category and a flag (``mixed``), or 64 pixels
(``digits``). Under one seed, all ways to make rows get the same records, random numbers and delays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from belated import Bernoulli, DelayedUCB, PerArm, delays
from belated.core.inputs import Matrix, Vector
from belated.model.families import Family
from belated.policies import Policy
from belated.simulation.environments import Environment, digits, in_blocks

Record = dict[str, Any]

#: Number of records from which ranges and categories are taken.
SAMPLE = 500
ARMS = 5
COUNTRIES = ["AT", "CH", "DE", "FR", "IT", "NO"]
SHARES = [0.4, 0.25, 0.15, 0.1, 0.06, 0.04]
#: Mean and standard deviation of each number.
NUMBERS = {"age": (45.0, 15.0), "income": (6e4, 2e4), "distance": (3e6, 1e6), "rate": (2e-3, 5e-4)}


@dataclass(frozen=True)
class Mixed:
    """Customers: a click's logit is linear in their numbers, country and membership."""

    seed: int

    def draw(self, count: int, rng: np.random.Generator) -> list[Record]:
        numbers = rng.normal(size=(count, len(NUMBERS)))
        countries = rng.choice(len(COUNTRIES), size=count, p=SHARES)
        members = rng.random(count) < 0.4
        return [
            {name: m + s * z for (name, (m, s)), z in zip(NUMBERS.items(), line, strict=True)}
            | {"country": COUNTRIES[country], "member": bool(member)}
            for line, country, member in zip(numbers.tolist(), countries, members, strict=True)
        ]

    def by_hand(self, record: Record) -> Vector:
        """Return a row made with knowledge of the problem; a typical row has length 1."""
        numbers = [(record[name] - m) / s for name, (m, s) in NUMBERS.items()]
        country = [float(record["country"] == name) for name in COUNTRIES]
        row = np.array([1.0, *numbers, *country, float(record["member"])])
        return np.asarray(row / math.sqrt(2.4 + len(NUMBERS)))

    def raw(self, record: Record) -> Vector:
        """Return the raw numbers."""
        country = [float(record["country"] == name) for name in COUNTRIES]
        return np.array([1.0, *(record[name] for name in NUMBERS), *country, record["member"]])

    def rounds(self, horizon: int, rng: np.random.Generator) -> Iterator[tuple[Record, Vector]]:
        theta = np.random.default_rng([self.seed, 27]).normal(size=(ARMS, 12)) * 1.8
        for record in self.draw(horizon, rng):
            yield record, np.asarray(Bernoulli().mean(theta @ self.by_hand(record)))

    def names(self) -> list[str]:
        return [*NUMBERS, "country", "member"]


@dataclass(frozen=True)
class Digits:
    """scikit-learn's digits, each pixel a field of the record."""

    seed: int

    def draw(self, count: int, rng: np.random.Generator) -> list[Record]:
        return [record for record, _ in self.rounds(count, rng)]

    def by_hand(self, record: Record) -> Vector:
        """The rows of ``environments.digits``."""
        return np.array([1.0, *record.values()])

    def rounds(self, horizon: int, rng: np.random.Generator) -> Iterator[tuple[Record, Vector]]:
        names = self.names()
        for rows, means in digits(self.seed).rounds(horizon, rng):
            yield dict(zip(names, rows[0, 1:65].tolist(), strict=True)), means

    def names(self) -> list[str]:
        return [f"p{n}" for n in range(64)]


@dataclass(frozen=True, eq=False)
class World:
    """A problem whose rows are made from records."""

    problem: Mixed | Digits
    arms: int
    make: Callable[[Record], Matrix]
    dim: int
    blocks: int | None = None
    family: Family = field(default_factory=Bernoulli)

    def rounds(self, horizon: int, rng: np.random.Generator) -> Iterator[tuple[Matrix, Vector]]:
        for record, means in self.problem.rounds(horizon, rng):
            yield self.make(record), means

    def reward(self, mean: float, u: float) -> float:
        return float(u < mean)


@dataclass(frozen=True)
class Encoding:
    """Makes a problem from a seed, with rows of one kind."""

    kind: str
    rows: str

    def __call__(self, seed: int) -> World:
        problem: Mixed | Digits = Mixed(seed) if self.kind == "mixed" else Digits(seed)
        arms = ARMS if self.kind == "mixed" else 10
        sample = problem.draw(SAMPLE, np.random.default_rng([seed, 28]))
        if self.rows == "encoded":
            features = PerArm(range(arms), context=problem.names()).fit(sample)
            return World(
                problem,
                arms,
                lambda context: _float64(features.rows(context, range(arms))),
                features.dim,
                features.blocks,
            )
        make = getattr(problem, self.rows.replace(" ", "_"))
        width = len(make(sample[0]))
        return World(
            problem, arms, lambda context: _float32(in_blocks(make(context), arms)), arms * width
        )


def _float64(rows: Any) -> Matrix:
    return np.asarray(rows, dtype=np.float64)


def _float32(rows: Matrix) -> Matrix:
    return rows.astype(np.float32).astype(np.float64)


def usual(world: Environment) -> Policy:
    return DelayedUCB(world.dim, world.family)


WORLDS = {
    f"{kind}: {rows}": Encoding(kind, rows)
    for kind, rows in (
        ("mixed", "by hand"),
        ("mixed", "encoded"),
        ("mixed", "raw"),
        ("digits", "by hand"),
        ("digits", "encoded"),
    )
}
POLICIES = {"DelayedUCB": usual}
DELAYS = {"0": delays.Constant(0), "geo100": delays.Geometric(mean=100)}
HORIZON = {"mixed": 3_000, "digits": 500}
