"""What a bandit is made of, checked before anything is opened or written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from belated.exceptions import InvalidInput
from belated.features import Features
from belated.inputs import check_made
from belated.journals import Journal, open_journal
from belated.learner import check_learnable
from belated.policies import Policy
from belated.rewards import Rewards, check_default, check_semantics


def check_policy(policy: Any, rewards: Any, features: Features | None) -> tuple[Policy, Rewards]:
    """Return policy and rewards, if they fit each other and the features."""
    check_made(policy, "policy", needs="choose", example="DelayedUCB(dim=3, family=Bernoulli())")
    check_semantics(rewards)
    if features is not None:
        check_made(features, "features", needs="rows", example="PerArm(['red', 'blue'])")
        if features.dim != policy.dim:
            message = f"features.dim is {features.dim} but policy.dim is {policy.dim}"
            raise InvalidInput(f"{message}: they must be equal, policy.dim=features.dim", features)
    check_default(rewards, policy.family.support)
    check_learnable(policy, rewards)
    return policy, rewards


def opened(journal: Any) -> Journal:
    """Return a journal that was given, or the one at an address."""
    if isinstance(journal, str):
        return open_journal(journal)
    if isinstance(journal, Path):
        message = f"journal is {journal!r}: pass its address"
        raise InvalidInput(f"{message}, 'sqlite:///{journal}?bandit=offers'", journal)
    example = "'sqlite:///offers.db?bandit=offers', or SQLiteJournal('offers.db', bandit='offers')"
    check_made(journal, "journal", needs="append", example=example)
    found: Journal = journal
    return found


def check_clock(clock: Any) -> Callable[[], int]:
    """Return a clock that gives whole microseconds."""
    now = clock() if callable(clock) else None
    if not isinstance(now, int) or isinstance(now, bool):
        what = f"returned {now!r}" if callable(clock) else f"is {clock!r}"
        message = f"clock {what}: pass a function that returns whole microseconds since 1970"
        raise InvalidInput(f"{message}, lambda: time.time_ns() // 1000", clock)
    found: Callable[[], int] = clock
    return found


def check_seed(seed: Any) -> None:
    """Refuse what is no seed."""
    if seed is None or isinstance(seed, np.random.Generator):
        return
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0:
        message = f"seed is {seed!r}: a whole number of at least 0 was expected"
        raise InvalidInput(f"{message}, or a numpy Generator", seed)


def generator_of(
    seed: int | np.random.Generator | None, positions: list[int]
) -> np.random.Generator:
    """Return the source of randomness; neither a restart nor a second process repeats draws."""
    if isinstance(seed, np.random.Generator):
        return seed
    return np.random.default_rng(None if seed is None else [int(seed), *positions])
