from collections import OrderedDict, UserDict
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from belated.exceptions import InvalidInput
from belated.features import Features, Hashed, PerArm, Shared

NAN, INF = float("nan"), float("inf")
LARGE = pytest.param(10**400, id="large")  # more than a float holds
HUGE = pytest.param(10**5000, id="huge")  # more digits than Python writes out
OFFERS = {"blue": {"price": 2.0, "new": True}, "red": {"price": 5.0, "new": False}}


def test_a_shared_row_is_one_then_context_then_action_then_products() -> None:
    """The products go through the context first."""
    features = Shared(context=["age", "income"], action=["price", "new"])
    rows = features.rows({"income": 3.0, "age": 10}, OFFERS)
    assert rows.tolist() == [
        [1.0, 10.0, 3.0, 2.0, 1.0, 20.0, 10.0, 6.0, 3.0],
        [1.0, 10.0, 3.0, 5.0, 0.0, 50.0, 0.0, 15.0, 0.0],
    ]
    assert features.names == [
        "intercept",
        *("context age", "context income", "action price", "action new"),
        *("context age × action price", "context age × action new"),
        *("context income × action price", "context income × action new"),
    ]


def test_the_parts_of_a_shared_row_can_be_left_out() -> None:
    """Without intercept, products or context the other columns stay in their order."""
    row = {"red": {"price": 5.0}}
    plain = Shared(context=["age"], action=["price"], intercept=False, interactions=False)
    assert plain.rows({"age": 2.0}, row).tolist() == [[2.0, 5.0]]
    crossed = Shared(context=["age"], action=["price"], intercept=False)
    assert crossed.rows({"age": 2.0}, row).tolist() == [[2.0, 5.0, 10.0]]
    alone = Shared(action=["price"])
    assert alone.rows(None, row).tolist() == [[1.0, 5.0]]
    assert alone.rows({"age": 1.0}, row).tolist() == [[1.0, 5.0]]
    for features in (plain, crossed, alone):
        assert len(features.names) == features.dim


def test_records_and_plain_sequences_give_the_same_shared_rows() -> None:
    """A sequence is read in the order of the names; mappings of any kind are records."""
    features = Shared(context=["age", "income"], action=["price", "new"])
    expected = features.rows({"age": 10, "income": 3.0}, OFFERS)
    contexts: list[Any] = [
        [10, 3.0],
        (10.0, 3),
        np.array([10.0, 3.0]),
        np.array([10, 3], dtype=np.int8),
        OrderedDict(income=3.0, age=np.float32(10)),
        UserDict({"age": np.array(10.0), "income": 3.0}),
    ]
    actions: list[Any] = [
        {"blue": [2.0, True], "red": [5.0, False]},
        {"blue": np.array([2.0, 1.0]), "red": np.array([5.0, 0.0])},
        {"blue": {"price": 2, "new": np.True_}, "red": (5.0, 0)},
        {"blue": np.array([2, 1]), "red": OFFERS["red"]},
        MappingProxyType(OFFERS),
    ]
    for context in contexts:
        for offers in actions:
            assert (features.rows(context, offers) == expected).all()
    counted = Shared(context=2, action=2)
    assert (counted.rows(contexts[0], actions[0]) == expected).all()
    assert counted.names[:5] == ["intercept", "context 0", "context 1", "action 0", "action 1"]


@pytest.mark.parametrize(
    "features",
    [Shared(context=["age"], action=["price"]), PerArm(["blue", "red"], context=["age"])],
    ids=["Shared", "PerArm"],
)
def test_names_that_no_column_asks_for_are_ignored(features: Features) -> None:
    """A record may carry more than the features read, even what is no number."""
    context = {"age": 4.0, "id": "u-17", "tags": None}
    rows = features.rows({"age": 4.0}, {"blue": {"price": 1.0}})
    assert (features.rows(context, {"blue": {"price": 1.0, "title": "x"}}) == rows).all()


NO_NUMBERS: list[Any] = [NAN, INF, -INF, 1e9, 1e300, LARGE, HUGE, "3", None, 1j, [1.0], {}]


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_a_value_that_is_no_bounded_number_is_refused_by_its_name(value: Any) -> None:
    """The message names the field and whose it is, and the error carries the value."""
    shared = Shared(context=["age", "income"], action=["price", "new"])
    valid = {"age": 1.0, "income": 2.0}
    bad_context = {"age": 1.0, "income": value}
    bad_offers = {"blue": OFFERS["blue"], "red": {"price": value, "new": True}}
    per_arm = PerArm(["blue"], context=["age", "income"])
    cases: list[tuple[str, Features, Any, Any]] = [
        ("'income' of the context must be", shared, bad_context, OFFERS),
        ("'price' of action 'red' must be", shared, valid, bad_offers),
        ("'income' of the context must be", per_arm, bad_context, ["blue"]),
    ]
    for message, features, context, actions in cases:
        with pytest.raises(InvalidInput, match=message) as error:
            features.rows(context, actions)
        reported = error.value.value
        assert reported == value or (reported != reported and value != value)
        assert len(str(error.value)) < 200


def test_a_missing_name_is_refused_by_its_name() -> None:
    """Never read as zero: a typo in a record shows at once."""
    shared = Shared(context=["age", "income"], action=["price"])
    offers = {"blue": {"price": 1.0}, "red": {"prize": 2.0}}
    context = {"age": 1.0, "income": 2.0}
    cases: list[tuple[Features, Any, Any, str]] = [
        (shared, {"age": 1.0, "incom": 2.0}, {"blue": {"price": 1.0}}, "'income' of the context"),
        (shared, None, {"blue": {"price": 1.0}}, "'age' of the context"),
        (shared, context, offers, "'price' of action 'red'"),
        (shared, context, {"blue": None}, "'price' of action 'blue'"),
        (PerArm(["a"], context=["age"]), {}, ["a"], "'age' of the context"),
    ]
    for features, fields, actions, missing in cases:
        with pytest.raises(InvalidInput, match=f"^{missing} is missing") as error:
            features.rows(fields, actions)
        assert error.value.value == missing.split("'")[1]


@pytest.mark.parametrize(
    ("context", "named"),
    [
        ([1.0], r"2 real numbers, got \[1\.0\]"),
        ([1.0, 2.0, 3.0], r"2 real numbers, got \[1\.0, 2\.0, 3\.0\]"),
        ([1.0, "x"], "number 1 of the context must be .*got 'x'"),
        ([NAN, 2.0], "number 0 of the context must be .*got nan"),
        (np.array([1.0, INF]), "number 1 of the context must be .*got inf"),
        (np.ones((1, 2)), "array"),
        (np.array([1.0, 2.0], dtype=object), "dtype=object"),
        ([1.0, [2.0]], r"number 1 of the context must be .*got \[2\.0\]"),
        ("ab", "'ab'"),
        (3.0, r"3\.0"),
        ({1.0, 2.0}, "1.0"),
        ({"age": 1.0}, "no names; got .*'age'"),
        (None, r"a sequence of 2 numbers.*got \{\}"),
        (list(range(1000)), r"2 real numbers, got .*\.\.\.$"),
    ],
    ids=lambda value: str(value)[:12],
)
def test_a_sequence_that_does_not_fit_is_refused_with_what_came(context: Any, named: str) -> None:
    """Numbers without names are told by their place."""
    with pytest.raises(InvalidInput, match=named):
        PerArm(["a"], context=2).rows(context, ["a"])
    with pytest.raises(InvalidInput, match=named):
        Shared(context=2, action=["price"]).rows(context, {"a": {"price": 1.0}})


def test_an_action_without_a_record_has_no_numbers_to_share() -> None:
    """A list of ids is refused by features that read the actions."""
    with pytest.raises(InvalidInput, match=r"`actions` must be a mapping"):
        Shared(action=["price"]).rows(None, ["blue"])
    with pytest.raises(
        InvalidInput, match=r"'red' must be a list of 1 real numbers, got \[1\.0, 2\.0\]"
    ):
        Shared(action=["price"]).rows(None, {"blue": [1.0], "red": [1.0, 2.0]})


def test_a_product_beyond_the_bound_is_refused_by_its_column() -> None:
    """Each factor may be within bounds where the product is not."""
    features = Shared(context=["age"], action=["price"])
    with pytest.raises(
        InvalidInput, match=r"context age × action price of action 'red' must be .*got 1e"
    ) as e:
        features.rows({"age": 1e6}, {"blue": {"price": 1.0}, "red": {"price": 1e6}})
    assert e.value.value == pytest.approx(1e12)


def test_products_are_of_the_numbers_as_float32() -> None:
    """A row holds what a replay would make of its own columns."""
    row = Shared(context=1, action=1).rows([0.1], {"a": [0.3]})[0]
    assert row[3] == row[1] * row[2]
    assert row[1] == np.float32(0.1)


def test_a_per_arm_row_begins_with_its_block() -> None:
    """One and the context follow the number of the action, wherever it was offered."""
    features = PerArm(["blue", 7, "red"], context=["age", "income"])
    rows = features.rows({"age": 2.0, "income": 3.0}, ["red", 7])
    assert rows.tolist() == [[2, 1, 2, 3], [1, 1, 2, 3]]
    assert features.names[3:6] == ["7: intercept", "7: age", "7: income"]
    assert len(features.names) == features.dim == 3 * features.block


def test_arms_without_context_have_one_number() -> None:
    """The classical bandit: one number for each arm."""
    features = PerArm(["a", "b", "c"])
    assert features.rows(None, ["c", "a"]).tolist() == [[2, 1], [0, 1]]
    assert features.rows({"age": 1.0}, ["b"]).tolist() == [[1, 1]]


def test_a_block_may_be_the_context_alone() -> None:
    """Without intercept a block begins with the first number."""
    features = PerArm(["a", "b"], context=2, intercept=False)
    assert features.rows([2.0, 3.0], ["b"]).tolist() == [[1, 2, 3]]
    assert features.names == ["a: context 0", "a: context 1", "b: context 0", "b: context 1"]


def test_offers_that_alternate_keep_their_own_rows() -> None:
    """What is remembered of one offer is not used for another, through any number of offers."""
    features = PerArm(range(40), context=1)
    for round_ in range(3):
        for first in range(40):
            for second in (first + 1, first + 2, *range(first + 3, min(first + 12, 40))):
                ids = [first, second % 40]
                rows = features.rows([float(round_)], ids)
                assert rows[:, 0].tolist() == ids
    assert len(features._offers) <= 256


def test_an_unknown_arm_is_refused_and_says_which_are_known() -> None:
    """Text and number are different ids."""
    features = PerArm(["1", "a"], context=1)
    with pytest.raises(InvalidInput, match=r"action 1; known actions: '1', 'a'. To add") as error:
        features.rows([0.0], ["1", 1])
    assert error.value.value == 1


def test_growth_changes_no_row() -> None:
    """A new action has a block of its own; the old features are not changed."""
    old = PerArm(["blue", "red"], context=["age"])
    new = old.with_actions(["green", "red", 3])
    assert new.actions == ("blue", "red", "green", 3)
    assert old.actions == ("blue", "red")
    before = old.rows({"age": 4.0}, ["red", "blue"])
    after = new.rows({"age": 4.0}, ["red", "blue", "green"])
    assert (after[:2] == before).all()
    assert after[2].tolist() == [2, 1, 4]
    assert new.names[: old.dim] == old.names
    assert old.with_actions([]) == old == old.with_actions(["red"])


def test_larger_features_extend_smaller_ones_and_not_the_other_way() -> None:
    """Known from the fingerprint alone, as a journal keeps it."""
    old = PerArm(["blue", "red"], context=["age"])
    new = old.with_actions(["green"]).with_actions(["white"])
    assert new.extends(old)
    assert new.extends(old.fingerprint)
    assert not old.extends(new)
    candidates: list[Features | str] = [
        PerArm(["red", "blue"], context=["age"]),
        PerArm(["blue", "green"], context=["age"]),
        PerArm(["blue", "red"], context=["income"]),
        PerArm(["blue", "red"], context=1),
        PerArm(["blue", "red"], context=["age"], intercept=False),
        Hashed(4),
        "",
        "0" * 32,
    ]
    for candidate in candidates:
        assert not new.extends(candidate)
