"""Journals for tests of `belated journal`: random ones, used ones, and damage done to them."""

from datetime import timedelta
from pathlib import Path

import msgspec
import numpy as np
import pytest

from belated import Bandit, Bernoulli, DefaultAfter, DelayedUCB, Explicit
from belated.cli.main import main
from belated.core.events import Activation, Decision, Event, Record, Reward, Settled, Void, encode
from belated.fold.fold import Fold
from belated.journals import Journal, MemoryJournal, SQLiteJournal
from belated.journals.chain import Chain
from belated.journals.pages import pages
from belated.policies import Greedy
from belated.testing import ManualClock
from tests.command_line import Command
from tests.integration.damage import meddle_file


def complaint(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What a command says that cannot do what was asked."""
    return Command("journal").complaint(capsys, *map(argument, arguments))


def argument(one: object) -> str:
    """A path to a journal as its address, anything else as it is."""
    is_journal = isinstance(one, Path) and one.suffix == ".db"
    return f"sqlite:///{one}" if is_journal else str(one)


START = 1_700_000_000_000_000
SECOND = 1_000_000
HOUR = 3600 * SECOND
WEEK = Explicit(timedelta(hours=1))
IDENTITY = {"family": "Bernoulli()", "dim": "3", "features": ""}


def random_events(rng: np.random.Generator, count: int, partitions: int) -> list[Event]:
    """Decisions, their rewards in any order, and settlements."""
    names = [f"order {n}" if n % 3 else f"größe-{n}" for n in range(count // 3)]
    events: list[Event] = []
    for n in range(count):
        id, at = names[rng.integers(len(names))], START + n
        kind = rng.choice(5, p=[0.4, 0.1, 0.3, 0.05, 0.15])
        if kind == 0:
            x = rng.normal(size=3).astype(np.float32)
            x[rng.integers(3)] = rng.choice(np.array([-0.0, 1e-45, 3.4e38, 0.1], np.float32))
            x = np.clip(x, -1.0, 1.0)
            action: int | str = int(rng.integers(9)) if rng.random() < 0.5 else "blau"
            mean = float(rng.random())
            events.append(Decision(id, at, action, 2, x, mean, 1 / 3, n, bool(rng.random() < 0.8)))
        elif kind == 1:
            events.append(Activation(id, at))
        elif kind == 2:
            part = "" if rng.random() < 0.7 else "sale"
            value = float(rng.choice([0.0, -0.0, 1.0, rng.random(), 7.0]))
            events.append(Reward(id, at, value, part, int(rng.integers(2))))
        elif kind == 3:
            events.append(Void(id, at))
        else:
            events.append(Settled(int(rng.integers(partitions)), 0))
    return events


def random_journal(path: Path, seed: int, partitions: int, count: int = 300) -> Path:
    """A file with random events, settled to random times."""
    rng = np.random.default_rng(seed)
    stamps = (START + np.cumsum(rng.integers(5 * 60 * SECOND, size=count))).tolist()
    events = [
        Settled(event.partition, stamp - int(rng.integers(HOUR)))
        if isinstance(event, Settled)
        else event
        for event, stamp in zip(random_events(rng, count, partitions), stamps, strict=True)
    ]
    with SQLiteJournal(path, bandit="offers", partitions=partitions) as journal:
        journal.identify(IDENTITY)
        journal.append(events, recorded=stamps)
    return path


def used_journal(path: Path, partitions: int = 2, rounds: int = 150) -> str:
    """A file that a bandit has used, with snapshots somewhere in the middle; gives the digest."""
    clock, rng = ManualClock(START), np.random.default_rng(5)
    memory = MemoryJournal(partitions=partitions, clock=clock)  # no disk has to keep up
    bandit = Bandit(
        policy=DelayedUCB(3, Bernoulli()),
        rewards=Explicit(timedelta(hours=6)),
        journal=memory,
        seed=1,
        clock=clock,
    )
    for n in range(rounds):
        clock.now += 600 * SECOND
        decision = bandit.decide(
            rows=rng.normal(size=(4, 3)), id=f"order-{n}", activated=n % 7 != 0
        )
        if n % 3:
            bandit.observe(decision.id, float(rng.random() < 0.4), part="sale" if n % 5 else "")
        if n % 11 == 0:
            bandit.void(f"order-{n // 2}")
        if n % 13 == 0:
            bandit.observe(f"order-{n // 2}", float(rng.random()), revision=n)
        if n == rounds // 2:
            bandit.save()
    bandit.sync()
    with SQLiteJournal(path, bandit="offers", partitions=partitions) as journal:
        journal.identify(memory.identify({}))
        for partition, records in enumerate(records_of(memory)):
            journal.import_records(records)
            snapshot = memory.load(partition)
            assert snapshot is not None
            chain = Chain()  # memory has none
            chain.add(journal.read(partition, 0, snapshot.position))
            pieces = snapshot.pieces | {"chain": chain.pack()}
            journal.save(msgspec.structs.replace(snapshot, pieces=pieces))
    return bandit.digest


def records_of(journal: Journal) -> list[list[Record]]:
    """All records, by partition."""
    return [
        [record for page in pages(journal, p) for record in page] for p in range(journal.partitions)
    ]


def records_in(path: Path, bandit: str = "offers") -> list[list[Record]]:
    """All records of a file, by partition."""
    with SQLiteJournal(path, bandit=bandit) as journal:
        return records_of(journal)


def fold_of(
    partitions: list[list[Record]],
    rewards: Explicit | DefaultAfter = WEEK,
    until: int | None = None,
    retention: int | None = None,
) -> Fold:
    """What records come to."""
    policy = Greedy(3, Bernoulli())
    fold = Fold(policy, rewards, partitions=len(partitions), retention=retention)
    with fold.learner.bulk():
        for record in (record for records in partitions for record in records):
            if until is None or record.recorded <= until:
                fold.take(record)
    return fold


def flip(path: Path, place: int) -> None:
    """Change one bit of a record."""
    ((data,),) = meddle_file(path, "SELECT event FROM record WHERE place = ?", (place,))
    damaged_data = data[:-1] + bytes([data[-1] ^ 1])
    meddle_file(path, "UPDATE record SET event = ? WHERE place = ?", (damaged_data, place))


def place_of(partition: int, position: int, bandit: int = 1) -> int:
    """The number of a record in a file."""
    return (bandit * 4096 + partition) * (1 << 40) + position


def said(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    """What a command prints, whose exit code is as expected."""
    capsys.readouterr()
    assert main(["journal", *map(argument, arguments)]) == code
    return capsys.readouterr().out


def told(partitions: list[list[Record]]) -> list[tuple[int, bytes]]:
    """All events but settlements, with stamps, independent of partitions."""
    return sorted(
        (record.recorded, encode(record.event))
        for records in partitions
        for record in records
        if not isinstance(record.event, Settled)
    )
