"""A spool that hands over by a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from belated.core.events import Void
from belated.exceptions import (
    JournalClosed,
    JournalUnavailable,
)
from belated.journals import SpoolJournal
from tests.unit.spool.moody import Moody, events_of
from tests.waiting import eventually

# --- with a thread -----------------------------------------------------------------------------


@pytest.fixture
def threaded(moody: Moody, tmp_path: Path) -> Iterator[SpoolJournal]:
    """With a thread that hands over by itself."""
    with SpoolJournal(moody, tmp_path / "spool", wait=0.5) as journal:
        yield journal
        moody.answers.set()


def test_a_journal_that_hangs_is_given_up(moody: Moody, threaded: SpoolJournal) -> None:
    """One call waits for it, later ones do not; what it takes after all is harmless."""
    threaded.append([Void("a", 1)])
    moody.answers.clear()
    start = time.monotonic()
    assert threaded.append([Void("b", 1)]) == [0]
    assert 0.4 < time.monotonic() - start < 5
    start = time.monotonic()
    for n in range(20):
        assert threaded.append([Void(f"{n}", 1)]) == [0]
        with pytest.raises(JournalUnavailable, match=r"did not respond within 0\.5 s"):
            threaded.end(0)
    assert time.monotonic() - start < 10  # twenty syncs; forty waits would take 20 s
    moody.answers.set()
    eventually(lambda: threaded.status.queued == 0)
    assert not threaded.status.journal_down
    expected = [Void(id, 1) for id in ["a", "b", "b", *map(str, range(20))]]
    assert events_of(threaded) == expected  # "b" both late and by the spool


def test_a_thread_hands_over_by_itself(moody: Moody, threaded: SpoolJournal) -> None:
    """Also if nothing is appended any more; and a journal that could not be read is found back."""
    moody.away = True
    with pytest.raises(JournalUnavailable):
        threaded.end(0)
    moody.away = False
    eventually(lambda: not threaded.status.journal_down)
    moody.away = True
    assert threaded.append([Void("a", 1)]) == [0]
    moody.away = False
    eventually(lambda: threaded.status.forwarded == 1)
    assert threaded.append([Void("b", 1)]) == [2]


def test_threads_may_append_while_it_comes_and_goes(moody: Moody, threaded: SpoolJournal) -> None:
    """Every event is there, those of one thread in their order."""
    done = threading.Event()

    def work(name: int) -> None:
        for n in range(100):
            threaded.append([Void(f"{name}/{n}", n)])
            time.sleep(0.001)

    def trouble() -> None:
        while not done.is_set():
            moody.away = not moody.away
            time.sleep(0.02)
        moody.away = False

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    troubled = threading.Thread(target=trouble)
    for thread in [*threads, troubled]:
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    troubled.join()
    eventually(lambda: not threaded.status.journal_down and threaded.status.queued == 0)
    found = list(dict.fromkeys(events_of(threaded)))
    for name in range(4):
        mine = [event for event in found if event.id.startswith(f"{name}/")]  # type: ignore[attr-defined]
        assert mine == [Void(f"{name}/{n}", n) for n in range(100)]


def test_closing_does_not_wait_for_a_journal_that_hangs(moody: Moody, tmp_path: Path) -> None:
    """What waits stays in the file, and the next to open it hands it over."""
    journal = SpoolJournal(moody, tmp_path / "spool", wait=0.1)
    moody.answers.clear()
    journal.append([Void("a", 1)])
    start = time.monotonic()
    journal.close()
    assert time.monotonic() - start < 5
    with pytest.raises(JournalClosed):
        journal.forward()
    moody.answers.set()
    other = Moody()
    with SpoolJournal(other, tmp_path / "spool"):
        assert events_of(other) == [Void("a", 1)]
