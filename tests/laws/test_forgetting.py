"""What is forgotten is a function of the journal: of no order, partition, snapshot or replay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.optimize import minimize

from belated import (
    Bandit,
    Bernoulli,
    DelayedThompson,
    DelayedUCB,
    Explicit,
    Gaussian,
    Poisson,
)
from belated.core.events import Decision, Record
from belated.core.ids import key_of, partition_of
from belated.fold.fold import Fold
from belated.fold.weighting import AutomaticHalfLife, HalfLife
from belated.fold.weighting.half_life import DecayedSum
from belated.journals import MemoryJournal
from belated.model.estimators import Laplace
from belated.model.families import Family
from belated.policies import Policy

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
FAMILIES: list[Family] = [Bernoulli(), Poisson(), Gaussian(0.25), Gaussian()]


class Clock:
    """Goes on when it is told to."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        """The time."""
        return self.now


def weighting_of(fold: Fold) -> HalfLife:
    """How its learner forgets."""
    assert isinstance(fold.learner.weighting, HalfLife)
    return fold.learner.weighting


def lived(policy: Policy, rounds: int = 120, seed: int = 0, turn: bool = True) -> Bandit:
    """A bandit whose rewards come late, some never; some are revised, and some voided."""
    clock, rng = Clock(), np.random.default_rng(seed)
    journal = MemoryJournal(clock=clock)
    bandit = Bandit(policy=policy, rewards=Explicit("60s"), journal=journal, clock=clock, seed=seed)
    theta, waiting = rng.normal(size=policy.dim), []
    for t in range(rounds):
        clock.now += int(rng.integers(SECOND, 3 * SECOND))
        if turn and t == rounds // 2:
            theta = -3.0 * theta
        decision = bandit.decide(rows=rng.normal(size=(4, policy.dim)) / 2.0)
        mean = policy.family.mean(np.array([float(decision.x @ theta)]))[0]
        if rng.random() < 0.9:
            value = float(rng.random() < mean) if isinstance(policy.family, Bernoulli) else mean
            waiting.append((t + int(rng.integers(1, 12)), decision.id, float(value)))
        for due, id, value in list(waiting):
            if due <= t:
                waiting.remove((due, id, value))
                bandit.observe(id, value)
                if rng.random() < 0.1:
                    bandit.observe(id, 0.5 * value, revision=1)
                if rng.random() < 0.05:
                    bandit.void(id)
    return bandit


def policies(half_life: str) -> list[Policy]:
    """Some that differ in what they count, and when they learn."""
    return [
        DelayedUCB(3, Bernoulli(), half_life=half_life),
        DelayedUCB(3, Poisson(), half_life=half_life, pending_weight=0.5),
        DelayedUCB(3, Gaussian(), half_life=half_life, floor=0.2),
        DelayedThompson(3, Bernoulli(), half_life=half_life),
        DelayedUCB(3, Bernoulli(), half_life=half_life, learn_after=6),
        DelayedUCB(3, Bernoulli(), half_life=half_life, learn_after=6),
    ]


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_a_reward_counts_by_the_age_of_its_decision(family: Family) -> None:
    """Whatever came late: the estimate is that of all rewards with a weight of 2^(-age/h)."""
    bandit = lived(DelayedUCB(3, family, half_life="30s", ridge=1.0))
    rows, y, stamps = arrived(bandit)
    now = bandit.journal.last_stamp(0)
    weights = np.exp2((stamps - now) / (30 * SECOND))
    estimate = bandit.estimate
    phi = estimate.dispersion
    prior = 1.0 / phi if family.dispersion is None else 1.0

    def loss(theta: Any) -> tuple[float, Any]:
        eta = rows @ theta
        cumulant, mean, _ = family.cumulant_mean_slope(eta)
        value = weights @ (y * eta - cumulant) / phi - 0.5 * prior * theta @ theta
        return -value, -(weights * (y - mean) @ rows / phi - prior * theta)

    best = minimize(loss, np.zeros(3), jac=True, method="BFGS", options={"gtol": 1e-10}).x
    # Rewards of more than twelve half-lives are left out: 2^-12 of what a new one counts for.
    np.testing.assert_allclose(estimate.theta, best, atol=2e-3, rtol=2e-3)
    assert estimate.effective_n == pytest.approx(weights[weights > 2.0**-12].sum())
    assert estimate.half_life is not None
    assert estimate.half_life.total_seconds() == 30.0


def arrived(bandit: Bandit) -> tuple[Any, Any, Any]:
    """Rows, rewards and times of all that is learned, read from the journal."""
    rows, y, stamps = [], [], []
    for record in bandit.journal.read(0, 0, 10_000):
        if isinstance(record.event, Decision):
            status = bandit.entry(record.event.id)
            if status.value is not None and status.state == "rewarded":
                rows.append(record.event.x.astype(np.float64))
                y.append(status.value)
                stamps.append(record.recorded)
    return np.array(rows), np.array(y), np.array(stamps)


def test_pending_information_fades_as_well() -> None:
    """What is pending counts by 2^(-age/h) too; the prior counts in full."""
    bandit = lived(DelayedUCB(3, Bernoulli(), half_life="30s", ridge=1.0))
    fold = bandit._fold
    learner = fold.learner
    learner.fit()
    now, expected = learner.now, np.zeros((3, 3))
    for record in bandit.journal.read(0, 0, 10_000):
        event = record.event
        if isinstance(event, Decision) and bandit.entry(event.id).state == "pending":
            x = event.x.astype(np.float64)
            share = 2.0 ** ((record.recorded - now) / (30 * SECOND))
            expected += share * event.mean * (1.0 - event.mean) * np.outer(x, x)
    assert np.abs(expected).max() > 0.01
    inverse = np.linalg.inv(learner.model.decided)
    arrived_root = np.linalg.inv(learner.model.observed)
    difference = inverse.T @ inverse - arrived_root.T @ arrived_root
    np.testing.assert_allclose(difference, expected, atol=1e-12)


def state_of(fold: Fold) -> dict[str, Any]:
    """All that must be the same however a journal is read."""
    learner, weighting = fold.learner, weighting_of(fold)
    learner.fit()
    estimate = learner.estimate
    at = learner.now
    return {
        "now": learner.now,
        "n": learner.model.n,
        "pending": learner.model.pending,
        "picked": weighting.picked,
        "half-lives": [track.half_life for track in weighting.tracks],
        "theta": estimate.theta,
        "precision": estimate.precision,
        "effective": estimate.effective_n,
        "scores": weighting.scores if isinstance(weighting, AutomaticHalfLife) else [],
        "sums": [track.pending.at(at) for track in weighting.tracks if track.pending is not None],
    }


def check_same(one: Fold, other: Fold, tolerance: float = 1e-12) -> None:
    """Counts exactly; sums to 1e-12, and estimates as far as a fit converges."""
    left, right = state_of(one), state_of(other)
    for name in ("now", "n", "pending", "picked", "half-lives"):
        assert left[name] == right[name], name
    for name in ("effective", "scores", "sums"):
        if left[name] is None:
            assert right[name] is None
            continue
        np.testing.assert_allclose(left[name], right[name], rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(left["theta"], right["theta"], atol=1e-7)
    np.testing.assert_allclose(left["precision"], right["precision"], rtol=1e-6, atol=1e-8)


def anew(bandit: Bandit, partitions: int = 1) -> Fold:
    """An empty fold of the same bandit."""
    return Fold(bandit.policy, bandit.rewards, partitions=partitions)


@pytest.mark.parametrize("half_life", ["20s", "auto"])
@pytest.mark.parametrize("which", range(5))
def test_a_replay_is_what_was_lived(half_life: str, which: int) -> None:
    """In bulk, record by record, and from a snapshot in the middle with the tail behind it."""
    bandit = lived(policies(half_life)[which], rounds=400 if half_life == "auto" else 120)
    replayed = anew(bandit)
    replayed.begin(bandit.journal)
    replayed.catch_up(bandit.journal)
    check_same(bandit._fold, replayed)
    incremental = anew(bandit)
    for record in bandit.journal.read(0, 0, 100_000):
        incremental.take(record)
    check_same(bandit._fold, incremental)
    assert weighting_of(incremental).since == weighting_of(bandit._fold).since
    assert weighting_of(replayed).since == weighting_of(bandit._fold).since


@pytest.mark.parametrize("half_life", ["20s", "auto"])
@pytest.mark.parametrize("which", range(5))
def test_a_snapshot_with_its_tail_is_the_whole(half_life: str, which: int) -> None:
    """Sums, the half-life in use and since when: all come back."""
    policy = policies(half_life)[which]
    bandit = lived(policy, rounds=300)
    journal = bandit.journal
    records = journal.read(0, 0, 100_000)
    part = anew(bandit)
    part.until = records[2 * len(records) // 3].recorded
    part.begin(journal)
    part.catch_up(journal)
    part.save(journal)
    tail = anew(bandit)
    tail.load(journal)
    assert tail.positions == part.positions
    check_same(part, tail)
    assert weighting_of(tail).since == weighting_of(part).since
    tail.catch_up(journal)
    check_same(bandit._fold, tail)
    assert weighting_of(tail).since == weighting_of(bandit._fold).since


@pytest.mark.parametrize("half_life", ["20s", "auto"])
@pytest.mark.parametrize("which", range(4))
def test_eight_shuffled_partitions_are_one_pass(half_life: str, which: int) -> None:
    """Records of eight partitions in any order between them: the same sums to 1e-12."""
    bandit = lived(policies(half_life)[which], rounds=400)
    rng, split = np.random.default_rng(3), anew(bandit, 8)
    queues: list[list[Record]] = [[] for _ in range(8)]
    for record in bandit.journal.read(0, 0, 100_000):
        id = getattr(record.event, "id", None)
        target = 0 if id is None else partition_of(key_of(id), 8)
        event = record.event
        targets = range(8) if id is None and hasattr(event, "until") else [target]
        for number in targets:
            routed_event = event
            if hasattr(event, "until"):
                routed_event = replace_partition(event, number)
            routed = Record(number, len(queues[number]) + 1, record.recorded, routed_event)
            queues[number].append(routed)
    with split.learner.bulk():
        while any(queues):
            partition = rng.choice([n for n, queue in enumerate(queues) if queue])
            split.take(queues[partition].pop(0))
    check_same(bandit._fold, split)


def replace_partition(event: Any, partition: int) -> Any:
    """A settlement of another partition."""
    return type(event)(partition, event.until, event.delivered)


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.floats(-5, 5)), min_size=1, max_size=60),
    st.integers(1, 10**8),
    st.randoms(use_true_random=False),
)
@settings(max_examples=200, deadline=None)
def test_decayed_sums_have_no_order(
    terms: list[tuple[int, float]], half_life: int, random: Any
) -> None:
    """Shuffled, in eight parts that are merged, and with others added and taken out again."""
    now = max(time for time, _ in terms)
    exact = sum(value * 2.0 ** ((time - now) / half_life) for time, value in terms)
    size = sum(abs(value) * 2.0 ** ((time - now) / half_life) for time, value in terms) + 1e-300
    random.shuffle(terms)
    parts = [DecayedSum(half_life, (1,)) for _ in range(8)]
    for n, (time, value) in enumerate(terms):
        parts[n % 8].add(time, np.array([value]))
        parts[n % 8].add(time, np.array([2.0]))
        parts[n % 8].add(time, np.array([2.0]), -1.0)
    whole = DecayedSum(half_life, (1,))
    for part in parts:
        whole = whole + part
    size_bound = size + 2.0 * len(terms)
    assert abs(whole.at(now)[0] - exact) <= 1e-12 * size_bound


def test_moving_the_epoch_is_exact() -> None:
    """A whole number of half-lives later the sum is the same number, but for its exponent."""
    total = DecayedSum(7, (2,))
    total.add(3, np.array([0.1, 1.0 / 3.0]))
    before = total.at(3)
    total.add(3 + 7 * 40, np.zeros(2))
    np.testing.assert_array_equal(total.at(3 + 7 * 40) * 2.0**40, before)


def test_without_a_half_life_nothing_is_told_of_times() -> None:
    """The learner and the journal of a policy without one are what they were."""
    bandit = lived(DelayedUCB(3, Bernoulli()))
    assert not isinstance(bandit._fold.learner.weighting, HalfLife)
    decisions = [record.event for record in bandit.journal.read(0, 0, 10_000)]
    assert all(not event.means for event in decisions if isinstance(event, Decision))
    assert bandit.estimate.effective_n is None
    assert bandit.estimate.half_life is None


def test_auto_journals_a_prediction_of_each_half_life_and_notices_a_change() -> None:
    """Before θ turns nothing is forgotten; some rewards later it is."""
    policy = DelayedUCB(2, Bernoulli(), half_life="auto")
    clock, rng = Clock(), np.random.default_rng(5)
    bandit = Bandit(policy=policy, rewards=Explicit(), clock=clock, seed=1)
    picks = []
    for t in range(1600):
        clock.now += SECOND
        theta = np.array([4.0, 0.0]) if t < 1000 else np.array([-4.0, 0.0])
        rows = rng.normal(size=(5, 2))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        decision = bandit.decide(rows=rows)
        assert len(decision.means) == 4
        assert decision.mean in decision.means
        bandit.observe(decision, float(rng.random() < 1 / (1 + np.exp(-decision.x @ theta))))
        picks.append(weighting_of(bandit._fold).picked)
    assert set(picks[:1000]) == {0}
    assert picks[1100] > 0
    estimate = bandit.estimate
    assert estimate.half_life is not None
    assert estimate.half_life_since is not None
    assert estimate.half_life_since.timestamp() > START / 1e6 + 1000
    assert estimate.theta[0] < 0.0


def test_a_snapshot_made_without_a_half_life_is_not_used_with_one() -> None:
    """It lacks what was predicted: the journal is read again, and nothing is missing."""
    plain = lived(DelayedUCB(3, Bernoulli()))
    plain._fold.save(plain.journal)
    policy = DelayedUCB(3, Bernoulli(), half_life="30s")
    fold = Fold(policy, plain.rewards)
    fold.load(plain.journal)
    assert fold.version == 0
    fold.catch_up(plain.journal)
    assert fold.learner.model.n == plain._fold.learner.model.n


def test_what_was_trimmed_without_a_half_life_cannot_be_forgotten() -> None:
    """Its rows may be frozen, and then nothing says when their decisions were made."""
    plain = Fold(DelayedUCB(3, Bernoulli()), Explicit())
    forgetting = Fold(DelayedUCB(3, Bernoulli(), half_life="30s"), Explicit())
    assert plain.base(0).fingerprint != forgetting.base(0).fingerprint


def test_mean_correction_and_growth_still_work() -> None:
    """A corrected mean is that of the weighted posterior."""
    estimator = replace(Laplace(), mean_correction=True)
    bandit = lived(DelayedUCB(3, Bernoulli(), half_life="30s", estimator=estimator))
    assert np.isfinite(bandit.estimate.mean).all()
    assert not np.array_equal(bandit.estimate.mean, bandit.estimate.theta)


def test_a_reward_long_after_its_decision_still_counts_for_little() -> None:
    """A thousand half-lives later it is nothing, and nothing breaks."""
    clock = Clock()
    policy = DelayedUCB(2, Bernoulli(), half_life="1s")
    bandit = Bandit(policy=policy, rewards=Explicit(), clock=clock, seed=0)
    old = bandit.decide(rows=np.eye(2))
    clock.now += 5000 * SECOND
    decision = bandit.decide(rows=np.eye(2))
    bandit.observe(old, 1.0)
    bandit.observe(decision, 1.0)
    estimate = bandit.estimate
    assert estimate.effective_n == pytest.approx(1.0)
    assert abs(estimate.theta[old.index]) < 1e-6 or old.index == decision.index
