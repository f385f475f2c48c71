"""Replay equals live: whatever happens to a bandit, its journal alone gives the same state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import blake2b
from itertools import count
from typing import Any

import numpy as np
from hypothesis import given, note, settings
from hypothesis import strategies as st
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
    DefaultAfter,
    DelayedThompson,
    DelayedUCB,
    Explicit,
    Gaussian,
    PerArm,
    Poisson,
    Uniform,
)
from belated.events import Activation, Decision, Record, Reward, Void
from belated.exceptions import RewardConflict
from belated.families import Family
from belated.ids import key_of
from belated.inputs import Matrix, Vector
from belated.journals import Journal, MemoryJournal
from belated.learner import Fold, same_sums
from belated.policies import Policy
from belated.rewards import Rewards, retention_us
from belated.statistics import Observations
from belated.testing import ManualClock
from belated.testing.oracle import Oracle
from belated.times import as_datetime
from belated.tuning import USUAL, Tuning

DIM = 3
#: Names of callers, some of which end up in each partition.
NAMES = [f"order-{n}" for n in range(8)]


def span(microseconds: int) -> timedelta:
    """A time span on the scale of these tests."""
    return timedelta(microseconds=microseconds)


@dataclass(frozen=True)
class Settings:
    """How a bandit is opened."""

    policy: Policy
    rewards: Rewards
    retention: timedelta | None

    def open(self, journal: Journal, clock: ManualClock, tuning: Tuning = USUAL) -> Bandit:
        """On a journal."""
        return Bandit(
            policy=self.policy,
            rewards=self.rewards,
            retention=self.retention,
            journal=journal,
            clock=clock,
            seed=1,
            tuning=tuning,
        )

    def fold(self, journal: Journal, until: int | None = None) -> Fold:
        """The records of a journal folded one by one: no snapshot, no bulk."""
        retention = retention_us(self.retention, self.rewards)
        fold = Fold(self.policy, self.rewards, partitions=journal.partitions, retention=retention)
        for record in records_of(journal, until):
            fold.take(record)
        return fold

    def oracles(self, journal: Journal, fold: Fold, until: int | None = None) -> list[Oracle]:
        """The rules as they are written, on the same records."""
        records = records_of(journal, until)
        return [
            Oracle(
                [record for record in records if record.partition == partition],
                rewards=self.rewards,
                min_reward=fold.min_reward,
                max_reward=fold.max_reward,
                retention=fold.retention,
            )
            for partition in range(journal.partitions)
        ]


def records_of(journal: Journal, until: int | None = None) -> list[Record]:
    """All records of all partitions that were stamped by then."""
    return [
        record
        for partition in range(journal.partitions)
        for record in journal.read(partition, 0, 100_000)
        if until is None or record.recorded <= until
    ]


def rows_of(name: str) -> Matrix:
    """What is offered under a name: always the same, as a retry needs it."""
    seed = int.from_bytes(key_of(name))
    return np.random.default_rng(seed).normal(size=(3, DIM)).astype(np.float32)


def theta_of(policy: Policy, oracles: Sequence[Oracle]) -> Vector:
    """A converged fit of what the oracles say was learned, from nothing."""
    learned = [one for oracle in oracles for one in oracle.learned]
    seen = Observations(policy.dim)
    if learned:
        values = np.array([one.value for one in learned], dtype=np.float64)
        support = policy.family.support
        seen.extend([one.decision.x for one in learned], np.clip(values, *_ends(support)))
    estimate = policy.estimator.fit(
        seen, family=policy.family, prior=policy.start, start=policy.start.mean, polish=True
    )
    return estimate.theta


def _ends(support: Any) -> tuple[float, float]:
    return support.lower, support.upper


def assert_same(one: Fold, other: Fold) -> None:
    """Ledgers exactly, sums to rounding, estimates to what is promised."""
    assert one.digest == other.digest
    assert one.counts == other.counts
    assert one.counters == other.counters
    assert one.positions == other.positions
    assert one.version == other.version
    for fold in (one, other):
        model = fold.model
        assert model.pending == fold.counts["pending"]
        assert model.n == fold.counts["rewarded"] + fold.counts["defaulted"]
    assert one.model.decisions == other.model.decisions
    assert same_sums(one, other)
    close = 1e-12 if isinstance(one.learner.policy.family, Gaussian) else 1e-8
    np.testing.assert_allclose(
        one.learner.estimate.theta, other.learner.estimate.theta, rtol=close, atol=close
    )


def assert_as_the_oracle_says(fold: Fold, oracles: Sequence[Oracle]) -> None:
    """States, pending decisions, and an estimate of the values it says were learned."""
    counts = {state: sum(one.counts[state] for one in oracles) for state in fold.counts}
    assert fold.counts == counts
    pending = {key_of(id) for oracle in oracles for id in oracle.pending}
    assert {key for ledger in fold.ledgers for key, _ in ledger.pending()} == pending
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
        DelayedUCB(DIM, Bernoulli(), metric="gram", spectral=True),
        DelayedThompson(DIM, Poisson(), pending_weight=0.5),
        Uniform(DIM, Bernoulli()),
    ]
)
REWARDS: st.SearchStrategy[Rewards] = st.sampled_from(
    [
        Explicit(),
        Explicit(span(20)),
        Explicit(span(20), reduce="sum"),
        DefaultAfter(span(20)),
        DefaultAfter(span(20), value=1.0, reduce="max"),
    ]
)
RETENTIONS = st.sampled_from([None, span(20), span(45)])
SETTINGS = st.builds(Settings, POLICIES, REWARDS, RETENTIONS)
VALUES = st.sampled_from([0.0, 0.25, 0.5, 1.0])
names = st.sampled_from(NAMES)


class Lives(RuleBasedStateMachine):
    """Two bandits on one journal, and now and then a third that starts from the file."""

    @initialize(settings=SETTINGS, partitions=st.sampled_from([1, 4]))
    def begin(self, settings: Settings, partitions: int) -> None:
        """An empty journal."""
        self.settings = settings
        self.clock = ManualClock()
        self.journal = MemoryJournal(partitions=partitions, clock=self.clock)
        # Ids from the system's randomness would make failures impossible to repeat.
        made = (blake2b(b"%d" % n, digest_size=16).hexdigest() for n in count())
        # Forgotten decisions leave at once.
        self.tuning = Tuning(new_id=lambda *_: next(made), dropped=2)
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
        decision = self.bandits[who].decide(rows, id=name, activated=activated)
        assert self.bandits[who].entry(decision.id).decision == decision
        self.ids.append(decision.id)

    @rule(who=st.integers(0, 1), size=st.integers(1, 4))
    def decide_many(self, who: int, size: int) -> None:
        """Several at once."""
        offers = list(self.rng.normal(size=(size, 3, DIM)))
        self.ids += [decision.id for decision in self.bandits[who].decide_many(offers)]

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
        when = data.draw(st.sampled_from([0, *stamps, self.clock.now]))
        past = self.bandits[0].as_of(as_datetime(when))
        fold = self.settings.fold(self.journal, until=when)
        assert_same(past._fold, fold)
        assert_as_the_oracle_says(fold, self.settings.oracles(self.journal, fold, when))

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
    made = []
    for partitions in (1, 2, 16):
        clock = ManualClock()
        journal = MemoryJournal(partitions=partitions, clock=clock)
        # Uniform choices do not depend on the order in which rounding errors were made.
        uniform = Settings(Uniform(DIM, Bernoulli()), rewards, None)
        bandit = uniform.open(journal, clock)
        bandit._rng = np.random.default_rng(5)
        for what, name, value, wait in steps:
            clock.now += wait
            if what == "decide":
                bandit.decide(rows_of(name), id=name, activated=wait % 4 > 0)
            elif what == "observe":
                try:
                    bandit.observe(name, value)
                except RewardConflict:
                    bandit.observe(name, value, revision=wait + 1)
            elif what == "activate":
                bandit.activate(name)
            elif what == "void":
                bandit.void(name)
            else:
                bandit.settle()
        clock.now += 1000
        bandit.settle()
        made.append(bandit)
    first = made[0]
    for other in made[1:]:
        assert other.digest == first.digest
        assert other.decision_counts == first.decision_counts
        assert [other.entry(name).state for name in NAMES] == [
            first.entry(name).state for name in NAMES
        ]
        np.testing.assert_allclose(other.estimate.theta, first.estimate.theta, atol=1e-8)


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
    """Older rows get zeros after them; a snapshot of before is of no use, and does no harm."""
    clock = ManualClock()
    journal = MemoryJournal(partitions=partitions, clock=clock)
    features = PerArm(["arm 0"], context=1)
    how = Settings(DelayedUCB(features.dim, family), Explicit(span(60)), span(90))

    def opened() -> Bandit:
        return Bandit(
            policy=how.policy,
            rewards=how.rewards,
            retention=how.retention,
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
                features = features.grown([f"arm {len(features.actions)}"])
                how = replace(how, policy=DelayedUCB(features.dim, family))
            before, bandit = bandit, opened()
            assert bandit.digest == before.digest
            assert bandit.decision_counts == before.decision_counts
            width = before.policy.dim
            np.testing.assert_allclose(
                bandit.estimate.theta[:width], before.estimate.theta, atol=1e-8
            )
            np.testing.assert_allclose(bandit.estimate.theta[width:], 0.0, atol=1e-12)
        assert_same(bandit._fold, how.fold(journal))
