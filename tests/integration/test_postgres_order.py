"""A reader never skips a record: the order of positions is the order of commits.

Numbers assigned before the commit, such as those of an identity column, do not have this
property. The same reader on such a table does skip records: the control shows that these tests
would notice.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from belated.core.events import Event, Settled
from belated.journals import PostgresJournal
from belated.journals.postgres.log import Arrivals
from belated.journals.postgres.session import Talk
from tests.integration.locks import Waiting, append_in, waits_for_lock
from tests.waiting import eventually

NAIVE = """
CREATE TABLE naive (position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event text NOT NULL)
"""

#: A lock and what is read under it in one statement: it waits for the lock, but what it then reads
#: is what was there before it waited.
STALE = """
WITH locked AS MATERIALIZED (SELECT pg_advisory_xact_lock(77))
INSERT INTO stale (position, event)
SELECT (SELECT coalesce(max(position), 0) + 1 FROM stale), %s FROM locked
"""


@contextmanager
def connected(dsn: str) -> Iterator[psycopg.Connection]:
    """Return a connection whose transactions begin implicitly and wait for a commit."""
    with psycopg.connect(dsn) as connection:
        yield connection


# --- one case after the other ------------------------------------------------------------------


def test_with_an_identity_column_a_reader_passes_over_a_record(dsn: str) -> None:
    """The control: of two transactions, the later commits first, and the reader skips the other."""
    with connected(dsn) as slow_writer, connected(dsn) as quick_writer, connected(dsn) as reader:
        slow_writer.execute("DROP TABLE IF EXISTS naive")
        slow_writer.execute(NAIVE)
        slow_writer.commit()
        reader.autocommit = True
        events_read: list[str] = []
        position_read = 0

        def read() -> None:
            nonlocal position_read
            query = "SELECT position, event FROM naive WHERE position > %s ORDER BY position"
            for position, event in reader.execute(query, (position_read,)):
                position_read = position
                events_read.append(event)

        slow_writer.execute("INSERT INTO naive (event) VALUES ('slow')")
        quick_writer.execute("INSERT INTO naive (event) VALUES ('quick')")
        quick_writer.commit()
        read()
        slow_writer.commit()
        read()
        stored = {event for (event,) in reader.execute("SELECT event FROM naive")}
        assert stored - set(events_read) == {"slow"}
        reader.execute("DROP TABLE naive")


def test_journal_reader_skips_nothing(dsn: str, bandit: str) -> None:
    """The later transaction waits for the earlier, and the reader sees both."""
    with (
        PostgresJournal(dsn, bandit=bandit) as quick_writer,
        PostgresJournal(dsn, bandit=bandit) as reader,
        connected(dsn) as slow_writer,
    ):
        append_in(slow_writer, quick_writer, 1)
        append = Waiting(dsn, quick_writer, lambda: quick_writer.append([Settled(0, 2)]))
        assert reader.read(0, 0, 9) == []
        slow_writer.commit()
        assert append.join() == [2]
        assert [record.event for record in reader.read(0, 0, 9)] == [Settled(0, 1), Settled(0, 2)]


def test_a_transaction_that_is_undone_leaves_no_gap(dsn: str, bandit: str) -> None:
    """The transaction that waited for it gets the unused position."""
    with PostgresJournal(dsn, bandit=bandit) as journal, connected(dsn) as rival:
        append_in(rival, journal, 1)
        append = Waiting(dsn, journal, lambda: journal.append([Settled(0, 2)]))
        rival.rollback()
        append.join()
        assert [(r.position, r.event) for r in journal.read(0, 0, 9)] == [(1, Settled(0, 2))]


def test_a_retry_that_overtakes_the_first_try_is_kept_once(dsn: str, bandit: str) -> None:
    """The second transaction waits, and finds the event of the first."""
    with PostgresJournal(dsn, bandit=bandit) as journal, connected(dsn) as rival:
        append_in(rival, journal, 1)
        retry = Waiting(dsn, journal, lambda: journal.append([Settled(0, 1)]))
        rival.commit()
        assert retry.join() == [1]
        assert journal.end(0) == 1


def test_a_stamp_is_taken_after_the_wait(dsn: str, bandit: str) -> None:
    """A writer that waited gets a later stamp than the one it waited for."""
    with PostgresJournal(dsn, bandit=bandit) as journal, connected(dsn) as rival:
        append_in(rival, journal, 1)
        append = Waiting(dsn, journal, lambda: journal.append([Settled(0, 2)]))
        ((now,),) = rival.execute(
            "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
        ).fetchall()
        rival.commit()
        append.join()
        first, second = (record.recorded for record in journal.read(0, 0, 9))
        assert first < now < second


def test_a_lock_within_the_statement_that_reads_is_of_no_use(dsn: str) -> None:
    """After the wait, it would number from an outdated snapshot. A unique key detects this."""
    with connected(dsn) as slow_writer, connected(dsn) as quick_writer:
        slow_writer.execute("DROP TABLE IF EXISTS stale")
        slow_writer.execute("CREATE TABLE stale (position bigint PRIMARY KEY, event text NOT NULL)")
        slow_writer.commit()
        slow_writer.execute(STALE, ("slow",))
        failures: list[psycopg.Error] = []

        def write() -> None:
            try:
                quick_writer.execute(STALE, ("quick",))
            except psycopg.Error as error:
                failures.append(error)

        thread = threading.Thread(target=write)
        thread.start()
        eventually(lambda: waits_for_lock(dsn, quick_writer.info.backend_pid), "it does not wait")
        slow_writer.commit()
        thread.join(30)
        assert [type(error) for error in failures] == [psycopg.errors.UniqueViolation]
        quick_writer.rollback()
        slow_writer.execute("DROP TABLE stale")


# --- many at once ------------------------------------------------------------------------------


class Worker(threading.Thread):
    """A thread that reports its result, and the events it has processed by partition."""

    def __init__(self, *what: object) -> None:
        super().__init__()
        self.events: list[list[Event]] = [[] for _ in range(PARTITIONS)]
        self.failure: BaseException | None = None
        self._what = what

    def run(self) -> None:
        """Run in a thread."""
        try:
            self.work(*self._what)
        except BaseException as error:
            self.failure = error

    def work(self, *what: Any) -> None:
        """Do the work of the thread."""
        raise NotImplementedError


class Writer(Worker):
    """Appends its share, with pauses before and within its transactions."""

    def work(self, dsn: str, bandit: str, name: int, share: int) -> None:
        """Do the work of the thread."""
        rng = random.Random(name)
        n = 0
        with PostgresJournal(dsn, bandit=bandit, wait=120) as journal:
            while n < share:
                partitions = rng.choices(range(PARTITIONS), k=rng.randint(1, 40))
                if rng.random() < 0.8:  # as a decider that fills one partition with one commit
                    partitions = [partitions[0]] * len(partitions)
                partitions = partitions[: share - n]
                events = [Settled(p, n * 64 + name) for n, p in enumerate(partitions, start=n)]
                if rng.random() < 0.2:  # it dawdles before it commits
                    _append_slowly(journal, events, rng.uniform(0, 0.01))
                else:
                    journal.append(events)
                for event in events:
                    self.events[event.partition].append(event)
                n += len(events)
                if rng.random() < 0.2:
                    time.sleep(rng.uniform(0, 0.005))


def _append_slowly(journal: PostgresJournal, events: list[Settled], pause: float) -> None:
    homes = [event.partition for event in events]
    arrivals = Arrivals([journal.registration] * len(homes), homes, events, None)

    def work(talk: Talk) -> None:
        talk.run_query("append", **arrivals.values)
        time.sleep(pause)

    journal._session.transact(work)


class Reader(Worker):
    """Reads from the last position it has seen, as fast as it can."""

    pages = 0

    def work(self, dsn: str, bandit: str, done: threading.Event) -> None:
        """Do the work of the thread."""
        positions = [0] * PARTITIONS
        with PostgresJournal(dsn, bandit=bandit, wait=120) as journal:
            while True:
                is_last = done.is_set()
                for partition in range(PARTITIONS):
                    while page := journal.read(partition, positions[partition], 500):
                        # A gap raises CorruptJournal; that all are seen is compared at the end.
                        assert page[0].position == positions[partition] + 1
                        positions[partition] = page[-1].position
                        self.events[partition] += (
                            record.event for record in page if isinstance(record.event, Settled)
                        )
                        self.pages += 1
                if is_last:
                    return
                time.sleep(0.001)


PARTITIONS = 4


@pytest.mark.parametrize("size", ["default", "full"])
def test_readers_skip_no_concurrent_writes(dsn: str, bandit: str, full: bool, size: str) -> None:
    """Writers with pauses, concurrent readers: each sees every event once, in one order."""
    if size == "full" and not full:
        pytest.skip("10^6 appends by 32 writers: with --full")
    writers, events = (32, 10**6) if size == "full" else (8, 20_000)
    PostgresJournal(dsn, bandit=bandit, partitions=PARTITIONS).close()
    stop_event = threading.Event()
    writing_threads = [Writer(dsn, bandit, name, events // writers) for name in range(writers)]
    reading_threads = [Reader(dsn, bandit, stop_event) for _ in range(2)]
    for thread in [*reading_threads, *writing_threads]:
        thread.start()
    for writer in writing_threads:
        writer.join()
    stop_event.set()
    for reader in reading_threads:
        reader.join()
    workers: list[Worker] = [*writing_threads, *reading_threads]
    assert [worker.failure for worker in workers] == [None] * (writers + 2)
    for partition in range(PARTITIONS):
        events_written = [event for writer in writing_threads for event in writer.events[partition]]
        for reader in reading_threads:
            assert len(reader.events[partition]) == len(events_written)
            assert set(reader.events[partition]) == set(events_written)
            assert reader.events[partition] == reading_threads[0].events[partition]
    # They did follow: what they saw came in many pages, not in one at the end.
    assert min(reader.pages for reader in reading_threads) > 10 * PARTITIONS
    skips = events - min(sum(map(len, reader.events)) for reader in reading_threads)
    pages = [reader.pages for reader in reading_threads]
    print(f"\n{events} appends by {writers} writers, {pages} pages read: {skips} skipped")
    assert skips == 0
