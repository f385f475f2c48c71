"""The PostgreSQL journal when connections break, responses are lost, and servers hang or die."""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psycopg
import pytest

from belated.core.events import Event, Record, Reward, Settled, Void
from belated.exceptions import JournalError, JournalUnavailable
from belated.journals import PostgresJournal
from belated.journals.snapshots import Snapshot
from tests.integration.locks import Waiting, backend
from tests.integration.postgres_server import PostgresServer
from tests.waiting import eventually


def all_records(dsn: str, bandit: str) -> list[Record]:
    """Return the records of the first partition, as soon as the server responds again."""
    deadline = time.monotonic() + 30
    while True:
        try:
            with PostgresJournal(dsn, bandit=bandit) as journal:
                return journal.read(0, 0, 10**6)
        except JournalUnavailable:  # it may still be restarting after the last kill
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


@contextmanager
def locked(dsn: str, journal: PostgresJournal) -> Iterator[psycopg.Connection]:
    """Hold a lock on the first partition in another transaction."""
    with psycopg.connect(dsn) as blocker:
        blocker.execute(
            "SELECT FROM belated.partition WHERE bandit = %s AND partition = 0 FOR UPDATE",
            (journal.number,),
        )
        yield blocker


def terminate(dsn: str, process: int) -> None:
    """End a process of the server, and wait until it is gone."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(%s, 10000)", (process,))


class LossyProxy:
    """A proxy that drops one response and closes the connection on request."""

    def __init__(self, port: int) -> None:
        self.losing = False
        self.lost = 0
        self._server = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no new connections."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._server))
            for arguments in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._pass_on, args=arguments, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        try:
            while data := source.recv(1 << 16):
                if answers and self.losing:
                    self.losing = False
                    self.lost += 1
                    break
                target.sendall(data)
        except OSError:
            pass
        for sock in (source, target):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[LossyProxy]:
    """A proxy in front of the shared server."""
    lossy_proxy = LossyProxy(postgres.port)
    yield lossy_proxy
    lossy_proxy.close()


# --- connections that break --------------------------------------------------------------------


def test_lost_connection_is_reopened(dsn: str, bandit: str) -> None:
    """Every call succeeds although the server has closed the connection meanwhile."""
    with PostgresJournal(dsn, bandit=bandit) as journal:
        calls: list[Callable[[], object]] = [
            lambda: journal.append([Void("a", 1)]),
            lambda: journal.import_records([Record(0, 1, 2**60, Void("b", 1))]),
            lambda: journal.read(0, 0, 1),
            lambda: journal.end(0),
            lambda: journal.identify({"dim": "8"}),
            lambda: journal.acquire(0),
            lambda: journal.save(Snapshot(0, 1, "v1", {"ledger": b"1"})),
            lambda: journal.load(0),
        ]
        for call in calls:
            backend_before = backend(journal)
            terminate(dsn, backend_before)
            call()
            assert backend(journal) != backend_before
        assert journal.end(0) == 2


def test_an_append_whose_backend_is_killed_is_there_once(dsn: str, bandit: str) -> None:
    """It is killed while it waits for the lock: the call continues on another connection."""
    with PostgresJournal(dsn, bandit=bandit) as journal:
        with locked(dsn, journal) as blocker:
            call = Waiting(dsn, journal, lambda: journal.append([Void("a", 1), Void("b", 1)]))
            backend_before = backend(journal)
            terminate(dsn, backend_before)
            eventually(lambda: backend(journal) not in (0, backend_before) and call.is_waiting())
            blocker.rollback()
        assert call.join() == [1, 2]
        assert [r.event for r in journal.read(0, 0, 9)] == [Void("a", 1), Void("b", 1)]


def test_append_with_lost_response_is_stored_once(
    dsn: str, bandit: str, postgres: PostgresServer, proxy: LossyProxy
) -> None:
    """It was committed before the connection broke: the positions are the same."""
    proxied_dsn = dsn.replace(str(postgres.port), str(proxy.port))
    with PostgresJournal(proxied_dsn, bandit=bandit) as journal:
        journal.append([Void("first", 1)])
        for n in range(5):
            events: list[Event] = [Void("a", n), Settled(0, n), Reward("b", n, 0.5)]
            proxy.losing = True
            assert journal.append(events) == [3 * n + 2, 3 * n + 3, 3 * n + 4]
        assert proxy.lost == 5
        assert journal.end(0) == 16


def test_an_import_whose_answer_is_lost_says_so(
    dsn: str, bandit: str, postgres: PostgresServer, proxy: LossyProxy
) -> None:
    """It is not repeated: the caller must check whether it was committed."""
    proxied_dsn = dsn.replace(str(postgres.port), str(proxy.port))
    with PostgresJournal(proxied_dsn, bandit=bandit) as journal:
        ask, calls = journal._session._run, 0

        def lose_the_last(work: Callable[[psycopg.Connection], object], **how: bool) -> object:
            def wrapped(connection: psycopg.Connection) -> object:
                nonlocal calls
                calls += 1
                with connection.transaction():
                    answer = work(connection)
                    proxy.losing = calls == 2  # the commit, after the probe
                return answer

            return ask(wrapped, **how)

        journal._session._run = lose_the_last  # type: ignore[assignment, method-assign]
        with pytest.raises(JournalUnavailable, match="outcome of the call is unknown"):
            journal.import_records([Record(0, 1, 5, Void("a", 1))])
        assert proxy.lost == 1
    with PostgresJournal(dsn, bandit=bandit) as journal:
        assert journal.end(0) == 1


# --- waits that end ----------------------------------------------------------------------------


def test_a_partition_held_too_long_is_said_and_leaves_nothing(dsn: str, bandit: str) -> None:
    """Others can read meanwhile; once the lock is released, the same call succeeds."""
    with PostgresJournal(dsn, bandit=bandit, partitions=2, wait=0.1) as journal:
        with locked(dsn, journal):
            with pytest.raises(JournalUnavailable, match=r"lock timeout.*safe"):
                journal.append([Settled(1, 1), Settled(0, 1)])
            assert (journal.read(0, 0, 9), journal.read(1, 0, 9)) == ([], [])
            assert journal.append([Settled(1, 1)]) == [1]  # the other partition is free
        assert journal.append([Settled(1, 1), Settled(0, 1)]) == [1, 1]


def test_calls_that_need_several_partitions_do_not_block_each_other_for_ever(
    dsn: str, bandit: str
) -> None:
    """They lock partitions in the same order, whatever the order of the events."""
    failures: list[JournalError] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        with PostgresJournal(dsn, bandit=bandit, partitions=4) as journal:
            for n in range(40):
                try:
                    journal.append([Settled(p, 40 * seed + n) for p in rng.sample(range(4), 3)])
                except JournalError as error:
                    failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_server_that_hangs_is_given_up(dsn: str, bandit: str) -> None:
    """It is paused during an append: the call times out, and the event is stored once later."""
    with PostgresJournal(dsn, bandit=bandit, wait=0.2) as journal:
        journal.append([Void("a", 1)])
        process = backend(journal)
        os.kill(process, signal.SIGSTOP)
        try:
            start = time.monotonic()
            with pytest.raises(JournalUnavailable, match="not responded"):
                journal.append([Void("b", 1)])
            assert time.monotonic() - start < 20  # it waits for 0.2 s, or for ever
            # Another connection takes its place. (The stopped one holds no lock yet.)
            assert journal.append([Void("b", 1)]) == [2]
        finally:
            os.kill(process, signal.SIGCONT)
        eventually(lambda: _is_gone(dsn, process))
        assert [r.event for r in journal.read(0, 0, 9)] == [Void("a", 1), Void("b", 1)]


def _is_gone(dsn: str, process: int) -> bool:
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("SELECT FROM pg_stat_activity WHERE pid = %s", (process,))
        return rows.fetchone() is None


def test_no_server_at_all_is_said(bandit: str) -> None:
    """The error has host and database, but not the password."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(JournalUnavailable, match=rf"'offers' on 127.0.0.1:{port}") as error:
        PostgresJournal(f"postgresql://me:secret@127.0.0.1:{port}/offers", bandit=bandit)
    assert "secret" not in str(error.value)


# --- servers that die --------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")
def test_a_killed_server_loses_nothing_acknowledged(
    postgres: PostgresServer, dsn: str, bandit: str, full: bool
) -> None:
    """Acknowledged events are stored once, in order: with the whole server killed, or a process."""
    by_writer: dict[int, list[tuple[Event, int]]] = {}
    stop = threading.Event()

    def work(name: int) -> None:
        own_pairs = by_writer.setdefault(name, [])
        with PostgresJournal(dsn, bandit=bandit, wait=5) as journal:
            n = 0
            while not stop.is_set():
                n += 1
                events: list[Event] = [Reward(f"{name}/{n}", k, 1.0) for k in range(3)]
                while True:
                    try:
                        positions = journal.append(events)
                        break
                    except JournalUnavailable:
                        time.sleep(0.01)
                own_pairs += zip(events, positions, strict=True)

    PostgresJournal(dsn, bandit=bandit).close()
    threads = [threading.Thread(target=work, args=(name,)) for name in range(3)]
    for thread in threads:
        thread.start()
    rng, kills = random.Random(0), 20 if full else 3
    try:
        for kill in range(kills):
            counts_before = {name: len(pairs) for name, pairs in by_writer.items()}
            eventually(
                lambda counts=counts_before: all(  # type: ignore[misc]
                    len(by_writer.get(name, [])) > counts.get(name, 0) + 9 for name in range(3)
                )
            )
            time.sleep(rng.uniform(0, 0.05))
            if kill % 3 == 2:  # one of them; the server then restarts by itself
                with psycopg.connect(dsn) as connection:
                    row = connection.execute(
                        "SELECT pid FROM pg_stat_activity WHERE application_name = 'belated'"
                    ).fetchone()
                assert row is not None
                os.kill(row[0], signal.SIGKILL)
            else:
                postgres.kill()
                postgres.start()
        eventually(
            lambda: all(len(pairs) > counts_before[name] + 18 for name, pairs in by_writer.items())
        )
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    records = all_records(dsn, bandit)
    positions = {record.event: record.position for record in records}
    assert len(positions) == len(records)
    acknowledged = [pair for pairs in by_writer.values() for pair in pairs]
    assert all(positions[event] == position for event, position in acknowledged)
    stamps = [record.recorded for record in records]
    assert stamps == sorted(stamps)
