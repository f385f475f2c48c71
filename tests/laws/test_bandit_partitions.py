"""Neither the number of partitions nor features that grow show in what is learned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, note, settings, strategies as st

from belated import (
    Bandit,
    Bernoulli,
    DelayedUCB,
    Explicit,
    Gaussian,
    PerArm,
    Uniform,
)
from belated.core.rewards import Rewards
from belated.exceptions import RewardConflict
from belated.journals import MemoryJournal
from belated.model.families import Family
from belated.testing import ManualClock
from tests.laws.bandit_settings import (
    DIM,
    NAMES,
    REWARDS,
    VALUES,
    Settings,
    assert_same,
    names,
    rows_of,
    span,
)

# --- the number of partitions ------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["decide", "observe", "observe", "activate", "void", "settle"]),
        names,
        VALUES,
        st.integers(0, 12),
    ),
    max_size=40,
)


@given(STEPS, REWARDS)
@settings(max_examples=100)
def test_the_number_of_partitions_does_not_show(
    steps: list[tuple[str, str, float, int]], rewards: Rewards
) -> None:
    """The same calls at 1, 2 and 16 partitions: same digest, states and estimate."""
    bandits = []
    for partitions in (1, 2, 16):
        clock = ManualClock()
        journal = MemoryJournal(partitions=partitions, clock=clock)
        # Uniform choices do not depend on the order in which rounding errors were made.
        uniform = Settings(Uniform(DIM, Bernoulli()), rewards, None)
        bandit = uniform.open(journal, clock)
        bandit._rng = np.random.default_rng(5)
        for verb, name, value, pause in steps:
            clock.now += pause
            if verb == "decide":
                bandit.decide(rows=rows_of(name), id=name, activated=pause % 4 > 0)
            elif verb == "observe":
                try:
                    bandit.observe(name, value)
                except RewardConflict:
                    bandit.observe(name, value, revision=pause + 1)
            elif verb == "activate":
                bandit.activate(name)
            elif verb == "void":
                bandit.void(name)
            else:
                bandit.settle()
        clock.now += 1000
        bandit.settle()
        bandits.append(bandit)
    first = bandits[0]
    for variant in bandits[1:]:
        assert variant.digest == first.digest
        assert variant.decision_counts == first.decision_counts
        assert [variant.entry(name).state for name in NAMES] == [
            first.entry(name).state for name in NAMES
        ]
        np.testing.assert_allclose(variant.estimate.theta, first.estimate.theta, atol=1e-8)


# --- features that grow ------------------------------------------------------------------------


@given(
    st.lists(
        st.sampled_from(["decide", "decide", "observe", "observe", "void", "grow", "save", "open"]),
        max_size=40,
    ),
    st.sampled_from([Gaussian(), Bernoulli()]),
    st.sampled_from([1, 4]),
    st.randoms(use_true_random=False),
)
@settings(max_examples=100)
def test_features_may_grow_at_any_time(
    steps: list[str], family: Family, partitions: int, random: Any
) -> None:
    """Older rows stay as they are; a snapshot of before is of no use, and does no harm."""
    clock = ManualClock()
    journal = MemoryJournal(partitions=partitions, clock=clock)
    features = PerArm(["arm 0"], context=1)
    setup = Settings(
        DelayedUCB(features.dim, family).bound_to(features), Explicit(span(60)), span(90)
    )

    def opened() -> Bandit:
        return Bandit(
            policy=setup.policy,
            rewards=setup.rewards,
            retention=setup.retention,
            journal=journal,
            features=features,
            clock=clock,
            seed=1,
        )

    bandit, ids = opened(), [*NAMES[:2]]
    for step in steps:
        clock.now += random.randrange(12)
        if step == "decide":
            ids.append(bandit.decide([random.random()], features.actions).id)
        elif step == "observe":
            try:
                bandit.observe(random.choice(ids), float(random.random() < 0.5))
            except RewardConflict as error:
                note(f"refused: {error}")
        elif step == "void":
            bandit.void(random.choice(ids))
        elif step == "save":
            bandit.save()
        else:
            if step == "grow":
                features = features.with_actions([f"arm {len(features.actions)}"])
                policy = DelayedUCB(features.dim, family).bound_to(features)
                setup = replace(setup, policy=policy, features=features)
            before, bandit = bandit, opened()
            assert bandit.digest == before.digest
            assert bandit.decision_counts == before.decision_counts
            blocks = before.policy.blocks
            np.testing.assert_allclose(
                bandit.estimate.theta[:blocks], before.estimate.theta, atol=1e-8
            )
            np.testing.assert_allclose(bandit.estimate.theta[blocks:], 0.0, atol=1e-12)
        assert_same(bandit._fold, setup.fold(journal))
