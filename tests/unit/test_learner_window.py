"""Bandits whose policy learns a reward only after a number of further decisions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from belated import Bandit, Bernoulli, DefaultAfter, DelayedUCB, Explicit, WaitForWindow
from belated.core.rewards import Rewards
from belated.exceptions import InvalidInput
from belated.fold.fold import same_sums
from belated.journals import MemoryJournal
from belated.policies import Policy, Warmup
from belated.testing import ManualClock

DIM = 3
SECOND = 1_000_000


class Shop:
    """A bandit with a clock, and rows to decide on."""

    def __init__(
        self,
        policy: Policy | int,
        *,
        rewards: Rewards | None = None,
        retention: timedelta | None = None,
        partitions: int = 1,
    ) -> None:
        if isinstance(policy, int):
            policy = DelayedUCB(DIM, Bernoulli(), learn_after=policy)
        self.policy = policy
        self.clock = ManualClock()
        self.journal = MemoryJournal(clock=self.clock, partitions=partitions)
        self.rewards = rewards or Explicit()
        self.retention = retention
        self.rng = np.random.default_rng(3)
        self.bandit = self.opened()

    def opened(self, policy: Policy | None = None) -> Bandit:
        """Open the bandit, from its snapshot if there is one."""
        return Bandit(
            policy=policy or self.policy,
            rewards=self.rewards,
            retention=self.retention,
            journal=self.journal,
            clock=self.clock,
            seed=0,
        )

    def decide(self, count: int = 1, **options: Any) -> list[str]:
        """Make decisions one second later; return their ids."""
        self.clock.now += SECOND
        tables = self.rng.normal(size=(count, 4, DIM)).astype(np.float32)
        return [self.bandit.decide(rows=rows, **options).id for rows in tables]

    @property
    def known(self) -> tuple[int, int, int]:
        """The numbers of learned rewards, pending decisions and all decisions."""
        return known(self.bandit)


def known(bandit: Bandit) -> tuple[int, int, int]:
    """Return the numbers of learned rewards, pending decisions and all decisions."""
    model = bandit._fold.model
    return model.n, model.pending, model.decisions


def test_a_reward_is_learned_after_a_number_of_further_decisions() -> None:
    """It is not learned earlier; a reward that arrives later is learned at once."""
    shop = Shop(3)
    first, second, third, fourth = shop.decide(4)
    assert shop.known == (0, 4, 4)
    shop.bandit.observe(second, 1.0)
    assert shop.known == (0, 4, 4)
    shop.bandit.observe(first, 1.0)  # three decisions have followed
    assert shop.known == (1, 3, 4)
    shop.decide()
    assert shop.known == (2, 3, 5)
    shop.decide(2)
    assert shop.bandit.observe(third, 1.0).status == "rewarded"
    assert shop.known == (3, 4, 7)
    shop.bandit.observe(fourth, 0.0)
    assert shop.known == (4, 3, 7)
    assert shop.bandit.estimate.n == 4


def test_a_correction_counts_whenever_it_arrives() -> None:
    """It counts both before and after the reward is learned."""
    shop = Shop(2)
    (id,) = shop.decide()
    shop.bandit.observe(id, 1.0)
    shop.bandit.observe(id, 0.0, revision=1)
    shop.decide(2)
    assert shop.known == (1, 2, 3)
    low = shop.bandit.estimate.theta
    shop.bandit.observe(id, 1.0, revision=2)
    assert shop.bandit.entry(id).value == 1.0
    assert not np.allclose(shop.bandit.estimate.theta, low)


def test_a_void_also_removes_learned_rewards() -> None:
    """It works both before and after the reward is learned."""
    shop = Shop(2)
    first, second, third = shop.decide(3)
    for id in (first, second, third):
        shop.bandit.observe(id, 1.0)
    assert shop.known == (1, 2, 3)
    shop.bandit.void(second)
    assert shop.known == (1, 1, 3)
    shop.bandit.void(first)
    assert shop.known == (0, 1, 3)
    shop.decide(2)
    assert shop.known == (1, 2, 5)
    shop.decide()
    shop.bandit.void(third)
    assert shop.known == (0, 3, 6)


def test_a_late_reward_is_still_learned() -> None:
    """It is withheld like any other."""
    shop = Shop(3, rewards=Explicit(timedelta(seconds=5)))
    (id,) = shop.decide()
    shop.clock.now += 6 * SECOND
    shop.bandit.settle()
    assert shop.known == (0, 0, 1)
    assert shop.bandit.observe(id, 1.0).status == "late"
    assert shop.known == (0, 1, 1)
    shop.decide(3)
    assert shop.known == (1, 3, 4)


def test_a_default_is_a_reward() -> None:
    """It is withheld like any other."""
    shop = Shop(3, rewards=DefaultAfter(timedelta(seconds=5)))
    shop.decide()
    shop.clock.now += 6 * SECOND
    shop.bandit.settle()
    assert shop.known == (0, 1, 1)
    shop.decide(4)
    assert shop.known == (1, 4, 5)
    shop.clock.now += 6 * SECOND
    shop.bandit.settle()
    assert shop.known == (2, 3, 5)  # the default of the only one with three decisions after it


def test_a_withheld_reward_is_not_forgotten() -> None:
    """Even if its retention has ended, it is learned first."""
    shop = Shop(2, retention=timedelta(seconds=5), rewards=Explicit(timedelta(seconds=2)))
    (id, _) = shop.decide(2)
    shop.bandit.observe(id, 1.0)
    shop.clock.now += 100 * SECOND
    shop.bandit.settle()
    assert shop.known == (0, 1, 2)
    shop.decide()
    assert shop.known == (1, 1, 3)
    shop.clock.now += 100 * SECOND
    shop.bandit.settle()
    assert shop.bandit.entry(id).state == "unknown"


def test_a_dormant_decision_is_a_round() -> None:
    """It counts as a further decision; activated late, it is learned when its reward arrives."""
    shop = Shop(2)
    (first,) = shop.decide(activated=False)
    assert shop.known == (0, 0, 0)
    shop.bandit.activate(first)
    (second,) = shop.decide(activated=False)
    shop.bandit.observe(first, 1.0)
    assert shop.known == (0, 1, 1)
    shop.decide(3)
    assert shop.known == (1, 3, 4)
    shop.bandit.activate(second)
    shop.bandit.observe(second, 1.0)
    assert shop.known == (2, 3, 5)


def test_partitions_share_the_window() -> None:
    """With 8 decisions and 4 partitions, each partition waits for 2 of its own."""
    shop = Shop(8, partitions=4)
    assert [ledger._after for ledger in shop.bandit._fold.ledgers.values()] == [2, 2, 2, 2]


def test_a_policy_that_drops_rewards_is_for_simulations() -> None:
    """A bandit rejects it."""
    with pytest.raises(InvalidInput, match="simulate"):
        Shop(WaitForWindow(DIM, Bernoulli(), window=5))


def add_random_events(shop: Shop, steps: int) -> None:
    """Add events of all kinds in random order."""
    rng = shop.rng
    ids: list[str] = []
    for revision in range(steps):
        shop.clock.now += int(rng.integers(SECOND))
        if not ids or rng.random() < 0.4:
            ids += shop.decide(activated=bool(rng.random() < 0.8))
            continue
        id = ids[-min(int(rng.geometric(0.2)), len(ids))]
        match int(rng.integers(8)):
            case 0:
                shop.bandit.void(id)
            case 1:
                shop.bandit.activate(id)
            case 2:
                shop.bandit.settle()
            case _:
                shop.bandit.observe(id, float(rng.integers(2)), revision=revision)


def assert_same(bandit: Bandit, other: Bandit) -> None:
    """Assert that two bandits have learned the same, and have the same pending decisions."""
    assert known(bandit) == known(other)
    assert same_sums(bandit._fold, other._fold)
    np.testing.assert_allclose(bandit.estimate.theta, other.estimate.theta, atol=1e-7)


def test_rewards_are_learned_at_a_common_age_and_late_ones_when_they_arrive() -> None:
    """An early reward waits; a decision without a reward is pending until its reward arrives."""
    shop = Shop(3)
    early, late, void = shop.decide(3)
    shop.bandit.observe(early, 1.0)
    assert shop.known == (0, 3, 3)
    shop.decide()
    assert shop.known == (1, 3, 4)
    shop.decide(3)
    assert shop.known == (1, 6, 7)  # the second is still pending
    assert shop.bandit.observe(late, 0.0).status == "rewarded"
    assert shop.known == (2, 5, 7)
    shop.bandit.observe(late, 1.0, revision=1)  # a correction counts whenever it arrives
    assert shop.bandit.estimate.n == 2
    shop.bandit.observe(void, 1.0)
    shop.bandit.void(void)
    shop.bandit.void(late)
    assert shop.known == (1, 4, 7)


def test_a_decision_without_a_reward_is_pending_until_its_window_ends() -> None:
    """Its age in decisions does not matter; a late reward is still learned."""
    rewards = Explicit(timedelta(seconds=10))
    shop = Shop(DelayedUCB(DIM, Bernoulli(), learn_after=1), rewards=rewards)
    (id,) = shop.decide()
    shop.decide(2)
    assert shop.known == (0, 3, 3)
    shop.clock.now += 60 * SECOND
    shop.bandit.settle()
    assert shop.known == (0, 0, 3)
    assert shop.bandit.observe(id, 1.0).status == "late"
    assert shop.known == (1, 0, 3)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("policy", [0, 1, 7, 40])
def test_a_snapshot_and_a_replay_lead_to_the_same_state(policy: int, seed: int) -> None:
    """This holds wherever the snapshot was taken, and whatever follows."""
    shop = Shop(
        policy,
        rewards=(Explicit(timedelta(seconds=20)), Explicit(), DefaultAfter(timedelta(seconds=9)))[
            seed % 3
        ],
        retention=timedelta(seconds=60) if seed % 2 else None,
        partitions=1 + seed // 3,
    )
    shop.rng = np.random.default_rng(seed)
    for _ in range(4):
        add_random_events(shop, 60)
        assert_same(shop.bandit, shop.bandit.as_of(shop.clock.now))  # reads the whole journal
        shop.bandit.save()
        reopened = shop.opened()
        assert_same(shop.bandit, reopened)
        shop.bandit = reopened
    assert shop.known[0] > 0


def test_a_snapshot_with_another_window_is_ignored() -> None:
    """The values that it withholds would be wrong."""
    shop = Shop(5)
    for id in shop.decide(20):
        shop.bandit.observe(id, 1.0)
    assert shop.known[0] == 15
    shop.bandit.save()
    immediate = shop.opened(DelayedUCB(DIM, Bernoulli()))
    assert known(immediate) == (20, 0, 20)
    immediate.save()
    longer = shop.opened(DelayedUCB(DIM, Bernoulli(), learn_after=10))
    assert known(longer) == (10, 10, 20)
    warmed = shop.opened(Warmup(DelayedUCB(DIM, Bernoulli(), learn_after=5), rounds=3))
    assert known(warmed) == shop.known
