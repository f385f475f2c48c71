from typing import Any

import numpy as np
import pytest

from belated.exceptions import InvalidInput
from belated.features import FromTransform
from tests.unit.transformers import Fake, Named

NAN, INF = float("nan"), float("inf")


class Sparse:
    """Like a sparse matrix: numpy can make nothing of it, but it knows how to become dense."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def toarray(self) -> Any:
        """The dense table."""
        return self.table


class Gives(Fake):
    """A transformer that gives whatever it was told to give."""

    def __init__(self, table: Any) -> None:
        super().__init__()
        self.table = table

    def transform(self, records: list[dict[str, Any]]) -> Any:
        """The same, whatever the records."""
        return self.table


def test_a_transformer_is_given_the_merged_records() -> None:
    """Context, action and the id under "action", one record for each action in order."""
    transformer = Fake()
    features = FromTransform(transformer, name="fake", dim=2)
    rows = features.rows({"age": 4.0}, {"blue": {"price": 2.0}, 7: {}})
    assert transformer.seen == [
        {"age": 4.0, "price": 2.0, "action": "blue"},
        {"age": 4.0, "action": 7},
    ]
    assert rows.tolist() == [[4.0, 2.0], [4.0, 0.0]]
    features.rows(None, ["x"])
    assert transformer.seen == [{"action": "x"}]


def test_dense_and_sparse_tables_give_the_same_rows() -> None:
    """Lists, other float types, Fortran order, and anything that can become an array."""
    table = np.array([[1.0, 2.0], [3.0, 4.0]])
    tables = [table, table.tolist(), np.asfortranarray(table), table.astype(np.float16)]
    for result in [*tables, Sparse(table), Sparse(table.astype(np.float32))]:
        rows = FromTransform(Gives(result), name="t", dim=2).rows(None, ["a", "b"])
        assert rows.tolist() == table.tolist()
        assert rows.dtype == np.float32
        assert rows.flags.c_contiguous


def test_the_width_of_a_transformer_is_known_before_the_first_call() -> None:
    """Given, or counted from its names; nothing is transformed to find out."""
    transformer = Named()
    features = FromTransform(transformer, name="named")
    assert (features.dim, features.names, transformer.seen) == (2, ["age", "price"], [])
    assert FromTransform(transformer, name="named", dim=2).fingerprint == features.fingerprint
    nameless = FromTransform(Fake(), name="nameless", dim=2)
    assert (nameless.dim, nameless.names) == (2, None)


def test_a_transformer_that_fails_to_name_its_columns_can_still_be_used() -> None:
    """With the width given, its names are simply not known; without, the reason is told."""

    class Unfitted(Fake):
        def get_feature_names_out(self) -> Any:
            raise AttributeError("not fitted yet")

    assert FromTransform(Unfitted(), name="u", dim=2).names is None
    with pytest.raises(InvalidInput, match="not fitted yet"):
        FromTransform(Unfitted(), name="u")


@pytest.mark.parametrize(
    ("table", "named"),
    [
        (np.zeros((2, 3)), "`rows` must have 2 numbers per row .*got 3"),
        (np.zeros(2), "a single row of 2 numbers"),
        (np.zeros((3, 2)), "3 rows for 2 records"),
        ([[0.0, 1.0], [NAN, 0.0]], r"rows\[1, 0\] is nan"),
        (Sparse(np.array([[0.0, 1.0], [1e9, 0.0]])), r"rows\[1, 0\] is 1"),
        ([["a", "b"], ["c", "d"]], "dtype"),
        (None, "object"),
    ],
    ids=["width", "axes", "count", "nan", "sparse", "text", "none"],
)
def test_what_a_transformer_gives_is_checked(table: Any, named: str) -> None:
    """The same door as for rows of the caller's own."""
    with pytest.raises(InvalidInput, match=named):
        FromTransform(Gives(table), name="t", dim=2).rows(None, ["a", "b"])


def test_a_transformers_own_table_is_not_handed_on() -> None:
    """It may write into it again at the next call, while a decision still holds a row."""
    table = np.zeros((1, 2), dtype=np.float32)
    rows = FromTransform(Gives(table), name="t", dim=2).rows(None, ["a"])
    table[:] = 9.0
    assert rows.tolist() == [[0.0, 0.0]]


def test_names_that_would_overwrite_each_other_are_refused() -> None:
    """Context and action are merged, and the id has a name too."""
    features = FromTransform(Fake(), name="fake", dim=2)
    for context, actions, message in [
        ({"age": 1}, {"blue": {"age": 2}}, "both the context and action 'blue' have a field 'age'"),
        ({"action": 1}, ["blue"], "the context has a field 'action'"),
        ({}, {"blue": {"action": 1}}, "action 'blue' has a field 'action'"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            features.rows(context, actions)  # type: ignore[arg-type]
