"""Forms of batches of requests and rewards: all are read alike, and errors say what to do."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest

from belated.decider.batches import BatchReward, split_requests, split_rewards
from belated.exceptions import InvalidInput
from belated.features.records import frame_records, is_frame

COLORS = ["blue", "red"]
LINES: dict[str, list[Any]] = {"age": [41, 18], "city": ["Oslo", None]}


def pandas_frame(columns: dict[str, list[Any]]) -> Any:
    """Return a pandas frame."""
    return pd.DataFrame(columns)


def polars_frame(columns: dict[str, list[Any]]) -> Any:
    """Return a polars frame."""
    return pytest.importorskip("polars").DataFrame(columns, strict=False)


Frame = Callable[[dict[str, list[Any]]], Any]


@pytest.fixture(params=[pandas_frame, polars_frame])
def frame(request: pytest.FixtureRequest) -> Frame:
    """Return a function that creates a frame from columns."""
    convert: Frame = request.param
    return convert


def test_a_frame_is_read_line_by_line(frame: Frame) -> None:
    """Lines become records of plain values; missing values become None."""
    records = frame_records(frame(LINES))
    assert records == [{"age": 41, "city": "Oslo"}, {"age": 18, "city": None}]
    assert type(records[0]["age"]) is int
    assert frame_records(frame({"age": []})) == []


def test_what_pandas_has_for_a_missing_value_is_none() -> None:
    """NaN, NaT and NA."""
    table = pd.DataFrame(
        {
            "a": pd.array([1, None], dtype="Int64"),
            "b": [1.5, float("nan")],
            "c": [pd.Timestamp(0), pd.NaT],
        }
    )
    assert list(frame_records(table)[1].values()) == [None, None, None]


@pytest.mark.parametrize("other", [None, [], {}, {"columns": 1}, np.eye(2), pd.Series([1.0])])
def test_what_is_no_frame(other: Any) -> None:
    """Lists, mappings, arrays and columns are not frames."""
    assert not is_frame(other)


def test_columns_need_names_of_their_own() -> None:
    """Numbers are not names, and duplicate names are ambiguous."""
    with pytest.raises(InvalidInput, match=r"rename\(columns=str\)"):
        frame_records(pd.DataFrame([[1, 2]]))
    with pytest.raises(InvalidInput, match="two columns named 'a'"):
        frame_records(pd.DataFrame([[1, 2]], columns=["a", "a"]))


# --- requests ----------------------------------------------------------------------------------


def test_contexts_in_a_frame_are_contexts_in_a_list(frame: Frame) -> None:
    """Each line is a request, with the same actions for all."""
    contexts = [{"age": 41, "city": "Oslo"}, {"age": 18, "city": None}]
    requests = split_requests(contexts, COLORS)
    assert split_requests(frame(LINES), COLORS) == requests
    assert [request.context for request in requests] == contexts
    assert all(request.actions == COLORS and request.id is None for request in requests)


def test_pairs_bring_their_own_actions() -> None:
    """Pairs can contain mappings, numbers or no context."""
    pairs: list[Any] = [
        ({"age": 41}, COLORS),
        (None, {"red": {"price": 1.0}}),
        ([0.5, 1.0], COLORS),
    ]
    requests = split_requests(pairs)
    assert [(request.context, request.actions) for request in requests] == pairs


def test_two_numbers_of_a_context_are_no_pair() -> None:
    """A context can be a plain sequence of two numbers."""
    (request,) = split_requests([(0.5, 1.0)], COLORS)
    assert request.context == (0.5, 1.0)


def test_two_rows_are_no_pair() -> None:
    """A table of two rows can be a tuple, and several tables one array."""
    (request,) = split_requests(None, rows=[([1.0, 0.0], [0.0, 1.0])])
    assert request.rows == ([1.0, 0.0], [0.0, 1.0])
    tables = np.ones((3, 2, 4))
    assert len(split_requests(None, COLORS, rows=tables)) == 3


def test_contexts_and_rows_exclude_each_other() -> None:
    """A bandit accepts one of the two."""
    with pytest.raises(InvalidInput, match="`contexts` and `rows` cannot both be passed"):
        split_requests([None], rows=[[[1.0, 0.0]]])


def test_ids_come_as_a_list_or_a_column(frame: Frame) -> None:
    """A named column is not part of the contexts."""
    lines = frame(LINES | {"order": ["a", "b"]})
    for ids in (["a", "b"], np.array(["a", "b"]), lines["order"]):
        assert [request.id for request in split_requests(frame(LINES), COLORS, ids=ids)] == [
            "a",
            "b",
        ]
    requests = split_requests(lines, COLORS, ids="order")
    assert requests == split_requests(frame(LINES), COLORS, ids=["a", "b"])


def test_subjects_come_as_a_list_or_a_column(frame: Frame) -> None:
    """Numbers in a column are read as text; no subject is None."""
    lines = frame(LINES | {"customer": [17, 18]})
    requests = split_requests(lines, COLORS, subjects="customer")
    assert requests == split_requests(frame(LINES), COLORS, subjects=["17", "18"])
    parsed = split_requests(frame(LINES), COLORS, subjects=[None, "18"])
    assert [request.subject for request in parsed] == [None, "18"]
    with pytest.raises(InvalidInput, match="`subjects` is 'name', but the data frame has only"):
        split_requests(lines, COLORS, subjects="name")
    with pytest.raises(InvalidInput, match="`subjects` has 1 entries for 2 requests"):
        split_requests(frame(LINES), COLORS, subjects=["17"])


@pytest.mark.parametrize(
    ("requests", "ids", "match"),
    [
        ({"age": 41}, None, "a list of contexts or"),
        ("rows", None, "a list of contexts or"),
        (None, None, "a list of contexts or"),
        ([{"age": 41}], ["a", "b"], "2 entries for 1 requests"),
        ([{"age": 41}], "a", "`ids` must be a list of decision ids"),
        ([{"age": 41}], [17], r"ids\[0\] must be text.*got 17"),
        ([{"age": 41}, {"age": 3}], ["a", None], r"ids\[1\] must be text.*got None"),
        ([{"age": 41}, {"age": 3}], ["a", "a"], "'a' more than once"),
        ([({"age": 41}, COLORS)], None, "remove one of them"),
        (pd.DataFrame(LINES), "order", "has only the columns age, city"),
    ],
)
def test_requests_that_are_refused(requests: Any, ids: Any, match: str) -> None:
    """The error says what was expected."""
    with pytest.raises(InvalidInput, match=match):
        split_requests(requests, COLORS, ids=ids)


def test_a_lazy_frame_must_be_collected() -> None:
    """A lazy frame has no lines yet."""
    lazy = pytest.importorskip("polars").LazyFrame(LINES)
    with pytest.raises(InvalidInput, match=r"call collect\(\)"):
        split_requests(lazy, COLORS)


# --- rewards -----------------------------------------------------------------------------------


def test_rewards_come_as_pairs_records_or_a_frame(frame: Frame) -> None:
    """Omitted values have the defaults of ``observe``."""
    moment = datetime(2026, 1, 8, tzinfo=UTC)
    expected = [BatchReward("a", 1.0), BatchReward("b", 0.0, moment, "sale", 2)]
    records = [{"id": "a", "value": 1.0}, expected[1]._asdict()]
    assert split_rewards(records) == expected
    assert split_rewards(iter([("a", 1.0), records[1]])) == expected
    columns: dict[str, list[Any]] = {
        "id": ["a", "b"],
        "value": [1.0, 0.0],
        "at": [None, moment],
        "part": [None, "sale"],
        "revision": [None, 2],  # a column of floats in pandas, as one is missing
    }
    assert split_rewards(frame(columns)) == expected


@pytest.mark.parametrize(
    ("rewards", "match"),
    [
        ({"id": "a", "value": 1.0}, "a list of"),
        (
            [{"id": "a", "value": 1.0, "time": 3}],
            "the unknown key 'time'; known keys: id, value, at",
        ),
        ([{"id": "a"}], "has no value"),
        (pd.DataFrame({"id": ["a"], "value": [float("nan")]}), "has no value"),
        (["a"], r"a reward must be an \(id, value\) pair.*got 'a'"),
        ([("a", 1.0, 3)], "pair"),
        (None, "a list of"),
    ],
)
def test_rewards_that_are_refused(rewards: Any, match: str) -> None:
    """The error says what was expected."""
    with pytest.raises(InvalidInput, match=match):
        split_rewards(rewards)
