"""One bandit on one file, in several processes."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path

import numpy as np

from belated import Bandit, Bernoulli, DefaultAfter, DelayedUCB, Explicit
from belated.core.rewards import Rewards
from belated.core.tuning import Tuning
from belated.journals import SQLiteJournal
from belated.testing import ManualClock
from tests.integration.sharing import (
    EVER,
    UCB,
    assert_opened_where_it_was_left,
    assert_processes_agree,
)


def test_processes_that_share_a_bandit_agree(tmp_path: Path, full: bool) -> None:
    """Three processes decide and observe at once, with duplicates and out of order, and agree."""
    for partitions in (1, 4) if full else (1,):
        assert_processes_agree(
            SQLiteJournal,
            tmp_path / f"{partitions}.db",
            "offers",
            tmp_path / f"{partitions} partitions",
            players=3,
            partitions=partitions,
            rounds=200 if full else 12,
        )


def test_a_file_is_opened_where_it_was_left(tmp_path: Path) -> None:
    """Decisions of one process are rewarded in another, from a snapshot or from records alone."""
    assert_opened_where_it_was_left(partial(SQLiteJournal, tmp_path / "offers.db", bandit="offers"))


def test_bandits_in_one_file_know_nothing_of_each_other(tmp_path: Path) -> None:
    """They share neither events nor snapshots nor identities."""
    path = tmp_path / "offers.db"
    with (
        Bandit(policy=UCB, rewards=EVER, journal=SQLiteJournal(path, bandit="one")) as instance,
        Bandit(
            policy=DelayedUCB(2, Bernoulli()),
            rewards=EVER,
            journal=SQLiteJournal(path, bandit="other", partitions=4),
        ) as neighbour,
    ):
        instance.observe(instance.decide(rows=np.eye(3), id="a").id, 1.0)
        assert neighbour.observe("a", 1.0).status == "unmatched"
        instance.save()
        neighbour.save()
    with Bandit(policy=UCB, rewards=EVER, journal=SQLiteJournal(path, bandit="one")) as reopened:
        assert reopened.decision_counts == instance.decision_counts
        assert reopened.digest == instance.digest


def test_snapshots_of_other_semantics_do_not_mix(tmp_path: Path) -> None:
    """Folds with different rewards save in turn: each loads its own snapshot, or starts again."""
    # Full blocks of rows are stored once and then kept; here they are full with four rows.
    tuning = Tuning(block=4)
    path, clock = tmp_path / "offers.db", ManualClock()
    hour = timedelta(hours=1)

    def opened(rewards: Rewards) -> Bandit:
        journal = SQLiteJournal(path, bandit="offers", clock=clock)
        return Bandit(
            policy=UCB, rewards=rewards, journal=journal, clock=clock, seed=1, tuning=tuning
        )

    bandits = [opened(Explicit(hour)), opened(DefaultAfter(hour))]
    rng = np.random.default_rng(0)
    for n in range(40):
        decision = bandits[n % 2].decide(rows=rng.normal(size=(4, 3)))
        if n % 3 == 0:
            bandits[n % 2].observe(decision.id, float(n % 2))
        clock.now += 3_600_000_000 // 3
        for bandit in bandits:
            bandit.sync()
            bandit.save()
    for bandit in bandits:
        reopened, view = opened(bandit.rewards), bandit.as_of("9999-12-31T00:00Z")
        assert reopened.digest == bandit.digest == view.digest
        assert reopened.estimate.n == bandit.estimate.n == view.estimate.n > 8
        np.testing.assert_allclose(reopened.estimate.theta, view.estimate.theta, atol=1e-8)
        reopened.journal.close()
        bandit.close()
