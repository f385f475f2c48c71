import itertools
from typing import Any

import numpy as np
import pytest

from belated.exceptions import InvalidInput
from belated.features import Hashed

NAN, INF = float("nan"), float("inf")
LARGE = pytest.param(10**400, id="large")  # more than a float holds
HUGE = pytest.param(10**5000, id="huge")  # more digits than Python writes out


def test_hashed_text_counts_and_numbers_add_their_value() -> None:
    """One context feature alone: its column holds the value with a sign, whatever the action."""
    features = Hashed(64, interactions=False, intercept=False)
    baseline = features.rows(None, ["a"])
    assert np.abs(baseline).sum() == 1.0  # the id
    number = features.rows({"age": 2.5}, ["a"]) - baseline
    assert sorted(np.abs(number[0]))[-2:] == [0.0, 2.5]
    text = features.rows({"age": "2.5"}, ["a"]) - baseline
    assert sorted(np.abs(text[0]))[-2:] == [0.0, 1.0]
    assert np.abs(number).argmax() != np.abs(text).argmax()
    assert (features.rows({"on": True}, ["a"]) == features.rows({"on": 1}, ["a"])).all()
    assert (features.rows({"on": False}, ["a"]) == baseline).all()
    assert (features.rows({}, {"a": None}) == baseline).all()
    assert (features.rows({}, ["b"]) != baseline).any()


def test_context_and_action_fields_of_one_name_are_different_features() -> None:
    """So are an id and a field, and the number 1 and the text "1"."""
    features = Hashed(1 << 12, interactions=False)
    columns = [
        frozenset(np.flatnonzero(features.rows(context, actions)[0]).tolist())  # type: ignore[arg-type]
        for context, actions in [
            ({"x": 1}, ["a"]),
            (None, {"a": {"x": 1}}),
            (None, {"a": {"x": "1"}}),
            (None, {"a": {"x": ""}}),
            (None, {"a": {"a": 1}}),
            (None, [1]),
            (None, ["1"]),
        ]
    ]
    assert len(set(columns)) == len(columns)


def test_the_intercept_of_hashed_rows_is_hashed_into_by_nothing() -> None:
    """The first column is 1 however many features there are."""
    context = {f"name {i}": float(i) for i in range(200)}
    rows = Hashed(3).rows(context, ["a", "b"])
    assert rows[:, 0].tolist() == [1.0, 1.0]
    assert (Hashed(3, intercept=False).rows(context, ["a"])[0] != 0).all()


def test_hashed_rows_keep_products_on_average_with_the_stated_variance() -> None:
    """Over seeds: mean x'y and variance Σ (x_i² y_j² + x_i y_i x_j y_j) / m, crosses included."""
    context, m, seeds = {"u": 1.0, "v": -2.0}, 32, 4_000
    # The features of a row: u and v, the id, and the id crossed with each.
    x, y = np.array([1.0, -2.0, 1.0, 1.0, -2.0]), np.array([1.0, -2.0, 1.0, 1.0, -2.0])
    products = []
    for seed in range(seeds):
        row = Hashed(m, seed=seed, intercept=False).rows(context, ["a"])[0].astype(float)
        products.append(row @ row)
    pairs = np.outer(x**2, y**2) + np.outer(x * y, x * y)
    variance = (pairs.sum() - np.trace(pairs)) / m
    error = np.sqrt(variance / seeds)
    assert abs(np.mean(products) - x @ y) < 4 * error
    assert np.var(products) == pytest.approx(variance, rel=0.15)
    assert np.sqrt(variance) / (x @ y) < np.sqrt(2 / m)


def test_features_that_cancel_in_one_column_add_up_in_one_order() -> None:
    """With this seed 1e16 comes and goes around 0.7, which is lost or not by the order alone."""
    features = Hashed(1, seed=10, intercept=False)
    fields = {"a": 1e8, "b": -1e8, "c": 7e-9}
    rows = {
        features.rows(dict(context), {"x": dict(pairs)}).tobytes()
        for context in itertools.permutations(fields.items())
        for pairs in itertools.permutations({"p": 1e8, "q": -1e8}.items())
    }
    assert len(rows) == 1


@pytest.mark.parametrize("value", [NAN, INF, -1e9, LARGE, HUGE, None, 1j, [1], b"x"])
def test_a_value_that_cannot_be_hashed_is_refused_by_its_name(value: Any) -> None:
    """In the context and in an action's record."""
    for message, context, actions in [
        ("'age' of the context must be", {"age": value}, ["a"]),
        ("'age' of action 'a' must be", {}, {"a": {"age": value}}),
    ]:
        with pytest.raises(InvalidInput, match=message) as error:
            Hashed(8).rows(context, actions)  # type: ignore[arg-type]
        reported = error.value.value
        assert reported is value or reported == value


def test_names_that_are_not_text_are_refused() -> None:
    """The number 1 and the text "1" would hash alike otherwise."""
    with pytest.raises(InvalidInput, match="field names of the context must be text, got 1"):
        Hashed(8).rows({1: 2.0}, ["a"])  # type: ignore[dict-item]


def test_hashed_products_beyond_the_bound_are_refused() -> None:
    """Fields within bounds may cross to more than a row can hold."""
    with pytest.raises(InvalidInput, match=r"e\+1[56]"):
        Hashed(8).rows({"a": 1e8}, {"x": {"b": 1e8}})


def test_small_numbers_of_numpy_are_hashed_as_they_are() -> None:
    """The least int8 has no absolute value of its own type, and float16 does not reach 1e8."""
    plain = Hashed(16).rows({"a": -128, "b": 0.5}, ["x"])
    assert (Hashed(16).rows({"a": np.int8(-128), "b": np.float16(0.5)}, ["x"]) == plain).all()


def test_a_long_list_is_refused_without_writing_all_of_it() -> None:
    """The message shows its beginning, and costs no more than that of a short list."""
    count = 0

    class Item:
        def __repr__(self) -> str:
            nonlocal count
            count += 1
            return "item"

    with pytest.raises(
        InvalidInput, match=r"'x' of the context must be .*, got \[item, item, .*\.\.\.$"
    ):
        Hashed(8).rows({"x": [Item()] * 10_000}, ["a"])
    assert count <= 100
