import io
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from belated import Bandit, Bernoulli, DefaultAfter, DelayedUCB, Explicit, Gaussian, PerArm, Poisson
from belated.cli.journal.address import pages
from belated.cli.journal.identity import family_of
from belated.cli.main import JOURNAL, main
from belated.events import (
    Activation,
    Decision,
    Event,
    Opaque,
    Record,
    Reward,
    Settled,
    Void,
    encode,
)
from belated.exceptions import InvalidInput
from belated.families import Family
from belated.ids import key_of, partition_of
from belated.journals import Journal, MemoryJournal, Snapshot, SQLiteJournal
from belated.journals.chain import Chain
from belated.learner.fold import Fold
from belated.ledger.table import EntryTable
from belated.policies import Greedy
from belated.testing import ManualClock
from tests.command_line import Command


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


# --- journals to look at -------------------------------------------------------------------------


def random_events(rng: np.random.Generator, count: int, partitions: int) -> list[Event]:
    """Decisions, what is told of them in any order, and what settles them."""
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
        decision = bandit.decide(rng.normal(size=(4, 3)), id=f"order-{n}", activated=n % 7 != 0)
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
        [record for page in pages(journal, p, journal.end(p)) for record in page]
        for p in range(journal.partitions)
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
        for record in (one for records in partitions for one in records):
            if until is None or record.recorded <= until:
                fold.take(record)
    return fold


def meddle(path: Path, statement: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
    """Run one statement behind the journal's back."""
    connection = sqlite3.connect(path)
    try:
        with connection:
            return connection.execute(statement, values).fetchall()
    finally:
        connection.close()


def flip(path: Path, place: int) -> None:
    """Change one bit of a record."""
    ((data,),) = meddle(path, "SELECT event FROM record WHERE place = ?", (place,))
    changed = data[:-1] + bytes([data[-1] ^ 1])
    meddle(path, "UPDATE record SET event = ? WHERE place = ?", (changed, place))


def place_of(partition: int, position: int, bandit: int = 1) -> int:
    """The number of a record in a file."""
    return (bandit * 4096 + partition) * (1 << 40) + position


def said(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    """What a command prints, whose exit code is as expected."""
    capsys.readouterr()
    assert main(["journal", *map(argument, arguments)]) == code
    return capsys.readouterr().out


def spawned(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own."""
    command = [sys.executable, "-m", "belated", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


# --- the command itself --------------------------------------------------------------------------


class TestCommand:
    def test_runs_as_a_module(self, tmp_path: Path) -> None:
        """The main path in real processes: look, verify, export, import."""
        digest = used_journal(tmp_path / "offers.db")
        shown = spawned("journal", "inspect", "sqlite:///offers.db", cwd=tmp_path)
        assert shown.returncode == 0
        assert "Bernoulli()" in shown.stdout
        exported = spawned("journal", "export", "sqlite:///offers.db", cwd=tmp_path)
        taken = spawned(
            "journal", "import", "-", "sqlite:///new.db", cwd=tmp_path, input=exported.stdout
        )
        assert (taken.returncode, taken.stderr) == (0, "")
        verified = spawned("journal", "verify", "sqlite:///new.db", "--window", "6h", cwd=tmp_path)
        assert verified.returncode == 0
        assert digest in verified.stdout
        assert (shown.stderr, exported.stderr, verified.stderr) == ("", "", "")

    def test_stops_quietly_when_nobody_reads(self, tmp_path: Path) -> None:
        """`export | head -1` ends without a traceback."""
        path = random_journal(tmp_path / "offers.db", 0, 1, count=2_000)
        command = [sys.executable, "-m", "belated", "journal", "export", argument(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.readline()
            process.stdout.close()
            assert process.stderr.read() == b""
            assert process.wait() == 1

    @pytest.mark.parametrize("command", JOURNAL)
    def test_help_ends_with_an_example(
        self, command: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Every command says how it is used, within 80 columns."""
        name = command.__name__.rpartition(".")[2].rstrip("_")
        with pytest.raises(SystemExit) as left:
            main(["journal", name, "--help"])
        assert left.value.code == 0
        text = capsys.readouterr().out
        assert text.rstrip().splitlines()[-2:] == ["example:", f"  {command.EXAMPLE}"]
        assert max(map(len, text.splitlines())) <= 80

    def test_says_in_one_line_what_is_wrong(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A mistake gives one line on stderr and exit code 2, and leaves every file as it is."""
        text, folder = tmp_path / "notes.txt", tmp_path / "folder"
        text.write_text("no database, but a text that is long enough to be taken for one\n" * 99)
        folder.mkdir()
        empty, other = tmp_path / "empty.db", tmp_path / "other.db"
        empty.touch()
        meddle(other, "CREATE TABLE something (else_ TEXT)")
        journal = random_journal(tmp_path / "offers.db", 0, 1, count=30)
        before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}

        assert "no such file" in complaint(capsys, "inspect", tmp_path / "none.db")
        cure = f"for that file use 'sqlite:///{journal}'"
        for command in (["inspect"], ["verify"], ["export"], ["show", "a"], ["import", "-"]):
            assert cure in complaint(capsys, *command, str(journal))
        assert "this is no file" in complaint(capsys, "inspect", f"sqlite:///{folder}")
        for path in (text, empty, other):
            for command in (["inspect"], ["verify"], ["export"], ["show", "a"]):
                assert "no journal of belated" in complaint(capsys, *command, f"sqlite:///{path}")
        assert "no bandit 'x', but 'offers'" in complaint(
            capsys, "verify", f"sqlite:///{journal}?bandit=x"
        )
        assert "7d, 12h" in complaint(capsys, "verify", journal, "--window", "7 days")
        assert "too long" in complaint(capsys, "verify", journal, "--window", f"{9**20}d")
        assert "--window" in complaint(capsys, "verify", journal, "--default", "0")
        assert "shorter" in complaint(
            capsys, "verify", journal, "--window", "2d", "--retention", "1d"
        )
        assert "the id is empty" in complaint(capsys, "show", "", journal)
        assert "required" in complaint(capsys, "show")
        assert "invalid choice" in complaint(capsys, "nonsense")
        assert "is there already" in complaint(capsys, "export", journal, "-o", str(journal))
        lines = tmp_path / "lines"
        before[lines] = said(capsys, "export", journal).encode()
        lines.write_bytes(before[lines])
        assert "is there already" in complaint(capsys, "import", lines, journal)
        assert "no exported journal" in complaint(capsys, "import", text, tmp_path / "new.db")
        assert "no such file" in complaint(capsys, "import", "none", tmp_path / "new.db")
        assert "no such folder" in complaint(capsys, "import", lines, tmp_path / "no" / "new.db")

        after = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
        assert after == before

    def test_a_newer_file_is_left_alone(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A journal of a newer release asks for an upgrade."""
        path = random_journal(tmp_path / "offers.db", 0, 1, count=30)
        meddle(path, "PRAGMA user_version = 99")
        assert "upgrade belated" in complaint(capsys, "inspect", path)

    def test_asks_which_bandit(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Where a file holds several bandits, one must be named, and the names are listed."""
        path = random_journal(tmp_path / "offers.db", 0, 1, count=30)
        with SQLiteJournal(path, bandit="news") as journal:
            journal.append([Void("a", 1)])
        for command in ("verify", "export"):
            assert "holds 'news', 'offers': add ?bandit=NAME" in complaint(capsys, command, path)
        assert "add ?bandit=" in complaint(capsys, "show", "a", path)
        assert "1 record imported" not in said(capsys, "verify", f"sqlite:///{path}?bandit=news")
        both = json.loads(said(capsys, "inspect", path, "--json"))
        assert [one["bandit"] for one in both["bandits"]] == ["news", "offers"]

    def test_families_are_parsed_and_never_run(self) -> None:
        """What a family calls itself gives it back, and nothing else is taken."""
        families: list[Family] = [
            Bernoulli(),
            Poisson(),
            Gaussian(),
            Gaussian(0.1),
            Gaussian(1e-7),
            Gaussian("estimate"),
        ]
        for family in families:
            assert family_of({"family": repr(family)}) == family
        for text in ("", "Bernoulli", "Gaussian(variance=-1.0)", "Gaussian(variance=__import__)"):
            with pytest.raises(InvalidInput):
                family_of({"family": text})


# --- inspect -------------------------------------------------------------------------------------


class TestInspect:
    def test_shows_what_is_there(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Identity, records, stamps, kinds and snapshots, for people and for programs."""
        path = tmp_path / "offers.db"
        used_journal(path)
        partitions = records_in(path)
        everything = [record for records in partitions for record in records]
        text = said(capsys, "inspect", path)
        assert max(map(len, text.splitlines()[1:])) <= 80
        assert "2023-11-14T22:23:20.000Z" in text
        (one,) = json.loads(said(capsys, "inspect", path, "--json"))["bandits"]
        assert one["identity"] == {"family": "Bernoulli()", "dim": "3", "features": ""}
        assert one["records"] == len(everything)
        assert one["first"] == min(record.recorded for record in everything)
        assert one["last"] == max(record.recorded for record in everything)
        assert one["events"]["decision"] == 150
        assert [part["records"] for part in one["parts"]] == list(map(len, partitions))
        assert [snapshot["partition"] for snapshot in one["snapshots"]] == [0, 1]
        for snapshot in one["snapshots"]:
            assert snapshot["bytes"] > 1000
            assert (
                0
                < snapshot["position"]
                == len(partitions[snapshot["partition"]]) - (snapshot["behind"])
            )

    def test_an_empty_journal(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Nothing yet is no error."""
        path = tmp_path / "offers.db"
        SQLiteJournal(path, bandit="offers").close()
        assert "no bandit has used this journal yet" in said(capsys, "inspect", path)
        with sqlite3.connect(path) as connection:  # looking has stored no identity
            assert connection.execute("SELECT identity FROM bandit").fetchall() == [(None,)]
        connection.close()

    def test_shows_what_is_left_of_a_damaged_one(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The damaged place is named; the other partitions are shown."""
        path = random_journal(tmp_path / "offers.db", 1, 2)
        flip(path, place_of(1, 7))
        assert "DAMAGED" in said(capsys, "inspect", path, code=1)
        report = json.loads(said(capsys, "inspect", path, "--json", code=1))
        first, second = report["bandits"][0]["parts"]
        assert first["damage"] is None
        assert "partition 1, position 7" in second["damage"]


# --- entry ---------------------------------------------------------------------------------------


class TestEntry:
    @pytest.mark.parametrize("partitions", [1, 4])
    def test_tells_the_state_the_bandit_has(
        self, partitions: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """For every decision: the ledger's state, value and flags, from the records alone."""
        path = tmp_path / "offers.db"
        used_journal(path, partitions, rounds=60)
        fold = fold_of(records_in(path), Explicit(timedelta(hours=6)))
        states = set()
        for n in range(60):
            told = json.loads(said(capsys, "show", f"order-{n}", path, "--json", "--window", "6h"))
            partition = partition_of(key_of(f"order-{n}"), partitions)
            entry = fold.ledgers[partition].entry(f"order-{n}")
            assert entry is not None
            for name in ("state", "value", "late", "conflict"):
                assert told[name] == getattr(entry, name)
            assert told["due"] == entry.due_us
            assert told["records"][0]["kind"] == "decision"
            states.add(told["state"])
        assert states >= {"censored", "rewarded", "voided"}

    def test_shows_every_record_in_order(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Stamps, kinds, values and what each of them meant, within 80 columns."""
        path, clock = tmp_path / "offers.db", ManualClock(START)
        x = np.arange(9, dtype=np.float32)
        with SQLiteJournal(path, bandit="offers", clock=clock) as journal:
            journal.append([Reward("a", START, 0.5, "sale", 2)])
            clock.now += HOUR
            journal.append([Decision("a", 1 << 60, "blue", 4, x, 0.25, 0.125, 7, False)])
            journal.append([Decision("b", START, 0, 0, x, 0.0, 1.0, 7), Reward("b", 1, 1.0)])
            journal.append([Activation("a", START + HOUR)])
        text = said(capsys, "show", "a", path)
        assert max(map(len, text.splitlines())) <= 80
        assert "rewarded with 0.5" in text
        assert "(9 numbers)" in text
        assert "2023-11-14T23:13:20.000Z  decision, position 2" in text
        told = json.loads(said(capsys, "show", "a", path, "--json"))
        assert [(one["kind"], one["status"]) for one in told["records"]] == [
            ("reward", "unmatched"),
            ("decision", "decided"),
            ("activation", "activated"),
        ]

    def test_shows_what_it_was_chosen_from(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Rows with their names and probabilities; or the context; nothing if it was not kept."""
        path = tmp_path / "offers.db"
        policies = DelayedUCB(4, Bernoulli(), floor=0.5), DelayedUCB(4, Bernoulli())
        features = PerArm(["blue", "red"], context=["age"])
        where = f"sqlite:///{path}?bandit=rows"
        with Bandit(policy=policies[0], rewards=Explicit(), journal=where) as bandit:
            bandit.decide(np.eye(4)[:3], ["blue", "red", 7], id="a")
        where = f"sqlite:///{path}?bandit=features"
        with Bandit(
            policy=policies[1], rewards=Explicit(), journal=where, features=features
        ) as bandit:
            bandit.decide({"age": 3.0}, {"blue": {"size": 5}, "red": None}, id="a")
        where = f"sqlite:///{path}?bandit=none"
        with Bandit(
            policy=policies[1], rewards=Explicit(), journal=where, keep_requests=0
        ) as bandit:
            bandit.decide(np.eye(4), id="a")
        rows, context, none = (
            said(capsys, "show", "a", f"sqlite:///{path}?bandit={name}")
            for name in ("rows", "features", "none")
        )
        assert "chosen from 3 actions; kept with share 1\n" in rows
        assert "\n  'red'       0." in rows
        assert "1, 0, 0, 0" in rows
        assert "context  {'age': 3.0}" in context
        assert "'blue'  {'size': 5}" in context
        assert "chosen from" not in none

    def test_what_is_not_there(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """An id without records has exit code 1; one without its decision is unmatched."""
        path = tmp_path / "offers.db"
        with SQLiteJournal(path, bandit="offers") as journal:
            journal.append([Void("early", 5)])
        assert "no record of late" in said(capsys, "show", "late", path, code=1)
        assert "unmatched" in said(capsys, "show", "early", path)

    def test_what_was_forgotten(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """A decision beyond its retention keeps the state it had."""
        path, clock = tmp_path / "offers.db", ManualClock(START)
        with SQLiteJournal(path, bandit="offers", clock=clock) as journal:
            x = np.ones(3, dtype=np.float32)
            journal.append([Decision("a", START, 0, 0, x, 0.0, 1.0, 0)])
            clock.now += 10 * HOUR
            journal.append([Settled(0, clock.now)])
        semantics = ["--window", "1h", "--default", "0.5", "--retention", "2h"]
        text = said(capsys, "show", "a", path, *semantics)
        assert "defaulted with 0.5 (forgotten)" in text


# --- verify --------------------------------------------------------------------------------------


class TestVerify:
    @pytest.mark.parametrize("partitions", [1, 2, 4])
    def test_a_good_one(
        self, partitions: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Snapshots with the records behind them say what all records say."""
        path = tmp_path / "offers.db"
        digest = used_journal(path, partitions)
        text = said(capsys, "verify", path, "--window", "6h")
        assert "OK: every record is intact, and" in text
        report = json.loads(said(capsys, "verify", path, "--window", "6h", "--json"))
        assert report["status"] == "ok"
        assert report["compared"] == partitions
        assert report["digest"] == digest
        assert sum(report["counts"].values()) == 150

    def test_a_flipped_bit(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Every damaged record is named with its place."""
        path = tmp_path / "offers.db"
        used_journal(path)
        flip(path, place_of(0, 17))
        flip(path, place_of(1, 40))
        meddle(path, "DELETE FROM record WHERE place = ?", (place_of(1, 50),))
        text = said(capsys, "verify", path, "--window", "6h", code=1)
        assert "DAMAGED" in text
        report = json.loads(said(capsys, "verify", path, "--window", "6h", "--json", code=1))
        assert report["status"] == "damaged"
        first, second, third = report["damage"]
        assert "partition 0, position 17" in first
        assert "partition 1, position 40" in second
        assert "partition 1, position 50" in third
        assert "missing" in third

    def test_a_hopeless_one(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """After ten damaged places it is enough."""
        path = random_journal(tmp_path / "offers.db", 1, 1)
        meddle(path, 'UPDATE record SET "check" = 0')
        assert len(json.loads(said(capsys, "verify", path, "--json", code=1))["damage"]) == 10

    def test_a_wrong_snapshot(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """One whose checksums are right and whose counts are not is found."""
        path = tmp_path / "offers.db"
        used_journal(path)
        alter(path, "ledger", recounted)
        text = said(capsys, "verify", path, "--window", "6h", code=1)
        assert "DIFFERS: the snapshots are wrong; the records count" in text
        assert "by the snapshots" in text

    @pytest.mark.parametrize("piece", ["ledger", "lines 0", "rows-of-lines 0"])
    def test_any_wrong_snapshot(
        self, piece: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Whatever piece of a snapshot is nonsense, verify says so and does not fall over."""
        path = tmp_path / "offers.db"
        used_journal(path)
        alter(path, piece, lambda data: bytes(reversed(data)))
        report = json.loads(said(capsys, "verify", path, "--window", "6h", "--json", code=1))
        assert report["status"] == "differs"
        assert report["differences"]

    @pytest.mark.parametrize("column", ["low", "state", "value", "weight", "where"])
    def test_a_wrong_column(
        self, column: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """What one decision should have, another has."""
        path = tmp_path / "offers.db"
        used_journal(path)

        def turned(data: bytes) -> bytes:
            table = EntryTable()
            table.restore([data], base=0)
            cells = table.column(column)
            cells[:] = cells[::-1].copy()
            return table.cells[: len(table)].tobytes()

        alter(path, "lines 0", turned)
        report = json.loads(said(capsys, "verify", path, "--window", "6h", "--json", code=1))
        assert report["status"] == "differs"
        assert report["differences"]

    def test_a_damaged_snapshot(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """It is told, and gone: the next time there is nothing wrong."""
        path = tmp_path / "offers.db"
        used_journal(path)
        meddle(path, "UPDATE piece SET data = data || x'00' WHERE partition = 1")
        text = said(capsys, "verify", path, "--window", "6h", code=1)
        assert "partition 1 is damaged and was discarded" in text
        assert "OK" in said(capsys, "verify", path, "--window", "6h")

    def test_other_settings(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """A snapshot of a bandit with another window is not taken for compared."""
        path = tmp_path / "offers.db"
        used_journal(path)
        text = said(capsys, "verify", path, "--window", "7h", code=2)
        assert "NOT COMPARED" in text
        assert max(map(len, text.splitlines()[1:])) <= 80

    def test_every_setting_can_be_given(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Default, retention, parts and bounds are those of the snapshot."""
        path = tmp_path / "offers.db"
        with Bandit(
            policy=DelayedUCB(2, Gaussian(0.25)),
            rewards=DefaultAfter(timedelta(days=1), value=-1.0, reduce="sum", bounds=(-2, 5)),
            retention=timedelta(days=9),
            journal=SQLiteJournal(path, bandit="offers"),
        ) as bandit:
            decision = bandit.decide(np.eye(2))
            bandit.observe(decision.id, 3.0)
        settings = ["--window", "24h", "--default", "-1", "--retention", "9d", "--reduce", "sum"]
        settings += ["--bounds", "-2", "5"]
        assert "1 snapshot agrees" in said(capsys, "verify", path, *settings)

    def test_what_this_release_cannot_read(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """It is compared up to there, and told."""
        path = tmp_path / "offers.db"
        used_journal(path)
        with SQLiteJournal(path, bandit="offers") as journal:
            journal.import_records([Record(1, 0, 1 << 60, Opaque(bytes([99]) + b"?"))])
        assert "compared up to there" in said(capsys, "verify", path, "--window", "6h")

    def test_without_an_identity_or_with_a_foreign_one(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Records are checked all the same."""
        path = tmp_path / "offers.db"
        with SQLiteJournal(path, bandit="offers") as journal:
            journal.append([Void("a", 1)])
        assert "no bandit has used this journal" in said(capsys, "verify", path)
        with SQLiteJournal(path, bandit="offers") as journal:
            journal.identify({"family": "Own(3)", "dim": "2", "features": ""})
        assert "Own(3)" in said(capsys, "verify", path, code=2)

    def test_shows_progress_on_a_terminal_only(
        self,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A long journal has a line on stderr, which is gone at the end."""
        path = random_journal(tmp_path / "offers.db", 1, 1)
        said(capsys, "verify", path)
        screen = io.StringIO()
        monkeypatch.setattr(screen, "isatty", lambda: True)
        monkeypatch.setattr(sys, "stderr", screen)
        ticks = iter(range(10**6))
        monkeypatch.setattr(time, "monotonic", lambda: float(next(ticks)))
        said(capsys, "verify", path)
        assert "verified 300 of 300 (100%)" in screen.getvalue()
        assert screen.getvalue().endswith("\r\x1b[K")


def alter(path: Path, piece: str, change: Any) -> None:
    """Store a snapshot again with one piece changed, through the journal."""
    with SQLiteJournal(path, bandit="offers") as journal:
        stored = journal.load(0)
        assert stored is not None
        pieces = stored.pieces | {piece: change(stored.pieces[piece])}
        journal.save(Snapshot(0, stored.position, stored.fingerprint, pieces))


def recounted(data: bytes) -> bytes:
    """A ledger with one decision more that is rewarded, and one less that is censored."""
    head = msgspec.msgpack.decode(data, strict=False)
    counts = next(part for part in head if isinstance(part, list) and len(part) == 6)
    counts[2] += 1
    counts[4] -= 1
    return msgspec.msgpack.encode(head)


# --- export and import ---------------------------------------------------------------------------


def moved(path: Path, partitions: int) -> Path:
    """A journal, exported and imported."""
    lines, new = path.with_suffix(".jsonl"), path.with_name(f"new-{partitions}.db")
    assert main(["journal", "export", argument(path), "-o", str(lines)]) == 0
    options = ["--partitions", str(partitions)]
    assert main(["journal", "import", str(lines), f"{argument(new)}?bandit=new", *options]) == 0
    return new


class TestExportAndImport:
    @pytest.mark.parametrize("partitions", [1, 2, 4])
    def test_gives_back_the_same_bytes(self, partitions: int, tmp_path: Path) -> None:
        """Into as many partitions: every record with its stamp, place, and bytes."""
        for seed in range(5):
            path = random_journal(tmp_path / f"{seed}.db", seed, partitions)
            odd: list[Event | Opaque] = [
                Opaque(bytes([99]) + b"\x00\xff from a newer release"),
                Reward("odd", -(1 << 62), float("nan")),
                Reward("odd", 1, float("-inf"), "part \u2028\u0000", 5),
                Decision("odd", 0, 1 << 62, 0, np.array([np.nan, np.inf, 1]).astype("f4"), 0, 1, 1),
                Decision("odd", 0, "", 0, np.zeros(0, "f4"), 5e-324, -0.0, 1),
                Decision("odd", 0, 0, 0, np.array([np.inf, -np.inf], "f4"), 0, 1, 1),
                Decision("odd", 0, 0, 0, np.ones(3, "f4"), 1.7e308, 1.7e308, 1),
                Decision("odd", 0, 0, 0, np.ones(3, "f4"), 0, 1, 1, means=(0.5, float("nan"))),
            ]
            with SQLiteJournal(path, bandit="offers") as journal:
                for event in odd:
                    where = 0 if isinstance(event, Opaque) else key_partition(event, partitions)
                    journal.import_records([Record(where, 0, START + 10**15, event)])
            new = moved(path, partitions)
            assert as_bytes(records_in(new, "new")) == as_bytes(records_in(path))
            new.unlink()

    @pytest.mark.parametrize(("before", "after"), [(2, 2), (1, 4), (4, 1)])
    def test_requests_stay_with_their_decisions(
        self, before: int, after: int, tmp_path: Path
    ) -> None:
        """Into any number of partitions."""
        path, x = tmp_path / "offers.db", np.ones(3, np.float32)
        made = [Decision(f"{n}", START, 0, 0, x, 0.5, 1.0, 0) for n in range(20)]
        requests = {n: f"of {n}".encode() for n in range(0, 20, 2)}
        with SQLiteJournal(path, bandit="offers", partitions=before) as journal:
            journal.append([*made, *(Settled(p, START) for p in range(before))], requests=requests)
        found = {}
        with SQLiteJournal(moved(path, after), bandit="new") as journal:
            for partition in range(after):
                for one in journal.read(partition, 0, 100):
                    if isinstance(one.event, Decision):
                        kept = journal.requests(partition, [one.position])
                        found[int(one.event.id)] = kept.get(one.position)
        assert found == {n: requests.get(n) for n in range(20)}

    @pytest.mark.parametrize(("before", "after"), [(1, 2), (1, 4), (2, 4), (2, 1), (4, 1), (4, 2)])
    def test_gives_back_the_same_states(self, before: int, after: int, tmp_path: Path) -> None:
        """Into other partitions: what a bandit has settled comes to the same."""
        path = tmp_path / "offers.db"
        digest = used_journal(path, before)
        old, new = records_in(path), records_in(moved(path, after), "new")
        assert len(new) == after
        six = Explicit(timedelta(hours=6))
        assert fold_of(old, six).digest == digest
        assert fold_of(new, six).digest == digest
        assert told(new) == told(old)

    @pytest.mark.parametrize(("before", "after"), [(1, 4), (2, 4), (4, 4)])
    def test_more_partitions_are_the_same_at_any_time(
        self, before: int, after: int, tmp_path: Path
    ) -> None:
        """Random events, settled or not, with and without retention: the same at every moment."""
        for seed in range(4):
            path = random_journal(tmp_path / f"{seed}.db", seed, before)
            old, new = records_in(path), records_in(moved(path, after), "new")
            path.with_name(f"new-{after}.db").unlink()
            end = max(record.recorded for records in old for record in records)
            for until in np.linspace(START, end, 7).astype(int).tolist():
                for retention in (None, 2 * HOUR):
                    one, other = (fold_of(them, WEEK, until, retention) for them in (old, new))
                    assert one.digest == other.digest
                    assert one.counts == other.counts

    @pytest.mark.parametrize(("before", "after"), [(2, 1), (4, 1), (4, 2), (8, 2)])
    def test_fewer_partitions_are_settled_as_far_as_the_furthest(
        self, before: int, after: int, tmp_path: Path
    ) -> None:
        """Random events: the states are those of the old journal, settled alike."""
        for seed in range(4):
            path = random_journal(tmp_path / f"{seed}.db", seed, before)
            old, new = records_in(path), records_in(moved(path, after), "new")
            path.with_name(f"new-{after}.db").unlink()
            reached = [watermark(records) for records in old]
            with MemoryJournal(partitions=before) as settled:
                for records in old:
                    settled.import_records(records)
                settled.append(
                    [Settled(p, max(reached[p % after :: after])) for p in range(before)]
                )
                assert fold_of(new).digest == fold_of(records_of(settled)).digest

    def test_fewer_partitions_settle_nothing_early(self, tmp_path: Path) -> None:
        """Before the end no decision is settled that was not settled in the old journal."""
        for seed in range(4):
            path = random_journal(tmp_path / f"{seed}.db", seed, 4)
            old, new = records_in(path), records_in(moved(path, 1), "new")
            path.with_name("new-1.db").unlink()
            end = max(record.recorded for records in old for record in records)
            seen = 0
            for until in np.linspace(START, end - 1, 9).astype(int).tolist():
                were, are = fold_of(old, until=until), fold_of(new, until=until)
                for record in (one for records in old for one in records):
                    if isinstance(record.event, Decision):
                        id = record.event.id
                        now = are.ledgers[0].entry(id)
                        then = were.ledgers[partition_of(key_of(id), 4)].entry(id)
                        if now is not None and now.state in ("censored", "voided"):
                            assert then is not None
                            assert then.state == now.state
                            seen += now.state == "censored"
            assert seen > 0

    def test_carries_what_the_bandit_is(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Identity, name and partitions are in the first line; a bandit goes on from there."""
        path = tmp_path / "offers.db"
        digest = used_journal(path, 2)
        said(capsys, "export", path, "-o", tmp_path / "lines")
        first = json.loads((tmp_path / "lines").read_text().splitlines()[0])
        assert first == {
            "kind": "journal",
            "format": 2,
            "bandit": "offers",
            "partitions": 2,
            "identity": IDENTITY,
        }
        said(capsys, "import", tmp_path / "lines", tmp_path / "new.db")
        (one,) = json.loads(said(capsys, "inspect", tmp_path / "new.db", "--json"))["bandits"]
        assert (one["bandit"], one["partitions"], one["identity"]) == ("offers", 2, IDENTITY)
        with Bandit(
            policy=DelayedUCB(3, Bernoulli()),
            rewards=Explicit(timedelta(hours=6)),
            journal=SQLiteJournal(tmp_path / "new.db", bandit="offers"),
            clock=ManualClock(START),
        ) as bandit:
            assert bandit.digest == digest

    def test_a_line_says_it_all(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """The fields of a record, by their names."""
        path = tmp_path / "offers.db"
        x = np.array([0.1, -0.0], dtype=np.float32)
        with SQLiteJournal(path, bandit="offers", clock=ManualClock(START)) as journal:
            journal.append([Decision("a", 5, "blue", 1, x, 0.1, 0.2, 7), Settled(0, 9)])
        lines = said(capsys, "export", path).splitlines()
        assert lines[1] == (
            '{"kind":"decision","partition":0,"position":1,"recorded":1700000000000000,"id":"a",'
            '"at":5,"action":"blue","index":1,"x":[0.10000000149011612,-0.0],"mean":0.1,'
            '"propensity":0.2,"model":7}'
        )
        assert json.loads(lines[2]) == {
            "kind": "settled",
            "partition": 0,
            "position": 2,
            "recorded": START,
            "until": 9,
        }
        end = json.loads(lines[3])
        head = json.loads(said(capsys, "verify", path, "--json"))["head"]
        assert end == {"kind": "end", "records": 2, "head": head}

    def test_an_empty_journal(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Nothing goes over, and it is a journal."""
        path = tmp_path / "offers.db"
        SQLiteJournal(path, bandit="offers", partitions=2).close()
        said(capsys, "export", path, "-o", tmp_path / "lines")
        assert "0 records" in said(capsys, "import", tmp_path / "lines", tmp_path / "new.db")
        assert records_in(tmp_path / "new.db") == [[], []]

    def test_a_wrong_line_is_named_and_nothing_is_left(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Cut off, changed, twice, out of order, beyond what can be: refused as a whole."""
        path = random_journal(tmp_path / "offers.db", 2, 2, count=40)
        head, *lines, end = said(capsys, "export", path).splitlines()
        decision = next(n for n, line in enumerate(lines) if '"decision"' in line)
        reward = next(n for n, line in enumerate(lines) if '"reward"' in line)
        void = '{"kind":"void","partition":0,"position":900,"recorded":%s,"id":"a","at":5}'

        def altered(number: int, **fields: object) -> str:
            return json.dumps(json.loads(lines[number]) | fields)

        wrong: dict[str, list[str]] = {
            "is cut off": [head, *lines],
            "39 are here": [head, *lines[1:], end],
            "line 4": [head, *lines[:2], "{", *lines[2:], end],
            "is out of order": [head, *lines[:3], *lines[2:], end],
            "recorded before": [head, *lines, void % 5, end],
            "behind the end": [head, *lines, end, end],
            "no partition 2": [head, altered(0, partition=2), *lines[1:], end],
            "invalid value": [head, altered(0, kind="nonsense"), *lines[1:], end],
            "too large": [head, altered(decision, x=[1e300]), *lines[decision + 1 :], end],
            "2**64 - 1": [head, altered(decision, model=1 << 70), *lines[decision + 1 :], end],
            "`int` <=": [head, *lines, void % (1 << 63), end],
            "is missing": [head, altered(reward, value=None), *lines[reward + 1 :], end],
            "unknown field": [head, altered(reward, note=1), *lines[reward + 1 :], end],
            "upgrade belated": [head.replace('"format":2', '"format":3'), *lines, end],
            "no exported journal": [*lines, end],
            "was changed: its records": [
                head,
                *lines[:reward],
                altered(reward, value=0.123),
                *lines[reward + 1 :],
                end,
            ],
            "power of two": [head.replace('"partitions":2', '"partitions":3'), *lines, end],
        }
        for message, text in wrong.items():
            (tmp_path / "lines").write_text("\n".join(text) + "\n")
            said_so = complaint(capsys, "import", tmp_path / "lines", tmp_path / "new.db")
            assert message.lower() in said_so.lower()
            assert sorted(one.name for one in tmp_path.iterdir()) == ["lines", "offers.db"]
        (tmp_path / "lines").write_text("\n".join([head, *lines, end]) + "\n")
        refused = complaint(
            capsys, "import", tmp_path / "lines", tmp_path / "new.db", "--partitions", 3
        )
        assert "power of two" in refused
        said(capsys, "import", tmp_path / "lines", tmp_path / "new.db")

    def test_a_damaged_journal_is_not_exported(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The damaged record is named, and no half of a file is left."""
        path = random_journal(tmp_path / "offers.db", 2, 1)
        flip(path, place_of(0, 5))
        text = complaint(capsys, "export", path, "-o", tmp_path / "lines")
        assert "partition 0, position 5" in text
        assert not (tmp_path / "lines").exists()

    def test_an_unknown_event_is_merged_but_not_split(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Nobody here can tell which of more partitions it belongs to."""
        path = tmp_path / "offers.db"
        with SQLiteJournal(path, bandit="offers", partitions=4) as journal:
            journal.import_records([Record(3, 0, START, Opaque(bytes([99]) + b"?"))])
        merged = records_in(moved(path, 2), "new")
        assert [len(records) for records in merged] == [0, 1]
        lines, new = path.with_suffix(".jsonl"), tmp_path / "more.db"
        text = complaint(capsys, "import", lines, new, "--partitions", 8)
        assert "partition 3, position 1" in text
        assert not new.exists()

    def test_while_a_bandit_goes_on(self, tmp_path: Path) -> None:
        """What is appended after the export began is not in it."""
        path = random_journal(tmp_path / "offers.db", 3, 2)
        with SQLiteJournal(path, bandit="offers") as journal:
            before = as_bytes(records_of(journal))
            lines = exported_slowly(journal)
            first = [next(lines) for _ in range(3)]
            journal.append([Void("late", 5), Void("later", 5)])
            rest = list(lines)
        assert len(first) + len(rest) == sum(map(len, before))

    def test_a_hundred_thousand_events_in_seconds(self, tmp_path: Path) -> None:
        """Export and import of 10^5 events take less than 30 s, and little memory."""
        rng = np.random.default_rng(0)
        x = rng.normal(size=(50_000, 8)).astype(np.float32)
        path = tmp_path / "offers.db"
        with SQLiteJournal(path, bandit="offers", clock=ManualClock(START)) as journal:
            for start in range(0, 50_000, 10_000):
                events: list[Event] = []
                for n in range(start, start + 10_000):
                    events.append(Decision(f"{n}", START + n, n % 9, 0, x[n], 0.5, 0.25, n))
                    events.append(Reward(f"{n}", START + n, 1.0))
                journal.append(events)
        begin = time.monotonic()
        new = moved(path, 4)
        assert time.monotonic() - begin < 30
        assert sum(map(len, records_in(new, "new"))) == 100_000


def exported_slowly(journal: Journal) -> Iterator[Record]:
    """The records an export would write, one by one."""
    from belated.cli.journal.export import in_order

    ends = [journal.end(p) for p in range(journal.partitions)]
    return in_order(journal, ends, [Chain() for _ in ends])


def key_partition(event: Event, partitions: int) -> int:
    """Where an event of a decision belongs."""
    assert isinstance(event, Decision | Activation | Reward | Void)
    return partition_of(key_of(event.id), partitions)


def as_bytes(partitions: list[list[Record]]) -> list[list[tuple[int, int, bytes]]]:
    """Records as position, stamp and bytes."""
    return [
        [(record.position, record.recorded, encode(record.event)) for record in records]
        for records in partitions
    ]


def told(partitions: list[list[Record]]) -> list[tuple[int, bytes]]:
    """All that is not Settled, with its stamps, whatever the partitions."""
    return sorted(
        (record.recorded, encode(record.event))
        for records in partitions
        for record in records
        if not isinstance(record.event, Settled)
    )


def watermark(records: list[Record]) -> int:
    """The time a partition was settled to."""
    return max(
        (
            min(record.event.until, record.recorded)
            for record in records
            if isinstance(record.event, Settled)
        ),
        default=0,
    )
