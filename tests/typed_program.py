"""A user's program, whose types are checked against the installed wheel: see .ci/wheel.

Both ``mypy --strict`` and ``pyright`` must accept it: all public names have types, and the types
say what a user relies on.
"""

from datetime import datetime, timedelta
from typing import assert_type

import numpy as np

from belated import (
    Bandit,
    Bernoulli,
    ConversionsOnly,
    Decision,
    DefaultAfter,
    DelayedThompson,
    DelayedUCB,
    Explicit,
    Gaussian,
    Holdout,
    PerArm,
    Receipt,
)


def shop() -> float | None:
    """Decide by a context, observe, and look back."""
    features = PerArm(["blue", "green"], context=["age", "returning"])
    policy = DelayedUCB(family=Bernoulli(), floor=0.05)
    rewards = ConversionsOnly(timedelta(days=7))
    holdout = Holdout(0.1, "blue")
    with Bandit(features, rewards=rewards, policy=policy, holdout=holdout) as bandit:
        decision = bandit.decide({"age": 0.3, "returning": 1.0})
        assert_type(decision, Decision)
        assert_type(decision.id, str)
        assert_type(decision.propensity, float)
        assert_type(decision.at, datetime)
        receipt = bandit.observe(decision.id, 1.0)
        assert_type(receipt, Receipt)
        assert_type(receipt.status, str)
        status = bandit.entry(decision.id)
        return None if status is None else status.value


def rows() -> int:
    """Decide among rows, many at once."""
    bandit = Bandit(policy=DelayedThompson(3, Gaussian()), rewards=Explicit("1d"), seed=1)
    made = bandit.decide_many(rows=[np.eye(3), np.ones((2, 3))])
    assert_type(made, list[Decision])
    bandit.observe_many([(one.id, 0.5) for one in made])
    return len(made)


def wrong() -> None:
    """What a checker must refuse: an ignored error that is not there is one itself."""
    Bandit(policy=DelayedUCB(3, Bernoulli()), rewards="1d")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    DefaultAfter(window=[1])  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


if __name__ == "__main__":
    print(shop(), rows())
