"""A bandit that is told of conversions only: live, replayed, split and resumed."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from belated import (
    Bandit,
    Bernoulli,
    BlindUCB,
    ConversionsOnly,
    DelayedThompson,
    DelayedUCB,
    Explicit,
    Gaussian,
    delays,
    environments,
    simulate,
)
from belated.fold.fold import same_sums
from belated.fold.learner import Learner
from belated.fold.weighting import ExpectedConversions
from belated.fold.weighting.age_blocks import MANY
from belated.journals import Journal, MemoryJournal, SQLiteJournal
from belated.model.estimators.thinned import ThinnedEstimate
from belated.policies import Policy
from belated.testing import ManualClock
from experiments.conversions.buckets import off

DIM, SECOND = 3, 1_000_000
WINDOW = timedelta(seconds=200)
UCB = DelayedUCB(DIM, Bernoulli(), ridge=1.0)


class Shop:
    """A bandit with a clock, customers, and conversions on their way."""

    def __init__(
        self,
        policy: Policy = UCB,
        *,
        journal: Journal | None = None,
        clock: ManualClock | None = None,
        partitions: int = 1,
        **more: Any,
    ) -> None:
        self.policy, self.more = policy, more
        self.clock = clock or ManualClock()
        self.journal = journal or MemoryJournal(clock=self.clock, partitions=partitions)
        self.rng = np.random.default_rng(3)
        self.coming: list[tuple[int, str]] = []
        self.ids: list[str] = []
        self.bandit = self.opened()

    def opened(self) -> Bandit:
        """Open the journal: from its snapshot, if there is one."""
        return Bandit(
            policy=self.policy,
            rewards=ConversionsOnly(WINDOW, **self.more),
            journal=self.journal,
            clock=self.clock,
            seed=0,
        )

    def run(self, seconds: int, *, rate: float = 0.3, period: int = 1, **more: Any) -> None:
        """Decide every second; conversions come later, each ``period`` together."""
        for _ in range(seconds):
            self.clock.now += SECOND
            now = self.clock.now
            if now // SECOND % period == 0:
                for id in [id for time, id in self.coming if time <= now]:
                    self.bandit.observe(id, 1.0)
                self.coming = [reward for reward in self.coming if reward[0] > now]
            rows = np.column_stack([np.ones(4), self.rng.normal(size=(4, DIM - 1))])
            decision = self.bandit.decide(rows=rows.astype(np.float32), **more)
            self.ids.append(decision.id)
            if self.rng.random() < rate:
                delay = int(self.rng.exponential(40.0)) + 1
                self.coming.append((now + delay * SECOND, decision.id))


def weighting_of(learner: Learner) -> ExpectedConversions:
    """How a learner counts decisions by their age."""
    assert isinstance(learner.weighting, ExpectedConversions)
    return learner.weighting


def learner_of(bandit: Bandit) -> Learner:
    """The learner within a bandit."""
    return bandit._fold.learner


def same(one: Bandit, other: Bandit) -> None:
    """Two bandits know the same: entries, counts, sums and estimates."""
    assert one.digest == other.digest
    assert one.decision_counts == other.decision_counts
    assert same_sums(one._fold, other._fold)
    first, second = one.estimate, other.estimate
    np.testing.assert_allclose(first.theta, second.theta, atol=1e-7)
    np.testing.assert_allclose(first.covariance, second.covariance, rtol=1e-5, atol=1e-9)
    assert first.n == second.n
    assert first.effective_n == pytest.approx(second.effective_n, rel=1e-9)
    models = one._fold.model, other._fold.model
    assert models[0].pending == models[1].pending
    assert models[0].n == models[1].n


def test_it_learns_what_converts() -> None:
    """Before any window has ended, and without taking silence for a no."""
    shop = Shop()
    shop.run(190)
    assert shop.bandit.decision_counts["defaulted"] == 0
    estimate = shop.bandit.estimate
    assert isinstance(estimate, ThinnedEstimate)
    rewarded = shop.bandit.decision_counts["rewarded"]
    assert estimate.theta[0] > np.log(rewarded / (190 - rewarded))  # the share that is seen so far
    assert estimate.effective_n is not None
    assert rewarded < estimate.effective_n < 190
    assert shop.bandit._fold.model.pending == 190 - rewarded


@pytest.mark.parametrize("policy", [UCB, DelayedThompson(DIM, Bernoulli())])
def test_live_is_replay(policy: Policy, tmp_path: Path) -> None:
    """From the first record, and from a snapshot, on both stores in a program."""
    clock = ManualClock()
    journal = SQLiteJournal(tmp_path / "shop.db", bandit="shop", clock=clock)
    shop = Shop(policy, journal=journal, clock=clock)
    shop.run(230)
    shop.bandit.void(shop.ids[225])
    shop.bandit.save()
    shop.run(20)
    live = shop.bandit
    same(live, shop.opened())
    shop.journal = MemoryJournal(clock=clock)
    shop.journal.import_records(journal.read(0, 0, 10_000))
    same(live, shop.opened())
    journal.close()


def test_partitions_know_the_same() -> None:
    """However the decisions are split."""
    shop = Shop(partitions=4)
    shop.run(260)
    same(shop.bandit, shop.opened())
    data = weighting_of(shop.bandit._fold.learner).data()
    assert len(data.parts) == 8
    assert sum(len(part.y) for part in data.parts) == 260


def test_steps_by_age_are_nearly_exact() -> None:
    """Within a quarter of a posterior deviation of the step by all rows."""
    shop = Shop()
    shop.run(150)
    errors = []
    for _ in range(40):
        shop.run(7)
        learner = learner_of(shop.bandit)
        errors.append(off(learner))
    assert max(errors) < 0.25
    assert float(np.mean(errors)) < 0.1


def test_blocks_are_few_and_hold_every_decision() -> None:
    """Whatever leaves or comes again."""
    shop = Shop()
    shop.run(600)
    shop.bandit.void(shop.ids[-1])
    shop.bandit.void(shop.ids[400])
    learner = learner_of(shop.bandit)
    weighting_of(learner)._step()
    total = float(weighting_of(learner)._blocks._n.sum())
    assert total == 598.0
    assert len(weighting_of(learner)._blocks) <= MANY + 1


def test_what_is_undone_is_as_if_it_had_not_been() -> None:
    """A void, a reward taken back to 0, and the same journal folded anew."""
    shop = Shop()
    shop.run(120)
    rewarded = [id for id in shop.ids if shop.bandit.entry(id).state == "rewarded"]
    converted = weighting_of(shop.bandit._fold.learner).converted
    shop.bandit.observe(rewarded[0], 0.0, revision=1)
    shop.bandit.void(rewarded[1])
    assert weighting_of(shop.bandit._fold.learner).converted == converted - 2
    same(shop.bandit, shop.opened())
    shop.bandit.observe(rewarded[0], 1.0, revision=2)
    assert weighting_of(shop.bandit._fold.learner).converted == converted - 1
    same(shop.bandit, shop.opened())


def test_a_late_conversion_counts_and_says_nothing_of_delays() -> None:
    """It comes after the window, and replaces the default."""
    shop = Shop()
    shop.run(220, rate=0.0)
    shop.bandit.settle()
    before = shop.bandit.estimate
    assert shop.bandit.observe(shop.ids[0], 1.0).status in ("late", "revised")
    after = shop.bandit.estimate
    assert after.theta[0] > before.theta[0]
    assert isinstance(before, ThinnedEstimate)
    assert isinstance(after, ThinnedEstimate)
    np.testing.assert_allclose(after.law.shares, before.law.shares, atol=0.05)
    same(shop.bandit, shop.opened())


def test_age_counts_from_the_activation() -> None:
    """A mail that waits in a queue cannot convert."""
    shop = Shop()
    shop.run(50, rate=0.0, activated=False)
    assert shop.bandit.estimate.effective_n == 0.0
    for id in shop.ids:
        shop.bandit.activate(id)
    effective_n = shop.bandit.estimate.effective_n
    assert effective_n is not None
    assert effective_n < 3.0  # a tick of the clock each
    shop.clock.now += 100 * SECOND
    shop.run(1, rate=0.0)
    effective_n = shop.bandit.estimate.effective_n
    assert effective_n is not None
    assert 45.0 < effective_n < 51.0
    shop.bandit.save()
    same(shop.bandit, shop.opened())


def test_a_second_activation_moves_the_age() -> None:
    """One that was active from the start: its window starts again."""
    shop = Shop()
    shop.run(40, rate=0.0)
    shop.clock.now += 100 * SECOND
    for id in shop.ids:
        shop.bandit.activate(id)
    effective_n = shop.bandit.estimate.effective_n
    assert effective_n is not None
    assert effective_n < 3.0
    learner = learner_of(shop.bandit)
    weighting_of(learner)._step()
    assert learner.model.effective_n == pytest.approx(effective_n, abs=0.5)
    assert float(weighting_of(learner)._blocks._n.sum()) == 40.0


def test_pending_decisions_count_in_full() -> None:
    """By age they count for nothing at first, and a policy that is blind repeats itself."""
    rows = np.diag([1.0, 0.9, 0.8]).astype(np.float32)
    actions = {}
    for policy in (UCB, BlindUCB(DIM, Bernoulli(), ridge=1.0)):
        shop = Shop(policy)
        actions[type(policy)] = {shop.bandit.decide(rows=rows).index for _ in range(12)}
    assert len(actions[DelayedUCB]) == DIM
    assert len(actions[BlindUCB]) < DIM


def test_values_of_conversions() -> None:
    """Revenue, in a bandit."""
    shop = Shop(DelayedUCB(DIM, Gaussian()))
    shop.run(100, rate=0.0)
    for id in shop.ids[:30]:
        shop.bandit.observe(id, 25.0)
    shop.clock.now += 300 * SECOND
    shop.run(1, rate=0.0)
    assert shop.bandit.estimate.theta[0] == pytest.approx(7.5, abs=1.5)
    same(shop.bandit, shop.opened())


# --- batches ------------------------------------------------------------------------------------


def test_batches_are_found() -> None:
    """From the first delivery on; ages count up to the last one."""
    shop = Shop()
    shop.run(99, period=100)
    assert weighting_of(shop.bandit._fold.learner).converted == 0
    assert not weighting_of(shop.bandit._fold.learner)._clock.in_batches
    shop.run(2, period=100)
    assert weighting_of(shop.bandit._fold.learner)._clock.in_batches
    same(shop.bandit, shop.opened())
    shop.run(58, period=50)
    learner = learner_of(shop.bandit)
    assert weighting_of(learner)._clock.in_batches
    assert weighting_of(learner)._clock.until % (50 * SECOND) == 0
    assert learner.now - weighting_of(learner)._clock.until == 9 * SECOND
    same(shop.bandit, shop.opened())


def test_many_at_once_are_no_batch_if_no_other_comes() -> None:
    """A backlog that was reported once: ages go on as if it had come one by one."""
    shop = Shop()
    shop.run(100, rate=0.0)
    for id in shop.ids[:30]:
        shop.bandit.observe(id, 1.0)
    shop.run(40, rate=0.0)
    assert weighting_of(shop.bandit._fold.learner)._clock.in_batches
    shop.run(40, rate=0.0)
    learner = learner_of(shop.bandit)
    assert not weighting_of(learner)._clock.in_batches
    assert weighting_of(learner)._clock.until == learner.now
    same(shop.bandit, shop.opened())


def test_one_by_one_is_no_batch() -> None:
    """Neither in a busy shop nor in a quiet one."""
    for rate in (0.6, 0.05):
        shop = Shop()
        shop.run(400, rate=rate)
        assert not weighting_of(shop.bandit._fold.learner)._clock.in_batches


def test_half_a_delivery_is_not_learned() -> None:
    """It is known what a delivery says once it is complete."""
    shop = Shop(delivery="batches")
    shop.run(60, rate=0.0)
    shop.clock.now += SECOND
    before = shop.bandit.estimate.theta
    for id in shop.ids[:10]:
        shop.bandit.observe(id, 1.0)
    np.testing.assert_allclose(shop.bandit.estimate.theta, before)
    shop.run(2, rate=0.0)
    effective_n = shop.bandit.estimate.effective_n
    assert effective_n is not None
    assert 5.0 < effective_n < 60.0
    assert not np.allclose(shop.bandit.estimate.theta, before)


def test_a_simulation_is_the_same_learner() -> None:
    """Rounds a second apart; nothing is reported but conversions."""
    world = environments.fixed(seed=3, dim=DIM)
    delay = delays.Geometric(mean=20)
    trace = simulate(UCB, world, delay, horizon=200, rewards=ConversionsOnly("100s"))
    converted = weighting_of(trace.learner).converted
    arrived = int((trace.rewards[: 200 - 20] > 0).sum())
    assert 0 < converted <= int((trace.rewards > 0).sum())
    assert converted > arrived / 2
    explicit = simulate(UCB, world, delay, horizon=200, rewards=Explicit())
    plain = simulate(UCB, world, delay, horizon=200)
    np.testing.assert_array_equal(explicit.actions, plain.actions)


def test_a_fit_beside_the_fold() -> None:
    """What has come meanwhile counts when it ends; and one that was overtaken is of no use."""
    shop = Shop()
    shop.run(160)
    learner = learner_of(shop.bandit)
    learner.defers = True
    shop.run(30)
    assert learner.fit_is_due()
    fit = learner.begin_fit()
    assert not learner.fit_is_due()
    shop.run(10)
    assert learner.finish_fit(fit())
    assert float(weighting_of(learner)._blocks._n.sum()) == 200.0
    assert off(learner) < 0.25  # of one step by all rows from the new fit, in deviations
    fit = learner.begin_fit()
    learner.fit()
    assert not learner.finish_fit(fit())


def test_a_learner_that_publishes_makes_one_step_for_each_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Deciders never use the models in between."""
    shop = Shop()
    shop.run(200)
    fold = shop.bandit._new_fold()
    fold.catch_up(shop.journal)
    fold.learner.defers = True
    shop.run(30)
    steps, step = [], ExpectedConversions._step

    def note(self: ExpectedConversions, moves: bool = True) -> None:
        steps.append(moves)
        step(self, moves)

    monkeypatch.setattr(ExpectedConversions, "_step", note)
    before = fold.version
    fold.follow(shop.journal, 0, 1_000)
    assert fold.version > before + 30
    assert steps == []
    theta = fold.model.theta.copy()
    assert np.any(fold.export_model(0).model(shop.policy).theta != theta)
    fold.export_model(0)
    assert len(steps) <= 2
