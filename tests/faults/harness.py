"""Real processes that are killed and restarted under load, and proof that nothing was lost.

A :class:`Crowd` runs the roles of ``writers.py``; :func:`assert_nothing_lost` compares what they
were told with the journal, with every fold of it, and with the oracle.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psycopg

from belated import Bandit
from belated.core.events import Decision, Record, encode
from belated.core.ids import key_of
from belated.fold.fold import same_sums
from belated.fold.rules import DecisionStatus
from belated.journals import PostgresJournal
from belated.journals.arrivals import route
from tests.faults import writers
from tests.simulator.checks import check_oracle, expected_of
from tests.waiting import eventually


class Member(NamedTuple):
    """A process of a crowd."""

    number: int
    role: str
    process: int


class Crowd:
    """Processes that share a bandit.

    Args:
        folder: for their logs.
        where: a SQLite file, or the address of a PostgreSQL server.
        partitions: of the journal.
    """

    def __init__(self, folder: Path, where: str, partitions: int = 1) -> None:
        self.folder = folder
        self.where = where
        self.running: list[Member] = []
        self.started = 0
        self.killed: Counter[str] = Counter()
        script = Path(writers.__file__)
        self._nursery = subprocess.Popen(
            [sys.executable, script, folder, where, str(partitions)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, role: str = "writer") -> Member:
        """Start another process."""
        member = Member(self.started, role, self._tell(f"start {role} {self.started}"))
        self.running.append(member)
        self.started += 1
        return member

    def kill(self, member: Member) -> None:
        """Kill a process, which must have been alive until then."""
        self.running.remove(member)
        signal_number = self._tell(f"kill {member.process}")
        assert signal_number == signal.SIGKILL, f"{member} had ended by itself"
        self.killed[member.role] += 1

    def replace(self, role: str, rng: random.Random) -> None:
        """Kill one of a role at any moment, and start another."""
        victim = rng.choice([member for member in self.running if member.role == role])
        if rng.random() < 0.75:  # under way, not while it still opens the journal
            self.wait_for_progress(victim)
        time.sleep(rng.uniform(0.0, 0.3))
        self.kill(victim)
        self.start(role)

    def wait_for_progress(self, member: Member, lines: int = 5) -> None:
        """Wait until its log has this many lines."""
        eventually(lambda: self._length(member.number) >= lines, f"{member} is stuck", 120)

    def wait_for_all(self, more: int = 5) -> None:
        """Wait until each running process has written this many more lines."""
        lines_before = {member: self._length(member.number) for member in self.running}
        for member, lines in lines_before.items():
            self.wait_for_progress(member, lines + more)

    def log(self, number: int) -> list[list[Any]]:
        """Return the lines that a process has written, without an incomplete last line."""
        path = self.folder / f"log {number}"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def told(self, *kinds: str) -> list[list[Any]]:
        """Return the lines of all processes, of some kinds."""
        lines = [line for number in range(self.started) for line in self.log(number)]
        return [line for line in lines if line[0] in kinds]

    def close(self) -> None:
        """End all processes."""
        while self.running:
            self.kill(self.running[0])
        self._nursery.communicate(timeout=60)

    def _length(self, number: int) -> int:
        path = self.folder / f"log {number}"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def _tell(self, command: str) -> int:
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        print(command, file=self._nursery.stdin, flush=True)
        return int(self._nursery.stdout.readline())


def processes_of(dsn: str) -> list[int]:
    """Return all processes of a PostgreSQL server on this machine, its postmaster first.

    Raises:
        FileNotFoundError: the system does not expose them.
    """
    with psycopg.connect(dsn) as connection:
        server = _parent_of(connection.info.backend_pid)
        return [server, *_children_of(server)]


def _parent_of(process: int) -> int:
    _, _, fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")
    return int(fields.split()[1])


def _children_of(process: int) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and _parent_of(int(entry.name)) == process:
                yield int(entry.name)
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            continue


def assert_nothing_lost(crowd: Crowd) -> str:
    """Assert that the journal holds everything acknowledged, and every fold of it is the same.

    Returns:
        The result, in a line.
    """
    acknowledged = crowd.told("decision", "reward")
    bandit = writers.opened(crowd.where)
    with bandit:
        bandit.sync()
        records = [
            record
            for partition in range(bandit.journal.partitions)
            for record in bandit.journal.read(partition, 0, 10**7)
        ]
        if isinstance(bandit.journal, PostgresJournal):  # which recognises what it is sent again
            assert len({encode(record.event) for record in records}) == len(records)
        # Snapshot and tail, all records from the beginning, and the rules as they are written.
        replayed = writers.replayed(records, bandit.journal.partitions)
        _check_same(bandit, replayed)
        partition_records = by_partition(records, bandit.journal.partitions)
        check_oracle(replayed._fold, expected_of(replayed._fold, partition_records))
        assert bandit.estimate.n == bandit.decision_counts["rewarded"]
        entries = {id: replayed.entry(id) for id in {id for _, id, *_ in acknowledged}}
        assert sum(bandit.decision_counts.values()) == _check_decisions(
            entries, acknowledged, records
        )
        _check_rewards(replayed, entries, acknowledged)
        states = _check_learners(replayed, crowd, records)
        kinds = Counter(kind for kind, *_ in acknowledged)
        return (
            f"{dict(crowd.killed)} killed of {crowd.started} processes, "
            f"{bandit.journal.partitions} partitions: {kinds['decision']} decisions and "
            f"{kinds['reward']} rewards acknowledged, {len(records)} records, none lost; "
            f"{states} states of learners as in a replay"
        )


def by_partition(records: list[Record], partitions: int) -> list[list[Record]]:
    """Return the records by partition, in order."""
    return [[record for record in records if record.partition == p] for p in range(partitions)]


def _check_same(bandit: Bandit, replayed: Bandit) -> None:
    """Compare folds: counts exactly, sums to rounding, estimates as far as they converge."""
    assert bandit.digest == replayed.digest
    assert bandit.event_counts == replayed.event_counts
    assert same_sums(bandit._fold, replayed._fold)
    np.testing.assert_allclose(bandit.estimate.theta, replayed.estimate.theta, rtol=1e-8, atol=1e-8)
    assert bandit.pending.count == replayed.pending.count


def _check_decisions(
    stories: dict[str, DecisionStatus], told: list[list[Any]], records: list[Record]
) -> int:
    """Check that each decision is known as acknowledged, unless two raced for a shared name.

    Returns:
        The number of decisions.
    """
    indexes: dict[str, set[int]] = {}
    for record in records:
        if isinstance(record.event, Decision):
            indexes.setdefault(record.event.id, set()).add(record.event.index)
    for kind, id, index, _ in told:
        if kind == "decision":
            entry = stories[id]
            assert entry.decision is not None, f"the decision {id!r} was lost"
            assert index in indexes[id]
            assert entry.decision.index == index or entry.conflict
    return len(indexes)


def _check_rewards(
    bandit: Bandit, stories: dict[str, DecisionStatus], told: list[list[Any]]
) -> None:
    """Check that each reward is learned with its known value, or waits for its decision."""
    unmatched = {key for ledger in bandit._fold.ledgers.values() for key in ledger._unmatched.ids}
    for kind, id, part, _ in told:
        if kind != "reward":
            continue
        entry = stories[id]
        if entry.state == "unknown":
            assert key_of(id) in unmatched, f"the reward of {id!r} was lost"
            continue
        assert entry.state == "rewarded"
        assert not any(
            report.value != writers.value_of(id, report.part) for report in entry.reported
        )
        assert part in {report.part for report in entry.reported}, (
            f"a part of the reward of {id!r} was lost"
        )
        latest = max(entry.reported, key=lambda report: (report.at_us, report.part))
        assert entry.value == latest.value


def _check_learners(bandit: Bandit, crowd: Crowd, records: list[Record]) -> int:
    """Check that each learner's state at some position equals a fold of the records up to it."""
    digests: dict[tuple[int, int], set[str]] = {}
    lines = crowd.told("learned")
    for _, partition, position, digest in lines:
        digests.setdefault((partition, position), set()).add(digest)
    fold = bandit.as_of("1970-01-01T00:00Z")._fold
    for record in records:
        assert record.partition == route(record.event, bandit.journal.partitions)  # type: ignore[arg-type]
        fold.take(record)
        expected = digests.get((record.partition, record.position))
        if expected is not None:
            digest = f"{fold.ledgers[record.partition].digest:x}"
            assert expected == {digest}, f"a learner was wrong at position {record.position}"
    positions = fold.positions
    unknown = [place for place in digests if place[1] > positions[place[0]]]
    assert not unknown, f"learners knew of records that are gone: {unknown}"
    return len(lines)
