"""Warnings come where users get hurt, and not where all is well: see `experiments/advice`."""

from __future__ import annotations

import pytest

from belated import DelayedThompson, DelayedUCB, Gaussian
from belated.policies import Policy
from experiments.advice.scales import DIM, SCALES, regrets
from experiments.advice.situations import SITUATIONS, run

HONEST = [name for name, situation in SITUATIONS.items() if situation.expected is None]
PLANTED = [name for name, situation in SITUATIONS.items() if situation.expected is not None]
CLICKS = "clicks only, DefaultAfter(1 h)"
TRAP = "clicks only, Explicit"


@pytest.mark.parametrize("name", HONEST)
def test_where_all_is_well_nothing_is_said(name: str, full: bool) -> None:
    """No warning of any kind, under either semantics; and clicks alone lead to the best action."""
    runs = [run(SITUATIONS[name], seed) for seed in range(40 if full else 2)]
    assert [outcome.warned for outcome in runs if outcome.warned] == []
    if name == CLICKS:
        assert sum(outcome.right for outcome in runs) >= 0.95 * len(runs)


@pytest.mark.parametrize("name", PLANTED)
def test_what_hurts_is_warned_of_and_nothing_else(name: str, full: bool) -> None:
    """In 38 of 40 runs at least; of clicks alone within 1,000 decisions."""
    situation = SITUATIONS[name]
    runs = [run(situation, seed) for seed in range(40 if full else 2)]
    limit = 1_000 if situation.expected == "alike" else 2_000
    warned = [
        outcome
        for outcome in runs
        if outcome.warned.get(str(situation.expected), limit + 1) <= limit
    ]
    assert len(warned) >= 0.95 * len(runs)
    assert {warning for outcome in runs for warning in outcome.warned} <= {situation.expected}


@pytest.mark.parametrize("make", [DelayedUCB, DelayedThompson])
def test_regret_goes_with_the_scale_of_rewards(make: type[Policy], full: bool) -> None:
    """Whether in cents or in euros: within 15 % for .01, 1 and 100."""
    seeds = range(40 if full else 10)
    means = [regrets(make(DIM, Gaussian()), scale, seeds).mean() for scale in SCALES]
    assert max(means) <= 1.15 * min(means)
    reference = regrets(make(DIM, Gaussian(0.25)), 1.0, seeds)
    assert means[1] <= 1.3 * reference.mean() + reference.std() / len(reference) ** 0.5
