"""Replay equals live: whatever happens to a bandit, its journal alone gives the same state."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from hashlib import blake2b
from itertools import count
from typing import Any

import numpy as np
from hypothesis import note, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from belated import (
    Bandit,
    Bernoulli,
    DelayedThompson,
    DelayedUCB,
    Gaussian,
    Poisson,
    Uniform,
)
from belated.core.events import Activation, Decision, Reward, Void
from belated.core.ids import key_of
from belated.core.inputs import Vector
from belated.core.rewards import Rewards
from belated.core.times import as_datetime
from belated.core.tuning import Tuning
from belated.exceptions import RewardConflict
from belated.fold.fold import Fold
from belated.journals import MemoryJournal
from belated.model.statistics import Observations
from belated.policies import Policy
from belated.testing import ManualClock
from tests.laws.bandit_settings import (
    DIM,
    NAMES,
    REWARDS,
    VALUES,
    Settings,
    assert_same,
    names,
    records_of,
    rows_of,
    span,
)
from tests.simulator.oracle import Oracle


def theta_of(policy: Policy, oracles: Sequence[Oracle]) -> Vector:
    """A converged fit of what the oracles say was learned, from nothing."""
    outcomes = [outcome for oracle in oracles for outcome in oracle.learned]
    observations = Observations(policy.dim)
    if outcomes:
        values = np.array([outcome.value for outcome in outcomes], dtype=np.float64)
        support = policy.family.support
        observations.extend(
            [outcome.decision.x for outcome in outcomes], np.clip(values, *_ends(support))
        )
    estimate = policy.estimator.fit(
        observations, family=policy.family, prior=policy.start, start=policy.start.mean, polish=True
    )
    return estimate.theta


def _ends(support: Any) -> tuple[float, float]:
    return support.lower, support.upper


def assert_as_the_oracle_says(fold: Fold, oracles: Sequence[Oracle]) -> None:
    """States, pending decisions, and an estimate of the values it says were learned."""
    counts = {state: sum(oracle.counts[state] for oracle in oracles) for state in fold.counts}
    assert fold.counts == counts
    pending = {key_of(id) for oracle in oracles for id in oracle.pending}
    assert {key for ledger in fold.ledgers.values() for key, _ in ledger.pending()} == pending
    np.testing.assert_allclose(
        fold.learner.estimate.theta,
        theta_of(fold.learner.policy, oracles),
        rtol=1e-8,
        atol=1e-8,
    )


POLICIES = st.sampled_from(
    [
        DelayedUCB(DIM, Gaussian()),
        DelayedUCB(DIM, Bernoulli()),
        DelayedUCB(DIM, Bernoulli(), metric="gram"),
        DelayedThompson(DIM, Poisson(), pending_weight=0.5),
        Uniform(DIM, Bernoulli()),
    ]
)
RETENTIONS = st.sampled_from([None, span(20), span(45)])
SETTINGS = st.builds(Settings, POLICIES, REWARDS, RETENTIONS)


class Lives(RuleBasedStateMachine):
    """Two bandits on one journal, and now and then a third that starts from the file."""

    @initialize(settings=SETTINGS, partitions=st.sampled_from([1, 4]))
    def begin(self, settings: Settings, partitions: int) -> None:
        """An empty journal."""
        self.settings = settings
        self.clock = ManualClock()
        self.journal = MemoryJournal(partitions=partitions, clock=self.clock)
        # Ids from the system's randomness would make failures impossible to repeat.
        new_ids = (blake2b(b"%d" % n, digest_size=16).hexdigest() for n in count())
        # Forgotten decisions leave at once.
        self.tuning = Tuning(new_id=lambda *_: next(new_ids), dropped=2)
        self.bandits = [self.open() for _ in range(2)]
        self.ids: list[str] = [*NAMES]
        self.rng = np.random.default_rng(0)

    def open(self) -> Bandit:
        """One more process."""
        return self.settings.open(self.journal, self.clock, tuning=self.tuning)

    @rule(span=st.integers(1, 30))
    def wait(self, span: int) -> None:
        """Time passes."""
        self.clock.now += span

    @rule(span=st.integers(1, 50))
    def step_back(self, span: int) -> None:
        """The clock is put back: the journal holds its stamps."""
        self.clock.now -= span

    @rule(who=st.integers(0, 1), name=st.none() | names, activated=st.booleans())
    def decide(self, who: int, name: str | None, activated: bool) -> None:
        """Under a name, perhaps once more, or under a new id."""
        rows = self.rng.normal(size=(3, DIM)) if name is None else rows_of(name)
        decision = self.bandits[who].decide(rows=rows, id=name, activated=activated)
        assert self.bandits[who].entry(decision.id).decision == decision
        self.ids.append(decision.id)

    @rule(who=st.integers(0, 1), size=st.integers(1, 4))
    def decide_many(self, who: int, size: int) -> None:
        """Several at once."""
        offers = list(self.rng.normal(size=(size, 3, DIM)))
        self.ids += [decision.id for decision in self.bandits[who].decide_many(rows=offers)]

    @rule(
        who=st.integers(0, 1),
        data=st.data(),
        value=VALUES,
        part=st.sampled_from(["", "", "", "click"]),
        revision=st.sampled_from([0, 0, 0, 1, 2]),
        before=st.integers(0, 40),
    )
    def observe(
        self, who: int, data: st.DataObject, value: float, part: str, revision: int, before: int
    ) -> None:
        """For the first time, again, corrected, or before anyone knows the decision."""
        id = data.draw(st.sampled_from(self.ids))
        at = self.clock.now - before
        try:
            self.bandits[who].observe(id, value, at=at, part=part, revision=revision)
        except RewardConflict as error:
            note(f"refused: {error}")

    @rule(who=st.integers(0, 1), data=st.data())
    def activate(self, who: int, data: st.DataObject) -> None:
        """Perhaps of one that is active, or unknown."""
        self.bandits[who].activate(data.draw(st.sampled_from(self.ids)))

    @rule(who=st.integers(0, 1), data=st.data())
    def void(self, who: int, data: st.DataObject) -> None:
        """Perhaps after its reward."""
        self.bandits[who].void(data.draw(st.sampled_from(self.ids)))

    @rule(name=names, before=st.integers(0, 40), mean=st.floats(0.1, 0.9))
    def rival(self, name: str, before: int, mean: float) -> None:
        """A process that knows of nothing decides under the same name."""
        x = rows_of(name)[1]
        decision = Decision(name, self.clock.now - before, 1, 1, x, mean, 0.5, 0)
        self.journal.append([decision])

    @rule(
        data=st.data(),
        value=st.sampled_from([0.0, 0.75, 1.0, -7.0, float("nan"), float("inf"), 1e300]),
        before=st.integers(0, 40),
    )
    def blurt(self, data: st.DataObject, value: float, before: int) -> None:
        """A process that looks at nothing reports whatever it likes, twice."""
        id = data.draw(st.sampled_from(self.ids))
        reward = Reward(id, self.clock.now - before, value)
        self.journal.append([reward, reward])

    @rule(data=st.data())
    def blurt_others(self, data: st.DataObject) -> None:
        """And activates and voids."""
        ids = data.draw(st.lists(st.sampled_from(self.ids), max_size=2))
        self.journal.append([Activation(id, self.clock.now) for id in ids[:1]])
        self.journal.append([Void(id, self.clock.now) for id in ids[1:]])

    @rule(who=st.integers(0, 1))
    def settle(self, who: int) -> None:
        """As if by a timer."""
        self.bandits[who].settle()

    @rule(who=st.integers(0, 1))
    def save(self, who: int) -> None:
        """A snapshot, perhaps behind the other's."""
        self.bandits[who].save()

    @rule(who=st.integers(0, 1))
    def restart(self, who: int) -> None:
        """From the snapshot and the records after it: nothing has changed."""
        before = self.bandits[who]
        after = self.open()
        before._fold.catch_up(self.journal)
        assert_same(after._fold, before._fold)
        self.bandits[who] = after

    @rule()
    def replay(self) -> None:
        """Live, from scratch, and by the rules as they are written: all the same."""
        fold = self.settings.fold(self.journal)
        for bandit in self.bandits:
            bandit._fold.catch_up(self.journal)
            assert_same(bandit._fold, fold)
        assert_as_the_oracle_says(fold, self.settings.oracles(self.journal, fold))

    @rule(data=st.data())
    def look_back(self, data: st.DataObject) -> None:
        """The past is a fold of the records up to then."""
        stamps = sorted({record.recorded for record in records_of(self.journal)})
        moment = data.draw(st.sampled_from([0, *stamps, self.clock.now]))
        past_bandit = self.bandits[0].as_of(as_datetime(moment))
        fold = self.settings.fold(self.journal, until=moment)
        assert_same(past_bandit._fold, fold)
        assert_as_the_oracle_says(fold, self.settings.oracles(self.journal, fold, moment))

    @rule(policy=POLICIES, rewards=REWARDS, retention=RETENTIONS)
    def change_one_s_mind(
        self, policy: Policy, rewards: Rewards, retention: timedelta | None
    ) -> None:
        """Another policy, window, semantics or retention re-reads the same journal."""
        if repr(policy.family) != repr(self.settings.policy.family):
            policy = self.settings.policy
        settings = Settings(policy, rewards, retention)
        bandit = settings.open(self.journal, self.clock)
        fold = settings.fold(self.journal)
        assert_same(bandit._fold, fold)
        assert_as_the_oracle_says(fold, settings.oracles(self.journal, fold))

    @invariant()
    def everyone_is_somewhere(self) -> None:
        """G_t is the number of pending decisions, and events add up to records."""
        for bandit in getattr(self, "bandits", []):
            assert bandit.pending.count == bandit.decision_counts["pending"]
            assert sum(bandit.event_counts.values()) == bandit._fold.version


def test_replay_equals_live(full: bool) -> None:
    """Restarts, snapshots, other processes, the past and other settings, in any order."""
    size = settings(max_examples=1000 if full else 60, stateful_step_count=60 if full else 25)
    run_state_machine_as_test(Lives, settings=size)
