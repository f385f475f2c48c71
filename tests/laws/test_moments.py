from dataclasses import dataclass

import numpy as np
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays

from belated.core.inputs import MAX_ENTRY, MAX_REWARD, Matrix, Row, Vector
from belated.model.statistics import Information, Moments

#: What the statistics promise: sums to this much of their size.
CLOSE = 1e-12


@dataclass
class Table:
    """Rows and rewards, with the size of their sums: what is summed, in absolute value."""

    rows: Row
    y: Vector

    def __post_init__(self) -> None:
        self.moments = Moments.of(self.rows, self.y)
        self.size = Moments.of(np.abs(self.rows), np.abs(self.y))

    def part(self, which: slice) -> Moments:
        """The moments of some of the rows."""
        return Moments.of(self.rows[which], self.y[which])


@st.composite
def tables(draw: st.DrawFn, dim: int) -> Table:
    """Any rows and rewards that the door lets in, of any mixture of magnitudes."""
    n = draw(st.integers(0, 8))
    entries = st.floats(-MAX_ENTRY, MAX_ENTRY, width=32)
    rewards = st.floats(-MAX_REWARD, MAX_REWARD)
    rows = draw(arrays.arrays(np.float32, (n, dim), elements=entries))
    return Table(rows, draw(arrays.arrays(np.float64, n, elements=rewards)))


several = st.integers(1, 4).flatmap(lambda dim: st.tuples(*[tables(dim)] * 3))


def _same(found: Moments, expected: Moments, *sizes: Table) -> None:
    """Equal to rounding, entry by entry, of the size of all that was ever summed."""
    assert found.n == expected.n
    gram = sum((table.size.gram for table in sizes), np.zeros_like(found.gram))
    cross = sum((table.size.cross for table in sizes), np.zeros_like(found.cross))
    square = sum(table.size.square for table in sizes)
    assert (np.abs(found.gram - expected.gram) <= CLOSE * gram + 1e-300).all()
    assert (np.abs(found.cross - expected.cross) <= CLOSE * cross + 1e-300).all()
    assert abs(found.square - expected.square) <= CLOSE * square + 1e-300


@given(several)
def test_moments_add_in_any_grouping(given: tuple[Table, Table, Table]) -> None:
    """(a + b) + c = a + (b + c)."""
    a, b, c = (table.moments for table in given)
    _same((a + b) + c, a + (b + c), *given)


@given(several)
def test_moments_add_in_any_order(given: tuple[Table, Table, Table]) -> None:
    """A + b = b + a, exactly."""
    a, b, _ = (table.moments for table in given)
    left, right = a + b, b + a
    assert left.n == right.n
    assert left.gram.tolist() == right.gram.tolist()
    assert left.cross.tolist() == right.cross.tolist()
    assert left.square == right.square


@given(several)
def test_nothing_adds_nothing(given: tuple[Table, Table, Table]) -> None:
    """A + 0 = 0 + a = a - 0 = a, exactly."""
    a = given[0].moments
    zero = Moments.zero(a.dim)
    for result in (a + zero, zero + a, a - zero):
        assert result.n == a.n
        assert result.gram.tolist() == a.gram.tolist()
        assert result.cross.tolist() == a.cross.tolist()
        assert result.square == a.square


@given(several)
def test_what_was_added_can_be_taken_away(given: tuple[Table, Table, Table]) -> None:
    """A + b - b = a, and a - a = 0."""
    left, right, _ = given
    _same(left.moments + right.moments - right.moments, left.moments, left, right)
    zero = left.moments - left.moments
    assert zero.n == 0
    assert not zero.gram.any()
    assert not zero.cross.any()
    assert zero.square == 0.0


@given(several, st.data())
def test_the_moments_of_parts_add_up(
    given: tuple[Table, Table, Table], data: st.DataObject
) -> None:
    """However the rows are split, and in whatever order, the sum of the parts is that of all."""
    whole = Table(
        np.concatenate([table.rows for table in given]),
        np.concatenate([table.y for table in given]),
    )
    _same(given[0].moments + given[1].moments + given[2].moments, whole.moments, whole)
    cuts = data.draw(st.lists(st.integers(0, len(whole.y)), max_size=4).map(sorted))
    total = Moments.zero(whole.rows.shape[1])
    for start, stop in zip([0, *cuts], [*cuts, len(whole.y)], strict=True):
        total += whole.part(slice(start, stop))
    _same(total, whole.moments, whole)
    order = data.draw(st.permutations(range(len(whole.y))))
    _same(Moments.of(whole.rows[list(order)], whole.y[list(order)]), whole.moments, whole)


@given(several)
def test_moments_are_those_of_a_loop(given: tuple[Table, Table, Table]) -> None:
    """N, Σ x xᵀ, Σ x y and Σ y², summed one by one in float64."""
    table = given[0]
    dim = table.rows.shape[1]
    gram, cross, square = np.zeros((dim, dim)), np.zeros(dim), 0.0
    for row, y in zip(table.rows.astype(np.float64), table.y.tolist(), strict=True):
        gram += np.outer(row, row)
        cross += row * y
        square += y * y
    _same(table.moments, Moments(len(table.y), gram, cross, square), table)


@st.composite
def weighted(draw: st.DrawFn, dim: int) -> tuple[Matrix, Vector]:
    """Rows with positive weights."""
    n = draw(st.integers(0, 8))
    rows = draw(arrays.arrays(np.float64, (n, dim), elements=st.floats(-1e8, 1e8)))
    return rows, draw(arrays.arrays(np.float64, n, elements=st.floats(1e-3, 1e3)))


@given(st.integers(1, 4).flatmap(lambda dim: st.tuples(*[weighted(dim)] * 3)), st.data())
def test_information_is_a_group(
    given: tuple[tuple[Matrix, Vector], ...], data: st.DataObject
) -> None:
    """It adds in any order, grouping and split, zero changes nothing, and all can be undone."""
    a, b, c = (Information.of(*table) for table in given)
    rows = np.concatenate([table[0] for table in given])
    weights = np.concatenate([table[1] for table in given])
    size = CLOSE * (np.abs(rows).T * weights) @ np.abs(rows) + 1e-300

    def same(one: Information, two: Information) -> None:
        assert one.count == two.count
        assert (np.abs(one.matrix - two.matrix) <= size).all()

    same((a + b) + c, a + (b + c))
    same(a + b - b, a)
    same(a + Information.zero(a.dim), a)
    assert (a + b).matrix.tolist() == (b + a).matrix.tolist()
    order = list(data.draw(st.permutations(range(len(weights)))))
    same(Information.of(rows[order], weights[order]), a + b + c)
    total = sum((w * np.outer(x, x) for x, w in zip(rows, weights, strict=True)), 0.0 * size)
    same(Information(len(weights), total), a + b + c)
