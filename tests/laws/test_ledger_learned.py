"""What the learner holds of a ledger's entries, against the oracle."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st

from belated import Bernoulli, DelayedUCB, Gaussian
from belated.core.events import Event, Record, Reward, Void
from belated.core.inputs import Matrix
from belated.core.rewards import Explicit
from belated.fold.adapter import LearnerAdapter
from belated.fold.learner import Learner
from belated.model.estimators import Estimate, Laplace
from belated.model.families import Family
from belated.model.statistics import Observations
from belated.policies import Policy
from tests.laws.worlds import START, World, split, worlds
from tests.simulator.oracle import Oracle, Outcome

# --- what is learned -----------------------------------------------------------------------------

GAUSSIAN, BERNOULLI = Gaussian(0.25), Bernoulli()
TOLERANCE = {GAUSSIAN: 1e-9, BERNOULLI: 1e-6}
every_family = pytest.mark.parametrize("family", [GAUSSIAN, BERNOULLI], ids=repr)


@st.composite
def learnable(draw: st.DrawFn, family: Family) -> World:
    """Worlds whose rewards the family takes."""
    if isinstance(family, Gaussian):
        return draw(worlds(bounds=(-10.0, 10.0)))
    return draw(worlds(bounds=(0.0, 1.0)))


def policy_of(family: Family) -> Policy:
    """Some policy that learns."""
    return DelayedUCB(2, family)


def fitted(policy: Policy, outcomes: Sequence[Outcome]) -> Estimate:
    """A fresh fit of what is learned, a sum of parts held at the support."""
    observations, support = Observations(policy.dim), policy.family.support
    rows = np.array([outcome.decision.x for outcome in outcomes], dtype=np.float32)
    values = np.array([outcome.value for outcome in outcomes], dtype=np.float64)
    observations.extend(rows.reshape(-1, policy.dim), values.clip(support.lower, support.upper))
    return Laplace().fit(observations, family=policy.family, prior=policy.start)


def pending_of(learner: Learner) -> Matrix:
    """The information of what is pending, all of it folded in."""
    learner.fold_in()
    return learner.weighting.pending.matrix


def check_learner(learner: Learner, oracle: Oracle) -> None:
    """Counts, estimate and pending information are those of what the oracle says."""
    policy, learned, entries = learner.policy, oracle.learned, oracle.entries
    assert learner.model.pending == oracle.counts["pending"]
    assert learner.model.n == learner.observed.n == len(learned)
    assert len(learned) == oracle.counts["rewarded"] + oracle.counts["defaulted"]
    expected = fitted(policy, learned)
    tolerance = TOLERANCE[policy.family]
    np.testing.assert_allclose(learner.estimate.theta, expected.theta, atol=tolerance)
    np.testing.assert_allclose(learner.estimate.precision, expected.precision, atol=1e-6)
    information = np.zeros((2, 2))
    for id in oracle.pending:
        x = entries[id].decision.x.astype(np.float64)
        weight = policy.family.slope_at(entries[id].decision.mean) / learner.model.dispersion
        information += weight * np.outer(x, x)
    np.testing.assert_allclose(pending_of(learner), information, atol=1e-9)


@every_family
@given(data=st.data())
def test_the_learner_holds_what_the_oracle_says(family: Family, data: st.DataObject) -> None:
    """After any records, one by one or in bulk, in one lane or in several."""
    world = data.draw(learnable(family))
    partitions, bulk = data.draw(st.sampled_from([1, 4])), data.draw(st.booleans())
    learner = Learner(policy_of(family), partitions=partitions)
    streams = split(world.records, partitions)

    def fold() -> None:
        for partition, stream in enumerate(streams):
            world.ledger(LearnerAdapter(learner, partition), stream)

    if bulk:
        with learner.bulk():
            fold()
    else:
        fold()
    check_learner(learner, world.oracle())


def truth_of(oracle: Oracle) -> list[Record]:
    """What would have been said if everybody had known the end from the beginning."""
    events: list[Event] = []
    for outcome in (*oracle.forgotten, *oracle.entries.values()):
        decision = msgspec.structs.replace(
            outcome.decision, id=f"truth-{len(events)}", activated=outcome.state != "dormant"
        )
        events.append(decision)
        if outcome.value is not None:
            events.append(Reward(decision.id, 0, outcome.value))
        elif outcome.state in ("censored", "voided"):
            events.append(Void(decision.id, 0))
    return [Record(0, position, START, event) for position, event in enumerate(events, 1)]


@every_family
@given(data=st.data())
def test_to_be_put_right_is_never_to_have_been_wrong(family: Family, data: st.DataObject) -> None:
    """The estimate is that of a ledger which heard of nothing but the final truth."""
    world = data.draw(learnable(family))
    corrected, reference = Learner(policy_of(family)), Learner(policy_of(family))
    world.ledger(LearnerAdapter(corrected))
    truth = World(Explicit(), truth_of(world.oracle()))
    truth.ledger(LearnerAdapter(reference))
    estimate, expected = corrected.estimate, reference.estimate
    assert (estimate.n, corrected.model.pending) == (expected.n, reference.model.pending)
    np.testing.assert_allclose(estimate.theta, expected.theta, atol=TOLERANCE[family])
    np.testing.assert_allclose(pending_of(corrected), pending_of(reference), atol=1e-9)
