import math
from typing import Any

import numpy as np
import pytest

from belated.core.inputs import Matrix, Vector
from belated.exceptions import InvalidInput
from belated.model.statistics import Information, Moments


def _data(n: int, dim: int, seed: int = 0) -> tuple[Matrix, Vector]:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, dim)).astype(np.float32).astype(np.float64)
    return rows, rng.normal(size=n)


# --- moments ---------------------------------------------------------------------------------


def test_moments_are_the_sums_a_loop_makes() -> None:
    """N, Σ x xᵀ, Σ x y and Σ y², added up one by one."""
    rows, y = _data(50, 3)
    moments = Moments.of(rows, y)
    gram, cross, square = np.zeros((3, 3)), np.zeros(3), 0.0
    for x, reward in zip(rows, y, strict=True):
        gram += np.outer(x, x)
        cross += x * reward
        square += reward * reward
    assert (moments.n, moments.dim) == (50, 3)
    np.testing.assert_allclose(moments.gram, gram, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(moments.cross, cross, rtol=1e-12, atol=1e-13)
    assert moments.square == pytest.approx(square, rel=1e-13)


def test_moments_round_rows_to_float32_first() -> None:
    """The sums are those of the rows a journal would hold."""
    assert Moments.of([[0.1]], [1.0]).cross[0] == float(np.float32(0.1))


def test_moments_of_no_rows_are_zero() -> None:
    """An empty table adds nothing."""
    empty = Moments.of(np.empty((0, 3)), [])
    assert (empty.n, empty.dim, empty.square) == (0, 3, 0.0)
    assert not empty.gram.any()


def test_moments_of_other_widths_do_not_add() -> None:
    """A sum of two widths is refused."""
    with pytest.raises(InvalidInput, match="cannot add"):
        Moments.zero(2) + Moments.zero(3)
    with pytest.raises(InvalidInput, match="cannot add"):
        Moments.zero(1) - Moments.zero(3)


BAD_TABLES: list[Any] = [[1.0, 2.0], [[1.0], [1.0, 2.0]], [["a"]], [[math.nan]], None, [[]], 3.0]


@pytest.mark.parametrize("rows", BAD_TABLES, ids=repr)
def test_moments_of_what_is_no_table_are_refused(rows: Any) -> None:
    """Ragged lists, text, NaN and other shapes raise InvalidInput."""
    with pytest.raises(InvalidInput):
        Moments.of(rows, [1.0])


# --- information -----------------------------------------------------------------------------


def test_information_is_the_weighted_sum_a_loop_makes() -> None:
    """Σ w x xᵀ and the number of rows."""
    rows, weights = _data(300, 3)
    expected = np.zeros((3, 3))
    for x, weight in zip(rows, weights, strict=True):
        expected += weight * np.outer(x, x)
    information = Information.of(rows, weights)
    np.testing.assert_allclose(information.matrix, expected, atol=1e-11)
    assert (information.count, information.dim) == (300, 3)


def test_information_that_is_taken_away_is_gone() -> None:
    """Rows leave with the weights they came with."""
    rows, weights = _data(300, 2)
    difference = Information.of(rows, weights) - Information.of(rows[::-1], weights[::-1])
    assert difference.count == 0
    assert np.abs(difference.matrix).max() <= 1e-11


def test_information_adds_and_subtracts_as_a_whole() -> None:
    """Sums of parts are the sum of all, and their parts stay as they were."""
    a = Information.of([[1.0, 2.0]], [0.5])
    b = Information.of([[3.0, -1.0]], [2.0])
    total = a + b
    assert (total.count, total.matrix.tolist()) == (2, [[18.5, -5.0], [-5.0, 4.0]])
    assert (total - b).matrix.tolist() == a.matrix.tolist() == [[0.5, 1.0], [1.0, 2.0]]
    zero = Information.zero(2)
    assert (zero.count, (total + zero).matrix.tolist()) == (0, total.matrix.tolist())


@pytest.mark.parametrize("dim", [1, 2])
def test_information_of_other_widths_does_not_add(dim: int) -> None:
    """A sum of two widths is refused, never broadcast."""
    with pytest.raises(InvalidInput):
        Information.zero(dim) + Information.zero(3)
    with pytest.raises(InvalidInput):
        Information.zero(3) - Information.zero(dim)


@pytest.mark.parametrize(
    ("rows", "weights"),
    [
        *(([[1.0, 2.0]], [1.0, 2.0]), ([1.0, 2.0], [1.0, 2.0]), ([[1.0]], 1.0), (3.0, [1.0])),
        *(([[1.0], [1.0, 2.0]], [1.0, 1.0]), ([["a"]], [1.0]), ([[1.0]], None)),
        *(([[math.nan]], [1.0]), ([[1.0]], [math.nan]), ([[1.0]], [math.inf])),
    ],
    ids=repr,
)
def test_information_of_what_is_no_table_is_refused(rows: Any, weights: Any) -> None:
    """Shapes that differ, ragged lists, text and what is not finite raise InvalidInput."""
    with pytest.raises(InvalidInput):
        Information.of(rows, weights)
