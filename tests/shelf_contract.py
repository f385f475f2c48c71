"""Identity, owners and snapshots, as tests of any journal."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from belated.core.events import Settled, Void
from belated.exceptions import (
    InvalidInput,
    JournalClosed,
    OwnerFenced,
    SnapshotConflict,
    SnapshotWarning,
)
from belated.journals import Journal, snapshots
from belated.journals.cells import Cells, cell_name
from belated.journals.snapshots import Pieces, Snapshot
from belated.testing.clocks import ManualClock


class ShelfContract:
    """Subclass it as ``class TestMyShelf(ShelfContract)`` and say how a journal is opened.

    A shelf is beside a log, whose positions may have gaps: so its tests open whole journals.
    """

    def open_journal(self, partitions: int, clock: ManualClock) -> Journal:
        """Open a new and empty journal."""
        raise NotImplementedError

    def reopen(self, journal: Any, clock: ManualClock) -> Journal:
        """Open the same journal a second time, while the first is still open.

        Leave it as it is if a journal does not outlive its object: tests that need it are skipped.
        """
        pytest.skip("this journal does not outlive its object")

    def spoil(self, journal: Any, partition: int, piece: str) -> None:
        """Change the stored bytes of one piece of a snapshot behind the journal's back."""
        spoil_piece(cells_of(journal), journal.bandit, partition, piece)

    # --- identity ---------------------------------------------------------------------------

    def test_the_first_identity_stays(self) -> None:
        """A second one is answered with the first, until it is replaced on purpose."""
        first, second = {"family": "Bernoulli", "dim": "8"}, {"family": "Poisson é"}
        with self.open_journal(1, ManualClock()) as journal:
            assert journal.identify(first) == first
            assert journal.identify(second) == first
            journal.reidentify(second)
            assert journal.identify(first) == second

    # --- owners -----------------------------------------------------------------------------

    def test_an_owner_who_was_superseded_cannot_save(self) -> None:
        """Until it acquires the partition anew; what its successor saved is as it was."""
        clock = ManualClock()
        with (
            self.open_journal(1, clock) as first_owner,
            self.reopen(first_owner, clock) as second_owner,
        ):
            first = first_owner.acquire(0)
            first_owner.save(Snapshot(0, 0, "v1", {"ledger": b"of one"}))
            second = second_owner.acquire(0)
            assert second > first
            snapshot = Snapshot(0, 0, "v1", {"ledger": b"of other"})
            second_owner.save(snapshot)
            with pytest.raises(OwnerFenced):
                first_owner.save(Snapshot(0, 0, "v1", {"ledger": b"too late"}))
            assert first_owner.load(0) == snapshot
            assert first_owner.acquire(0) > second
            first_owner.save(Snapshot(0, 0, "v1", {"ledger": b"of one again"}))
            with pytest.raises(OwnerFenced):
                second_owner.save(snapshot)

    def test_partitions_have_owners_of_their_own(self) -> None:
        """Who loses one can still save the others; who owns none saves as it likes."""
        clock = ManualClock()
        with self.open_journal(2, clock) as first, self.reopen(first, clock) as second:
            first.acquire(0)
            first.acquire(1)
            second.acquire(0)
            snapshot = Snapshot(1, 0, "v1", {"ledger": b"1"})
            first.save(snapshot)
            with self.reopen(first, clock) as third:
                assert third.load(1) == snapshot
                replacement = Snapshot(0, 0, "v1", {"ledger": b"of a third"})
                third.save(replacement)
            assert second.load(0) == replacement

    # --- snapshots --------------------------------------------------------------------------

    def test_a_snapshot_comes_back_whole(self) -> None:
        """Each partition has its own; names and bytes of any kind survive."""
        pieces = {"ledger": bytes(range(256)), "block é/0": b"", "large": b"x" * 100_000}
        with self.open_journal(2, ManualClock()) as journal:
            journal.append([Settled(0, 1), Settled(0, 2), Settled(1, 1)])
            snapshot = Snapshot(0, journal.end(0), "v1", pieces)
            journal.save(snapshot)
            assert journal.load(0) == snapshot
            assert journal.load(1) is None
            empty = Snapshot(1, 0, "", {})
            journal.save(empty)
            assert (journal.load(0), journal.load(1)) == (snapshot, empty)

    def test_a_snapshot_replaces_the_last(self) -> None:
        """Pieces that are neither given nor kept are gone; kept ones are as they were."""
        with self.open_journal(1, ManualClock()) as journal:
            first, second, third = journal.append([Void("a", 1), Void("b", 1), Void("c", 1)])
            journal.save(Snapshot(0, first, "v1", {"block 0": b"00", "ledger": b"1", "old": b"-"}))
            names = frozenset({"block 0"})
            journal.save(Snapshot(0, second, "v2", {"block 1": b"11", "ledger": b"2"}, names))
            expected = {"block 0": b"00", "block 1": b"11", "ledger": b"2"}
            assert journal.load(0) == Snapshot(0, second, "v2", expected)
            names = frozenset({"block 0", "block 1"})
            journal.save(Snapshot(0, third, "v2", {}, names))
            expected = {"block 0": b"00", "block 1": b"11"}
            assert journal.load(0) == Snapshot(0, third, "v2", expected)

    def test_pieces_of_a_save_that_was_cut_off_do_not_stay(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Large snapshots are written in several transactions; the next save removes the rest."""
        monkeypatch.setattr(snapshots, "BATCH", 10)
        with self.open_journal(1, ManualClock()) as journal:
            (position,) = journal.append([Void("a", 1)])
            cells = cells_of(journal)
            pieces = cell_name("snapshot-piece", journal.bandit, "")
            blocks = {f"block {n}": bytes([n]) * 8 for n in range(4)}
            journal.save(Snapshot(0, position, "v1", blocks))
            stored = {*cells.scan(pieces)}
            assert len(stored) == 4
            changed = {name: data + b"!" for name, data in blocks.items()}
            with monkeypatch.context() as patch:
                patch.setattr(Pieces, "write", write_some)
                with pytest.raises(KeyboardInterrupt):
                    journal.save(Snapshot(0, position, "v1", changed))
            assert {*cells.scan(pieces)} > stored
            assert journal.load(0) == Snapshot(0, position, "v1", blocks)
            journal.save(Snapshot(0, position, "v1", {}, frozenset({"block 0"})))
            assert len(cells.scan(pieces)) == 1
            assert journal.load(0) == Snapshot(0, position, "v1", {"block 0": blocks["block 0"]})

    def test_a_piece_that_is_not_there_cannot_be_kept(self) -> None:
        """The error names it, and the stored snapshot is as before."""
        with self.open_journal(1, ManualClock()) as journal:
            journal.append([Void("a", 1)])
            with pytest.raises(SnapshotConflict):
                journal.save(Snapshot(0, 1, "v1", {}, frozenset({"block 0"})))
            snapshot = Snapshot(0, journal.end(0), "v1", {"block 0": b"0"})
            journal.save(snapshot)
            with pytest.raises(SnapshotConflict) as error:
                journal.save(Snapshot(0, 1, "v1", {}, frozenset({"block 0", "block 9"})))
            assert error.value.names == ["block 9"]
            assert journal.load(0) == snapshot

    def test_a_piece_is_given_or_kept_not_both(self) -> None:
        """Which of the two was meant is not guessed."""
        with self.open_journal(1, ManualClock()) as journal:
            journal.append([Void("a", 1)])
            journal.save(Snapshot(0, 1, "v1", {"block 0": b"0"}))
            with pytest.raises(InvalidInput, match="both"):
                journal.save(Snapshot(0, 1, "v1", {"block 0": b"1"}, frozenset({"block 0"})))

    def test_a_snapshot_behind_the_stored_one_is_ignored(self) -> None:
        """The one that was further stays; one of the same position replaces it."""
        with self.open_journal(1, ManualClock()) as journal:
            first, second = journal.append([Void("a", 1), Void("b", 1)])
            newer = Snapshot(0, second, "v1", {"ledger": b"2"})
            journal.save(newer)
            journal.save(Snapshot(0, first, "v1", {"ledger": b"1"}))
            assert journal.load(0) == newer
            replacement = Snapshot(0, second, "v2", {"ledger": b"two"})
            journal.save(replacement)
            assert journal.load(0) == replacement

    def test_a_snapshot_of_what_is_not_there_is_refused(self) -> None:
        """A position beyond the end would pass over records to come."""
        with self.open_journal(1, ManualClock()) as journal:
            journal.append([Void("a", 1)])
            for position in (journal.end(0) + 1, -1):
                with pytest.raises(InvalidInput):
                    journal.save(Snapshot(0, position, "v1", {}))
            with pytest.raises(InvalidInput):
                journal.save(Snapshot(1, 0, "v1", {}))
            assert journal.load(0) is None

    def test_a_damaged_snapshot_is_discarded_with_a_warning(self) -> None:
        """It is as if it had never been: none is loaded, and a younger one can be saved."""
        with self.open_journal(1, ManualClock()) as journal:
            first, second = journal.append([Void("a", 1), Void("b", 1)])
            journal.save(Snapshot(0, second, "v1", {"block 0": b"00", "ledger": b"2"}))
            self.spoil(journal, 0, "block 0")
            with pytest.warns(SnapshotWarning, match="block 0"):
                assert journal.load(0) is None
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert journal.load(0) is None
            with pytest.raises(SnapshotConflict):
                journal.save(Snapshot(0, first, "v1", {}, frozenset({"block 0"})))
            snapshot = Snapshot(0, first, "v1", {"block 0": b"0", "ledger": b"1"})
            journal.save(snapshot)
            assert journal.load(0) == snapshot

    @pytest.mark.parametrize(
        "how", ["piece gone", "all gone", "moved", "of another", "resealed", "torn"]
    )
    def test_a_snapshot_that_is_not_whole_is_discarded(self, how: str) -> None:
        """None is loaded, nothing is left, and a new one can be saved."""
        with self.open_journal(1, ManualClock()) as journal:
            (first, second) = journal.append([Void("a", 1), Void("b", 1)])
            journal.save(Snapshot(0, second, "v1", {"block 0": b"00", "ledger": b"3"}))
            break_snapshot(cells_of(journal), journal.bandit, how, first)
            with pytest.warns(SnapshotWarning, match="partition 0"):
                assert journal.load(0) is None
            assert cells_of(journal).scan(cell_name("snapshot-piece", journal.bandit, "")) == {}
            journal.save(Snapshot(0, first, "v1", {"ledger": b"1"}))
            assert journal.load(0) == Snapshot(0, first, "v1", {"ledger": b"1"})

    def test_a_piece_another_has_replaced_cannot_be_kept(self) -> None:
        """The same name with other bytes would make a snapshot that never was."""
        clock = ManualClock()
        with self.open_journal(1, clock) as first, self.reopen(first, clock) as second:
            (position,) = first.append([Void("a", 1)])
            first.save(Snapshot(0, position, "v1", {"block 0": b"of one", "ledger": b"1"}))
            second.save(Snapshot(0, position, "v1", {"block 0": b"of other", "ledger": b"1"}))
            with pytest.raises(SnapshotConflict) as error:
                first.save(Snapshot(0, position, "v1", {}, frozenset({"block 0", "ledger"})))
            assert error.value.names == ["block 0"]
            second.save(Snapshot(0, position, "v1", {}, frozenset({"block 0"})))
            snapshot = first.load(0)
            assert snapshot == Snapshot(0, position, "v1", {"block 0": b"of other"})
            first.save(Snapshot(0, position, "v1", {}, frozenset({"block 0"})))

    def test_what_one_saves_the_other_loads(self) -> None:
        """Two objects on one journal see each other's identity and snapshots."""
        clock = ManualClock()
        with self.open_journal(2, clock) as first, self.reopen(first, clock) as second:
            first.append([Settled(0, 1), Settled(0, 2)])
            first.identify({"dim": "8"})
            assert second.identify({"dim": "9"}) == {"dim": "8"}
            snapshot = Snapshot(0, first.end(0), "v1", {"ledger": b"2"})
            first.save(snapshot)
            assert (first.load(0), second.load(0)) == (snapshot, snapshot)

    def test_a_closed_shelf_says_so(self) -> None:
        """Every call raises JournalClosed."""
        journal = self.open_journal(1, ManualClock())
        journal.close()
        calls: list[Callable[[], object]] = [
            lambda: journal.identify({}),
            lambda: journal.reidentify({}),
            lambda: journal.acquire(0),
            lambda: journal.save(Snapshot(0, 0, "", {})),
            lambda: journal.load(0),
        ]
        for call in calls:
            with pytest.raises(JournalClosed):
                call()


def write_some(pieces: Pieces, partition: int, given: dict[bytes, bytes]) -> None:
    """Write a piece, then the process ends."""
    name, data = next(iter(given.items()))
    assert pieces._cells.transact({}, {pieces._piece(partition, name): data}).ok
    raise KeyboardInterrupt


def spoil_piece(
    cells: Cells, bandit: str, partition: int, piece: str, kind: str = "snapshot"
) -> None:
    """Add a byte to a stored piece of a snapshot, or of a base."""
    contents = Pieces(cells, kind, bandit).stored(partition).contents  # type: ignore[arg-type]
    assert contents is not None
    name = cell_name(f"{kind}-piece", bandit, partition, contents.checksums[piece].hex())
    assert cells.transact({}, {name: cells.get([name])[name].value + b"!"}).ok


def break_snapshot(cells: Cells, bandit: str, how: str, position: int) -> None:
    """Damage the snapshot of a bandit of one partition in some way."""
    head, pieces = cell_name("snapshot", bandit, 0), cell_name("snapshot-piece", bandit, 0, "")
    contents = Pieces(cells, "snapshot", bandit).stored(0).contents
    assert contents is not None
    names = [*cells.scan(pieces)]
    if how.endswith("gone"):
        assert cells.transact({}, {}, names[:1] if how == "piece gone" else names).ok
        return
    changes: dict[str, dict[str, Any]] = {
        "moved": {"position": position},
        "of another": {"fingerprint": "v2"},
        "resealed": {"seal": b""},
        "torn": {},
    }
    data = msgspec.msgpack.encode(msgspec.structs.replace(contents, **changes[how]))
    assert cells.transact({}, {head: data[:-1] if how == "torn" else data}).ok


def cells_of(journal: Any) -> Cells:
    """Return the cells of a journal, or of the one behind it."""
    cells: Cells = getattr(journal, "_journal", journal).cells
    return cells
