"""Forged journals with recomputed checksums and digests are detected by their heads."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta

import msgspec
import numpy as np
import pytest

from belated import Bernoulli, Explicit
from belated.cli.journal.verify import verify
from belated.cli.main import main
from belated.core.events import Decision, Event, Reward, Void, decode, digest_of, encode
from belated.core.ids import new_id
from belated.journals import SQLiteStore, Store
from belated.journals.identity import identify
from tests.integration.damage import meddle
from tests.integration.forger import Row, forger, stored

REWARDS = Explicit(timedelta(days=1))
PARTITIONS = 2


def some(rng: np.random.Generator, count: int) -> list[Event]:
    """Return decisions with their rewards."""
    events: list[Event] = []
    for _ in range(count):
        id, x = new_id(5), rng.random(2, dtype=np.float32)
        events += [Decision(id, 5, 0, 0, x, 0.5, 1.0, 0), Reward(id, 6, float(rng.integers(2)))]
    return events


def numbered(rows: list[Row]) -> list[Row]:
    """Return them without gaps."""
    ends = [0] * PARTITIONS
    result = []
    for row in rows:
        ends[row.partition] += 1
        result.append(row._replace(position=ends[row.partition]))
    return result


def one_of(rng: np.random.Generator, rows: list[Row]) -> int:
    """Return a random position among them."""
    return int(rng.integers(len(rows)))


def change(rng: np.random.Generator, rows: list[Row]) -> list[Row]:
    """Change a value, mean or time."""
    n = one_of(rng, rows)
    event = decode(rows[n].event)
    if isinstance(event, Reward):
        forgery: Event = msgspec.structs.replace(event, value=1.0 - event.value)
    else:
        forgery = msgspec.structs.replace(event, at_us=7)
    return [*rows[:n], rows[n]._replace(event=encode(forgery)), *rows[n + 1 :]]


def restamp(rng: np.random.Generator, rows: list[Row]) -> list[Row]:
    """Change a stamp."""
    n = one_of(rng, rows)
    stamp = rows[n].recorded + int(rng.choice([-1, 1]))
    return [*rows[:n], rows[n]._replace(recorded=stamp), *rows[n + 1 :]]


def remove(rng: np.random.Generator, rows: list[Row]) -> list[Row]:
    """Remove a record, and optionally move later records to close the gap."""
    n = one_of(rng, rows)
    result = [*rows[:n], *rows[n + 1 :]]
    return numbered(result) if rng.random() < 0.5 else result


def add(rng: np.random.Generator, rows: list[Row]) -> list[Row]:
    """Insert a record before another."""
    n = one_of(rng, rows)
    row = rows[n]._replace(event=encode(Void("forged", 5)))
    return numbered([*rows[:n], row, *rows[n:]])


def swap(rng: np.random.Generator, rows: list[Row]) -> list[Row]:
    """Swap two events of a partition, with or without their stamps."""
    n = one_of(rng, rows)
    candidates = [k for k, row in enumerate(rows) if row.partition == rows[n].partition and k != n]
    k = candidates[int(rng.integers(len(candidates)))]
    first, second, result = rows[n], rows[k], [*rows]
    result[n], result[k] = first._replace(event=second.event), second._replace(event=first.event)
    if rng.random() < 0.5:
        result[n] = result[n]._replace(recorded=second.recorded)
        result[k] = result[k]._replace(recorded=first.recorded)
    return result


def cut(rng: np.random.Generator, rows: list[Row]) -> list[Row]:
    """Remove the tail of a partition, or all of it."""
    start = rows[one_of(rng, rows)]
    places = {(start.partition, n) for n in range(start.position, len(rows) + 1)}
    return [row for row in rows if row[:2] not in places]


ATTACKS: list[Callable[[np.random.Generator, list[Row]], list[Row]]] = [
    change, restamp, remove, add, swap, cut,
]  # fmt: skip


def test_every_forgery_is_detected_by_the_head(
    store: Store, address: str, bandit: str, full: bool
) -> None:
    """An unchanged journal is never reported, even after it has grown."""
    rng = np.random.default_rng(11)
    with (
        store.journal(bandit, partitions=PARTITIONS) as journal,
        closing(forger(store, address, bandit)) as meddler,
    ):
        identify(journal, family=repr(Bernoulli()), dim=2, features=None)
        journal.append(some(rng, 15))
        description = stored(store, bandit)

        def found(*expected: str) -> list[str]:
            return verify(journal, description, REWARDS, None, expected).damage

        report = verify(journal, description, REWARDS, None)
        heads = [report.head, *report.heads]
        journal.append(some(rng, 4))
        rows = meddler.rows()
        covered_rows = [
            row for row in rows if row.position <= _taken_at(report.heads)[row.partition]
        ]
        later_rows = [row for row in rows if row not in covered_rows]
        for n in range(5_000 if full else 50):
            forgery = ATTACKS[n % len(ATTACKS)](rng, covered_rows)
            if forgery == covered_rows:
                continue
            tail = [] if n % 3 else later_rows  # whether the journal goes on behind it
            result = numbered(forgery + tail) if n % 2 else forgery + tail
            if len({row[:2] for row in result}) < len(result):
                result = numbered(forgery + tail)
            meddler.replace(result)
            assert found(report.head), (ATTACKS[n % len(ATTACKS)], n)
            assert found(*report.heads), (ATTACKS[n % len(ATTACKS)], n)
            if n % 5 == 0:
                meddler.replace(rows)
                assert found(*heads) == []
        meddler.replace(rows)
        assert found(*heads) == []


def _taken_at(heads: list[str]) -> list[int]:
    return [int(head.partition("/")[2].partition(":")[0]) for head in heads]


def test_a_record_that_is_not_what_its_digest_names(
    store: Store, address: str, bandit: str
) -> None:
    """The checksum was recomputed and the digest left unchanged: the head stays the same."""
    rng = np.random.default_rng(2)
    with store.journal(bandit, partitions=PARTITIONS) as journal:
        journal.append(some(rng, 5))
        description = stored(store, bandit)
        with closing(forger(store, address, bandit)) as meddler:
            rows = meddler.rows()
            number = next(n for n, row in enumerate(rows) if row.event[2] == 3)
            digest = digest_of(rows[number].event)
            forgery = change(np.random.default_rng(1), [rows[number]])
            meddler.replace([*rows[:number], *forgery, *rows[number + 1 :]])
        statement = "UPDATE {} SET digest = {} WHERE digest = {}"
        values = (digest, digest_of(forgery[0].event))
        if isinstance(store, SQLiteStore):
            with sqlite3.connect(store.path) as connection:
                connection.execute(statement.format("record", "?", "?"), values)
        else:
            meddle(address, statement.format("belated.record", "%s", "%s"), *values)
        report = verify(journal, description, REWARDS, None)
        place = f"partition {forgery[0].partition}, position {forgery[0].position}"
        assert [place in line for line in report.damage] == [True]


def test_the_command(
    store: Store,
    address: str,
    bandit: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It prints heads, verifies them, and reports differences."""
    bandit_address = f"{address}{'&' if '?' in address else '?'}bandit={bandit.replace(' ', '%20')}"

    def said(*options: str, code: int = 0) -> str:
        capsys.readouterr()
        assert main(["journal", "verify", bandit_address, "--window", "1d", *options]) == code
        return capsys.readouterr().out

    with store.journal(bandit, partitions=PARTITIONS) as journal:
        journal.append(some(np.random.default_rng(2), 20))
        report = json.loads(said("--json"))
        text = said("--expect", report["head"], "--expect", report["heads"][1])
        assert report["head"] in text
        assert all(head in text for head in report["heads"])
        end = journal.end(1)
    with closing(forger(store, address, bandit)) as meddler:
        meddler.cut(1, end - 2)
    output = said("--expect", report["head"], code=1)
    assert f"partition 1 ends at position {end - 2:,}" in " ".join(output.split())
    assert said("--expect", report["heads"][0])
    for head in ("3", f"7/{report['heads'][0][2:]}", report["heads"][0][2:]):
        assert main(["journal", "verify", bandit_address, "--window", "1d", "--expect", head]) == 2
