"""``DefaultAfter(learn="together")``: both outcomes are learned when the window ends."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from belated import Bandit, Bernoulli, DefaultAfter, DelayedUCB
from belated.exceptions import InvalidInput
from belated.fold.fold import same_sums
from belated.journals import MemoryJournal
from belated.model.kernels.pages import WITHHELD
from belated.testing import ManualClock

DIM, SECOND = 3, 1_000_000
POLICY = DelayedUCB(DIM, Bernoulli())
ROWS = np.eye(DIM, dtype=np.float32)


class Shop:
    """A bandit with a window of ten seconds, and a clock."""

    def __init__(self, learn: Any = "together") -> None:
        self.clock = ManualClock()
        self.journal = MemoryJournal(clock=self.clock)
        self.rewards = DefaultAfter(timedelta(seconds=10), learn=learn)
        self.bandit = self.opened()

    def opened(self) -> Bandit:
        """Open the journal: from its snapshot, if there is one."""
        return Bandit(
            policy=POLICY, rewards=self.rewards, journal=self.journal, clock=self.clock, seed=0
        )

    def wait(self, seconds: float) -> None:
        """Let time pass, and settle what is due."""
        self.clock.now += int(seconds * SECOND)
        self.bandit.settle()


def known(bandit: Bandit) -> tuple[int, int]:
    """Rewards learned and decisions pending, as the learner has it."""
    return bandit._fold.model.n, bandit._fold.model.pending


def test_a_reward_is_learned_when_the_window_ends() -> None:
    """The entry is rewarded at once; the learner hears of it with the others of its age."""
    shop = Shop()
    rewarded, unrewarded = shop.bandit.decide(rows=ROWS).id, shop.bandit.decide(rows=ROWS).id
    shop.wait(1)
    assert shop.bandit.observe(rewarded, 1.0).status == "rewarded"
    assert shop.bandit.entry(rewarded).state == "rewarded"
    assert known(shop.bandit) == (0, 2)
    shop.wait(8)
    assert known(shop.bandit) == (0, 2)
    shop.wait(1)
    assert known(shop.bandit) == (2, 0)
    assert shop.bandit.entry(unrewarded).state == "defaulted"
    arrival_shop = Shop("on arrival")
    decision_id = arrival_shop.bandit.decide(rows=ROWS).id
    arrival_shop.bandit.observe(decision_id, 1.0)
    assert known(arrival_shop.bandit) == (1, 0)


def test_something_is_due_while_a_reward_is_held_back() -> None:
    """The next call settles it, though nothing else is pending."""
    shop = Shop()
    decision_id = shop.bandit.decide(rows=ROWS).id
    shop.bandit.observe(decision_id, 1.0)
    shop.clock.now += 10 * SECOND
    shop.bandit.decide(rows=ROWS)
    assert known(shop.bandit) == (1, 1)


def test_what_happens_before_the_end_counts() -> None:
    """A revision, a void and a late reward."""
    shop = Shop()
    revised, voided, late = (shop.bandit.decide(rows=ROWS).id for _ in range(3))
    shop.bandit.observe(revised, 1.0)
    shop.bandit.observe(revised, 0.0, revision=1)
    shop.bandit.observe(voided, 1.0)
    shop.bandit.void(voided)
    assert known(shop.bandit) == (0, 2)
    shop.wait(10)
    assert known(shop.bandit) == (2, 0)
    assert shop.bandit.mean_reward == 0.0
    shop.bandit.observe(late, 1.0)
    assert shop.bandit.mean_reward == 0.5


def test_an_activation_moves_the_end() -> None:
    """Of one whose reward is held back, too."""
    shop = Shop()
    decision_id = shop.bandit.decide(rows=ROWS).id
    shop.bandit.observe(decision_id, 1.0)
    shop.wait(5)
    shop.bandit.activate(decision_id)
    shop.wait(5)
    assert known(shop.bandit) == (0, 1)
    shop.wait(5)
    assert known(shop.bandit) == (1, 0)


def test_live_is_replay() -> None:
    """From the first record and from a snapshot, with rewards held back."""
    shop, rng = Shop(), np.random.default_rng(1)
    ids: list[str] = []
    for second in range(60):
        ids.append(shop.bandit.decide(rows=ROWS).id)
        if rng.random() < 0.4:
            shop.bandit.observe(str(rng.choice(ids[-8:])), 1.0)
        shop.wait(1)
        if second == 40:
            shop.bandit.save()
    assert (shop.bandit._fold.adapters[0].table.column("flags") & WITHHELD).any()
    resumed = shop.opened()
    shop.journal = MemoryJournal(clock=shop.clock)
    shop.journal.import_records(resumed.journal.read(0, 0, 10_000))
    for copy in (resumed, shop.opened()):
        assert copy.digest == shop.bandit.digest
        assert known(copy) == known(shop.bandit)
        assert same_sums(copy._fold, shop.bandit._fold)
        np.testing.assert_allclose(copy.estimate.theta, shop.bandit.estimate.theta, atol=1e-7)


def test_what_it_cannot_be_combined_with() -> None:
    """Refused in words; and a word that is none of the two."""
    rewards = DefaultAfter("7d", learn="together")
    for policy in (
        DelayedUCB(DIM, Bernoulli(), half_life="7d"),
        DelayedUCB(DIM, Bernoulli(), learn_after=5),
    ):
        with pytest.raises(InvalidInput, match="use learn='on arrival'"):
            Bandit(policy=policy, rewards=rewards)
    with pytest.raises(InvalidInput, match="must be 'on arrival' or 'together'"):
        DefaultAfter("7d", learn="later")  # type: ignore[arg-type]


def test_its_repr_is_that_of_older_snapshots() -> None:
    """Unless it says something new."""
    assert "learn" not in repr(DefaultAfter("7d"))
    assert "learn='together'" in repr(DefaultAfter("7d", learn="together"))
