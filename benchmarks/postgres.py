"""Cost of positions in the order of commits, in PostgreSQL.

The same events are appended in two ways by several concurrent writers: with the journal's function,
which locks the partition, recognizes duplicate events and numbers without gaps; and with a plain
INSERT into the same columns and indexes, numbered by an identity column, with which readers that
follow the log would skip records. Slices alternate; the figures are medians, with quartiles in
brackets. The cost is how much less the journal appends in the same time.

Starts a server with fsync on, unless --dsn names one (whose schema `belated` is used).

Run: python benchmarks/postgres.py [--slices 15] [--seconds 0.5] [--dsn ...]
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psycopg

from belated.core.events import Decision
from belated.core.ids import new_id
from belated.journals import PostgresJournal
from belated.journals.bandits import Registration
from belated.journals.postgres.log import Arrivals
from belated.journals.postgres.queries import query

sys.path.append(str(Path(__file__).parents[1]))

from tests.integration.postgres_server import PostgresServer

UNLOCKED = """
CREATE TABLE IF NOT EXISTS unlocked (
    position  bigint GENERATED ALWAYS AS IDENTITY,
    recorded  bigint NOT NULL,
    "check"   bigint NOT NULL,
    bandit    integer NOT NULL,
    partition smallint NOT NULL,
    mark      bytea NOT NULL,
    event     bytea NOT NULL,
    PRIMARY KEY (bandit, partition, position),
    UNIQUE (bandit, partition, mark)
)"""
INSERT = """
INSERT INTO unlocked (recorded, "check", bandit, partition, mark, event)
SELECT extract(epoch FROM clock_timestamp()) * 1000000, crc, bandit, partition, mark, event
FROM unnest(%(bandits)b::integer[], %(partitions)b::smallint[], %(marks)b::bytea[],
            %(crcs)b::bigint[], %(events)b::bytea[]) AS one (bandit, partition, mark, crc, event)
ON CONFLICT (bandit, partition, mark) DO NOTHING RETURNING position"""
ROW = np.linspace(0, 1, 20, dtype=np.float32)


class Writer:
    """Appends batches to one partition over its own connection, in either way."""

    def __init__(self, dsn: str, bandit: Registration, partition: int) -> None:
        self._connection = psycopg.connect(dsn, autocommit=True)
        self._bandit, self._partition = bandit, partition

    def write(self, statement: bytes, batch: int, until: float, counts: list[int]) -> None:
        count = 0
        while time.monotonic() < until:
            now = time.time_ns() // 1000
            events = [
                Decision(new_id(now), now, "blue", 0, ROW, 0.25, 1.0, 7) for _ in range(batch)
            ]
            arrivals = Arrivals([self._bandit] * batch, [self._partition] * batch, events, None)
            self._connection.execute(statement, arrivals.values, binary=True).fetchall()
            count += batch
        counts.append(count)

    def close(self) -> None:
        self._connection.close()


def slice_rate(writers: list[Writer], statement: bytes, batch: int, seconds: float) -> float:
    """Return the events per second of all writers together."""
    counts: list[int] = []
    start = time.monotonic()
    threads = [
        threading.Thread(target=writer.write, args=(statement, batch, start + seconds, counts))
        for writer in writers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.monotonic() - start)


def quartiles(values: list[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(values, n=4)
    return low, middle, high


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--slices", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--dsn")
    options = parser.parse_args()
    with served(options.dsn) as dsn:
        run(dsn, options.slices, options.seconds)


@contextmanager
def served(dsn: str | None) -> Iterator[str]:
    """Yield the address of this server, or of a new one."""
    if dsn is not None:
        yield dsn
        return
    server = PostgresServer()
    try:
        yield server.dsn
    finally:
        server.stop()


def run(dsn: str, slices: int, seconds: float) -> None:
    PostgresJournal.create_tables(dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(UNLOCKED)
    ways = {"journal": query("append"), "unlocked": INSERT.encode()}
    print(f"{'writers':>8} {'partitions':>10} {'batch':>6}  {'unlocked, events/s':>19} "
          f"{'journal':>9}  cost of the lock in %")  # fmt: skip
    for writers, partitions, batch in [
        (1, 1, 1), (1, 1, 128), (8, 8, 1), (8, 8, 128), (8, 1, 1), (8, 1, 128)
    ]:  # fmt: skip
        name = f"{writers} writers, {partitions} partitions, {batch} {time.time_ns()}"
        with PostgresJournal(dsn, bandit=name, partitions=partitions) as journal:
            crowd = [Writer(dsn, journal.registration, n % partitions) for n in range(writers)]
        rates: dict[str, list[float]] = {way: [] for way in ways}
        # The first slice of each warms up and prepares plans; the order alternates.
        for n, order in zip(range(slices + 1), itertools.cycle([[*ways], [*ways][::-1]])):
            for way in order:
                rate = slice_rate(crowd, ways[way], batch, seconds)
                if n:
                    rates[way].append(rate)
        for writer in crowd:
            writer.close()
        pairs = zip(rates["journal"], rates["unlocked"], strict=True)
        low, middle, high = quartiles(
            [100 * (1 - own_rate / bare_rate) for own_rate, bare_rate in pairs]
        )
        print(
            f"{writers:8} {partitions:10} {batch:6}  {statistics.median(rates['unlocked']):19,.0f} "
            f"{statistics.median(rates['journal']):9,.0f}  {middle:.0f} [{low:.0f}, {high:.0f}]"
        )


if __name__ == "__main__":
    main()
