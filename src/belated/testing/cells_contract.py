"""What the cells of every store must do, as tests."""

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
    """Subclass it as ``class TestMyCells(CellsContract)`` and say how cells are opened.

    A store may hold other cells already: each test uses names of its own.
    """

    def open_cells(self, clock: ManualClock) -> Cells:
        """Open the cells of a store."""
        raise NotImplementedError

    def reopen(self, cells: Any, clock: ManualClock) -> Cells:
        """Open the same cells a second time, while the first are still open."""
        raise NotImplementedError

    def test_a_value_is_read_as_it_was_written(self) -> None:
        """Bytes and names of any kind; versions count values, and the store dates them."""
        clock, name = ManualClock(), _unique("/%\\'_x")
        with closing(self.open_cells(clock)) as cells, closing(self.reopen(cells, clock)) as other:
            assert isinstance(cells, Cells)
            assert cells.get([name]) == {}
            for version, value in enumerate([bytes(range(256)) * 9, b"", b"third"], start=1):
                outcome = cells.transact({}, {name: value})
                assert outcome.ok
                ((found, cell),) = other.get([name, name]).items()
                assert (found, cell.version, bytes(cell.value)) == (name, version, value)
                assert cell.written == outcome.now

    def test_the_time_is_that_of_the_store(self) -> None:
        """A transaction that changes nothing tells it, and it goes on."""
        clock = ManualClock()
        with closing(self.open_cells(clock)) as cells:
            first = cells.transact({}, {})
            clock.now += 1_000
            second = cells.transact({}, {})
            assert first.ok
            assert second.ok
            assert first.now < second.now

    def test_what_is_known_is_left_out(self) -> None:
        """As long as its version is the one that is known, whether that is greater or not."""
        with closing(self.open_cells(ManualClock())) as cells:
            one, two = _unique("one"), _unique("two")
            cells.transact({}, {one: b"1", two: b"2"})
            cells.transact({}, {two: b"22"})
            assert set(cells.get([one, two], {one: 1})) == {two}
            assert set(cells.get([one, two], {one: 5, two: 2})) == {one}

    def test_cells_are_found_by_prefix(self) -> None:
        """In the order of their names, and no others: a prefix is no pattern."""
        with closing(self.open_cells(ManualClock())) as cells:
            prefix = _unique("a_%")
            names = [f"{prefix}/{end}" for end in ("", "B", "_", "a", "~")]
            cells.transact({}, dict.fromkeys(reversed(names), b"x"))
            cells.transact({}, {prefix.replace("_", "x"): b"y", f"{prefix}0": b"y"})
            assert list(cells.scan(f"{prefix}/")) == names
            assert cells.scan(_unique("nothing")) == {}

    def test_nothing_changes_unless_all_is_as_expected(self) -> None:
        """Versions must be equal, and 0 is that of a cell that does not exist."""
        with closing(self.open_cells(ManualClock())) as cells:
            one, two, new = _unique("one"), _unique("two"), _unique("new")
            assert cells.transact({one: 0}, {one: b"1", two: b"1"}).ok
            before = cells.get([one, two])
            for expected in ({one: 0}, {one: 2}, {one: 1, two: 2}, {new: 1}, {one: 1, two: 0}):
                assert not cells.transact(expected, {one: b"no", new: b"no"}, [two]).ok
                assert cells.get([one, two, new]) == before
            assert cells.transact({one: 1, two: 1, new: 0}, {one: b"yes"}, [two]).ok
            assert [(name, cell.value) for name, cell in cells.get([one, two, new]).items()] == [
                (one, b"yes")
            ]

    def test_a_deleted_cell_begins_anew(self) -> None:
        """To delete one that does not exist changes nothing."""
        with closing(self.open_cells(ManualClock())) as cells:
            name = _unique("name")
            cells.transact({}, {name: b"1"})
            cells.transact({}, {name: b"2"})
            assert cells.transact({name: 2}, {}, [name, _unique("nothing")]).ok
            assert cells.get([name]) == {}
            assert cells.transact({name: 0}, {name: b"3"}).ok
            assert cells.get([name])[name].version == 1

    @pytest.mark.parametrize("expects_absent", [False, True])
    def test_of_several_at_once_one_succeeds(self, expects_absent: bool) -> None:
        """Whether a cell exists or not, each version is replaced once."""
        clock = ManualClock()
        with closing(self.open_cells(clock)) as cells:
            name, others = _unique("name"), [self.reopen(cells, clock) for _ in range(4)]
            for turn in range(10):
                if expects_absent:
                    cells.transact({}, {}, [name])
                wanted = {name: 0 if expects_absent else turn}
                won = _at_once([partial(_is_ok, one, wanted, {name: b"mine"}) for one in others])
                assert won.count(True) == 1
            for one in others:
                one.close()

    def test_what_is_expected_holds_until_the_commit(self) -> None:
        """Of two that expect the other's cell not to exist, one writes its own."""
        clock = ManualClock()
        with closing(self.open_cells(clock)) as cells, closing(self.reopen(cells, clock)) as other:
            for _ in range(10):
                one, two = _unique("one"), _unique("two")
                won = _at_once(
                    [
                        partial(_is_ok, cells, {two: 0}, {one: b"1"}),
                        partial(_is_ok, other, {one: 0}, {two: b"2"}),
                    ]
                )
                assert won.count(True) == 1

    def test_closed_cells_say_so(self) -> None:
        """Every call raises JournalClosed; closing again does nothing."""
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
    """Make calls in threads that begin together; returns what they returned."""
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
