"""What must hold where positions have gaps."""

from __future__ import annotations

import numpy as np

from belated import Bandit, Bernoulli, DelayedUCB, Explicit
from belated.core.events import Void
from belated.journals import Journal, MemoryJournal
from belated.testing import JournalContract, ManualClock
from tests.gaps import GappyJournal
from tests.shelf_contract import ShelfContract


class TestGappyJournal(JournalContract, ShelfContract):
    """The contract asks for nothing that needs dense positions."""

    def open_journal(self, partitions: int, clock: ManualClock) -> Journal:
        """A new one."""
        return GappyJournal(partitions=partitions, clock=clock)

    def reopen(self, journal: Journal, clock: ManualClock) -> Journal:
        """Another one on the same facts."""
        assert isinstance(journal, GappyJournal)
        return GappyJournal.sharing(journal._facts, journal.bandit, clock)


def test_positions_have_gaps() -> None:
    """Or the contract above would show nothing."""
    journal = GappyJournal()
    positions = journal.append([Void("a", n) for n in range(20)])
    assert positions[-1] > 20
    assert journal.end(0) == positions[-1]
    assert len(journal.read(0, positions[4], 100)) == 15


def test_a_bandit_does_not_mind_gaps() -> None:
    """It learns what it learns without them, live and when it reads the journal again."""
    counts = []
    for journal in (GappyJournal(), MemoryJournal()):
        bandit = _bandit(journal)
        for n in range(60):
            decision = bandit.decide(rows=np.eye(3), id=f"{n}")
            bandit.observe(decision.id, float(n % 3 == 0))
            if n % 20 == 10:  # others write too
                journal.append([Void(f"{n - k}", 0) for k in range(5)])
        bandit.sync()
        reopened = _bandit(journal)
        assert reopened.decision_counts == bandit.decision_counts
        np.testing.assert_allclose(reopened.estimate.theta, bandit.estimate.theta, rtol=1e-8)
        counts.append(bandit.decision_counts)
    assert counts[0] == counts[1]


def _bandit(journal: Journal) -> Bandit:
    policy = DelayedUCB(3, Bernoulli())
    return Bandit(policy=policy, rewards=Explicit(), journal=journal, seed=1)
