"""Partitions folded apart and merged: one model, as if one learner had folded them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from belated import (
    Bandit,
    Bernoulli,
    ConversionsOnly,
    DefaultAfter,
    DelayedUCB,
    Explicit,
    Gaussian,
    PerArm,
    Poisson,
)
from belated.core.events import ModeChanged, Settled
from belated.core.rewards import Rewards
from belated.core.tuning import USUAL, Tuning
from belated.exceptions import CorruptJournal, InvalidInput, UnsupportedFormat
from belated.fold.fold import Fold
from belated.fold.partitioned import Merging, PartitionFold, PartitionSums, check_mergeable
from belated.fold.partitioned.aged import AgedLearner, AgedSums
from belated.fold.partitioned.learner import PartitionLearner
from belated.fold.partitioned.merging import merged_estimate
from belated.fold.published import PublishedModel
from belated.journals import MemoryJournal
from belated.model.blocks import product
from belated.model.estimators import Laplace, newton_step
from belated.model.families import Family
from belated.model.statistics import FrozenSums, Information, quadratic_at
from belated.policies import Policy
from belated.testing import ManualClock

PARTITIONS = 4


def journal_of(
    policy: Policy, rewards: Rewards, rounds: int = 200, *, seed: int = 0
) -> MemoryJournal:
    """Decisions and rewards: some twice, some revised, some voided, some still out."""
    journal = MemoryJournal(partitions=PARTITIONS, clock=ManualClock())
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=policy.dim)
    bandit = Bandit(policy=policy, rewards=rewards, journal=journal, seed=seed)
    for n in range(rounds):
        decision = bandit.decide(rows=rng.normal(size=(3, policy.dim)) / 2, id=f"d{n}")
        mean = float(policy.family.mean(decision.x @ theta))
        y = float(rng.random() < mean) if isinstance(policy.family, Bernoulli) else abs(mean)
        if n % 7 == 0:
            continue
        bandit.observe(decision.id, y)
        if n % 11 == 0:
            bandit.observe(decision.id, 1.0 - y if y <= 1.0 else 0.0, revision=1)
        if n % 13 == 0:
            bandit.void(decision.id)
    return journal


def folds_of(
    journal: MemoryJournal, policy: Policy, rewards: Rewards, tuning: Tuning = USUAL
) -> list[PartitionFold]:
    """One for each partition, with all there is."""
    folds = [
        PartitionFold(policy, rewards, partitions=PARTITIONS, partition=p, tuning=tuning)
        for p in range(PARTITIONS)
    ]
    for fold in folds:
        fold.catch_up(journal)
    return folds


def merging_of(folds: Sequence[PartitionFold]) -> Merging:
    """The sums of all of them."""
    merging = Merging(folds[0].policy, PARTITIONS, folds[0].fingerprint)
    for fold in folds:
        assert merging.take(PartitionSums.read(fold.sums(epoch=1).write()))
    return merging


def one_fold(journal: MemoryJournal, policy: Policy, rewards: Rewards) -> Fold:
    """All partitions in one."""
    fold = Fold(policy, rewards, partitions=PARTITIONS)
    fold.catch_up(journal)
    return fold


def test_a_fold_of_one_partition_holds_nothing_of_the_others() -> None:
    """A learner of half of 256 partitions had 32,768 ledgers, which took a gigabyte."""
    fold = PartitionFold(DelayedUCB(2, Bernoulli()), Explicit(), partitions=256, partition=200)
    assert [*fold.ledgers] == [*fold.adapters] == [200]
    assert len(fold.learner.observations) == 1


@pytest.mark.parametrize("family", [Bernoulli(), Poisson(), Gaussian(), Gaussian(0.5)])
@pytest.mark.parametrize("ridge", [1.0, "auto"])
@pytest.mark.parametrize("metric", ["hessian", "gram"])
def test_the_merged_model_is_that_of_one_learner(family: Family, ridge: float, metric: str) -> None:
    """Counts exactly, sums to rounding, the estimate after two rounds within a hundredth of it."""
    policy = DelayedUCB(3, family, ridge=ridge, metric=metric)  # type: ignore[arg-type]
    journal = journal_of(policy, Explicit())
    whole = one_fold(journal, policy, Explicit())
    folds = folds_of(journal, policy, Explicit())
    merging = merging_of(folds)
    for _ in range(2):  # the first one gives the center
        model = merging.export_model(at=5)
        for fold in folds:
            fold.load_model(model)
            merging.take(fold.sums(epoch=1))
    merged = model.model(policy)
    assert (model.version, model.positions) == (whole.version, whole.positions)
    assert (merged.n, merged.pending, merged.decisions) == (
        whole.model.n,
        whole.model.pending,
        whole.model.decisions,
    )
    assert model.head == whole.export_model(at=5).head
    assert merging.counts == whole.counts
    assert merging.counters == whole.counters
    estimate = whole.learner.estimate
    offset = merged.theta - estimate.theta
    assert np.sqrt(offset @ estimate.precision @ offset) < 0.02
    whole.learner.fit()
    for name in ("observed", "decided"):
        merged_root, expected_root = getattr(merged, name), getattr(whole.model, name)
        ratios = np.linalg.svd(np.linalg.solve(expected_root, merged_root), compute_uv=False)
        np.testing.assert_allclose(ratios, 1.0, atol=0.01)  # of the widths, in any direction


def test_the_estimate_is_one_newton_step_from_the_center() -> None:
    """From the same center, as one learner with all rows would make it: to rounding."""
    policy = DelayedUCB(3, Bernoulli())
    journal = journal_of(policy, Explicit())
    folds = folds_of(journal, policy, Explicit())
    merging = merging_of(folds)
    model = merging.export_model(at=5)
    center = merging.center.theta
    assert model.center_number == 1
    assert model.center_n == model.n
    for fold in folds:
        fold.load_model(model)
        sums = fold.sums(epoch=1)
        assert sums.expanded_at == 1
        np.testing.assert_array_equal(sums.center, center)
        assert merging.take(sums)
    whole = one_fold(journal, policy, Explicit())
    likelihood = quadratic_at(whole.learner.observed, policy.family, center)
    expected = newton_step(likelihood, family=policy.family, prior=policy.start)
    np.testing.assert_allclose(
        merging.export_model(at=6).model(policy).theta, expected.theta, rtol=1e-10
    )


def test_rewards_that_nobody_expected_do_not_throw_the_estimate_away() -> None:
    """A Newton step from where Poisson rewards were rare would end where e^η overflows."""
    policy = DelayedUCB(2, Poisson(), ridge=1e-3)
    rows, y = np.eye(2, dtype=np.float32)[[0, 0, 1]], np.array([0.0, 20.0, 3.0])
    theta, steps = np.array([-12.0, -7.0]), 0
    while not (
        estimate := merged_estimate(policy, [(FrozenSums.of(rows, y, Poisson(), theta), theta)])
    ).converged:
        theta, steps = estimate.theta, steps + 1
        assert np.abs(theta).max() < 13.0
    assert 1 <= steps <= 10
    for _ in range(3):
        theta = estimate.theta
        estimate = merged_estimate(policy, [(FrozenSums.of(rows, y, Poisson(), theta), theta)])
    np.testing.assert_allclose(estimate.theta, np.log([10.0, 3.0]), atol=1e-2)


def test_a_center_stays_until_enough_is_new() -> None:
    """Then it moves to the estimate, and says its next number."""
    policy = DelayedUCB(2, Bernoulli())
    journal = journal_of(policy, Explicit(), 100)
    folds = folds_of(journal, policy, Explicit())
    merging = merging_of(folds)
    first = merging.export_model(at=1)
    for fold in folds:
        fold.load_model(first)
        merging.take(fold.sums(epoch=1))
    second = merging.export_model(at=2)
    assert (second.center, second.center_number) == (first.center, 1)
    with Bandit(policy=policy, rewards=Explicit(), journal=journal) as bandit:
        for _ in range(40):
            bandit.observe(bandit.decide(rows=np.eye(2)).id, 1.0)
        for fold in folds:
            fold.catch_up(journal)
            merging.take(fold.sums(epoch=1))
        assert merging.export_model(at=3).center_number == 2


def test_of_two_entries_the_later_epoch_counts_then_the_position() -> None:
    """Whatever came last; an entry that was taken is not taken again, nor one of others."""
    policy = DelayedUCB(2, Bernoulli())
    journal = journal_of(policy, Explicit(), 20)
    fold = PartitionFold(policy, Explicit(), partitions=PARTITIONS, partition=1)
    first = fold.sums(epoch=2)
    fold.catch_up(journal)
    second = fold.sums(epoch=2)
    superseded_sums = fold.sums(epoch=1)
    merging = Merging(policy, PARTITIONS, fold.fingerprint)
    assert merging.take(superseded_sums)
    assert merging.take(first)  # though it knows less
    assert not merging.take(superseded_sums)
    assert merging.take(second)
    assert not merging.take(first)
    assert not merging.take(second)
    assert not merging.is_whole
    other_fold = PartitionFold(policy, DefaultAfter("1h"), partitions=PARTITIONS, partition=1)
    assert not merging.take(other_fold.sums(epoch=9))


def test_sums_follow_every_change() -> None:
    """Defaults that are replaced, corrections, voids: at any moment what a new fold comes to."""
    policy, rewards = DelayedUCB(3, Poisson()), DefaultAfter("1h")
    clock = ManualClock()
    journal = MemoryJournal(partitions=PARTITIONS, clock=clock)
    bandit = Bandit(policy=policy, rewards=rewards, journal=journal, clock=clock)
    rng = np.random.default_rng(3)
    tuning = Tuning(exact=16, block=4, batch=3)
    folds = folds_of(journal, policy, rewards, tuning)
    model = None
    ids: list[str] = []
    for step in range(30):
        ids += [bandit.decide(rows=rng.normal(size=(2, 3))).id for _ in range(6)]
        clock.now += int(20 * 60e6)
        bandit.sync()
        for id in rng.choice(ids, 4, replace=False).tolist():
            bandit.observe(id, float(rng.poisson(1.0)), revision=step)
        bandit.void(ids[int(rng.integers(len(ids)))])
        merging = Merging(policy, PARTITIONS, folds[0].fingerprint)
        for fold in folds:
            fold.catch_up(journal)
            if model is not None:
                fold.load_model(model)
            merging.take(fold.sums(epoch=1))
        model = merging.export_model(at=step)
        for fold in folds:
            fresh = PartitionFold(policy, rewards, partitions=PARTITIONS, partition=fold.partition)
            fresh.catch_up(journal)
            sums, expected = fold.sums(1).arrived(), fresh.sums(1).arrived()
            np.testing.assert_allclose(sums.moments.gram, expected.moments.gram, atol=1e-9)
            np.testing.assert_allclose(sums.moments.cross, expected.moments.cross, atol=1e-9)
            information, expected_information = (
                fold.learner.pending_information,
                fresh.learner.pending_information,
            )
            np.testing.assert_allclose(information.matrix, expected_information.matrix, atol=1e-9)
            assert isinstance(fold.learner, PartitionLearner)
            store = fold.learner._store
            likelihood = store.sums_at(policy.family, fold.learner.theta).likelihood
            np.testing.assert_allclose(sums.likelihood.pull, likelihood.pull, atol=1e-9)
            np.testing.assert_allclose(
                sums.likelihood.information, likelihood.information, atol=1e-9
            )


def test_a_snapshot_of_a_partition_is_that_of_any_fold() -> None:
    """Saved by folds of partitions, loaded by one of all; and the other way round."""
    policy = DelayedUCB(3, Bernoulli())
    journal = journal_of(policy, Explicit())
    for fold in folds_of(journal, policy, Explicit()):
        fold.save(journal)
    whole, replayed = (
        Fold(policy, Explicit(), partitions=PARTITIONS),
        one_fold(journal, policy, Explicit()),
    )
    whole.load(journal)
    assert whole.positions == replayed.positions
    assert whole.digest == replayed.digest
    np.testing.assert_allclose(whole.learner.estimate.theta, replayed.learner.estimate.theta)
    whole.save(journal)
    fold = PartitionFold(policy, Explicit(), partitions=PARTITIONS, partition=2)
    fold.load(journal)
    assert fold.position == replayed.positions[2]
    assert fold.positions[1] == 0


def test_the_frozen_model_is_the_last_that_was_published() -> None:
    """A partition has none of its own."""
    policy = DelayedUCB(3, Bernoulli())
    journal = journal_of(policy, Explicit())
    folds = folds_of(journal, policy, Explicit())
    model = merging_of(folds).export_model(at=5)
    folds[0].load_model(model)
    journal.append([ModeChanged(7, "freeze", "")])
    folds[0].catch_up(journal)
    assert folds[0].mode == "freeze"
    assert folds[0].frozen is not None
    assert folds[0].frozen.theta == model.theta
    journal.append([ModeChanged(8, "learn", "")])
    folds[0].catch_up(journal)
    assert folds[0].frozen is None


def test_nothing_has_come_yet() -> None:
    """The model is the prior, and no center is named."""
    policy = DelayedUCB(2, Bernoulli())
    journal = MemoryJournal(partitions=PARTITIONS)
    journal.append([Settled(p, 1) for p in range(PARTITIONS)])
    merging = merging_of(folds_of(journal, policy, Explicit()))
    model = merging.export_model(at=1)
    assert (model.n, model.center_number, model.version) == (0, 0, PARTITIONS)
    assert model.model(policy).theta.tolist() == [0.0, 0.0]
    assert merging.oldest is None


@pytest.mark.parametrize(
    ("policy", "rewards", "reason"),
    [
        (DelayedUCB(2, Bernoulli(), half_life="auto"), Explicit(), "compares predictions"),
        (DelayedUCB(2, Gaussian(), half_life="7d"), Explicit(), "unknown variance"),
        (DelayedUCB(2, Poisson()), ConversionsOnly("1h"), "values other than 0 and 1"),
        (DelayedUCB(2, Bernoulli()), ConversionsOnly("1h", delivery="batches"), "deliveries"),
        (DelayedUCB(200, Bernoulli()), ConversionsOnly("1h"), "so many coefficients"),
        (DelayedUCB(2, Bernoulli(), estimator=Laplace(mean_correction=True)), None, "the mean"),
        (DelayedUCB(2, Bernoulli(), learn_after=10), None, "end of a window"),
    ],
    ids=repr,
)
def test_a_policy_that_needs_all_rows_is_refused(
    policy: Policy, rewards: Rewards | None, reason: str
) -> None:
    """The error names the reason and the remedy."""
    with pytest.raises(InvalidInput, match=f'{reason}.*learners = "one"'):
        check_mergeable(policy, rewards)


def test_sums_that_were_damaged_are_refused() -> None:
    """By their checksum, and by the version of their format."""
    fold = PartitionFold(DelayedUCB(2, Bernoulli()), Explicit(), partitions=1, partition=0)
    data = fold.sums(epoch=1).write()
    with pytest.raises(CorruptJournal, match="checksum of a partition's sums"):
        PartitionSums.read(data[:-1] + b"!")
    with pytest.raises(UnsupportedFormat, match="upgrade"):
        PartitionSums.read(b"\x63" + data[1:])
    assert isinstance(PartitionSums.read(data).outstanding(), Information)


# --- observations that count by age ---------------------------------------------------------------

ARMS = ["mail", "call", "nothing"]
#: Pairs of rewards and settings of a policy whose observations count by age.
BY_AGE: dict[str, tuple[Rewards, dict[str, Any]]] = {
    "conversions": (ConversionsOnly("1h"), {"family": Bernoulli()}),
    "estimated ridge": (ConversionsOnly("1h"), {"family": Bernoulli(), "ridge": "auto"}),
    "decaying conversions": (ConversionsOnly("1h"), {"family": Bernoulli(), "half_life": "6h"}),
    "half-life": (Explicit(), {"family": Bernoulli(), "half_life": "6h"}),
    "counts": (DefaultAfter("1h"), {"family": Poisson(), "half_life": "6h"}),
    "known variance": (Explicit(), {"family": Gaussian(0.5), "half_life": "3h"}),
}


def played(
    rewards: Rewards, settings: dict[str, Any], blocks: bool, rounds: int = 1_500
) -> tuple[MemoryJournal, Policy]:
    """A day of decisions with an exponential delay of ten minutes, revisions and voids."""
    journal = MemoryJournal(partitions=PARTITIONS, clock=(clock := ManualClock()))
    rng = np.random.default_rng(7)
    theta = rng.normal(size=(len(ARMS), 2))
    features = PerArm(ARMS, context=2) if blocks else None
    policy = DelayedUCB(**({} if blocks else {"dim": 2}) | settings)
    bandit = Bandit(
        policy=policy, rewards=rewards, features=features, journal=journal, clock=clock, seed=3
    )
    waiting: list[tuple[int, str, float]] = []
    for n in range(rounds):
        clock.now += int(86_400e6 / rounds)
        while waiting and waiting[0][0] <= clock.now:
            _, id, value = waiting.pop(0)
            bandit.observe(id, value)
            if n % 17 == 0:
                bandit.observe(id, 1.0 - value if value <= 1.0 else 0.0, revision=1)
        if blocks:
            context = [1.0, rng.normal()]
            decision = bandit.decide(context, id=f"d{n}")
            mean = 0.4 / (1.0 + np.exp(-theta[decision.index] @ context))
        else:
            decision = bandit.decide(rows=rng.normal(size=(3, 2)) / 2, id=f"d{n}")
            mean = float(policy.family.mean(decision.x @ theta[0]))
        y = float(rng.random() < mean) if isinstance(policy.family, Bernoulli) else abs(mean)
        if y or not isinstance(rewards, ConversionsOnly):
            waiting.append((clock.now + int(rng.exponential(600e6)), decision.id, y))
            waiting.sort()
        if n % 29 == 3:
            bandit.void(decision.id)
    return journal, bandit.policy


def settled(folds: Sequence[PartitionFold], passes: int = 12) -> tuple[PublishedModel, Merging]:
    """Exchange sums and centers until the center is final."""
    merging = folds[0].new_merging()
    for _ in range(passes):
        number = merging.center.number
        for fold in folds:
            merging.take(PartitionSums.read(fold.sums(1).write()))
        model = merging.export_model(at=5)
        if merging.center.number == number:
            return model, merging
        for fold in folds:
            fold.load_model(model)
    raise AssertionError("the center keeps moving")


@pytest.mark.parametrize("blocks", [False, True], ids=["one block", "a block per action"])
@pytest.mark.parametrize("case", BY_AGE)
def test_observations_that_count_by_age_are_merged(case: str, blocks: bool) -> None:
    """The estimate is within 0.15 standard deviations; widths are within 2 %."""
    rewards, settings = BY_AGE[case]
    journal, policy = played(rewards, settings, blocks)
    whole = one_fold(journal, policy, rewards)
    whole.learner.fit()
    folds = folds_of(journal, policy, rewards)
    model, merging = settled(folds)
    merged = model.model(policy)
    assert merging.counts == whole.counts
    assert (merged.n, merged.pending, merged.decisions) == (
        whole.model.n,
        whole.model.pending,
        whole.model.decisions,
    )
    estimate = whole.learner.estimate
    offset = merged.theta - estimate.theta
    assert np.sqrt(np.vdot(offset, product(estimate.precision, offset))) < 0.15
    assert merged.effective_n == pytest.approx(whole.model.effective_n, rel=0.02)
    for name in ("observed", "decided"):
        merged_root, expected_root = getattr(merged, name), getattr(whole.model, name)
        ratios = np.linalg.svd(np.linalg.solve(expected_root, merged_root), compute_uv=False)
        np.testing.assert_allclose(ratios, 1.0, atol=0.02)


@pytest.mark.parametrize("case", BY_AGE)
def test_sums_by_age_follow_every_change(case: str) -> None:
    """At any time they equal those of a new fold at the same center, up to rounding.

    Under ``ConversionsOnly`` they are only close, because the weight of a score refers to the age
    at which the center was adopted.
    """
    rewards, settings = BY_AGE[case]
    journal, policy = played(rewards, settings, blocks=False)
    fold = PartitionFold(policy, rewards, partitions=PARTITIONS, partition=0)
    assert isinstance(fold.learner, AgedLearner)
    model, _ = settled(folds_of(journal, policy, rewards))
    tolerance = 0.1 if isinstance(rewards, ConversionsOnly) else 1e-9
    for page in (400, 7, 3, 8, 1):
        fold.follow(journal, 0, page)
        fresh = PartitionFold(policy, rewards, partitions=PARTITIONS, partition=0)
        fresh.catch_up(journal, to=[fold.position] * PARTITIONS)
        for partition in (fold, fresh):
            partition.load_model(model)
        aged, expected_aged = (
            AgedSums.read(source.sums(1).rows, policy.shape) for source in (fold, fresh)
        )
        for name in ("counts", "effective", "seen", "whole"):
            sums, expected = getattr(aged, name), getattr(expected_aged, name)
            bound = tolerance * np.abs(expected).max()
            np.testing.assert_allclose(sums, expected, rtol=0.0, atol=bound, err_msg=name)
        offset = np.linalg.solve(expected_aged.seen + np.eye(2), aged.pull - expected_aged.pull)
        assert np.sqrt(offset @ expected_aged.seen @ offset) < 0.2


def test_batches_of_conversions_are_noticed() -> None:
    """Partitions treat conversions as arriving one by one; the worker warns if they do not."""
    journal = MemoryJournal(partitions=1, clock=(clock := ManualClock()))
    rewards, policy = ConversionsOnly("1h"), DelayedUCB(2, Bernoulli())
    bandit = Bandit(policy=policy, rewards=rewards, journal=journal, clock=clock)
    fold = PartitionFold(policy, rewards, partitions=1, partition=0)
    assert isinstance(fold.learner, AgedLearner)
    for _ in range(4):
        ids = []
        for _ in range(30):
            clock.now += int(60e6)
            ids.append(bandit.decide(rows=np.eye(2)).id)
        for id in ids:
            bandit.observe(id, 1.0)
    fold.catch_up(journal)
    fold.sums(1)
    assert fold.learner.in_batches
