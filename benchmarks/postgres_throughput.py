"""Cost of the PostgreSQL journal compared with the minimum for any client of PostgreSQL.

Appending: ``PostgresJournal.append`` of batches of 128 decisions with rows of 20, on one partition;
compared with a bare binary COPY of the same columns, with known values, into a table with the same
indexes, which locks the partition in the same transaction. Both over one connection, with every
commit synced; the bare one locks, copies and commits in one round trip.

Reading: ``Fold.catch_up`` from the journal (two decisions per reward, rows of 20, one fit at the
end, compiled kernels); the same from a MemoryJournal, which is folding alone;
``PostgresJournal.read`` alone; and bare reading, which fetches the same rows in pages of the same
size without decoding them.

Slices alternate. For each way: median µs per event of wall time and of this process's CPU time;
then its speed in % of its reference, as medians with quartiles in brackets.

Starts a server with fsync on, unless --dsn names one (whose schema `belated` is used).

Run: python benchmarks/postgres_throughput.py [--slices 15] [--batches 60] [--events 100000] [--dsn]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import struct
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import psycopg
from catching_up import WEEK, history
from postgres import ROW, served
from psycopg import pq
from tqdm import tqdm

from belated import Bernoulli, DelayedUCB
from belated.core.events import Decision, Event, digest_of, encode
from belated.core.ids import new_id
from belated.core.tuning import USUAL
from belated.fold.fold import Fold
from belated.journals import Journal, MemoryJournal, PostgresJournal
from belated.journals.postgres.log import check_of, mark_of
from belated.journals.postgres.queries import query
from belated.model import kernels

BATCH = 128
APPEND_GOAL, READ_GOAL = 60, 50
#: Statements without a BEGIN: the server runs them as one transaction.
COPY = """SELECT FROM belated.partition WHERE bandit = {} AND partition = 0 FOR UPDATE;
COPY bare FROM STDIN (FORMAT binary)"""
#: Position, stamp, check, bandit, partition, mark, digest, event.
BareRow = tuple[int, int, int, int, int, bytes, bytes, bytes]
FIELDS = struct.Struct(">h iq iq iq ii ih i16s i32s i".replace(" ", ""))
HEAD, END = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
#: Wall and CPU time of each slice, by way.
Times = dict[str, list[tuple[float, float]]]
Slice = Callable[[], tuple[float, float]]


class BareCopy:
    """Appends to a table like that of the journal, using only libpq."""

    def __init__(self, dsn: str, number: int) -> None:
        self._connection = pq.PGconn.connect(dsn.encode())
        self._number, self._position = number, 0
        self._statement = COPY.format(number).encode()

    def rows(self, events: list[Event]) -> list[BareRow]:
        """Return the values that the server would otherwise compute."""
        now, rows = time.time_ns() // 1000, []
        for event in events:
            self._position += 1
            data = encode(event)
            check = check_of(0, self._position, now, data)
            digest = digest_of(data)
            mark = mark_of(event, digest)
            rows.append((self._position, now, check, self._number, 0, mark, digest, data))
        return rows

    def append(self, rows: list[BareRow]) -> None:
        parts = [HEAD]
        for position, recorded, check, bandit, partition, mark, digest, event in rows:
            head = FIELDS.pack(
                8,
                8,
                position,
                8,
                recorded,
                8,
                check,
                4,
                bandit,
                2,
                partition,
                16,
                mark,
                32,
                digest,
                len(event),
            )
            parts += (head, event)
        parts.append(END)
        started = self._connection.exec_(self._statement)
        assert started.status == pq.ExecStatus.COPY_IN, started.error_message
        self._connection.put_copy_data(b"".join(parts))
        self._connection.put_copy_end()
        while (result := self._connection.get_result()) is not None:
            assert result.status == pq.ExecStatus.COMMAND_OK, result.error_message

    def close(self) -> None:
        self._connection.finish()


def decisions(count: int) -> list[Event]:
    now = time.time_ns() // 1000
    return [Decision(new_id(now), now, "blue", 0, ROW, 0.25, 1.0, 7) for _ in range(count)]


def each(call: Callable[[Any], object], batches: list[Any]) -> None:
    for batch in batches:
        call(batch)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def alternating(
    ways: dict[str, Callable[[], tuple[float, float]]], slices: int, what: str
) -> Times:
    """Return the times of each way; the first slice warms up, and the order alternates."""
    times: Times = {way: [] for way in ways}
    for n in tqdm(range(slices + 1), desc=what, unit="slice", leave=False):
        for way in [*ways][:: -1 if n % 2 else 1]:
            seconds = ways[way]()
            if n:
                times[way].append(seconds)
    return times


def appending(dsn: str, slices: int, batches: int) -> Times:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS bare")
        connection.execute("CREATE TABLE bare (LIKE belated.record INCLUDING ALL)")
    with PostgresJournal(dsn, bandit=f"appending {time.time_ns()}") as journal:
        bare = BareCopy(dsn, journal.number)

        def ours() -> tuple[float, float]:
            events = [decisions(BATCH) for _ in range(batches)]
            return timed(lambda: each(journal.append, events))

        def theirs() -> tuple[float, float]:
            rows = [bare.rows(decisions(BATCH)) for _ in range(batches)]
            return timed(lambda: each(bare.append, rows))

        times = alternating({"bare COPY": theirs, "append": ours}, slices, "appending")
        bare.close()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DROP TABLE bare")
    return times


def reading(dsn: str, slices: int, events: list[Event]) -> Times:
    memory = MemoryJournal()
    memory.append(events)
    with (
        PostgresJournal(dsn, bandit=f"reading {time.time_ns()}") as journal,
        psycopg.connect(dsn, autocommit=True) as connection,
    ):
        for start in tqdm(range(0, len(events), 5000), desc="filling", leave=False):
            journal.append(events[start : start + 5000])
        connection.execute("VACUUM ANALYZE belated.record")

        def fetch() -> None:
            whose = {"bandit": journal.number, "partition": 0, "limit": USUAL.page}
            after = count = 0
            while True:
                cursor = connection.execute(query("read"), whose | {"after": after}, binary=True)
                rows = cursor.fetchall()
                if not rows:
                    break
                after, count = rows[-1][0], count + len(rows)
            assert count == len(events)

        def read() -> None:
            after = 0
            while page := journal.read(0, after, USUAL.page):
                after = page[-1].position
            assert after == len(events)

        def catch_up(source: Journal) -> None:
            fold = Fold(DelayedUCB(20, Bernoulli()), WEEK, kernels=kernels.compiled())
            assert fold.catch_up(source) == len(events)

        works: dict[str, Callable[[], None]] = {
            "bare reading": fetch,
            "read": read,
            "fold from memory": partial(catch_up, memory),
            "read and fold": partial(catch_up, journal),
        }
        ways: dict[str, Slice] = {way: partial(timed, work) for way, work in works.items()}
        return alternating(ways, slices, "reading")


def report(times: Times, events: int, pairs: list[tuple[str, str, int | None]]) -> None:
    costs = {way: np.array(seconds) / events * 1e6 for way, seconds in times.items()}
    for way, values in costs.items():
        wall, cpu = np.median(values, axis=0)
        print(f"  {way:<16} {wall:6.2f} µs wall, {cpu:6.2f} µs CPU")
    for name, base, goal in pairs:
        print(f"  {name} in % of {base}:", end="")
        for n, clock in enumerate(("wall", "CPU")):
            share = 100 * costs[base][:, n] / costs[name][:, n]
            low, middle, high = np.quantile(share, [0.25, 0.5, 0.75])
            print(f" {clock} {middle:.0f} [{low:.0f}, {high:.0f}]", end="")
        print(f", goal {goal}" if goal else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--slices", type=int, default=15)
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--dsn")
    options = parser.parse_args()
    with served(options.dsn) as dsn:
        PostgresJournal.create_tables(dsn)
        print(f"appending, {BATCH} decisions a commit")
        times = appending(dsn, options.slices, options.batches)
        report(times, BATCH * options.batches, [("append", "bare COPY", APPEND_GOAL)])
        events = history(options.events, 20, rewarded=0.5)
        print(f"reading, {len(events):,} events")
        times = reading(dsn, options.slices, events)
        pairs = [
            ("read and fold", "bare reading", READ_GOAL),
            ("read and fold", "fold from memory", None),
            ("read", "bare reading", None),
        ]
        report(times, len(events), pairs)


if __name__ == "__main__":
    main()
