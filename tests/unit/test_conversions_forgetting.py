"""Conversions by a half-life: what a decision and its conversion count for fades with its age."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from belated import (
    Bernoulli,
    DelayedThompson,
    DelayedUCB,
    Gaussian,
    Poisson,
    delays,
    environments,
    simulate,
)
from belated.core.events import Decision, Record, Reward, Settled
from belated.core.ids import key_of, partition_of
from belated.core.rewards import ConversionsOnly
from belated.core.tuning import Tuning
from belated.fold.fold import Fold
from belated.fold.learner import Learner
from belated.fold.weighting.age_blocks import TICK
from belated.journals import MemoryJournal, SQLiteJournal
from belated.model.estimators import Thinned
from belated.model.estimators.conversion_law import Conversions, fitted_law
from belated.model.estimators.thinned import AgedDecisions, DecidedRows, ThinnedEstimate
from belated.model.families import Family
from belated.model.priors import Prior
from belated.policies import Policy
from belated.service.operating.metrics import half_life_of
from belated.testing import ManualClock
from experiments.conversions import buckets
from tests.unit.test_conversions import DIM, SECOND, WINDOW, Shop, learner_of, same, weighting_of
from tests.unit.test_thinned import shop as decisions

LENGTH = 150
UCB = DelayedUCB(DIM, Bernoulli(), ridge=1.0, half_life=f"{LENGTH}s")


def by_the_journal(shop: Shop) -> AgedDecisions:
    """All decisions with their weights, by what the journal and the entries say."""
    rows, y, age, weight, delay = [], [], [], [], []
    now, records = shop.journal.last_stamp(0), shop.journal.read(0, 0, 100_000)
    arrivals = {
        reward.event.id: reward.recorded for reward in records if isinstance(reward.event, Reward)
    }
    for record in records:
        if not isinstance(record.event, Decision):
            continue
        entry = shop.bandit.entry(record.event.id)
        if entry.state == "voided":
            continue
        rows.append(record.event.x)
        y.append(entry.value if entry.state == "rewarded" and entry.value else 0.0)
        age.append((now - record.recorded + TICK) / (WINDOW.total_seconds() * SECOND))
        weight.append(2.0 ** ((record.recorded - now) / (LENGTH * SECOND)))
        arrival = arrivals.get(record.event.id, 0)
        delay.append((arrival - record.recorded + TICK) / (WINDOW.total_seconds() * SECOND))
    columns = [np.array(column) for column in (y, age, weight, delay)]
    converted = (columns[0] > 0.0) & (columns[3] <= 1.0)
    conversions = Conversions(
        columns[3][converted],
        np.zeros(int(converted.sum())),
        np.minimum(columns[1][converted], 1.0),
        columns[2][converted],
    )
    tick = TICK / (WINDOW.total_seconds() * SECOND)
    return AgedDecisions((DIM,), [DecidedRows(np.array(rows), *columns[:3])], conversions, tick)


def test_a_weight_of_two_is_two_decisions() -> None:
    """In the law of delays, in θ and in its covariance."""
    for family in (Bernoulli(), Gaussian(), Gaussian(50.0), Poisson()):
        data, _ = decisions(family, n=400)
        weights = np.where(np.arange(400) % 3 == 0, 2.0, 1.0)
        part = data.parts[0]._replace(weight=weights)
        converted = weights[part.y > 0.0]
        weighted = AgedDecisions((3,), [part], data.conversions._replace(weight=converted))
        index = np.repeat(np.arange(400), weights.astype(int))
        repeated = AgedDecisions(
            (3,),
            [DecidedRows(part.rows[index], part.y[index], part.age[index])],
            Conversions(
                *(np.repeat(column, converted.astype(int)) for column in data.conversions[:3])
            ),
        )
        assert_alike(weighted, repeated, family)


def assert_alike(one: AgedDecisions, other: AgedDecisions, family: Family) -> None:
    """Both give one estimate."""
    first, second = (
        Thinned().fit(data, family=family, prior=Prior.ridge(3)) for data in (one, other)
    )
    np.testing.assert_allclose(first.law.shares, second.law.shares, atol=1e-9)
    np.testing.assert_allclose(first.law.deviations, second.law.deviations, atol=1e-9)
    np.testing.assert_allclose(first.theta, second.theta, atol=1e-6)
    np.testing.assert_allclose(first.covariance, second.covariance, rtol=1e-6)
    assert first.effective_n == pytest.approx(second.effective_n)


def test_deliveries_fade_as_well() -> None:
    """Conversions that are known to an interval only, counted twice."""
    rng = np.random.default_rng(1)
    after, within = 0.4 * rng.random(50), 0.2 * rng.random(50)
    age, weights = np.ones(50), np.where(np.arange(50) % 2 == 0, 2.0, 1.0)
    weighted = fitted_law(Conversions(after, within, age, weights))
    times = weights.astype(int)
    repeated = fitted_law(
        Conversions(*(np.repeat(column, times) for column in (after, within, age)))
    )
    np.testing.assert_allclose(weighted.shares, repeated.shares, atol=1e-9)


def test_decisions_count_by_their_age() -> None:
    """The estimate is that of all decisions with weights of 2^(-age/h), their delays too."""
    shop = Shop(UCB)
    shop.run(420)
    shop.bandit.void(shop.ids[300])
    estimate = shop.bandit.estimate
    data = by_the_journal(shop)
    expected = Thinned().fit(data, family=Bernoulli(), prior=Prior.ridge(DIM))
    assert isinstance(estimate, ThinnedEstimate)
    np.testing.assert_allclose(estimate.theta, expected.theta, atol=1e-6)
    np.testing.assert_allclose(estimate.covariance, expected.covariance, rtol=1e-5)
    np.testing.assert_allclose(estimate.law.shares, expected.law.shares, atol=1e-9)
    assert estimate.effective_n == pytest.approx(expected.effective_n)
    assert estimate.half_life is not None
    assert estimate.half_life.total_seconds() == LENGTH
    full = Thinned().fit(
        AgedDecisions((DIM,), [data.parts[0]._replace(weight=None)], data.conversions),
        family=Bernoulli(),
        prior=Prior.ridge(DIM),
    )
    assert not np.allclose(estimate.theta, full.theta, atol=0.01)


def test_steps_by_age_are_nearly_exact() -> None:
    """Sums that fade: within a quarter of a deviation of the step by all rows, as without."""
    shop, errors = Shop(UCB), []
    shop.run(300)
    for _ in range(40):
        shop.run(7)
        learner = learner_of(shop.bandit)
        errors.append(buckets.off(learner))
        data = learner.weighting.data()
        total = sum(float(part.weight.sum()) for part in data.parts if part.weight is not None)
        assert float(weighting_of(learner)._blocks._n.sum()) == pytest.approx(total, rel=1e-6)
    assert max(errors) < 0.25
    assert float(np.mean(errors)) < 0.1


@pytest.mark.parametrize("policy", [UCB, DelayedThompson(DIM, Bernoulli(), half_life="60s")])
def test_live_is_replay(policy: Policy, tmp_path: Path) -> None:
    """From the first record, from a snapshot, and on another store."""
    clock = ManualClock()
    journal = SQLiteJournal(tmp_path / "shop.db", bandit="shop", clock=clock)
    shop = Shop(policy, journal=journal, clock=clock)
    shop.run(230)
    shop.bandit.void(shop.ids[225])
    rewarded = [id for id in shop.ids if shop.bandit.entry(id).state == "rewarded"]
    shop.bandit.observe(rewarded[-1], 0.0, revision=1)
    shop.bandit.save()
    shop.run(20)
    live = shop.bandit
    same(live, shop.opened())
    shop.journal = MemoryJournal(clock=clock)
    shop.journal.import_records(journal.read(0, 0, 10_000))
    same(live, shop.opened())
    journal.close()


def test_partitions_know_the_same() -> None:
    """However the decisions are split: live, replayed, and all in one."""
    shop = Shop(UCB, partitions=4)
    shop.run(260)
    same(shop.bandit, shop.opened())
    data = learner_of(shop.bandit).weighting.data()
    assert sum(len(part.y) for part in data.parts) == 260


def test_eight_shuffled_partitions_are_one_pass() -> None:
    """Records of eight partitions in any order between them."""
    shop = Shop(UCB)
    shop.run(260)
    shop.bandit.void(shop.ids[200])
    queues: list[list[Record]] = [[] for _ in range(8)]
    for record in shop.journal.read(0, 0, 100_000):
        event = record.event
        id = getattr(event, "id", None)
        for partition in (
            range(8) if isinstance(event, Settled) else [partition_of(key_of(id or ""), 8)]
        ):
            routed = Settled(partition, event.until) if isinstance(event, Settled) else event
            queues[partition].append(
                Record(partition, len(queues[partition]) + 1, record.recorded, routed)
            )
    rng, split = np.random.default_rng(3), Fold(UCB, shop.bandit.rewards, partitions=8)
    with split.learner.bulk():
        while any(queues):
            number = rng.choice([n for n, queue in enumerate(queues) if queue])
            split.take(queues[number].pop(0))
    live, folded = shop.bandit.estimate, split.learner.estimate
    assert shop.bandit.digest == split.digest
    np.testing.assert_allclose(live.theta, folded.theta, atol=1e-7)
    np.testing.assert_allclose(live.covariance, folded.covariance, rtol=1e-6)
    assert live.effective_n == pytest.approx(folded.effective_n, rel=1e-9)


def test_records_one_by_one_are_records_in_bulk() -> None:
    """The estimate is a function of the records, whatever way they were read."""
    shop = Shop(UCB)
    shop.run(300)
    fold = Fold(UCB, shop.bandit.rewards)
    for record in shop.journal.read(0, 0, 100_000):
        fold.take(record)
    live, bulk = shop.bandit.estimate, fold.learner.estimate
    np.testing.assert_allclose(live.theta, bulk.theta, atol=1e-7)
    assert live.effective_n == pytest.approx(bulk.effective_n, rel=1e-12)
    np.testing.assert_allclose(
        shop.bandit._fold.model.theta, fold.model.theta, atol=1e-9
    )  # the same steps and fits, too


def test_batches_fade_by_the_last_record() -> None:
    """Ages count up to the last delivery, weights up to now."""
    shop = Shop(UCB, delivery="batches")
    shop.run(330, period=50)
    learner = learner_of(shop.bandit)
    data = learner.weighting.data()
    newest = max(float(part.weight.max()) for part in data.parts if part.weight is not None)
    assert newest == pytest.approx(1.0)
    assert weighting_of(learner)._clock.until < learner.now
    same(shop.bandit, shop.opened())


def test_what_is_long_ago_is_left_out() -> None:
    """After twelve half-lives; in the sums too, and nothing breaks after a thousand."""
    shop = Shop(replace(UCB, half_life="20s"))
    shop.run(400)
    data = learner_of(shop.bandit).weighting.data()
    assert sum(len(part.y) for part in data.parts) == 240
    shop.clock.now += 20_000 * SECOND
    shop.run(2, rate=0.0)
    estimate = shop.bandit.estimate
    assert np.abs(estimate.theta).max() < 0.5  # what two silent decisions say
    assert np.isfinite(shop.bandit._fold.model.decided).all()
    same(shop.bandit, shop.opened())


def test_an_activation_starts_its_weight() -> None:
    """A mail that waits in a queue does not fade there, pending or learned."""
    shop = Shop(UCB)
    shop.run(50, rate=0.0, activated=False)
    first = shop.bandit.decide(rows=np.eye(DIM, dtype=np.float32), activated=False)
    shop.clock.now += 3_000 * SECOND
    for id in (*shop.ids, first.id):
        shop.bandit.activate(id)
    shop.clock.now += LENGTH * SECOND
    shop.bandit.observe(first.id, 1.0)
    data = learner_of(shop.bandit).weighting.data()
    weights = np.concatenate([part.weight for part in data.parts if part.weight is not None])
    np.testing.assert_allclose(weights, 0.5)
    assert len(weights) == 51
    same(shop.bandit, shop.opened())


def test_it_follows_a_change() -> None:
    """Conversions stop: after some half-lives they are not expected any longer."""
    level = {}
    for policy in (UCB, replace(UCB, half_life=None)):
        shop = Shop(policy)
        shop.run(600, rate=0.6)
        shop.run(700, rate=0.02)
        level[policy.half_life is None] = float(shop.bandit.estimate.theta[0])
    assert level[False] < -2.0 < -1.5 < level[True]


def test_a_very_long_half_life_forgets_nothing() -> None:
    """The same choices as without one."""
    world = environments.fresh(seed=2)
    runs = [
        simulate(
            DelayedUCB(10, Bernoulli(), half_life=half_life),
            world,
            delays.Geometric(mean=20),
            horizon=400,
            rewards=ConversionsOnly("400s"),
        )
        for half_life in (None, "100000d")
    ]
    np.testing.assert_array_equal(runs[0].actions, runs[1].actions)


def test_a_half_life_can_be_given_later() -> None:
    """All rows and times are in any snapshot of conversions, and in the base of what is trimmed."""
    plain = replace(UCB, half_life=None)
    shop = Shop(plain)
    shop.run(300)
    shop.bandit.save()
    fold = Fold(UCB, shop.bandit.rewards)
    fold.load(shop.journal)
    assert fold.positions == [shop.journal.end(0)]
    shop.policy = UCB
    reopened = shop.opened()
    assert fold.learner.estimate.effective_n == pytest.approx(reopened.estimate.effective_n)
    assert Fold(plain, shop.bandit.rewards).base(0).fingerprint == fold.base(0).fingerprint


def test_a_fit_beside_the_fold() -> None:
    """It is due after a twentieth of a half-life, and ends where one at once does."""
    shop = Shop(UCB)
    shop.run(200)
    learner = learner_of(shop.bandit)
    learner.defers = True
    learner.fit()
    assert not learner.fit_is_due()
    shop.run(LENGTH // 20 + 1, rate=0.0)
    assert learner.fit_is_due()
    fit = learner.begin_fit()
    assert not learner.fit_is_due()
    shop.run(10)
    assert learner.finish_fit(fit())
    difference = learner.model.theta - shop.bandit.estimate.theta
    assert float(difference @ shop.bandit.estimate.precision @ difference) < 0.25**2


def test_metrics_tell_the_half_life() -> None:
    """As those of other rewards do; there is no other to change to."""
    metrics = half_life_of(Fold(UCB, ConversionsOnly(WINDOW)))
    assert list(metrics.values()) == [LENGTH, 0.0]
    assert half_life_of(Fold(replace(UCB, half_life=None), ConversionsOnly(WINDOW))) == {}


def test_the_sums_are_of_the_time_of_a_decision_that_is_added_at_once() -> None:
    """The first decision counts for 1, not for a power of two with its age since 1970."""
    policy = DelayedUCB(1, Bernoulli(), half_life="1h")
    learner = Learner(policy, ConversionsOnly("1d"), tuning=Tuning(batch=1))
    learner.add_pending(np.ones(1), 0.25, 1_700_000_000_000_000)
    learner.finish(1_700_000_000_000_000)
    assert np.isfinite(learner.model.decided).all()
    assert learner.model.effective_n == pytest.approx(0.0, abs=1e-3)
