import threading

import pytest

from belated.core.events import Trimmed, Void
from belated.journals import Journal, MemoryJournal, MemoryStore
from belated.journals.memory import MemoryCells
from belated.journals.snapshots import Snapshot
from belated.testing import CellsContract, JournalContract, ManualClock, StoreContract
from tests.shelf_contract import ShelfContract


class TestMemoryJournal(JournalContract, ShelfContract):
    """The contract, on the journal in memory."""

    def open_journal(self, partitions: int, clock: ManualClock) -> Journal:
        """In a store of its own."""
        self.store = MemoryStore(clock=clock)
        return self.store.journal("b", partitions=partitions)

    def reopen(self, journal: Journal, clock: ManualClock) -> Journal:
        """Another one on the same facts."""
        return self.store.journal("b")

    def test_the_clock_is_the_systems_unless_given(self) -> None:
        """Stamps are microseconds since 1970: after 2020, before 2100."""
        journal = MemoryJournal()
        journal.append([Void("a", 1)])
        assert 1_577_836_800_000_000 < journal.last_stamp(0) < 4_102_444_800_000_000

    def test_a_loaded_snapshot_can_be_changed_without_harm(self) -> None:
        """Its dictionary of pieces is a copy."""
        journal = MemoryJournal()
        journal.save(Snapshot(0, 0, "v1", {"ledger": b"0"}))
        snapshot = journal.load(0)
        assert snapshot is not None
        snapshot.pieces.clear()
        assert journal.load(0) == Snapshot(0, 0, "v1", {"ledger": b"0"})


class TestMemoryCells(CellsContract):
    """The contract, on the memory of this process."""

    def open_cells(self, clock: ManualClock) -> MemoryCells:
        """New ones."""
        return MemoryCells(clock)

    def reopen(self, cells: MemoryCells, clock: ManualClock) -> MemoryCells:
        """Another object with the same cells."""
        return cells.share()


class TestMemoryStore(StoreContract):
    """The contract, on the memory of this process."""

    def make_store(self) -> MemoryStore:
        """A new one."""
        return MemoryStore()


def test_threads_may_share_a_store() -> None:
    """Each event gets a position of its own, and look-ups find all."""
    store = MemoryStore()
    positions: list[int] = []

    def write(number: int) -> None:
        journal = store.journal("b", partitions=1)
        for n in range(500):
            positions.extend(journal.append([Void(f"{number}", n)]))
            if n % 50 == 0:
                assert len(journal.records_of([f"{number}"])) == n + 1

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(positions) == list(range(1, 2001))
    assert len(store.journal("b").records_of([f"{number}" for number in range(4)])) == 2000


def test_records_that_are_dropped_meanwhile_shift_no_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever reads beyond what may be dropped gets the next records, whenever the drop comes."""
    journal = MemoryJournal()
    journal.append([Void(f"{n}", n) for n in range(20)])
    journal.save(Snapshot(0, 20, "v1", {}))
    journal.rebase(Snapshot(0, 10, "v1", {}), Trimmed(0, 1, 10, 1), 0)
    check, dropping = (
        MemoryJournal._check_kept,
        threading.Thread(target=lambda: journal.drop(0, 10)),
    )

    def interrupted(self: MemoryJournal, partition: int, after: int) -> int:
        records = check(self, partition, after)
        dropping.start()
        dropping.join(0.2)  # it must wait for the reader
        return records

    with monkeypatch.context() as patch:
        patch.setattr(MemoryJournal, "_check_kept", interrupted)
        assert [record.position for record in journal.read(0, 12, 3)] == [13, 14, 15]
    dropping.join()
    assert [record.position for record in journal.read(0, 12, 3)] == [13, 14, 15]
