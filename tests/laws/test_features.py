import hashlib
import json
from datetime import UTC
from typing import Any

import numpy as np
from hypothesis import given, strategies as st

from belated.exceptions import InvalidInput
from belated.features import (
    Category,
    Datetime,
    Features,
    Flag,
    Hashed,
    Number,
    PerArm,
    RandomFeatures,
    Shared,
    Text,
    Vector,
)
from belated.features.encoders import Encoder

WORD = (1 << 64) - 1

names = st.text(max_size=4)
numbers = st.floats(-100, 100, width=32) | st.integers(-100, 100) | st.booleans()
records = st.dictionaries(names, numbers | st.text(max_size=3), max_size=5)
ids = st.integers(-5, 5) | st.text(max_size=2)
offers = st.dictionaries(ids, records, min_size=1, max_size=5)
hashed = st.builds(
    Hashed,
    st.integers(2, 40),
    seed=st.integers(-3, 3),
    interactions=st.booleans(),
    intercept=st.booleans(),
)


def word(*key: Any) -> int:
    """64 bits of blake2b over the key as JSON."""
    text = json.dumps(key, separators=(",", ":")).encode()
    digest = hashlib.blake2b(text, digest_size=8, person=b"belated.hashed").digest()
    return int.from_bytes(digest, "little")


def cross(c: int, a: int) -> int:
    """The finaliser of splitmix64."""
    bits = (c + a * 0x9E3779B97F4A7C15) & WORD
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9 & WORD
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB & WORD
    return bits ^ (bits >> 31)


def by_hand(features: Hashed, context: Any, id: Any, record: Any) -> Any:
    """The row as the documentation describes it, one feature at a time."""

    def words(kind: str, fields: Any) -> list[tuple[int, float]]:
        return [
            (word(features.seed, kind, name, value), 1.0)
            if isinstance(value, str)
            else (word(features.seed, kind, name, None), float(value))
            for name, value in fields.items()
        ]

    c = words("context", context)
    a = [(word(features.seed, "id", id, None), 1.0), *words("action", record)]
    crosses = [(cross(i, j), v * w) for i, v in c for j, w in a]
    row = np.zeros(features.dim)
    offset = int(features.intercept)
    row[:offset] = 1.0
    for bits, value in c + a + (crosses if features.interactions else []):
        row[offset + (bits >> 1) % (features.dim - offset)] += -value if bits & 1 else value
    return row


@given(hashed, records, offers)
def test_a_hashed_row_is_the_sum_of_its_features(
    features: Hashed, context: Any, actions: Any
) -> None:
    """Against the definition in plain Python, to the rounding of float32."""
    rows = features.rows(context, actions)
    for row, (id, record) in zip(rows, actions.items(), strict=True):
        expected = by_hand(features, context, id, record)
        np.testing.assert_allclose(row, expected, rtol=1e-6, atol=1e-2)


@given(hashed, records, offers, st.dictionaries(names, st.integers(-64, 64), max_size=4))
def test_hashing_is_linear_in_numbers(
    features: Hashed, context: Any, actions: Any, fields: Any
) -> None:
    """Whatever else a record holds, twice the numbers move a row twice as far, exactly."""
    constants = {name: value for name, value in context.items() if name not in fields}
    constants = {name: round(v) if not isinstance(v, str) else v for name, v in constants.items()}
    options = {
        id: {name: round(v) if not isinstance(v, str) else v for name, v in record.items()}
        for id, record in actions.items()
    }
    still, once, twice = (
        features.rows({**constants, **{name: k * v for name, v in fields.items()}}, options)
        for k in (0, 1, 2)
    )
    assert (twice - still == 2 * (once - still)).all()


@given(hashed, records, offers, st.randoms())
def test_the_order_of_names_does_not_matter(
    features: Hashed, context: Any, actions: Any, random: Any
) -> None:
    """Bit for bit, also where several features share a column."""

    def shuffled(record: Any) -> Any:
        items = list(record.items())
        random.shuffle(items)
        return dict(items)

    rows = features.rows(context, actions)
    mixed = {id: shuffled(record) for id, record in actions.items()}
    assert rows.tobytes() == features.rows(shuffled(context), mixed).tobytes()


@st.composite
def offered(draw: st.DrawFn) -> tuple[Features, Any, Any]:
    """Features with a context and actions they can read."""
    reals = st.floats(-1e3, 1e3, width=32)
    action_fields = st.fixed_dictionaries({"price": reals, "size": reals})
    actions = draw(st.dictionaries(ids, action_fields, min_size=1, max_size=6))
    context = draw(st.fixed_dictionaries({"age": reals, "income": reals}))
    intercept, interactions = draw(st.booleans()), draw(st.booleans())
    action_names = list(actions)
    draw(st.randoms()).shuffle(action_names)
    context_fields = ["income", "age"]
    features: list[Features] = [
        Shared(
            context=context_fields, action=["size"], intercept=intercept, interactions=interactions
        ),
        PerArm(action_names, context=context_fields, intercept=intercept),
        draw(hashed),
    ]
    return draw(st.sampled_from(features)), context, actions


@given(offered(), st.data())
def test_the_rows_of_a_subset_are_those_of_the_full_set(
    case: tuple[Features, Any, Any], data: st.DataObject
) -> None:
    """The row of an action does not depend on which others are offered, or in which order."""
    features, context, actions = case
    row_of = dict(zip(actions, features.rows(context, actions), strict=True))
    subset = data.draw(st.lists(st.sampled_from(list(actions)), min_size=1, unique=True))
    rows = features.rows(context, {id: actions[id] for id in subset})
    width = 1 + features.block if isinstance(features, PerArm) else features.dim
    assert rows.shape == (len(subset), width)
    for id, row in zip(subset, rows, strict=True):
        assert np.array_equal(row, row_of[id])  # a product that underflows can be 0.0 or -0.0


@given(offered())
def test_rows_have_as_many_numbers_as_names(case: tuple[Features, Any, Any]) -> None:
    """Where columns have names, each has one."""
    features, _, _ = case
    assert features.names is None or len(features.names) == features.dim


@given(
    st.lists(ids, min_size=1, max_size=5, unique=True),
    st.lists(st.lists(ids, max_size=4, unique=True), max_size=3),
    st.integers(0, 3),
    st.lists(st.floats(-10, 10, width=32), min_size=3, max_size=3),
)
def test_growth_in_any_number_of_steps_keeps_old_rows(
    start: Any, steps: Any, width: int, context: Any
) -> None:
    """Old rows stay as they are; one step with all new ids gives the same features."""
    first = PerArm(start, context=width)
    grown = first
    for step in steps:
        larger = grown.with_actions(step)
        assert larger.extends(grown)
        assert larger.extends(first)
        assert grown.extends(larger) == (larger == grown)
        grown = larger
    z = context[:width]
    np.testing.assert_array_equal(grown.rows(z, start), first.rows(z, start))
    combined = first.with_actions(list(dict.fromkeys(id for step in steps for id in step)))
    assert combined == grown
    assert combined.fingerprint == grown.fingerprint


@given(
    st.lists(st.floats(-1e3, 1e3, width=32), min_size=0, max_size=4),
    st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=4),
)
def test_a_shared_row_is_the_outer_product_of_its_parts(z: Any, a: Any) -> None:
    """(1, z) times (1, a), read in the documented order."""
    (row,) = Shared(context=len(z), action=len(a)).rows(z, {"x": a})
    table = np.outer(np.array([1, *z], np.float32), np.array([1, *a], np.float32))
    assert row[0] == 1.0
    assert (row[1 : 1 + len(z)] == table[1:, 0]).all()
    assert (row[1 + len(z) : 1 + len(z) + len(a)] == table[0, 1:]).all()
    assert (row[1 + len(z) + len(a) :] == table[1:, 1:].ravel()).all()


times = st.datetimes() | st.datetimes(timezones=st.just(UTC))
texts = st.text(max_size=6) | times.map(str)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts
values = scalars | st.lists(scalars | st.lists(scalars, max_size=2), max_size=4)
FIELDS = [
    Number(0, 1),
    Number(1, 9, log=True),
    Category(["AT"], others=2),
    Flag(),
    Datetime("Pacific/Auckland"),
    Vector(3),
    Vector(3, norm=1e-9),
    Text(hash=3),
]


@given(st.sampled_from(FIELDS), values)
def test_whatever_json_holds_is_encoded_or_refused(field: Encoder, value: Any) -> None:
    """As a row of a bounded length, or with an error that names the field; and it is counted."""
    features = PerArm(["mail"], context=RandomFeatures({"f": field}, size=2))
    refused = ""
    rows: Any = np.empty((0, 1 + features.block))
    try:
        rows = features.rows({"f": value}, ["mail"])
    except InvalidInput as error:
        refused = str(error)
    assert len(rows) == (not refused)
    assert not refused or refused.startswith("'f' of the context ")
    assert rows.shape[1] == 1 + features.block
    assert np.linalg.norm(rows) <= 1.5
    counts = features.field_counts["f"]
    assert counts["refused"] == bool(refused)
    assert sorted(counts.values()) == [0, 0, 0, 0, 1]


@given(st.sampled_from(FIELDS), st.lists(values, min_size=1, max_size=6))
def test_values_are_encoded_together_as_one_by_one(field: Encoder, several: Any) -> None:
    """To the last bit, and with the same counts; what is refused alone is refused with others."""
    batched, single = (Shared(action=RandomFeatures({"f": field}, size=2)) for _ in range(2))
    rows: Any = None
    refused = False
    try:
        rows = batched.rows({}, {n: {"f": value} for n, value in enumerate(several)})
    except InvalidInput:
        refused = True
    numbers = []
    for n, value in enumerate(several):
        try:
            numbers.append(single.rows({}, {n: {"f": value}})[0].tobytes())
        except InvalidInput:
            assert refused
            return
    assert [row.tobytes() for row in rows] == numbers
    assert batched.field_counts == single.field_counts
