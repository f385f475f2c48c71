"""What the prompt shows of a value fits on a few lines, however much is in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from belated import (
    Bandit,
    ConversionsOnly,
    DelayedUCB,
    Holdout,
    MemoryJournal,
    PerArm,
    delays,
    environments,
    simulate,
)
from belated.core.results import MAX_REPR
from belated.testing import ManualClock

NAMES = [f"offer number {n}" for n in range(40)]
FIELDS = [f"field_{n}" for n in range(30)]


def wide() -> dict[str, Any]:
    """Values with much in them."""
    clock = ManualClock()
    bandit = Bandit(
        PerArm(NAMES, context=FIELDS),
        rewards=ConversionsOnly("2d"),
        holdout=Holdout(0.3, NAMES[0]),
        floor=0.9,
        journal=MemoryJournal(clock=clock),
        clock=clock,
        seed=1,
    )
    rng, decisions = np.random.default_rng(0), []
    for n in range(300):
        clock.now += 600_000_000
        decisions.append(bandit.decide(dict(zip(FIELDS, rng.random(30).tolist(), strict=True))))
        if n % 3:  # enough for the delays of several actions to be compared
            bandit.observe(decisions[-1], 1.0)
    world = environments.fixed(seed=1)
    return {
        "bandit": bandit,
        "decision": decisions[0],
        "entry": bandit.entry(decisions[0]),
        "request": bandit.entry(decisions[0]).request,
        "scores": bandit.score(dict.fromkeys(FIELDS, 0.5)),
        "estimate": bandit.estimate,
        "prior": bandit.estimate.prior,
        "lift": bandit.lift(),
        "value": bandit.evaluate("uniform"),
        "curve": bandit.delay_curve(),
        "dependence": bandit.delay_depends(),
        "forecast": bandit.forecast([f"{n}h" for n in range(1, 9)]),
        "report": bandit.report(),
        "table": bandit._log().table(),
        "trace": simulate(DelayedUCB(), world, delays.Constant(3), horizon=30),
        "environment": world,
        "delay": delays.Empirical(list(range(1_000))),
    }


VALUES = wide()


@pytest.mark.parametrize("name", VALUES)
def test_a_repr_is_short(name: str) -> None:
    """One line of at most 300 characters, which names what it is."""
    text = repr(VALUES[name])
    assert len(text) <= MAX_REPR
    assert "\n" not in text
    assert type(VALUES[name]).__name__ in text
