"""A user's program, to check the types of the installed wheel: see .ci/wheel.

``mypy --strict`` and ``pyright`` must accept it: all public names have types, with the guarantees
that users rely on.
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
    """Decide with a context, observe, and read the entry."""
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
    """Decide with rows, in a batch."""
    bandit = Bandit(policy=DelayedThompson(3, Gaussian()), rewards=Explicit("1d"), seed=1)
    decisions = bandit.decide_many(rows=[np.eye(3), np.ones((2, 3))])
    assert_type(decisions, list[Decision])
    bandit.observe_many([(decision.id, 0.5) for decision in decisions])
    return len(decisions)


def wrong() -> None:
    """Make mistakes that the checkers must detect: an unused ignore comment is an error, too."""
    Bandit(policy=DelayedUCB(3, Bernoulli()), rewards="1d")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    DefaultAfter(window=[1])  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


if __name__ == "__main__":
    print(shop(), rows())
