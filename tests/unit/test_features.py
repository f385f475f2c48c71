import dataclasses
import enum
import json
import os
import subprocess
import sys
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from belated.exceptions import InvalidInput
from belated.features import Features, FromTransform, Hashed, PerArm, Shared
from belated.features.records import as_actions
from tests.unit.transformers import Fake, Named

OFFERS = {"blue": {"price": 2.0, "new": True}, "red": {"price": 5.0, "new": False}}


EVERY: list[Features] = [
    Shared(context=["age"], action=["price"]),
    Shared(context=1, action=["price"], intercept=False, interactions=False),
    PerArm(["blue", "red"], context=["age"]),
    PerArm(["green", "red", "blue"], intercept=True),
    PerArm(["red", "blue"], context=["age"], intercept=False),
    Hashed(16),
    Hashed(5, seed=1, interactions=False, intercept=False),
    FromTransform(Fake(), name="fake", dim=2),
]
LABELS = [f"{type(features).__name__}-{i}" for i, features in enumerate(EVERY)]
every = pytest.mark.parametrize("features", EVERY, ids=LABELS)


def context_for(features: Features) -> Any:
    """One that these features can read."""
    return [4.0] if isinstance(features, Shared) and features.context == 1 else {"age": 4.0}


@every
def test_rows_are_float32_in_c_order_one_for_each_action(features: Features) -> None:
    """Whatever the features, the table has the type and the order that models need."""
    rows = features.rows(context_for(features), OFFERS)
    assert rows.dtype == np.float32
    assert rows.flags.c_contiguous
    assert rows.flags.writeable
    blocks = getattr(features, "blocks", None)
    assert rows.shape == (2, features.dim if blocks is None else 1 + features.dim // blocks)


@every
def test_rows_come_in_the_order_offered(features: Features) -> None:
    """Offering the same actions the other way round turns the table over."""
    context = context_for(features)
    backwards = dict(reversed(OFFERS.items()))
    assert (features.rows(context, backwards) == features.rows(context, OFFERS)[::-1]).all()


@every
def test_one_action_may_be_offered(features: Features) -> None:
    """Its row is the one it has among others."""
    context = context_for(features)
    (row,) = features.rows(context, {"red": OFFERS["red"]})
    assert (row == features.rows(context, OFFERS)[1]).all()


@every
def test_a_second_call_does_not_touch_the_rows_of_the_first(features: Features) -> None:
    """Each call gives a table of its own, also where something is remembered."""
    context = context_for(features)
    first = features.rows(context, OFFERS)
    original = first.copy()
    second = features.rows(context, OFFERS)
    second[:] = -1.0
    assert (first == original).all()
    assert (features.rows(context, OFFERS) == original).all()


@every
def test_built_in_features_keep_the_protocol(features: Features) -> None:
    """They are Features by structure; rows are not."""
    assert isinstance(features, Features)
    assert not isinstance(np.ones((2, 2)), Features)
    assert features.extends(features)
    assert features.extends(features.fingerprint)


@every
@pytest.mark.parametrize(
    ("actions", "named"),
    [
        ([], r"\[\]"),
        ({}, r"\{\}"),
        ("blue", "'blue'"),
        (b"blue", "b'blue'"),
        ({"blue"}, r"\{'blue'\}"),
        (None, "None"),
        (3, "3"),
        (["blue", "blue"], "'blue' is offered twice"),
        ([1, np.int64(1)], "1 is offered twice"),
        ([True], "True"),
        ([1.0], r"1\.0"),
        (["red", None], "None"),
        ([("blue",)], "blue"),
        ([2**63], "9223372036854775808"),
        ([10**5000], "thousands of digits"),
        (np.array([[1]]), r"array\(\[\[1\]\]\)"),
        (np.array([0.5]), r"0\.5"),
    ],
    ids=lambda value: str(type(value)),
)
def test_actions_that_are_no_distinct_ids_are_refused(
    features: Features, actions: Any, named: str
) -> None:
    """The message names what was offered, before anything else is looked at."""
    with pytest.raises(InvalidInput, match=named):
        features.rows({}, actions)


def test_ids_are_given_back_plain() -> None:
    """What a journal stores is text or an int, whatever kind of list or number came."""

    class Colour(str, enum.Enum):  # noqa: UP042  # whose str() is not its value
        BLUE = "blue"

    cases: list[tuple[Any, Any]] = [
        ([Colour.BLUE, "red"], ("blue", "red")),
        (np.array([3, 1]), (3, 1)),
        (np.array(["b", "a"]), ("b", "a")),
        (range(2), (0, 1)),
        ((1, "1", np.int8(2)), (1, "1", 2)),
        (MappingProxyType({"b": {}, "a": {}}), ("b", "a")),
        ([-(2**63) + 1, 2**63 - 1], (-(2**63) + 1, 2**63 - 1)),
    ]
    for actions, expected in cases:
        ids = as_actions(actions)
        assert ids == expected
        assert {type(id) for id in ids} <= {int, str}


def test_only_per_arm_features_grow() -> None:
    """Everything else extends what is the same, and nothing else."""
    names = {"context": ["age"], "action": ["price"]}
    assert Shared(**names).extends(Shared(**names))  # type: ignore[arg-type]
    assert not Shared(context=["age"], action=["price", "new"]).extends(Shared(**names))  # type: ignore[arg-type]
    assert Hashed(8).extends(Hashed(8))
    assert not Hashed(16).extends(Hashed(8))
    assert FromTransform(Fake(), name="a", dim=2).extends(FromTransform(Named(), name="a"))
    assert not FromTransform(Fake(), name="b", dim=2).extends(
        FromTransform(Fake(), name="a", dim=2)
    )


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Shared(context="age", action=["price"]), "`context` must be .*got 'age'"),
        (
            lambda: Shared(context=["age", "age"], action=["price"]),
            "contains 'age' more than once",
        ),
        (lambda: Shared(context=["age", 3], action=["price"]), r"`context\[1\]` must be .*got 3"),  # type: ignore[list-item]
        (lambda: Shared(context=[""], action=["price"]), r"`context\[0\]` must be .*got ''"),
        (lambda: Shared(context=-1, action=["price"]), "`context` must be .*got -1"),
        (lambda: Shared(context=2.0, action=["price"]), r"`context` must be .*got 2\.0"),  # type: ignore[arg-type]
        (lambda: Shared(context=True, action=["price"]), "`context` must be .*got True"),
        (lambda: Shared(context=None, action=["price"]), "`context` must be .*got None"),  # type: ignore[arg-type]
        (lambda: Shared(context=["age"], action=[]), r"`action` is \[\]"),
        (lambda: Shared(context=["age"], action=0), "`action` is 0"),
        (lambda: PerArm([]), r"`actions` is \[\]"),
        (lambda: PerArm(["a", "a"]), "'a' is offered twice"),
        (lambda: PerArm("ab"), "`actions` must be .*got 'ab'"),
        (lambda: PerArm(["a"], context=[], intercept=False), r"`context` is \[\]"),
        (lambda: PerArm(["a"]).with_actions(["b", "b"]), "'b' is offered twice"),
        (lambda: PerArm(["a"]).with_actions("bc"), "`actions` must be .*got 'bc'"),
        (lambda: PerArm(["a"]).with_actions([None]), "None"),  # type: ignore[list-item]
        (lambda: Hashed(0), "`dim` must be .*got 0"),
        (lambda: Hashed(1), "`dim` must be .*got 1"),
        (lambda: Hashed(8.0), r"`dim` must be .*got 8\.0"),  # type: ignore[arg-type]
        (lambda: Hashed(8, seed=1.5), r"`seed` must be .*got 1\.5"),  # type: ignore[arg-type]
        (lambda: Hashed(8, seed=True), "`seed` must be .*got True"),
        (lambda: FromTransform(Fake(), name=""), "`name` must be .*got ''"),
        (lambda: FromTransform(Fake(), name=7), "`name` must be .*got 7"),  # type: ignore[arg-type]
        (
            lambda: FromTransform(object(), name="a"),  # type: ignore[arg-type]
            "must be an object with a `transform` method",
        ),
        (
            lambda: FromTransform(Fake(), name="a"),
            "number of columns of .* is unknown .*: pass dim=",
        ),
        (lambda: FromTransform(Fake(), name="a", dim=0), "`dim` must be .*got 0"),
        (lambda: FromTransform(Named(), name="a", dim=3), "`dim` must be 2, the number of columns"),
    ],
)
def test_features_that_make_no_sense_cannot_be_made(make: Any, named: str) -> None:
    """The message names the argument that was refused."""
    with pytest.raises(InvalidInput, match=named):
        make()


def test_features_are_frozen_values() -> None:
    """Equal when made of the same, usable as keys, and not to be changed."""
    a, b = PerArm(["x"], context=["age"]), PerArm(("x",), context=("age",))
    assert a == b
    assert hash(a) == hash(b)
    assert a.fingerprint == b.fingerprint
    assert eval(repr(a)) == a
    assert Shared(action=["p"]) == Shared(action=("p",))
    assert Shared(action=1, intercept=1).fingerprint == Shared(action=1).fingerprint  # type: ignore[arg-type]
    assert len({Hashed(8), Hashed(8, seed=0), Hashed(8, seed=1)}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        a.intercept = False  # type: ignore[misc]


def test_features_that_differ_have_different_fingerprints() -> None:
    """Every argument counts; ids and names are not run together."""
    variants: list[Features] = [
        *(Shared(context=["a"], action=["b"]), Shared(context=["b"], action=["a"])),
        *(Shared(action=["a", "b"]), Shared(action=["a,b"]), Shared(action=2), Shared(action=3)),
        *(Shared(action=["a"], intercept=False), Shared(action=["a"], interactions=False)),
        *(PerArm(["a", "b"]), PerArm(["b", "a"]), PerArm(["ab"]), PerArm(["a"]), PerArm([1])),
        *(PerArm(["1"]), PerArm(["a"], context=["b"]), PerArm(["a"], context=1)),
        *(PerArm(["a"], context=1, intercept=False), PerArm(['a"\n"b'])),
        *(Hashed(8), Hashed(9), Hashed(8, seed=1), Hashed(8, seed=-1)),
        *(Hashed(8, interactions=False), Hashed(8, intercept=False)),
        *(FromTransform(Fake(), name="a", dim=2), FromTransform(Fake(), name="b", dim=2)),
        FromTransform(Fake(), name="a", dim=3),
    ]
    assert len({features.fingerprint for features in variants}) == len(variants)


GOLDEN_ROWS = [
    [1.0, -1.5, 2.5, 1.0, -2.0, 2.0, 0.5, -2.0],
    [1.0, -2.0, -2.0, 0.0, 0.0, -0.5, 0.5, 0.0],
]
GOLDEN_FINGERPRINTS = [
    "2a5709adb41e310f6f15d03191373eb0",
    "1686cff62f07b46ac840ddb26f1000f5",
    "4153f054a1a4e2e113865ef78d039dea",
    "5758b3191d8b0c735831628479e0e8d2",
    "33e410632704e25c066abe9bab9a58a3",
    "5ed253fcd15c0b9c6df7881e6bd3ae25",
]
SCRIPT = """
import json
from belated.features import FromTransform, Hashed, PerArm, Shared

class T:
    def transform(self, records):
        return records

context = {"age": 0.5, "city": "Oslo", "member": True}
actions = {"blue": {"price": 2.0, "kind": "sale"}, 7: {}}
made = [
    Shared(context=["age"], action=["price"]),
    Shared(action=2, intercept=False, interactions=False),
    PerArm(["blue", 7], context=["age"]),
    PerArm(["blue"], context=3),
    Hashed(8),
    FromTransform(T(), name="May", dim=3),
]
rows = Hashed(8, seed=3).rows(context, actions)
print(json.dumps([rows.tolist(), [features.fingerprint for features in made]]))
"""


@pytest.mark.parametrize("hash_seed", ["0", "4242"])
def test_hashes_and_fingerprints_are_the_same_in_every_process(hash_seed: str) -> None:
    """Pinned values: a journal written years ago must still find them."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", SCRIPT]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(process.stdout) == [GOLDEN_ROWS, GOLDEN_FINGERPRINTS]


@pytest.mark.parametrize("features", [Hashed(8), FromTransform(Fake(), name="fake", dim=2)])
@pytest.mark.parametrize("record", [[1.0], "age", 3])
def test_features_by_name_take_no_plain_sequence(features: Features, record: Any) -> None:
    """Without names there is nothing to hash or to hand over."""
    with pytest.raises(InvalidInput, match=r"the context must be a mapping of names"):
        features.rows(record, ["a"])
    with pytest.raises(InvalidInput, match=r"action 'a' must be a mapping of names"):
        features.rows(None, {"a": record})
