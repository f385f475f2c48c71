"""One bandit in one database, in several processes."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from belated import Bandit, Bernoulli, DelayedUCB, Explicit
from belated.journals import PostgresJournal
from tests.integration.sharing import assert_opened_where_it_was_left, assert_processes_agree


def test_processes_that_share_a_bandit_agree(
    dsn: str, bandit: str, tmp_path: Path, full: bool
) -> None:
    """Two processes decide and observe at once, with duplicates and out of order, and agree."""
    for partitions in (1, 4) if full else (4,):
        name = f"{bandit}, {partitions} partitions"
        assert_processes_agree(
            PostgresJournal,
            dsn,
            name,
            tmp_path / name,
            players=2,
            partitions=partitions,
            rounds=200 if full else 12,
        )


def test_what_the_journal_recognises_is_counted_apart(dsn: str, bandit: str) -> None:
    """A duplicate activation or void is not written, and is counted as refused."""
    with Bandit(
        policy=DelayedUCB(2, Bernoulli()),
        rewards=Explicit(),
        journal=PostgresJournal(dsn, bandit=bandit),
    ) as instance:
        id = instance.decide(rows=np.eye(2)).id
        statuses = [instance.void(id, at="2026-01-01T00:00Z").status for _ in range(3)]
        assert statuses == ["voided", "duplicate", "duplicate"]
        assert instance.refused_counts == {"duplicate": 2, "conflict": 0}
        assert sum(instance.event_counts.values()) == instance.journal.end(0) == 3


def test_a_bandit_is_opened_where_it_was_left(dsn: str, bandit: str) -> None:
    """Decisions of one process are rewarded in another, from a snapshot or from records alone."""
    assert_opened_where_it_was_left(partial(PostgresJournal, dsn, bandit=bandit, partitions=2))
