"""Snapshots of a Kafka journal as files, in a folder or an object store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from belated.core.events import Settled
from belated.exceptions import JournalMismatch, JournalUnavailable, OwnerFenced, SnapshotWarning
from belated.journals import KafkaJournal
from belated.journals.kafka.piece_files import PieceFiles
from belated.journals.snapshots import Snapshot, checksum
from belated.testing import ManualClock
from tests.integration.kafka_server import KafkaCluster
from tests.integration.object_store import object_store
from tests.shelf_contract import ShelfContract


class TestFiles(ShelfContract):
    """The contract of shelves."""

    @pytest.fixture(autouse=True)
    def _names(self, kafka: KafkaCluster, dsn: str, bandit: str, tmp_path: Path) -> None:
        self.brokers, self.dsn, self.folder = kafka.address, dsn, tmp_path
        self.names = (f"{bandit}.{n}" for n in count())

    def open_journal(self, partitions: int, clock: ManualClock) -> Any:
        """Open a journal with a new name."""
        return self._open(next(self.names), partitions, clock)

    def reopen(self, journal: KafkaJournal, clock: ManualClock) -> Any:
        """Open it again over new connections."""
        return self._open(journal.bandit, None, clock)

    def _open(self, bandit: str, partitions: int | None, clock: ManualClock) -> KafkaJournal:
        journal = KafkaJournal(
            self.brokers, shelf=self.dsn, bandit=bandit, partitions=partitions, copies=1,
            snapshots=str(self.folder),
        )  # fmt: skip
        journal._clock = clock
        return journal

    # Both look at cells, and pieces are files here; tests of files are below.
    test_a_snapshot_that_is_not_whole_is_discarded = None  # type: ignore[assignment]
    test_pieces_of_a_save_that_was_cut_off_do_not_stay = None  # type: ignore[assignment]

    def spoil(self, journal: KafkaJournal, partition: int, piece: str) -> None:
        """Damage a file."""
        file_name = journal._known[partition][piece].hex()
        (path,) = self.folder.rglob(file_name)
        path.write_bytes(path.read_bytes() + b"\0")


@pytest.fixture(params=["folder", "object store"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The location of the files."""
    if request.param == "folder":
        yield str(tmp_path)
        return
    with object_store(monkeypatch) as bucket:
        yield f"{bucket}/snapshots"


def opened(kafka: KafkaCluster, dsn: str, bandit: str, place: str | None) -> KafkaJournal:
    """Return a journal with its snapshots at a location, or in PostgreSQL if None."""
    return KafkaJournal(kafka.address, shelf=dsn, bandit=bandit, copies=1, snapshots=place)


def files_of(journal: KafkaJournal) -> PieceFiles:
    """Return the files of its snapshots."""
    assert isinstance(journal._snapshots, PieceFiles)
    return journal._snapshots


def test_the_owner_saves_files_and_removes_old_ones(
    kafka: KafkaCluster, dsn: str, bandit: str, place: str
) -> None:
    """A fenced owner neither writes nor removes files."""
    with opened(kafka, dsn, bandit, place) as first, opened(kafka, dsn, bandit, place) as second:
        (position,) = first.append([Settled(0, 1)])
        first.acquire(0)
        first.save(Snapshot(0, position, "v1", {"block": b"long", "ledger": b"one"}))
        first.save(Snapshot(0, position, "v1", {"ledger": b"two"}, kept=frozenset({"block"})))
        assert len(files_of(first).files(0)) == 2
        second.acquire(0)
        assert second.load(0) == Snapshot(0, position, "v1", {"block": b"long", "ledger": b"two"})
        with pytest.raises(OwnerFenced):
            first.save(Snapshot(0, position, "v1", {"ledger": b"three"}, kept=frozenset({"block"})))
        assert len(files_of(first).files(0)) == 2
        assert second.load(0) == Snapshot(0, position, "v1", {"block": b"long", "ledger": b"two"})
        second.save(Snapshot(0, position, "v1", {"ledger": b"four"}, kept=frozenset({"block"})))
        assert len(files_of(first).files(0)) == 2
    with (
        pytest.raises(JournalMismatch, match="snapshots="),
        opened(kafka, dsn, bandit, None) as journal,
    ):
        journal.load(0)


def test_a_file_that_is_gone_is_a_snapshot_that_is_discarded(
    kafka: KafkaCluster, dsn: str, bandit: str, place: str
) -> None:
    """The partition is read from its beginning instead."""
    with opened(kafka, dsn, bandit, place) as journal:
        (position,) = journal.append([Settled(0, 1)])
        journal.save(Snapshot(0, position, "v1", {"ledger": b"one"}))
        for name in files_of(journal).files(0):
            files_of(journal)._folder.remove(name)
        with pytest.warns(SnapshotWarning, match="ledger"):
            assert journal.load(0) is None


def test_an_owner_who_loads_while_another_saves_gets_the_later_one(
    kafka: KafkaCluster, dsn: str, bandit: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of the earlier one no longer exist when they are read."""
    with opened(kafka, dsn, bandit, place) as first, opened(kafka, dsn, bandit, place) as second:
        (position,) = first.append([Settled(0, 1)])
        first.acquire(0)
        first.save(Snapshot(0, position, "v1", {"ledger": b"one"}))
        files = files_of(second)
        read_files = files.read

        def late(partition: int, named: Iterable[bytes]) -> dict[bytes, bytes]:
            if checksum(b"one") in named:
                first.save(Snapshot(0, position, "v1", {"ledger": b"two"}))
            return read_files(partition, named)

        monkeypatch.setattr(files, "read", late)
        assert second.load(0) == Snapshot(0, position, "v1", {"ledger": b"two"})


def test_a_place_that_cannot_be_written_to_is_unavailable(
    kafka: KafkaCluster, dsn: str, bandit: str, tmp_path: Path
) -> None:
    """No snapshot is reported as saved."""
    (tmp_path / "file").write_bytes(b"")
    with opened(kafka, dsn, bandit, str(tmp_path / "file")) as journal:
        (position,) = journal.append([Settled(0, 1)])
        with pytest.raises(JournalUnavailable, match="file"):
            journal.save(Snapshot(0, position, "v1", {"ledger": b"one"}))
        assert journal.load(0) is None
