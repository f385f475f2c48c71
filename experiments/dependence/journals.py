"""Runs of a learning policy, as tables for tests of dependence.

DelayedUCB on four actions with a θ each and contexts, one decision per second. Delays are
geometric, such that a fifth of the rewards is pending at the end.
"""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np

from belated import Bernoulli, DelayedUCB, Explicit, delays, environments, simulate
from belated.core.inputs import Vector
from belated.delays import NEVER, DelayProcess
from belated.evaluation import NEVER as NONE
from belated.evaluation.delays import delay_depends
from belated.evaluation.table import DecisionTable

ROUNDS, ARMS, WIDTH = 2_000, 4, 3
SECOND = 1_000_000
START = 1_700_000_000 * SECOND
#: Mean delays: of all, and of slow and fast ones, where one has twice the hazard of the other.
MEAN, SLOW, QUICK = 400, 580, 290

Depends = Literal["nothing", "reward", "action"]


def _law(depends: Depends) -> DelayProcess:
    if depends == "nothing":
        return delays.Geometric(mean=MEAN)
    if depends == "reward":
        slow, quick = delays.Geometric(mean=SLOW), delays.Geometric(mean=QUICK)
        return delays.RewardDependent(zero_law=slow, one_law=quick)
    return delays.ContextDependent(_rate)


def _rate(x: Vector) -> float:
    """Return the rate of a row: two of the actions are slow."""
    action = int(np.flatnonzero(x)[0]) // WIDTH
    return 1.0 / (SLOW if action < ARMS // 2 else QUICK)


def journal(depends: Depends, seed: int) -> DecisionTable:
    """Return what is known after the last decision."""
    world = environments.arms(seed, n_arms=ARMS, width=WIDTH)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        policy = DelayedUCB(world.dim, Bernoulli())
        trace = simulate(policy, world, _law(depends), horizon=ROUNDS, seed=seed)
    rounds = np.arange(ROUNDS, dtype=np.int64)
    is_reported = (trace.delay != NEVER) & (rounds + np.minimum(trace.delay, ROUNDS) < ROUNDS)
    wait = np.where(is_reported, trace.delay, 0)
    return DecisionTable.of(
        made=START + (rounds + 1) * SECOND,
        rewarded=np.where(is_reported, START + (rounds + 1 + wait) * SECOND, NONE),
        value=np.where(is_reported, trace.rewards, np.nan),
        action=trace.actions,
        rewards=Explicit(),
        as_of=START + ROUNDS * SECOND,
    )


def rejected(table: DecisionTable, on: Literal["action", "reward"]) -> bool:
    """Return whether the test at 5 % finds that delays depend on it."""
    return delay_depends(table, on).p < 0.05
