"""Contract tests for cells."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from belated.exceptions import JournalClosed
from belated.journals.cells import Cells
from belated.testing.clocks import ManualClock


class CellsContract:
    """Tests for cells: subclass as ``class TestMyCells(CellsContract)``, and define both methods.

    The store may contain other cells, because each test uses unique names.
    """

    def open_cells(self, clock: ManualClock) -> Cells:
        """Open the cells of a store."""
        raise NotImplementedError

    def reopen(self, cells: Any, clock: ManualClock) -> Cells:
        """Open the same cells a second time while ``cells`` is still open."""
        raise NotImplementedError

    def test_values_round_trip(self) -> None:
        """Any bytes and names round-trip; versions count writes, and the store sets the time."""
        clock, name = ManualClock(), _unique("/%\\'_x")
        with closing(self.open_cells(clock)) as cells, closing(self.reopen(cells, clock)) as second:
            assert isinstance(cells, Cells)
            assert cells.get([name]) == {}
            for version, value in enumerate([bytes(range(256)) * 9, b"", b"third"], start=1):
                outcome = cells.transact({}, {name: value})
                assert outcome.ok
                ((stored_name, cell),) = second.get([name, name]).items()
                assert (stored_name, cell.version, bytes(cell.value)) == (name, version, value)
                assert cell.written == outcome.now

    def test_transactions_return_the_store_time(self) -> None:
        """An empty transaction returns the time of the store's clock, which advances."""
        clock = ManualClock()
        with closing(self.open_cells(clock)) as cells:
            first = cells.transact({}, {})
            clock.now += 1_000
            second = cells.transact({}, {})
            assert first.ok
            assert second.ok
            assert first.now < second.now

    def test_get_omits_known_versions(self) -> None:
        """Only cells whose version equals the known version are omitted."""
        with closing(self.open_cells(ManualClock())) as cells:
            first, second = _unique("first"), _unique("second")
            cells.transact({}, {first: b"1", second: b"2"})
            cells.transact({}, {second: b"22"})
            assert set(cells.get([first, second], {first: 1})) == {second}
            assert set(cells.get([first, second], {first: 5, second: 2})) == {first}

    def test_scan_returns_cells_by_prefix(self) -> None:
        """Cells are ordered by name; wildcards in a prefix are treated as literal characters."""
        with closing(self.open_cells(ManualClock())) as cells:
            prefix = _unique("a_%")
            names = [f"{prefix}/{end}" for end in ("", "B", "_", "a", "~")]
            cells.transact({}, dict.fromkeys(reversed(names), b"x"))
            cells.transact({}, {prefix.replace("_", "x"): b"y", f"{prefix}0": b"y"})
            assert list(cells.scan(f"{prefix}/")) == names
            assert cells.scan(_unique("nothing")) == {}

    def test_version_mismatch_aborts_the_transaction(self) -> None:
        """All versions must match; version 0 means that the cell does not exist."""
        with closing(self.open_cells(ManualClock())) as cells:
            first, second, new = _unique("one"), _unique("two"), _unique("new")
            assert cells.transact({first: 0}, {first: b"1", second: b"1"}).ok
            before = cells.get([first, second])
            for expected in (
                {first: 0},
                {first: 2},
                {first: 1, second: 2},
                {new: 1},
                {first: 1, second: 0},
            ):
                assert not cells.transact(expected, {first: b"no", new: b"no"}, [second]).ok
                assert cells.get([first, second, new]) == before
            assert cells.transact({first: 1, second: 1, new: 0}, {first: b"yes"}, [second]).ok
            assert [
                (name, cell.value) for name, cell in cells.get([first, second, new]).items()
            ] == [(first, b"yes")]

    def test_deleted_cell_restarts_versions(self) -> None:
        """Versions start at 1 again; deleting a missing cell changes nothing."""
        with closing(self.open_cells(ManualClock())) as cells:
            name = _unique("name")
            cells.transact({}, {name: b"1"})
            cells.transact({}, {name: b"2"})
            assert cells.transact({name: 2}, {}, [name, _unique("nothing")]).ok
            assert cells.get([name]) == {}
            assert cells.transact({name: 0}, {name: b"3"}).ok
            assert cells.get([name])[name].version == 1

    @pytest.mark.parametrize("expects_absent", [False, True])
    def test_one_of_concurrent_transactions_commits(self, expects_absent: bool) -> None:
        """If transactions expect the same version or a missing cell, exactly one commits."""
        clock = ManualClock()
        with closing(self.open_cells(clock)) as cells:
            name, instances = _unique("name"), [self.reopen(cells, clock) for _ in range(4)]
            for turn in range(10):
                if expects_absent:
                    cells.transact({}, {}, [name])
                expected = {name: 0 if expects_absent else turn}
                won = _at_once(
                    [partial(_is_ok, instance, expected, {name: b"mine"}) for instance in instances]
                )
                assert won.count(True) == 1
            for instance in instances:
                instance.close()

    def test_write_skew_is_prevented(self) -> None:
        """If two transactions each expect the other's cell to be missing, only one commits."""
        clock = ManualClock()
        with (
            closing(self.open_cells(clock)) as cells,
            closing(self.reopen(cells, clock)) as other_cells,
        ):
            for _ in range(10):
                first, second = _unique("first"), _unique("second")
                won = _at_once(
                    [
                        partial(_is_ok, cells, {second: 0}, {first: b"1"}),
                        partial(_is_ok, other_cells, {first: 0}, {second: b"2"}),
                    ]
                )
                assert won.count(True) == 1

    def test_closed_cells_raise(self) -> None:
        """Every call raises JournalClosed; closing twice is allowed."""
        cells = self.open_cells(ManualClock())
        cells.close()
        cells.close()
        calls: list[Callable[[], object]] = [
            lambda: cells.get(["a"]),
            lambda: cells.scan("a"),
            lambda: cells.transact({}, {"a": b""}),
        ]
        for call in calls:
            with pytest.raises(JournalClosed):
                call()


def _unique(text: str) -> str:
    return f"test/{secrets.token_hex(8)}/{text}"


def _is_ok(cells: Cells, expected: dict[str, int], puts: dict[str, bytes]) -> bool:
    return cells.transact(expected, puts).ok


def _at_once(calls: list[Callable[[], bool]]) -> list[bool]:
    """Make calls in concurrent threads; return their results."""
    start, results = threading.Barrier(len(calls)), [False] * len(calls)

    def make(n: int) -> None:
        start.wait()
        results[n] = calls[n]()

    threads = [threading.Thread(target=make, args=(n,)) for n in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
