"""Bandits in sound and in harmful situations: what do they warn of?

Three actions have click rates of 2, 5 and 10 %, with one decision per minute. A reward arrives ten
minutes later on average.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from heapq import heappop, heappush

import numpy as np

from belated import Bandit, Bernoulli, DefaultAfter, DelayedUCB, Explicit
from belated.advice import CHECKS
from belated.core.inputs import Matrix
from belated.core.rewards import Rewards

RATES = np.array([0.02, 0.05, 0.10])
ROUNDS = 2_000
MINUTE = 60_000_000
HOUR = timedelta(hours=1)

Rows = Callable[[np.random.Generator], Matrix]
Wait = Callable[[np.random.Generator, float], float]


def arms(rng: np.random.Generator) -> Matrix:
    """A row for each action, and no context."""
    return np.eye(3)


def contexts(rng: np.random.Generator) -> Matrix:
    """An intercept for each action, and two features of the user: rows of length about 1."""
    return np.column_stack([0.8 * np.eye(3), np.tile(rng.normal(0.0, 0.4, size=2), (3, 1))])


def bare(rng: np.random.Generator) -> Matrix:
    """Three features of each action and user, and no intercept."""
    return rng.normal(0.0, 0.6, size=(3, 3))


def scaled(size: float) -> Rows:
    """Rows with contexts, in another unit."""
    return lambda rng: size * contexts(rng)


def ordinary(rng: np.random.Generator, reward: float) -> float:
    """Return a delay of ten minutes on average."""
    return float(rng.exponential(10.0))


def bad_news_late(rng: np.random.Generator, reward: float) -> float:
    """Return a delay of ten minutes on average for a click, of an hour for none."""
    return float(rng.exponential(10.0 if reward else 60.0))


@dataclass(frozen=True)
class Situation:
    """How a bandit is used.

    Attributes:
        rewards: the configured meaning of a missing reward.
        both: whether both outcomes are reported, or only clicks.
        rows: returns the rows of a decision.
        wait: minutes until a reward is reported.
        rates: the click rates of the actions.
        reported: number of decisions whose rewards are reported, before reports stop.
        times: how often each reward is reported.
        expected: the expected warning; None for a sound situation.
    """

    rewards: Rewards
    both: bool
    rows: Rows = arms
    wait: Wait = ordinary
    rates: tuple[float, ...] = tuple(RATES)
    reported: int = ROUNDS
    times: int = 1
    expected: str | None = None


LIKELY = (0.2, 0.3, 0.4)

SITUATIONS = {
    "both outcomes, Explicit": Situation(Explicit(), True),
    "both outcomes, Explicit(1 h)": Situation(Explicit(HOUR), True),
    "clicks only, DefaultAfter(1 h)": Situation(DefaultAfter(HOUR), False),
    "both outcomes, Explicit, contexts": Situation(Explicit(), True, contexts),
    "clicks only, DefaultAfter(1 h), contexts": Situation(DefaultAfter(HOUR), False, contexts),
    "rows ×.1": Situation(Explicit(), True, scaled(0.1)),
    "rows ×10": Situation(Explicit(), True, scaled(10.0)),
    "clicks only, Explicit": Situation(Explicit(), False, expected="alike"),
    "clicks only, Explicit(1 h)": Situation(Explicit(HOUR), False, expected="alike"),
    "rows ×.001": Situation(Explicit(), True, scaled(1e-3), expected="scale"),
    "rows ×1,000": Situation(Explicit(), True, scaled(1e3), expected="scale"),
    "no intercept": Situation(Explicit(), True, bare, expected="intercept"),
    "no reward at all": Situation(Explicit(), True, reported=0, expected="silence"),
    "rewards stop after 600": Situation(Explicit(), True, reported=600, expected="silence"),
    "clicks stop after 1,000": Situation(
        DefaultAfter(HOUR), False, reported=1_000, rates=LIKELY, expected="silence"
    ),
    "bad news late": Situation(
        Explicit(), True, wait=bad_news_late, rates=LIKELY, expected="dependence"
    ),
    "a window of 12 h": Situation(DefaultAfter(12 * HOUR), False, rates=LIKELY, expected="window"),
    "each reward twice": Situation(Explicit(), True, times=2, expected="duplicates"),
}


@dataclass
class Run:
    """The results of a run.

    Attributes:
        actions: the chosen actions.
        warned: by warning, the number of decisions after which it appeared.
    """

    actions: list[int] = field(default_factory=list)
    warned: dict[str, int] = field(default_factory=dict)

    @property
    def right(self) -> bool:
        """Whether the best action was chosen most often among the last 500."""
        return int(np.bincount(self.actions[-500:], minlength=3).argmax()) == 2


def run(situation: Situation, seed: int, rounds: int = ROUNDS) -> Run:
    """Run one bandit from its first decision on."""
    rng, result, now = np.random.default_rng(seed), Run(), 1_700_000_000_000_000
    reports: list[tuple[int, int, str, float]] = []
    dim = situation.rows(np.random.default_rng(0)).shape[1]
    bandit = Bandit(
        policy=DelayedUCB(dim, Bernoulli()),
        rewards=situation.rewards,
        seed=seed,
        clock=lambda: now,
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(rounds):
            now += MINUTE
            while reports and reports[0][0] <= now:
                _, _, id, reward = heappop(reports)
                for _ in range(situation.times):
                    bandit.observe(id, reward)
            decision = bandit.decide(rows=situation.rows(rng))
            result.actions.append(decision.index)
            reward = float(rng.random() < situation.rates[decision.index])
            if n < situation.reported and (reward or situation.both):
                at = now + int(MINUTE * situation.wait(rng, reward))
                heappush(reports, (at, n, decision.id, reward))
            for warning in caught:
                result.warned.setdefault(_name(warning), n + 1)
            caught.clear()
    return result


def _name(warning: warnings.WarningMessage) -> str:
    """Return the name of the check, from the link in its message."""
    message = str(warning.message)
    return next((name for name in CHECKS if message.endswith(f"#{name}")), message)
