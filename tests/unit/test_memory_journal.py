from belated.events import Void
from belated.journals import Journal, MemoryJournal, Snapshot
from belated.testing import JournalContract, ManualClock


class TestMemoryJournal(JournalContract):
    """The contract, on the journal in memory."""

    def open_journal(self, partitions: int, clock: ManualClock) -> Journal:
        """A new one."""
        return MemoryJournal(partitions=partitions, clock=clock)

    def spoil(self, journal: Journal, partition: int, piece: str) -> None:
        """Change a byte where the journal keeps it."""
        assert isinstance(journal, MemoryJournal)
        journal._snapshots[partition].snapshot.pieces[piece] += b"!"

    def test_the_clock_is_the_systems_unless_given(self) -> None:
        """Stamps are microseconds since 1970: after 2020, before 2100."""
        journal = MemoryJournal()
        journal.append([Void("a", 1)])
        assert 1_577_836_800_000_000 < journal.last_stamp(0) < 4_102_444_800_000_000

    def test_a_loaded_snapshot_can_be_changed_without_harm(self) -> None:
        """Its dictionary of pieces is a copy."""
        journal = MemoryJournal()
        journal.save(Snapshot(0, 0, "v1", {"ledger": b"0"}))
        first = journal.load(0)
        assert first is not None
        first.pieces.clear()
        assert journal.load(0) == Snapshot(0, 0, "v1", {"ledger": b"0"})
