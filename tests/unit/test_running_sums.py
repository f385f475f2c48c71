"""Sums that follow a store, and stores read as one: the same as reading everything again."""

from __future__ import annotations

import numpy as np
import pytest

from belated import Bernoulli
from belated.inputs import Matrix, Vector
from belated.statistics import FrozenSums, Joined, Observations, RunningSums, quadratic_at

FAMILY = Bernoulli()
THETA = np.array([0.3, -0.2])


def data(seed: int, count: int = 12) -> tuple[Matrix, Vector]:
    """Rows as float32 holds them, and rewards."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, 2)).astype(np.float32).astype(np.float64)
    return rows, rng.integers(0, 2, size=count).astype(np.float64)


def assert_same(found: FrozenSums, expected: FrozenSums) -> None:
    """To rounding."""
    assert (found.n, found.total) == (expected.n, expected.total)
    np.testing.assert_allclose(found.moments.cross, expected.moments.cross, atol=1e-12)
    np.testing.assert_allclose(found.likelihood.pull, expected.likelihood.pull, atol=1e-12)
    np.testing.assert_allclose(
        found.likelihood.information, expected.likelihood.information, atol=1e-12
    )


@pytest.fixture
def store() -> Observations:
    """With twelve observations."""
    found = Observations(2, FAMILY)
    found.extend(*data(1))
    return found


@pytest.fixture
def running(store: Observations) -> RunningSums:
    """That has read them."""
    found = RunningSums(store, FAMILY, THETA)
    found.total()
    return found


def test_new_rows_are_added(store: Observations, running: RunningSums) -> None:
    """Once, however often the total is asked for."""
    store.extend(*data(2))
    for _ in range(2):
        assert_same(running.total(), store.sums_at(FAMILY, THETA))


def test_what_is_revised_or_removed(store: Observations, running: RunningSums) -> None:
    """Counts with its new reward, or not at all."""
    _, y = store.get(3)
    before = store.revise(3, 1.0 - y)
    running.revise(3, before)
    assert_same(running.total(), store.sums_at(FAMILY, THETA))
    row, y = store.get(5)
    store.remove(5)
    running.remove(5, row, y, frozen=False)
    assert_same(running.total(), store.sums_at(FAMILY, THETA))


def test_what_was_not_read_yet_is_read_as_it_is(store: Observations, running: RunningSums) -> None:
    """A change of a new row is not counted twice."""
    handle = store.add([1.0, 0.5], 1.0)
    running.revise(handle, store.revise(handle, 0.0))
    assert_same(running.total(), store.sums_at(FAMILY, THETA))
    handle = store.add([0.25, 0.5], 1.0)
    row, y = store.get(handle)
    store.remove(handle)
    running.remove(handle, row, y, frozen=False)
    assert_same(running.total(), store.sums_at(FAMILY, THETA))


def test_another_theta_reads_all_again(store: Observations, running: RunningSums) -> None:
    """From then on, new rows too."""
    running.move(2.0 * THETA)
    store.extend(*data(3))
    assert_same(running.total(), store.sums_at(FAMILY, 2.0 * THETA))


def test_stores_read_as_one() -> None:
    """Counts, totals, moments and the likelihood are those of one store with all of it."""
    parts = [data(seed, count) for seed, count in ((4, 5), (5, 7), (6, 1))]
    stores = [Observations(2, FAMILY) for _ in parts]
    whole = Observations(2, FAMILY)
    for store, (rows, y) in zip(stores, parts, strict=True):
        store.extend(rows, y)
        whole.extend(rows, y)
    joined = Joined(stores)
    assert (joined.n, joined.dim) == (whole.n, 2) == (13, 2)
    assert joined.total == whole.total == sum(y.sum() for _, y in parts)
    assert joined.frozen is None
    mine, theirs = joined.moments(), whole.moments()
    np.testing.assert_allclose(mine.cross, theirs.cross)
    np.testing.assert_allclose(mine.gram, theirs.gram)
    found, expected = (quadratic_at(seen, FAMILY, THETA) for seen in (joined, whole))
    assert found.n == expected.n == 13
    np.testing.assert_allclose(found.score(THETA), expected.score(THETA))
    np.testing.assert_allclose(found.information, expected.information)
