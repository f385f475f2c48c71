"""``belated journal export`` and ``import`` of erasures and retractions, on both stores."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import numpy as np
import pytest
from msgspec.structs import replace

from belated import Bernoulli, DefaultAfter, Explicit
from belated.cli.journal.import_ import repartitioned
from belated.cli.main import main
from belated.core.events import (
    Configured,
    Decision,
    Erased,
    Event,
    ModeChanged,
    Record,
    Retracted,
    Reward,
    Settled,
    Void,
    encode,
)
from belated.core.ids import erased_key_of, key_of, partition_of
from belated.core.rewards import Rewards
from belated.fold.fold import Fold, same_sums
from belated.journals import Journal, Store, open_journal
from belated.journals.arrivals import route
from belated.policies import Greedy
from tests.command_line import Command

START = 1_700_000_000_000_000
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
COMMAND = Command("journal")
IDENTITY = {"family": "Bernoulli()", "dim": "3", "features": ""}
T = TypeVar("T", Settled, Retracted)
SEMANTICS: list[Rewards] = [Explicit(timedelta(hours=1)), DefaultAfter(timedelta(hours=1))]
FEEDS = ["crm", "web", ""]
MOVES = [(1, 1), (1, 4), (2, 4), (4, 4), (2, 1), (4, 1), (4, 2)]


def happened(seed: int, partitions: int, count: int = 240) -> list[Record]:
    """Decisions, rewards of feeds, and operator actions, which are in every partition."""
    rng = np.random.default_rng(seed)
    records: list[Record] = []
    spans: list[tuple[int, int, str]] = []
    now = START

    def append(*events: Event) -> None:
        for event in events:
            records.append(Record(route(event, partitions), 0, now, event))

    append(Configured(now, {"policy": "Greedy()", "rewards": "Explicit"}))
    for n in range(count):
        now += int(rng.integers(5 * MINUTE))
        kind, id = rng.random(), f"order-{rng.integers(1 + n // 3)}"
        indices = range(partitions)
        if kind < 0.35:
            x = rng.normal(size=3).astype(np.float32)
            append(Decision(f"order-{n // 3}", now, 0, 0, x, 0.5, 1.0, 0))
        elif kind < 0.75:
            part, revision = str(rng.choice(["", "", "sale"])), int(rng.integers(2))
            feed = FEEDS[rng.integers(3)]
            append(Reward(id, now, float(rng.integers(2)), part, revision, feed))
        elif kind < 0.78:
            append(Void(id, now))
        elif kind < 0.92:
            append(Settled(int(rng.integers(partitions)), now - int(rng.integers(HOUR)), now - 7))
        elif kind < 0.94:
            append(Erased(erased_key_of(id), now, "asked for", "me"))
        elif kind < 0.95:
            append(ModeChanged(now, str(rng.choice(["freeze", "learn"])), "why", "me"))
        elif kind < 0.98 or not spans:
            start = START + int(rng.integers(now - START))
            spans.append((start, now, FEEDS[rng.integers(2)]))
            append(*(Retracted(p, now, *spans[-1], reason="wrong", actor="me") for p in indices))
        else:
            span = spans[rng.integers(len(spans))]
            append(*(Retracted(p, now, *span, restored=True, actor="me") for p in indices))
    now += 1
    append(*(Settled(p, now, now - 5 - p) for p in range(partitions)))
    return records


def fold_of(journal: Journal, rewards: Rewards, until: int | None = None) -> Fold:
    """Fold a journal."""
    fold = Fold(Greedy(3, Bernoulli()), rewards, partitions=journal.partitions, until=until)
    fold.begin(journal)
    fold.catch_up(journal)
    return fold


def check_same(one: Fold, other: Fold) -> None:
    """Check that every decision and everything learned is the same."""
    assert one.counts == other.counts
    assert one.digest == other.digest
    assert same_sums(one, other)
    assert one.mode == other.mode
    assert one.learner.model.pending == other.learner.model.pending


def told(journal: Journal) -> list[tuple[int, bytes]]:
    """Return all events but settlements, with stamps, independent of partitions."""
    return sorted(
        (record.recorded, encode(record.event))
        for p in range(journal.partitions)
        for record in journal.read(p, 0, 10_000)
        if not isinstance(record.event, Settled | Retracted)
    )


def of_kind(journal: Journal, partition: int, kind: type[T]) -> list[tuple[int, T]]:
    """Return stamps and events of one kind, as if they were in partition 0."""
    return [
        (record.recorded, replace(record.event, partition=0))
        for record in journal.read(partition, 0, 10_000)
        if isinstance(record.event, kind)
    ]


class Moves:
    """Exports and imports in one kind of store, with a new bandit each time."""

    def __init__(self, store: Store, address: str, bandit: str, folder: Path) -> None:
        self._store, self._address, self._bandit = store, address, bandit
        self._folder = folder
        self._count = 0

    def made(self, records: list[Record], partitions: int) -> str:
        """Create a bandit with these records; return its address."""
        name = self._name()
        with self._store.journal(name, partitions=partitions) as journal:
            journal.identify(IDENTITY)
            journal.import_records(records)
        return f"{self._address}?bandit={quote(name)}"

    def exported(self, address: str) -> Path:
        """Return the exported lines of a journal."""
        lines = self._folder / f"{self._name()}.jsonl"
        assert main(["journal", "export", address, "-o", str(lines)]) == 0
        return lines

    def free(self) -> str:
        """Return the address of a bandit that does not exist yet; in SQLite, in a new file."""
        name = self._name()
        address = self._address
        if self._store.name == "sqlite":
            address = f"sqlite:///{self._folder}/{name.replace(' ', '-')}.db"
        return f"{address}?bandit={quote(name)}"

    def moved(self, address: str, partitions: int) -> str:
        """Import into another number of partitions; return the address."""
        lines, target = self.exported(address), self.free()
        options = ["--partitions", str(partitions)]
        assert main(["journal", "import", str(lines), target, *options]) == 0
        return target

    def _name(self) -> str:
        self._count += 1
        return f"{self._bandit} {self._count}"


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Return the output of a command."""
    return COMMAND.said(capsys, *arguments)


def home(partition: int, partitions: int = 2) -> str:
    """Return an id in a partition."""
    ids = (f"order-{n}" for n in range(100))
    return next(id for id in ids if partition_of(key_of(id), partitions) == partition)


@pytest.fixture
def moves(store: Store, address: str, bandit: str, tmp_path: Path) -> Moves:
    """Moves from each kind of store into a new one of its kind."""
    return Moves(store, address, bandit, tmp_path)


@pytest.mark.parametrize(("before", "after"), MOVES)
def test_what_was_undone_is_undone_in_the_new_journal(
    moves: Moves, before: int, after: int, full: bool
) -> None:
    """With any number of partitions, every decision and everything learned is the same."""
    for seed in range(20 if full else 2):
        address = moves.made(happened(seed, before), before)
        with open_journal(address) as old, open_journal(moves.moved(address, after)) as new:
            for rewards in SEMANTICS:
                old_fold, new_fold = fold_of(old, rewards), fold_of(new, rewards)
                assert old_fold.counters["erased"] + old_fold.counters["retracted"] > 0
                check_same(old_fold, new_fold)
            assert told(new) == told(old)
            assert new.configured() == old.configured()


@pytest.mark.parametrize("after", [1, 4])
def test_an_erased_decision_is_not_shown_and_all_verifies(
    moves: Moves, after: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither in the old journal nor in the new one; both verify."""
    x = np.ones(3, np.float32)
    events: list[Event] = [
        *(Decision(home(p), START, 0, 0, x, 0.5, 1.0, 0) for p in range(2)),
        *(Reward(home(p), START, 1.0, reporter="crm") for p in range(2)),
        Erased(erased_key_of(home(1)), START),
        *(Retracted(p, START, START, START + 5, "crm") for p in range(2)),
    ]
    old = moves.made([Record(0, 0, START, event) for event in events], 2)
    digests = []
    for address in (old, moves.moved(old, after)):
        capsys.readouterr()
        assert main(["journal", "show", home(1), address, "--json"]) == 1
        entry = json.loads(capsys.readouterr().out)
        assert (entry["state"], entry["records"], entry["request"]) == ("erased", [], None)
        other_entry = json.loads(said(capsys, "show", home(0), address, "--json"))
        assert other_entry["state"] == "pending"
        assert [record["status"] for record in other_entry["records"]] == ["decided", "retracted"]
        report = json.loads(said(capsys, "verify", address, "--json"))
        assert report["counts"]["pending"] == sum(report["counts"].values()) == 1
        digests.append(report["digest"])
    assert digests[0] == digests[1]


@pytest.mark.parametrize(("before", "after"), [one for one in MOVES if one[0] <= one[1]])
def test_more_partitions_have_what_theirs_had(moves: Moves, before: int, after: int) -> None:
    """Each has all settlements and retractions, and is the same at every moment."""
    address = moves.made(happened(7, before), before)
    with open_journal(address) as old, open_journal(moves.moved(address, after)) as new:
        for partition in range(after):
            settlements = of_kind(new, partition, Settled)
            retractions = of_kind(new, partition, Retracted)
            assert settlements == of_kind(old, partition % before, Settled) != []
            assert retractions == of_kind(old, partition % before, Retracted) != []
        end = max(old.last_stamp(p) for p in range(before))
        for moment in np.linspace(START, end, 7).astype(int).tolist():
            check_same(*(fold_of(journal, SEMANTICS[0], moment) for journal in (old, new)))


@pytest.mark.parametrize(("before", "after"), [(2, 1), (4, 1), (4, 2)])
def test_fewer_partitions_have_each_act_once(moves: Moves, before: int, after: int) -> None:
    """Rewards are delivered up to the minimum of the merged partitions."""
    address = moves.made(happened(7, before), before)
    with open_journal(address) as old, open_journal(moves.moved(address, after)) as new:
        for partition in range(after):
            assert of_kind(new, partition, Retracted) == of_kind(old, partition, Retracted)
            watermarks = [
                max(event.delivered for _, event in of_kind(old, p, Settled))
                for p in range(partition, before, after)
            ]
            assert of_kind(new, partition, Settled)[-1][1].delivered == min(watermarks)


def test_partitions_that_retracted_different_rewards_are_not_merged(
    moves: Moves, capsys: pytest.CaptureFixture[str]
) -> None:
    """A retraction would remove rewards that should count; if there are none, they are merged."""
    records = [
        Record(p, 0, START, Reward(home(p), START, 1.0, reporter=f"feed {p}")) for p in range(2)
    ]
    retraction, other_retraction = (
        Retracted(0, START, START, START + 5, f"feed {p}") for p in range(2)
    )
    address = moves.made([*records, Record(0, 0, START + 9, retraction)], 2)
    with open_journal(address) as old, open_journal(moves.moved(address, 1)) as new:
        check_same(*(fold_of(journal, SEMANTICS[0]) for journal in (old, new)))
        assert of_kind(new, 0, Retracted) == [(START + 9, retraction)]

    address = moves.made([*records, Record(0, 0, START + 9, other_retraction)], 2)
    lines, target = moves.exported(address), moves.free()
    error = COMMAND.complaint(capsys, "import", lines, target, "--partitions", 1)
    span = "from 2023-11-14T22:13:20+00:00 to 2023-11-14T22:13:20.000005+00:00"
    assert f"partition 1 does not retract what 'feed 1' reported {span}" in error
    said(capsys, "import", lines, target, "--partitions", 4)


def test_an_act_that_is_repeated_counts_again() -> None:
    """Retracted, restored and retracted with the same text, at other times in each partition."""
    acts = [Retracted(0, 5, 1, 9, "crm", restored=restored) for restored in (False, True, False)]
    records = [
        Record(p, n, stamp, replace(act, partition=p))
        for p, stamps in enumerate([(10, 20, 30), (25, 26, 27)])
        for n, (stamp, act) in enumerate(zip(stamps, acts, strict=True))
    ]
    result = repartitioned(sorted(records, key=lambda record: record.recorded), 2, 1)
    assert [(record.recorded, record.event) for record in result] == [
        (10, acts[0]),
        (20, acts[1]),
        (27, acts[2]),
    ]
