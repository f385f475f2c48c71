"""One commit for two bandits with a spool each: to the store together, or each by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from belated.core.events import Void
from belated.exceptions import JournalClosed, JournalError, JournalUnavailable
from belated.journals import SpoolJournal
from belated.journals.log import Appended
from belated.journals.spool.journal import Forwarder, SpooledLog
from belated.journals.store import Batch
from tests.unit.spool.moody import Moody


class Store:
    """Appends for both, or fails as it is told."""

    def __init__(self) -> None:
        self.fails: Exception | None = None
        self.commits: list[int] = []
        self.closed = False

    def append_all(self, batches: Sequence[Batch]) -> list[Appended]:
        """In one commit."""
        self.commits.append(len(batches))
        if self.fails is not None:
            raise self.fails
        return [batch.append() for batch in batches]

    def close(self) -> None:
        """Say so."""
        self.closed = True


class Two:
    """Two journals, their spools with one thread, and the store behind."""

    def __init__(self, folder: Path) -> None:
        self.store, self.forwarder = Store(), Forwarder(None)
        self.behind = [Moody(), Moody()]
        self.spools = [
            SpoolJournal(journal, folder / f"{n}.spool", forwarder=self.forwarder)
            for n, journal in enumerate(self.behind)
        ]
        self.log = SpooledLog(self.store, self.forwarder)

    def append(self, id: str) -> list[list[int]]:
        """An event for each; returns the positions."""
        batches = [Batch(spool, [Void(id, 1)]) for spool in self.spools]
        return [one.positions for one in self.log.append_all(batches)]


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    """Whose files are closed in the end."""
    found = Two(tmp_path)
    yield found
    for spool in found.spools:
        spool.close()


def test_both_go_in_one_commit(two: Two) -> None:
    """Their positions come back in the order of the batches."""
    two.behind[1].append([Void("before", 1)])
    assert two.append("a") == [[1], [2]]
    assert two.store.commits == [2]


def test_one_alone_needs_no_common_commit(two: Two) -> None:
    """It goes by its own journal."""
    [found] = two.log.append_all([Batch(two.spools[0], [Void("a", 1)])])
    assert (found.positions, two.store.commits) == ([1], [])


def test_unavailable_store_fills_the_files(two: Two) -> None:
    """Positions are not known; the next commit does not try the store again at once."""
    two.store.fails = JournalUnavailable("gone")
    for journal in two.behind:
        journal.away = True
    assert two.append("a") == [[0], [0]]
    assert [spool.status.queued for spool in two.spools] == [1, 1]
    assert two.append("b") == [[0], [0]]
    assert two.store.commits == [2]


def test_an_error_of_one_is_not_the_others(two: Two) -> None:
    """Each is then appended by itself, and only the one that fails goes to its file."""
    two.store.fails = JournalError("of one of them")
    two.behind[1].away = True
    assert two.append("a") == [[1], [0]]
    assert [spool.status.queued for spool in two.spools] == [0, 1]


def test_what_waits_comes_first(two: Two) -> None:
    """A bandit whose events wait is left out of the common commit."""
    two.store.fails = JournalError("of one of them")
    two.behind[1].away = True
    two.append("a")
    two.store.fails, two.forwarder.down = None, False
    assert two.append("b") == [[2], [0]]
    assert two.store.commits == [2, 1]


def test_a_closed_store_is_told(two: Two) -> None:
    """It is not away: nothing goes to the files."""
    two.store.fails = JournalClosed("closed")
    with pytest.raises(JournalClosed):
        two.append("a")
    assert [spool.status.queued for spool in two.spools] == [0, 0]


def test_closing_closes_the_store(two: Two) -> None:
    """By the forwarder's thread, if it has one."""
    two.log.close()
    assert two.store.closed
