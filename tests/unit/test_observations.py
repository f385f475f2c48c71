import math
from typing import Any

import numpy as np
import pytest

from belated.core.inputs import Matrix, Vector
from belated.exceptions import InvalidInput, UnknownHandle
from belated.model.statistics import Observations
from belated.model.statistics.observations import BLOCK


def _data(n: int, dim: int, seed: int = 0) -> tuple[Matrix, Vector]:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, dim)).astype(np.float32).astype(np.float64)
    return rows, rng.normal(size=n)


def _contents(seen: Observations) -> list[tuple[list[float], float]]:
    """What is counted, row by row, in order."""
    counted = []
    for rows, y, which in seen.chunks(7):
        for i in range(len(rows)):
            if which is None or which[i]:
                counted.append((rows[i].tolist(), float(y[i])))
    return counted


def _filled(n: int, dim: int = 2, seed: int = 0) -> tuple[Observations, list[int], Matrix, Vector]:
    seen = Observations(dim)
    rows, y = _data(n, dim, seed)
    return seen, seen.extend(rows, y), rows, y


def test_handles_find_their_rows_across_blocks() -> None:
    """With more rows than a block holds, every handle is different and gives its own row."""
    n = 2 * BLOCK + 1_000
    rows = np.arange(n, dtype=np.float64)[:, None]
    seen = Observations(1)
    handles = [seen.add(rows[0], 0.0), *seen.extend(rows[1:], -rows[1:, 0])]
    handles.append(seen.add([float(n)], -float(n)))
    assert seen.n == len(set(handles)) == n + 1
    for i in (0, 1, 63, 64, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK - 1, 2 * BLOCK, n - 1, n):
        x, y = seen.get(handles[i])
        assert (x.tolist(), y) == ([float(i)], -float(i))


@pytest.mark.parametrize("size", [1, 1_000, BLOCK, 10 * BLOCK])
def test_chunks_hold_every_row_once(size: int) -> None:
    """In order, in float64, at most ``size`` at a time, also beyond one block."""
    n = BLOCK + 10 if size > 1 else 10
    seen = Observations(1)
    seen.extend(np.arange(n)[:, None], np.arange(n))
    found: list[float] = []
    for rows, y, counted in seen.chunks(size):
        assert counted is None
        assert rows.dtype == np.float64
        assert 0 < len(rows) <= size
        assert rows[:, 0].tolist() == y.tolist()
        found += y.tolist()
    assert found == list(range(n))


def test_chunks_tell_which_rows_count() -> None:
    """A removed row is marked, or left out by what it says, not by its place."""
    seen, handles, rows, y = _filled(20)
    for i in (0, 3, 19):
        seen.remove(handles[i])
    left = [i for i in range(20) if i not in (0, 3, 19)]
    assert _contents(seen) == [(rows[i].tolist(), float(y[i])) for i in left]
    assert seen.n == 17


def test_a_revision_returns_the_reward_before() -> None:
    """The new reward is what is got, summed and chunked from then on."""
    seen, handles, rows, y = _filled(5)
    assert seen.revise(handles[2], 7.0) == y[2]
    assert seen.revise(handles[2], 8.0) == 7.0
    assert seen.get(handles[2])[1] == 8.0
    assert seen.n == 5
    y[2] = 8.0
    assert _contents(seen) == [(x.tolist(), r) for x, r in zip(rows, y.tolist(), strict=True)]


@pytest.mark.parametrize("verb", ["get", "remove", "revise"])
@pytest.mark.parametrize("handle", [-1, 3, BLOCK, 5 << 16, 2**70])
def test_a_handle_that_was_never_given_is_unknown(verb: str, handle: int) -> None:
    """The error carries the handle, and nothing is changed."""
    seen, handles, _, _ = _filled(3)
    before = _contents(seen)
    arguments = (handle, 1.0) if verb == "revise" else (handle,)
    with pytest.raises(UnknownHandle) as caught:
        getattr(seen, verb)(*arguments)
    assert caught.value.handle == handle
    assert handles == [0, 1, 2]
    assert (_contents(seen), seen.n) == (before, 3)


def test_a_removed_handle_is_unknown() -> None:
    """It cannot be got, revised or removed again, and its number is not given anew."""
    seen, handles, _, _ = _filled(2)
    seen.remove(handles[1])
    for use in (seen.get, seen.remove, lambda handle: seen.revise(handle, 1.0)):
        with pytest.raises(UnknownHandle):
            use(handles[1])
    assert seen.n == 1
    assert seen.add([1.0, 1.0], 1.0) not in handles


def test_moments_are_of_what_is_counted() -> None:
    """Removed rows are in none of the sums."""
    seen, handles, rows, y = _filled(40, dim=3)
    for handle in handles[::3]:
        seen.remove(handle)
    kept = np.arange(40) % 3 != 0
    moments = seen.moments()
    assert moments.n == kept.sum() == seen.n
    np.testing.assert_allclose(moments.gram, rows[kept].T @ rows[kept], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(moments.cross, y[kept] @ rows[kept], rtol=1e-12, atol=1e-13)
    assert Observations(3).moments().n == 0


def test_a_merge_holds_both_under_shifted_handles() -> None:
    """Handles on the left stay, those on the right move by next_block; removed ones stay so."""
    a, of_a, rows_a, y_a = _filled(BLOCK + 3, seed=1)
    b, of_b, rows_b, y_b = _filled(5, seed=2)
    b.remove(of_b[4])
    shift = a.next_block
    merged = a + b
    assert merged.n == BLOCK + 7
    for i in (0, BLOCK, BLOCK + 2):
        x, y = merged.get(of_a[i])
        assert (x.tolist(), y) == (rows_a[i].tolist(), y_a[i])
    for i in range(4):
        x, y = merged.get(shift + of_b[i])
        assert (x.tolist(), y) == (rows_b[i].tolist(), y_b[i])
    with pytest.raises(UnknownHandle):
        merged.get(shift + of_b[4])


@pytest.mark.parametrize("which", ["left", "right", "merged"])
@pytest.mark.parametrize("verb", ["revise", "remove", "add", "extend"])
def test_a_merge_and_its_parts_do_not_share_changes(which: str, verb: str) -> None:
    """Changing one of three stores in any way leaves the other two as they are."""
    left, of_left, _, _ = _filled(5, seed=1)
    right, of_right, _, _ = _filled(6, seed=2)
    merged = left + right
    handles = [*of_left, *(left.next_block + handle for handle in of_right)]
    stores = {"left": (left, of_left), "right": (right, of_right), "merged": (merged, handles)}
    changed, mine = stores.pop(which)
    others = [(store, _contents(store), store.n) for store, _ in stores.values()]
    before = _contents(changed)
    for k in range(3):
        if verb == "revise":
            changed.revise(mine[-1 - k], 99.0)
        elif verb == "remove":
            changed.remove(mine[k])
        elif verb == "add":
            changed.add([float(k), 9.0], 9.0)
        else:
            changed.extend(np.full((100, 2), 7.0), np.full(100, 7.0))
    assert _contents(changed) != before
    for store, contents, n in others:
        assert (_contents(store), store.n) == (contents, n)


def test_merging_with_nothing_changes_nothing() -> None:
    """An empty store is the identity, on either side."""
    seen, _, _, _ = _filled(5)
    assert _contents(seen + Observations(2)) == _contents(seen) == _contents(Observations(2) + seen)
    with pytest.raises(InvalidInput, match="cannot merge"):
        seen + Observations(3)


def test_refused_observations_leave_the_store_as_it_was() -> None:
    """Bad rows and rewards raise InvalidInput before anything is taken."""
    seen, handles, _, _ = _filled(3)
    before = _contents(seen)
    good = [[1.0, 2.0]] * 3
    attempts: list[tuple[Any, ...]] = [
        *((seen.add, [1.0, math.nan], 1.0), (seen.add, [1.0], 1.0), (seen.add, [1.0, 2.0], None)),
        *((seen.extend, good, [1.0, math.inf, 0.0]), (seen.extend, good, [1.0])),
        *((seen.extend, [*good, [1e9, 0.0]], [0.0] * 4), (seen.revise, handles[0], math.nan)),
    ]
    for verb, *arguments in attempts:
        with pytest.raises(InvalidInput):
            verb(*arguments)
    assert (_contents(seen), seen.n, seen.add([0.0, 0.0], 0.0)) == (before, 3, 3)
