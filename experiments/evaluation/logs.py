"""Logs of decisions whose truth is known: logistic rewards, mildly misspecified, and late.

2,000 rounds of 5 actions with 6 features. The delay is at most ``longest`` rounds: its law is an
exponential one that is cut off there, and where it depends on the reward, good rewards are four
times as fast. Half of the delays of ``50 %`` are longer than what is left of the log.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from belated import Bernoulli, DefaultAfter, DelayedThompson, DelayedUCB, Explicit
from belated.evaluation.columns import NEVER
from belated.evaluation.requests import Offers
from belated.evaluation.table import DecisionTable
from belated.fold.learner import Learner
from belated.model.kernels import complete
from belated.policies import Policy

ROUNDS, ACTIONS, DIM = 2_000, 5, 6
#: Microseconds of a round.
ROUND = 1_000_000
#: Rows that the true value of a policy is an average over.
TRUTH = 20_000
#: Less than any probability that counts: with it a policy tells all of them.
TINY = 1e-300

FAMILY = Bernoulli()
POLICIES: dict[str, Policy] = {
    "UCB, floor .05": DelayedUCB(DIM, FAMILY, floor=0.05),
    "Thompson, floor .02": DelayedThompson(DIM, FAMILY, floor=0.02),
}
WITHOUT_FLOOR: dict[str, Policy] = {
    "UCB": DelayedUCB(DIM, FAMILY, floor=TINY),
    "UCB, randomized": DelayedUCB(DIM, FAMILY, randomized=True),
    "Thompson": DelayedThompson(DIM, FAMILY, floor=TINY),
}
#: Share of rewards that are pending, and whether the delay depends on the reward.
DELAYS = {
    "0 %": (0.0, False),
    "20 %": (0.2, False),
    "20 %, dependent": (0.2, True),
    "50 %": (0.5, False),
    "50 %, dependent": (0.5, True),
}

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class World:
    """Where the rows of actions are, and what they are worth."""

    centers: Array
    theta: Array

    @classmethod
    def of(cls, seed: int) -> World:
        rng = np.random.default_rng([230, seed])
        centers = 0.45 * rng.normal(size=(ACTIONS, DIM - 1))
        theta = rng.normal(size=DIM - 1)
        return cls(centers, np.append(-0.9, 2.2 * theta / np.linalg.norm(theta)))

    def rows(self, count: int, rng: np.random.Generator) -> Array:
        spread = self.centers + 0.5 * rng.normal(size=(count, ACTIONS, DIM - 1))
        spread /= np.maximum(np.linalg.norm(spread, axis=2, keepdims=True), 1.0)
        rows = np.concatenate([np.ones((count, ACTIONS, 1)), spread], axis=2)
        return rows.astype(np.float32).astype(np.float64)

    def means(self, rows: Array) -> Array:
        """What rows are worth: not quite what a logistic model can say."""
        bend = 0.6 * np.sin(4.0 * rows[:, :, 1]) * (rows[:, :, 2] > 0.0)
        means: Array = 1.0 / (1.0 + np.exp(-(rows @ self.theta + bend)))
        return means

    def targets(self, rows: Array, seed: int) -> dict[str, Array]:
        """Policies that know nothing of the log: for each row its probability."""
        guess = self.theta + 0.35 * np.random.default_rng([231, seed]).normal(size=DIM)
        scores = rows @ guess
        soft = np.exp(3.0 * (scores - scores.max(axis=1, keepdims=True)))
        return {
            "uniform": np.full(rows.shape[:2], 1.0 / ACTIONS),
            "first": np.tile(np.eye(ACTIONS)[0], (len(rows), 1)),
            "soft": soft / soft.sum(axis=1, keepdims=True),
            "greedy": np.eye(ACTIONS)[scores.argmax(axis=1)],
        }


@lru_cache(maxsize=1)  # all logs of a seed are of one world
def true_values(seed: int) -> dict[str, float]:
    """What the targets are worth in a world."""
    world = World.of(seed)
    rows = world.rows(TRUTH, np.random.default_rng([232, seed]))
    means = world.means(rows)
    return {
        name: float((target * means).sum(axis=1).mean())
        for name, target in world.targets(rows, seed).items()
    }


@dataclass(frozen=True, eq=False)
class Log:
    """What a policy decided, and what came of it.

    Attributes:
        longest: possible delay, in rounds.
    """

    rows: Array
    chosen: NDArray[np.int64]
    shares: Array
    reward: Array
    delay: Array
    longest: int

    @property
    def offers(self) -> Offers:
        return offers_of(self.rows.astype(np.float32), self.chosen, self.shares)

    def table(self, conversions: bool = False) -> DecisionTable:
        """What is known after the last round; with ``conversions`` only good rewards are told."""
        decided = np.arange(len(self.chosen), dtype=np.int64) * ROUND
        arrived = decided + (self.delay * ROUND).astype(np.int64)
        is_reported = arrived <= decided[-1]
        if conversions:
            is_reported &= self.reward > 0.0
        return DecisionTable.of(
            made=decided,
            rewarded=np.where(is_reported, arrived, NEVER),
            value=np.where(is_reported, self.reward, np.nan),
            rewards=DefaultAfter(f"{self.longest}s") if conversions else Explicit(),
            propensity=self.shares[np.arange(len(self.chosen)), self.chosen],
        )


def cut_exponential(uniform: Array, scale: float | None, longest: float) -> Array:
    """An exponential law that is cut off; None: the uniform one."""
    if scale is None:
        return uniform * longest
    return -scale * np.log1p(-uniform * (1.0 - math.exp(-longest / scale)))


def delays_of(kind: str, uniform: Array, reward: Array) -> tuple[Array, int]:
    """The delay of each round, and the longest possible one."""
    pending, dependent = DELAYS[kind]
    if not pending:
        return np.zeros(len(uniform)), 1
    spread, wait = 0.5 * ROUNDS, 0.3 * ROUNDS if pending > 0.4 else 0.0
    if dependent:
        fast, slow = (cut_exponential(uniform, scale, spread) for scale in (0.1 * ROUNDS, None))
        span = np.where(reward > 0.0, fast, slow)
    else:
        span = cut_exponential(uniform, 0.4 * ROUNDS, spread)
    return np.floor(wait + span), int(wait + spread)


def log_of(policy: Policy, kind: str, seed: int) -> Log:
    """Run a policy in a world of its own."""
    world = World.of(seed)
    rng, draws = np.random.default_rng([233, seed]), np.random.default_rng([234, seed])
    rows = world.rows(ROUNDS, rng)
    luck, wait = rng.random(ROUNDS), rng.random(ROUNDS)
    rewards = (luck[:, None] < world.means(rows)).astype(np.float64)
    waits = [delays_of(kind, wait, np.full(ROUNDS, y))[0] for y in (0.0, 1.0)]
    longest = delays_of(kind, wait, luck)[1]
    learner = Learner(policy, kernels=complete())
    arriving: list[list[int]] = [[] for _ in range(ROUNDS)]
    observations: list[tuple[Array, float, float]] = []
    chosen, shares = [], []
    for t in range(ROUNDS):
        for s in arriving[t]:
            learner.learn(*observations[s])
        choice = policy.choose(learner.model, rows[t], draws)
        y = float(rewards[t, choice.index])
        learner.add_pending(rows[t, choice.index], choice.weight)
        observations.append((rows[t, choice.index], y, choice.weight))
        due = t + int(waits[int(y)][t]) + 1
        if due < ROUNDS:
            arriving[due].append(t)
        chosen.append(choice.index)
        shares.append(choice.shares)
    reward = np.array([y for _, y, _ in observations])
    delay = np.where(reward > 0.0, waits[1], waits[0])
    return Log(rows, np.array(chosen), np.array(shares, dtype=np.float64), reward, delay, longest)


def offers_of(rows: NDArray[np.float32], chosen: NDArray[np.int64], shares: Array) -> Offers:
    """The offers of decisions that all had the same number of actions.

    Args:
        rows: decisions × actions × features.
        chosen: index of the action of each decision.
        shares: decisions × actions.
    """
    count, actions, dim = rows.shape
    starts = np.arange(count, dtype=np.int64) * actions
    return Offers(
        rows=rows.reshape(-1, dim),
        starts=starts,
        chosen=starts + chosen,
        propensity=np.asarray(shares, dtype=np.float64).reshape(-1),
        actions=np.tile(np.arange(actions), count).astype(object),
        kept=np.ones(count),
    )
