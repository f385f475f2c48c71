"""`belated journal verify`: intact, damaged and incomparable journals."""

import io
import json
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from belated import Bandit, DefaultAfter, DelayedUCB, Gaussian
from belated.core.events import Opaque, Record, Void
from belated.fold.table import EntryTable
from belated.journals import SQLiteJournal
from belated.journals.snapshots import Snapshot
from tests.integration.damage import meddle_file
from tests.integration.used_journals import (
    flip,
    place_of,
    random_journal,
    said,
    used_journal,
)


class TestVerify:
    @pytest.mark.parametrize("partitions", [1, 2, 4])
    def test_a_good_one(
        self, partitions: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Folds with and without snapshots agree."""
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
        meddle_file(path, "DELETE FROM record WHERE place = ?", (place_of(1, 50),))
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
        """At most ten damaged records are listed."""
        path = random_journal(tmp_path / "offers.db", 1, 1)
        meddle_file(path, 'UPDATE record SET "check" = 0')
        assert len(json.loads(said(capsys, "verify", path, "--json", code=1))["damage"]) == 10

    def test_a_wrong_snapshot(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """A snapshot with correct checksums but wrong counts is detected."""
        path = tmp_path / "offers.db"
        used_journal(path)
        alter(path, "ledger", recounted)
        text = said(capsys, "verify", path, "--window", "6h", code=1)
        assert "DIFFERS: the snapshots are wrong; the records are authoritative" in text
        assert "with the snapshots" in text

    @pytest.mark.parametrize("piece", ["ledger", "lines 0", "rows-of-lines 0"])
    def test_any_wrong_snapshot(
        self, piece: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Whatever piece of a snapshot is wrong, verify reports it without failing."""
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
        """A value of one decision belongs to another."""
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
        """It is reported and removed; the next verification finds nothing wrong."""
        path = tmp_path / "offers.db"
        used_journal(path)
        meddle_file(
            path, "UPDATE cell SET value = value || x'00' WHERE name LIKE 'snapshot-piece/%/1/%'"
        )
        text = said(capsys, "verify", path, "--window", "6h", code=1)
        assert "partition 1 is damaged and was discarded" in text
        assert "OK" in said(capsys, "verify", path, "--window", "6h")

    def test_other_settings(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """A snapshot of a bandit with another window is not compared."""
        path = tmp_path / "offers.db"
        used_journal(path)
        text = said(capsys, "verify", path, "--window", "7h", code=2)
        assert "NOT COMPARED" in text
        assert max(map(len, text.splitlines()[1:])) <= 80

    def test_every_setting_can_be_given(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Default, retention, reduction and bounds are those of the snapshot."""
        path = tmp_path / "offers.db"
        with Bandit(
            policy=DelayedUCB(2, Gaussian(0.25)),
            rewards=DefaultAfter(timedelta(days=1), value=-1.0, reduce="sum", bounds=(-2, 5)),
            retention=timedelta(days=9),
            journal=SQLiteJournal(path, bandit="offers"),
        ) as bandit:
            decision = bandit.decide(rows=np.eye(2))
            bandit.observe(decision.id, 3.0)
        settings = ["--window", "24h", "--default", "-1", "--retention", "9d", "--reduce", "sum"]
        settings += ["--bounds", "-2", "5"]
        assert "1 snapshot agrees" in said(capsys, "verify", path, *settings)

    def test_what_this_release_cannot_read(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Records are compared up to the unreadable one, which is reported."""
        path = tmp_path / "offers.db"
        used_journal(path)
        with SQLiteJournal(path, bandit="offers") as journal:
            journal.import_records([Record(1, 0, 1 << 60, Opaque(bytes([99]) + b"?"))])
        text = " ".join(said(capsys, "verify", path, "--window", "6h").split())
        assert "only earlier records were compared" in text

    def test_without_an_identity_or_with_a_foreign_one(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Records are verified nevertheless."""
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
        """A long journal has a progress line on stderr, which is removed at the end."""
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
        snapshot = journal.load(0)
        assert snapshot is not None
        pieces = snapshot.pieces | {piece: change(snapshot.pieces[piece])}
        journal.save(Snapshot(0, snapshot.position, snapshot.fingerprint, pieces))


def recounted(data: bytes) -> bytes:
    """Return a ledger with one rewarded decision more and one censored decision less."""
    head = msgspec.msgpack.decode(data, strict=False)
    counts = next(part for part in head if isinstance(part, list) and len(part) == 6)
    counts[2] += 1
    counts[4] -= 1
    return msgspec.msgpack.encode(head)
