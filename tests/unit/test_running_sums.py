"""Incremental sums and joined stores equal the sums of all rows."""

from __future__ import annotations

import numpy as np
import pytest

from belated import Bernoulli, Poisson
from belated.core.inputs import Matrix, Vector
from belated.exceptions import InvalidInput
from belated.model.statistics import (
    FrozenSums,
    Information,
    Joined,
    Moments,
    Observations,
    Quadratic,
    RunningSums,
    quadratic_at,
)

FAMILY = Bernoulli()
THETA = np.array([0.3, -0.2])


def data(seed: int, count: int = 12) -> tuple[Matrix, Vector]:
    """Return rows as float32, and rewards."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, 2)).astype(np.float32).astype(np.float64)
    return rows, rng.integers(0, 2, size=count).astype(np.float64)


def assert_same(found: FrozenSums, expected: FrozenSums) -> None:
    """Assert equality up to rounding."""
    assert (found.n, found.total) == (expected.n, expected.total)
    np.testing.assert_allclose(found.moments.cross, expected.moments.cross, atol=1e-12)
    np.testing.assert_allclose(found.likelihood.pull, expected.likelihood.pull, atol=1e-12)
    np.testing.assert_allclose(
        found.likelihood.information, expected.likelihood.information, atol=1e-12
    )


@pytest.fixture
def store() -> Observations:
    """Return a store with twelve observations."""
    observations = Observations(2, FAMILY)
    observations.extend(*data(1))
    return observations


@pytest.fixture
def running(store: Observations) -> RunningSums:
    """Return running sums that have read the store."""
    sums = RunningSums(store, FAMILY, THETA)
    sums.total()
    return sums


def test_new_rows_are_added(store: Observations, running: RunningSums) -> None:
    """They are added once, however often the total is requested."""
    store.extend(*data(2))
    for _ in range(2):
        assert_same(running.total(), store.sums_at(FAMILY, THETA))


def test_what_is_revised_or_removed(store: Observations, running: RunningSums) -> None:
    """Revised rewards have their new value; removed ones do not count."""
    _, y = store.get(3)
    before = store.revise(3, 1.0 - y)
    running.revise(3, before)
    assert_same(running.total(), store.sums_at(FAMILY, THETA))
    row, y = store.get(5)
    store.remove(5)
    running.remove(5, row, y, frozen=False)
    assert_same(running.total(), store.sums_at(FAMILY, THETA))


def test_what_was_not_read_yet_is_read_as_it_is(store: Observations, running: RunningSums) -> None:
    """A change of an unread row does not count twice."""
    handle = store.add([1.0, 0.5], 1.0)
    running.revise(handle, store.revise(handle, 0.0))
    assert_same(running.total(), store.sums_at(FAMILY, THETA))
    handle = store.add([0.25, 0.5], 1.0)
    row, y = store.get(handle)
    store.remove(handle)
    running.remove(handle, row, y, frozen=False)
    assert_same(running.total(), store.sums_at(FAMILY, THETA))


def test_another_theta_reads_all_again(store: Observations, running: RunningSums) -> None:
    """New rows are expanded at the new θ too."""
    running.move(2.0 * THETA)
    store.extend(*data(3))
    assert_same(running.total(), store.sums_at(FAMILY, 2.0 * THETA))


def test_stores_read_as_one() -> None:
    """Counts, totals, moments and likelihood equal those of a single store."""
    parts = [data(seed, count) for seed, count in ((4, 5), (5, 7), (6, 1))]
    stores = [Observations(2, FAMILY) for _ in parts]
    whole = Observations(2, FAMILY)
    for store, (rows, y) in zip(stores, parts, strict=True):
        store.extend(rows, y)
        whole.extend(rows, y)
    joined = Joined(stores)
    assert (joined.n, joined.shape) == (whole.n, (2,)) == (13, (2,))
    assert joined.total == whole.total == sum(y.sum() for _, y in parts)
    assert joined.frozen is None
    moments, expected_moments = joined.moments(), whole.moments()
    np.testing.assert_allclose(moments.cross, expected_moments.cross)
    np.testing.assert_allclose(moments.gram, expected_moments.gram)
    quadratic, expected = (quadratic_at(source, FAMILY, THETA) for source in (joined, whole))
    assert quadratic.n == expected.n == 13
    np.testing.assert_allclose(quadratic.score(THETA), expected.score(THETA))
    np.testing.assert_allclose(quadratic.information, expected.information)


def test_sums_as_bytes() -> None:
    """All numbers are restored."""
    sums = FrozenSums.of(data(7)[0].astype(np.float32), data(7)[1], FAMILY, THETA)
    restored = FrozenSums.read(sums.pack(), (2,))
    assert_same(restored, sums)
    np.testing.assert_array_equal(restored.moments.gram, sums.moments.gram)
    assert restored.moments.square == sums.moments.square
    assert restored.pack() == sums.pack()
    with pytest.raises(ValueError, match="reshape"):
        FrozenSums.read(sums.pack(), (3,))


def test_a_store_as_bytes() -> None:
    """Full, frozen and partial blocks are restored."""
    store = Observations(2, FAMILY, block=16)
    store.extend(*data(8, 50))
    store.freeze(THETA, 20)
    assert (store.is_frozen(0), store.is_frozen(45)) == (True, False)
    store.extend(*data(9, 10))
    store.remove(store.next_handle - 3)
    restored = Observations(2, FAMILY)
    restored.unpack(store.pack())
    assert (restored.n, restored.exact, restored.total) == (store.n, store.exact, store.total)
    assert restored.next_handle == store.next_handle
    assert_same(restored.sums_at(FAMILY, THETA), store.sums_at(FAMILY, THETA))
    for observations in (store, restored):
        observations.add([0.5, 0.25], 1.0)
    assert_same(restored.sums_at(FAMILY, THETA), store.sums_at(FAMILY, THETA))
    assert restored.pack() == store.pack()


def test_the_value_of_a_quadratic() -> None:
    """Its slope is the score; at θ = 0 it is 0."""
    rows, y = data(10)
    quadratic = Quadratic.of(rows, y, FAMILY, THETA)
    assert quadratic.value(np.zeros(2)) == 0.0
    for axis in np.eye(2):
        step = 1e-6 * axis
        slope = (quadratic.value(THETA + step) - quadratic.value(THETA - step)) / 2e-6
        assert slope == pytest.approx(float(quadratic.score(THETA) @ axis), rel=1e-6)


def test_frozen_rows_are_revised_and_removed() -> None:
    """Sums change as if the rows had been frozen that way."""
    rows, y = data(11, 64)
    store, plain = Observations(2, FAMILY, block=32), Observations(2, FAMILY)
    store.extend(rows, y)
    store.freeze(THETA, 0)
    assert store.is_frozen(3)
    store.revise(3, 1.0 - y[3])
    store.remove(5)
    y[3] = 1.0 - y[3]
    is_kept = np.arange(len(y)) != 5
    plain.extend(rows[is_kept], y[is_kept])
    sums, expected = store.sums_at(FAMILY, THETA), plain.sums_at(FAMILY, THETA)
    assert (sums.n, sums.total) == (expected.n, expected.total)
    np.testing.assert_allclose(sums.likelihood.pull, expected.likelihood.pull, rtol=1e-9)
    np.testing.assert_allclose(sums.moments.cross, expected.moments.cross, rtol=1e-9)


def test_moments_are_of_all_blocks() -> None:
    """Frozen blocks count, removed rows do not."""
    rows, y = data(12, 100)
    store = Observations(2, FAMILY, block=16)
    store.extend(rows, y)
    store.freeze(THETA, 40)
    assert store.is_frozen(0)
    assert not store.is_frozen(80)
    store.remove(99)
    moments = store.moments()
    assert moments.n == 99
    np.testing.assert_allclose(moments.gram, rows[:-1].T @ rows[:-1])
    np.testing.assert_allclose(moments.cross, y[:-1] @ rows[:-1])


def test_quadratics_subtract() -> None:
    """Subtraction restores the previous sum."""
    first, second = (Quadratic.of(*data(seed), FAMILY, THETA) for seed in (13, 14))
    total = first + second
    np.testing.assert_allclose(total.information, first.information + second.information)
    difference = total - second
    assert difference.n == first.n
    np.testing.assert_allclose(difference.information, first.information)
    np.testing.assert_allclose(difference.pull, first.pull)


def test_what_does_not_merge_says_why() -> None:
    """Stores of other families, widths and shapes cannot be merged."""
    with pytest.raises(
        InvalidInput, match=r"cannot merge Bernoulli\(\) rewards with Poisson\(\) rewards"
    ):
        Observations(2, FAMILY) + Observations(2, Poisson())
    with pytest.raises(InvalidInput, match="cannot merge rows of 2 numbers with rows of 3"):
        Observations(2) + Observations(3)
    with pytest.raises(InvalidInput, match=r"`rows` must be a matrix, got shape \(2,\)"):
        Moments.of([1.0, 2.0], [1.0])


def test_a_merged_store_begins_a_new_block() -> None:
    """Existing handles stay valid, and the next is after all of them."""
    left, right = Observations(2, FAMILY), Observations(2, FAMILY)
    left.extend(*data(15, 3))
    right.extend(*data(16, 4))
    merged = left + right
    handle = merged.add([1.0, 0.0], 1.0)
    assert handle == left.next_block + right.next_block
    assert merged.add([0.0, 1.0], 0.0) == handle + 1
    assert merged.get(left.next_block + 1)[1] == data(16, 4)[1][1]


def test_rows_are_kept_as_float32() -> None:
    """They take half the memory, and equal those of a journal."""
    store = Observations(2, FAMILY)
    assert store.get(store.add([0.5, 0.1], 1.0))[0].dtype == np.float32


def test_information_needs_a_weight_for_each_row() -> None:
    """The error carries the weights."""
    weights = [1.0, 2.0]
    with pytest.raises(InvalidInput, match="pass one weight per row") as error:
        Information.of([[1.0, 0.0]], weights)
    assert error.value.value is weights
