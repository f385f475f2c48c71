"""Months of sound delays: does the continuous check of a bandit ever warn of dependence?

200 decisions per day for 30 days, three actions with a θ each and two features of the user. Delays
do not depend on the reward, given the row; they depend on nothing, on the action, on the user, or
end at midnight, when all rewards of a day are delivered. Prints how many of the months warned, and
the largest ratio of the statistic to its limit.

Run: python -m experiments.dependence.months [MONTHS] [FIRST SEED]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import sys
import warnings
from collections.abc import Callable
from heapq import heappop, heappush

import numpy as np

from belated import Bandit, Bernoulli, DelayedUCB, Explicit
from belated.core.inputs import Matrix

DAYS, A_DAY, ACTIONS = 30, 200, 3
HOUR = 3_600_000_000
DAY = 24 * HOUR
START = 19_700 * DAY
#: The logits of a reward: intercept and effects of the two features, by action.
THETA = np.array([[-1.5, 0.8, 0.0], [-1.0, 0.0, 0.8], [-0.5, -0.6, 0.5]])

#: Microseconds until a reward comes, by the action, the features and the time.
Wait = Callable[[np.random.Generator, int, Matrix, int], float]


def _any(rng: np.random.Generator, action: int, user: Matrix, now: int) -> float:
    return float(rng.exponential(20.0 * HOUR))


def _by_action(rng: np.random.Generator, action: int, user: Matrix, now: int) -> float:
    return float(rng.exponential((5.0, 20.0, 60.0)[action] * HOUR))


def _by_user(rng: np.random.Generator, action: int, user: Matrix, now: int) -> float:
    return float(rng.exponential(20.0 * HOUR * np.exp(user[0])))


def _midnight(rng: np.random.Generator, action: int, user: Matrix, now: int) -> float:
    arrival = now + int(rng.exponential(10.0 * HOUR))
    return float((arrival // DAY + 1) * DAY - now)


WAITS: dict[str, Wait] = {
    "nothing": _any,
    "the action": _by_action,
    "the user": _by_user,
    "midnight": _midnight,
}


def month(wait: Wait, seed: int) -> tuple[bool, float]:
    """Return whether the bandit warned, and the largest of the ratios that metrics show."""
    rng, now, largest = np.random.default_rng([seed, 50]), START, 0.0
    bandit = Bandit(
        policy=DelayedUCB(3 * ACTIONS, Bernoulli()),
        rewards=Explicit(),
        clock=lambda: now,
        seed=seed,
    )
    out: list[tuple[int, int, str, float]] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(DAYS * A_DAY):
            now += int(rng.exponential(DAY / A_DAY))
            while out and out[0][0] <= now:
                _, _, id, reward = heappop(out)
                bandit.observe(id, reward)
            user = np.append(1.0, rng.normal(0.0, 0.6, size=2))
            decision = bandit.decide(rows=np.kron(np.eye(ACTIONS), user))
            chance = 1.0 / (1.0 + np.exp(-THETA[decision.index] @ user))
            due = now + int(wait(rng, decision.index, user[1:], now))
            heappush(out, (due, n, decision.id, float(rng.random() < chance)))
            dependence = bandit._follower._adviser.dependence
            largest = max(largest, 0.0 if dependence is None else dependence.ratio)
    return any("dependence" in str(warning.message) for warning in caught), largest


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 41_000
    print(f"{DAYS} days, {A_DAY} decisions a day, seeds from {first}")
    print("| delays depend on | months | warned | largest statistic / limit |")
    print("|---|--:|--:|--:|")
    share = count // len(WAITS)
    for place, (name, wait) in enumerate(WAITS.items()):
        seeds = range(first + place * share, first + (place + 1) * share)
        results = [month(wait, seed) for seed in seeds]
        warned, largest = (
            sum(is_warned for is_warned, _ in results),
            max(ratio for _, ratio in results),
        )
        print(f"| {name} | {share} | {warned} | {largest:.2f} |", flush=True)


if __name__ == "__main__":
    main()
