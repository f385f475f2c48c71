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
    contents = []
    for rows, y, which in seen.chunks(7):
        for i in range(len(rows)):
            if which is None or which[i]:
                contents.append((rows[i].tolist(), float(y[i])))
    return contents


def _filled(n: int, dim: int = 2, seed: int = 0) -> tuple[Observations, list[int], Matrix, Vector]:
    observations = Observations(dim)
    rows, y = _data(n, dim, seed)
    return observations, observations.extend(rows, y), rows, y


def test_handles_find_their_rows_across_blocks() -> None:
    """With more rows than a block holds, every handle is different and gives its own row."""
    n = 2 * BLOCK + 1_000
    rows = np.arange(n, dtype=np.float64)[:, None]
    observations = Observations(1)
    handles = [observations.add(rows[0], 0.0), *observations.extend(rows[1:], -rows[1:, 0])]
    handles.append(observations.add([float(n)], -float(n)))
    assert observations.n == len(set(handles)) == n + 1
    for i in (0, 1, 63, 64, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK - 1, 2 * BLOCK, n - 1, n):
        x, y = observations.get(handles[i])
        assert (x.tolist(), y) == ([float(i)], -float(i))


@pytest.mark.parametrize("size", [1, 1_000, BLOCK, 10 * BLOCK])
def test_chunks_hold_every_row_once(size: int) -> None:
    """In order, in float64, at most ``size`` at a time, also beyond one block."""
    n = BLOCK + 10 if size > 1 else 10
    observations = Observations(1)
    observations.extend(np.arange(n)[:, None], np.arange(n))
    values: list[float] = []
    for rows, y, counted in observations.chunks(size):
        assert counted is None
        assert rows.dtype == np.float64
        assert 0 < len(rows) <= size
        assert rows[:, 0].tolist() == y.tolist()
        values += y.tolist()
    assert values == list(range(n))


def test_chunks_tell_which_rows_count() -> None:
    """A removed row is marked, or left out by what it says, not by its place."""
    observations, handles, rows, y = _filled(20)
    for i in (0, 3, 19):
        observations.remove(handles[i])
    remaining = [i for i in range(20) if i not in (0, 3, 19)]
    assert _contents(observations) == [(rows[i].tolist(), float(y[i])) for i in remaining]
    assert observations.n == 17


def test_a_revision_returns_the_reward_before() -> None:
    """The new reward is what is got, summed and chunked from then on."""
    observations, handles, rows, y = _filled(5)
    assert observations.revise(handles[2], 7.0) == y[2]
    assert observations.revise(handles[2], 8.0) == 7.0
    assert observations.get(handles[2])[1] == 8.0
    assert observations.n == 5
    y[2] = 8.0
    assert _contents(observations) == [
        (x.tolist(), r) for x, r in zip(rows, y.tolist(), strict=True)
    ]


@pytest.mark.parametrize("verb", ["get", "remove", "revise"])
@pytest.mark.parametrize("handle", [-1, 3, BLOCK, 5 << 16, 2**70])
def test_a_handle_that_was_never_given_is_unknown(verb: str, handle: int) -> None:
    """The error carries the handle, and nothing is changed."""
    observations, handles, _, _ = _filled(3)
    before = _contents(observations)
    arguments = (handle, 1.0) if verb == "revise" else (handle,)
    with pytest.raises(UnknownHandle) as error:
        getattr(observations, verb)(*arguments)
    assert error.value.handle == handle
    assert handles == [0, 1, 2]
    assert (_contents(observations), observations.n) == (before, 3)


def test_a_removed_handle_is_unknown() -> None:
    """It cannot be got, revised or removed again, and its number is not given anew."""
    observations, handles, _, _ = _filled(2)
    observations.remove(handles[1])
    for method in (
        observations.get,
        observations.remove,
        lambda handle: observations.revise(handle, 1.0),
    ):
        with pytest.raises(UnknownHandle):
            method(handles[1])
    assert observations.n == 1
    assert observations.add([1.0, 1.0], 1.0) not in handles


def test_moments_are_of_what_is_counted() -> None:
    """Removed rows are in none of the sums."""
    observations, handles, rows, y = _filled(40, dim=3)
    for handle in handles[::3]:
        observations.remove(handle)
    is_kept = np.arange(40) % 3 != 0
    moments = observations.moments()
    assert moments.n == is_kept.sum() == observations.n
    np.testing.assert_allclose(
        moments.gram, rows[is_kept].T @ rows[is_kept], rtol=1e-12, atol=1e-13
    )
    np.testing.assert_allclose(moments.cross, y[is_kept] @ rows[is_kept], rtol=1e-12, atol=1e-13)
    assert Observations(3).moments().n == 0


def test_a_merge_holds_both_under_shifted_handles() -> None:
    """Handles on the left stay, those on the right move by next_block; removed ones stay so."""
    a, handles_a, rows_a, y_a = _filled(BLOCK + 3, seed=1)
    b, handles_b, rows_b, y_b = _filled(5, seed=2)
    b.remove(handles_b[4])
    shift = a.next_block
    merged = a + b
    assert merged.n == BLOCK + 7
    for i in (0, BLOCK, BLOCK + 2):
        x, y = merged.get(handles_a[i])
        assert (x.tolist(), y) == (rows_a[i].tolist(), y_a[i])
    for i in range(4):
        x, y = merged.get(shift + handles_b[i])
        assert (x.tolist(), y) == (rows_b[i].tolist(), y_b[i])
    with pytest.raises(UnknownHandle):
        merged.get(shift + handles_b[4])


@pytest.mark.parametrize("which", ["left", "right", "merged"])
@pytest.mark.parametrize("verb", ["revise", "remove", "add", "extend"])
def test_a_merge_and_its_parts_do_not_share_changes(which: str, verb: str) -> None:
    """Changing one of three stores in any way leaves the other two as they are."""
    left, left_handles, _, _ = _filled(5, seed=1)
    right, right_handles, _, _ = _filled(6, seed=2)
    merged = left + right
    handles = [*left_handles, *(left.next_block + handle for handle in right_handles)]
    stores = {
        "left": (left, left_handles),
        "right": (right, right_handles),
        "merged": (merged, handles),
    }
    changed, own_handles = stores.pop(which)
    unchanged = [(store, _contents(store), store.n) for store, _ in stores.values()]
    before = _contents(changed)
    for k in range(3):
        if verb == "revise":
            changed.revise(own_handles[-1 - k], 99.0)
        elif verb == "remove":
            changed.remove(own_handles[k])
        elif verb == "add":
            changed.add([float(k), 9.0], 9.0)
        else:
            changed.extend(np.full((100, 2), 7.0), np.full(100, 7.0))
    assert _contents(changed) != before
    for store, contents, n in unchanged:
        assert (_contents(store), store.n) == (contents, n)


def test_merging_with_nothing_changes_nothing() -> None:
    """An empty store is the identity, on either side."""
    observations, _, _, _ = _filled(5)
    assert (
        _contents(observations + Observations(2))
        == _contents(observations)
        == _contents(Observations(2) + observations)
    )
    with pytest.raises(InvalidInput, match="cannot merge"):
        observations + Observations(3)


def test_refused_observations_leave_the_store_as_it_was() -> None:
    """Bad rows and rewards raise InvalidInput before anything is taken."""
    observations, handles, _, _ = _filled(3)
    before = _contents(observations)
    rows = [[1.0, 2.0]] * 3
    attempts: list[tuple[Any, ...]] = [
        *(
            (observations.add, [1.0, math.nan], 1.0),
            (observations.add, [1.0], 1.0),
            (observations.add, [1.0, 2.0], None),
        ),
        *((observations.extend, rows, [1.0, math.inf, 0.0]), (observations.extend, rows, [1.0])),
        *(
            (observations.extend, [*rows, [1e9, 0.0]], [0.0] * 4),
            (observations.revise, handles[0], math.nan),
        ),
    ]
    for verb, *arguments in attempts:
        with pytest.raises(InvalidInput):
            verb(*arguments)
    assert (_contents(observations), observations.n, observations.add([0.0, 0.0], 0.0)) == (
        before,
        3,
        3,
    )
