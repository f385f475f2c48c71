"""The guides to upgrades and backups, step by step, with the image: all parts are containers.

Two deciders behind a balancer, a learner and PostgreSQL, under load. No request may fail, and
nothing counts twice. ``pytest -s --full tests/containers/test_upgrade.py``
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import pytest

from belated import Bernoulli, DelayedUCB, Explicit
from belated.core.events import Decision, Record
from belated.fold.fold import Fold, same_sums
from belated.journals import PostgresJournal
from tests.containers.podman import run_once
from tests.containers.releases import (
    ContainerProcess,
    Database,
    following_image,
    present_image,
)
from tests.faults.balancer import Balanced
from tests.faults.fleet import Fleet
from tests.faults.rolling import check, go_back, knows_all, upgrade
from tests.faults.town import PARTITIONS
from tests.integration.processes import Process, later

#: Seconds for which decisions take rewards, where a journal is trimmed.
RETENTION = 5
#: Records that go together.
LINK = 1_024


class Patient(Balanced):
    """With callers that wait: each container that starts copies the whole image on this disk."""

    give_up: ClassVar = 30.0


@pytest.fixture(autouse=True)
def _full_size(full: bool) -> None:
    if not full:
        pytest.skip("an image is built and minutes of load are served: --full")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """With a database that has nothing in it."""
    with closing(Database(tmp_path)) as found:
        yield found


def doctor(process: Process) -> list[str]:
    """Ask it in a container that serves: nothing is wrong; returns the lines that are not ok."""
    assert isinstance(process, ContainerProcess)
    said = json.loads(process.container.run("belated", "doctor", "belated.toml", "--json"))
    assert said["ok"]
    return [one["check"] for one in said["findings"] if one["state"] != "ok"]


def test_rolling_upgrade_and_rollback(database: Database, tmp_path: Path) -> None:
    """docs/howto/upgrade.md, in both directions."""
    dsn = database.dsn
    old, new = present_image(), following_image(tmp_path / "following")
    assert old.run("-m", "belated", "--version") != new.run("-m", "belated", "--version")
    old.migrate(dsn, 0)
    with closing(Fleet(dsn, tmp_path, old)) as fleet:
        with Patient(*fleet.ports) as load:
            versions = "SELECT max(version), max(oldest) FROM belated.migration"
            there = database.run("psql", dsn, "-tAc", versions).strip().partition("|")[0]
            assert int(there) == old.tables < new.tables
            new.migrate(dsn, int(there))
            upgrade(fleet, dsn, new)
            assert [doctor(one) for one in fleet.deciders] == [[], []]
            go_back(fleet, old)
        later(lambda: knows_all(fleet, load, dsn))
        assert [doctor(one) for one in fleet.deciders] == [[], []]
        fleet.stop_learner()
        check(dsn, load, old)
    assert load.taken_out >= 4


def test_a_restore_after_a_trim(database: Database, tmp_path: Path) -> None:
    """docs/howto/trim.md, then backup.md: what was dropped still counts, and all else counts once.

    What was acknowledged after the backup began is gone, as that page says, but for what waited in
    a spool.
    """
    dsn, release = database.dsn, present_image()
    release.migrate(dsn, 0)
    with closing(Fleet(dsn, tmp_path, release, [f'retention = "{RETENTION}s"'])) as fleet:
        with Patient(*fleet.ports) as load:
            later(lambda: min(snapshots(dsn)) > LINK)
            time.sleep(RETENTION)
            known = read(dsn)
            trim = ["journal", "trim", f"{dsn}?bandit=offers", "--reason", "a drill"]
            said = run_once([*trim, "--older-than", f"{RETENTION}s"])
            assert "dropped, up to" in said

            begun = time.monotonic()
            dump = "/data/belated.dump"
            database.run("pg_dump", "-Fc", "-n", "belated", "-d", dsn, "-f", dump)
            time.sleep(1)
            fleet.stop_learner()
            database.run("dropdb", "--force", "belated")
            gone = time.monotonic()
            database.run("createdb", "belated")
            time.sleep(2)
            database.run("pg_restore", "--single-transaction", "-d", dsn, dump)
            back = time.monotonic()
            assert set(doctor(fleet.deciders[0])) <= {"leader of offers"}
            fleet.learner = fleet.start_learner(release)
            fleet.learner.heard("this learner leads")
            time.sleep(1)
        later(lambda: fleet.deciders[0].state()["version"] == sum(ends(dsn)))
        assert [doctor(one) for one in fleet.deciders] == [[], []]
        fleet.stop_learner()
    records = whole(known, read(dsn))
    lost = load.lost(one.event for found in records for one in found)
    told = {(one.kind, one.id): one for one in load.answers}
    print(
        f"\n{said.strip()}; {len(load.answers)} requests, {len(load.failed)} failed, "
        f"{sum(gone < one.due < back for one in load.answers)} while there were no tables, "
        f"{len(lost)} acknowledged after the backup and gone, "
        f"worst {max(one.seconds for one in load.answers):.3f} s"
    )
    assert load.failed == []
    assert all(told[one].due + told[one].seconds > begun and told[one].due < gone for one in lost)
    check_learned(dsn, records)


def check_learned(dsn: str, records: list[list[Record]]) -> None:
    """What the learner has saved is what all records come to, the dropped ones included."""
    learned, replayed = empty(), empty()
    with PostgresJournal(dsn, bandit="offers") as journal:
        learned.load(journal)
        assert min(learned.positions) > LINK
        learned.catch_up(journal)
    for partition, found in enumerate(records):
        replayed.take_all(partition, found)
    assert learned.digest == replayed.digest
    assert same_sums(learned, replayed)
    decided = [
        one.event.id for found in records for one in found if isinstance(one.event, Decision)
    ]
    assert sum(learned.counts.values()) == len(set(decided))
    assert learned.model.n == learned.counts["rewarded"] > 0


def empty() -> Fold:
    """As the learner begins."""
    policy = DelayedUCB(2, Bernoulli())
    return Fold(policy, Explicit(), retention=RETENTION * 1_000_000, partitions=PARTITIONS)


def read(dsn: str) -> list[list[Record]]:
    """All records that are there, by partition."""
    with PostgresJournal(dsn, bandit="offers") as journal:
        return [
            journal.read(p, journal.start(p).position, 10_000_000)
            for p in range(journal.partitions)
        ]


def whole(before: list[list[Record]], after: list[list[Record]]) -> list[list[Record]]:
    """What is there now, and before it what was dropped."""
    return [
        [one for one in known if one.position < found[0].position] + found
        for known, found in zip(before, after, strict=True)
    ]


def ends(dsn: str) -> list[int]:
    """The last position of each partition: in PostgreSQL there are no gaps."""
    with PostgresJournal(dsn, bandit="offers") as journal:
        return [journal.end(p) for p in range(journal.partitions)]


def snapshots(dsn: str) -> list[int]:
    """How far what the learner has saved goes, by partition."""
    with PostgresJournal(dsn, bandit="offers") as journal:
        saved = [journal.load(p) for p in range(journal.partitions)]
    return [0 if one is None else one.position for one in saved]
