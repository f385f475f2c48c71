"""Fields that are encoded: scaled, one-hot, fitted from a sample; and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from belated import Category, Flag, Hashed, Number, PerArm, Shared
from belated.exceptions import InvalidInput
from belated.expressions import as_features
from belated.features import Features
from belated.features.fitting import LIMIT, SHARED
from belated.features.scaling import scaling_advice

ACTIONS = ["mail", "call"]
CONTEXT = {"age": Number(18, 90), "country": Category(["AT", "DE"]), "member": Flag()}
FEATURES = PerArm(ACTIONS, context=CONTEXT)


def block(context: dict[str, Any]) -> list[float]:
    """The numbers of a context, as they were before three fields and a 1 shared a length of 1."""
    encoded: list[float] = (2.0 * FEATURES.rows(context, ["mail"])[0, 1:]).tolist()
    assert encoded.pop(0) == 1.0
    return encoded


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        ({"age": 54, "country": "AT", "member": True}, [0, 1, 0, 0, 0.5]),
        ({"age": 90.0, "country": "DE", "member": False}, [2, 0, 1, 0, -0.5]),
        ({"age": np.float32(18), "country": "FR", "member": np.bool_(True)}, [-2, 0, 0, 1, 0.5]),
        ({"age": 1_000_000, "country": "at", "member": 1}, [2, 0, 0, 1, 0.5]),
        ({"age": -math.inf, "country": "", "member": 0.0}, [-2, 0, 0, 1, -0.5]),
        ({"age": None, "country": None, "member": None}, [0, 0, 0, 0, 0]),
        ({"age": math.nan, "country": math.nan, "member": math.nan}, [0, 0, 0, 0, 0]),
        ({"age": pd.NA, "country": pd.NA, "member": pd.NA, "more": "x"}, [0, 0, 0, 0, 0]),
    ],
)
def test_what_a_context_becomes(context: dict[str, Any], expected: list[float]) -> None:
    """Numbers within their range, a column for each category, and zeros for what is missing."""
    assert block(context) == expected


def test_names_of_columns() -> None:
    """Field and value, in every block."""
    fields = ["age", "country=AT", "country=DE", "country=other", "member"]
    assert FEATURES.names == [f"{a}: {name}" for a in ACTIONS for name in ["intercept", *fields]]
    shared = Shared(context=CONTEXT, action={"brand": Category(["A"], others=2)})
    assert shared.names[6:9] == [
        "action brand=A",
        "action brand=other 0",
        "action brand=other 1",
    ]
    assert shared.names[9] == "context age × action brand=A"


@pytest.mark.parametrize("count", [1, 3, 40])
def test_rows_have_a_length_of_about_1(count: int) -> None:
    """Whatever the scales, and however many fields there are."""
    rng = np.random.default_rng(count)
    scales = 10.0 ** rng.integers(-6, 7, size=count)
    sample = [
        {f"n{i}": scale * z for i, (scale, z) in enumerate(zip(scales, line, strict=True))}
        | {"city": str(line[0] > 0)}
        for line in rng.normal(size=(500, count)).tolist()
    ]
    features = PerArm(ACTIONS, context=list(sample[0])).fit(sample)
    lengths = [np.linalg.norm(features.rows(record, ["call"])[:, 1:]) for record in sample]
    assert 0.85 <= math.sqrt(np.mean(np.square(lengths))) <= 1.15
    assert max(lengths) <= 2.0


def test_values_of_a_category_are_compared_as_text() -> None:
    """A number from a frame, and its text from a form, are the same."""
    store = Category([17, "18"])
    assert store.values == ("17", "18")
    for value in (17, "17", np.int64(17), 17.0):
        assert store.encode(value) == [1.0, 0.0, 0.0]
    with pytest.raises(InvalidInput, match=r"must be text, a whole number or None, got 17\.5"):
        store.encode(17.5)


def test_other_values_share_columns_by_a_hash() -> None:
    """The same column in every process; all of them are used."""
    city = Category(["Oslo"], others=4)
    places = {value: city.encode(value).index(1.0) for value in map(str, range(200))}
    assert set(places.values()) == {1, 2, 3, 4}
    assert [places[str(n)] for n in range(8)] == [city.encode(n).index(1.0) for n in range(8)]
    assert city.encode("Bergen") == [0.0, 0.0, 0.0, 0.0, 1.0]  # for good


# --- fitting -----------------------------------------------------------------------------------


def sample_of(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Contexts of all kinds, some of them with gaps."""
    rng = np.random.default_rng(seed)
    return [
        {
            "age": float(rng.integers(18, 91)),
            "income": float(np.exp(rng.normal(10, 1))) if n % 7 else None,
            "country": rng.choice(["AT", "DE", "FR"]).item() if n % 5 else None,
            "store": f"s{rng.geometric(0.02)}",
            "member": bool(rng.random() < 0.3),
            "same": 3,
        }
        for n in range(count)
    ]


NAMES = ["age", "income", "country", "store", "member", "same"]


def test_a_sample_says_how_fields_are_encoded() -> None:
    """Ranges without outliers, the values that occur, and the most frequent of very many."""
    sample = sample_of(1_000)
    fields = PerArm(ACTIONS, context=NAMES).fit(sample).context
    assert isinstance(fields, dict)
    assert fields["age"] == Number(18.0, 90.0)
    incomes = [record["income"] for record in sample if record["income"] is not None]
    low, high = np.quantile(incomes, [0.01, 0.99])
    assert fields["income"].low == pytest.approx(low, abs=(high - low) / 100)
    assert fields["income"].high == pytest.approx(high, abs=(high - low) / 100)
    assert fields["country"] == Category(["AT", "DE", "FR"])
    assert len(fields["store"].values) == LIMIT
    assert fields["store"].others == SHARED
    assert "s1" in fields["store"].values
    assert fields["member"] == Flag()
    assert fields["same"] == Number(2.0, 4.0)


def test_a_frame_fits_as_a_list_does() -> None:
    """Of pandas or polars."""
    sample = sample_of(200)
    unfitted = PerArm(ACTIONS, context=NAMES)
    expected = unfitted.fit(sample)
    assert unfitted.fit(pd.DataFrame(sample)) == expected
    polars = pytest.importorskip("polars")
    assert unfitted.fit(polars.DataFrame(sample)) == expected


def test_fields_that_are_described_stay() -> None:
    """Only names are fitted; so are those of actions."""
    features = Shared(context=CONTEXT, action=["price", "brand"])
    offers = {n: {"price": float(n), "brand": "AB"[n % 2]} for n in range(100)}
    fitted = features.fit(actions=offers)
    assert fitted.context == CONTEXT
    assert fitted.action == {"price": Number(1.0, 98.0), "brand": Category(["A", "B"])}
    rows = fitted.rows({"age": 54, "country": "FR", "member": None}, {1: offers[1]})
    assert rows.shape == (1, fitted.dim)


@pytest.mark.parametrize(
    ("features", "sample", "match"),
    [
        (
            PerArm(ACTIONS, context=2),
            [],
            r"the fields: pass them, as in context=\[",
        ),
        (PerArm(ACTIONS, context=["age"]), [], r"no value for 'age'.*Number\(low, high\)"),
        (PerArm(ACTIONS, context=["age"]), [{"agee": 3}], "no value for 'age'"),
        (PerArm(ACTIONS, context=["age"]), {"age": [3]}, "a list of mappings, or a pandas"),
        (
            PerArm(ACTIONS, context=["age"]),
            [{"age": {3}}],
            r"'age' in the sample must .*got \{3\}",
        ),
        (Shared(action=["price"]), None, "the sample for action must be .*got None"),
    ],
)
def test_samples_that_are_refused(features: Any, sample: Any, match: str) -> None:
    """The error says what would do."""
    with pytest.raises(InvalidInput, match=match):
        features.fit(sample)


# --- identity ----------------------------------------------------------------------------------

WRITTEN: list[Features] = [
    FEATURES,
    PerArm([1, 2], context=["age"], intercept=False),
    PerArm(ACTIONS, context=NAMES).fit(sample_of(300)),
    Shared(context=CONTEXT, action={"it's": Category(["a'b", "é"], others=3)}, interactions=False),
    Hashed(32, seed=3),
]


@pytest.mark.parametrize("features", WRITTEN, ids=lambda features: type(features).__name__)
def test_features_read_back_from_their_repr(features: Features) -> None:
    """So a service's file can hold what a journal says: the same rows, the same fingerprint."""
    parsed = as_features(repr(features))
    assert parsed == features
    assert parsed.fingerprint == features.fingerprint
    assert repr(parsed) == repr(features)


def test_everything_is_in_the_fingerprint() -> None:
    """Another range, value, order or number of columns is another identity."""
    settings: list[dict[str, Any]] = [
        {**CONTEXT, "age": Number(18, 91)},
        {**CONTEXT, "country": Category(["AT", "FR"])},
        {**CONTEXT, "country": Category(["DE", "AT"])},
        {**CONTEXT, "country": Category(["AT", "DE"], others=2)},
        {**CONTEXT, "member": Number(0, 1)},
        dict(reversed(CONTEXT.items())),
        {"age": Number(18, 90)},
    ]
    fingerprints = {PerArm(ACTIONS, context=context).fingerprint for context in settings}
    assert (
        len({FEATURES, *(PerArm(ACTIONS, context=context) for context in settings)})
        == len(settings) + 1
    )
    assert len(fingerprints | {FEATURES.fingerprint}) == len(settings) + 1
    assert FEATURES.fingerprint == "1f3c78c4d113a99a0aa3495fb94d4507"  # for good


def test_a_value_changed_afterwards_changes_nothing() -> None:
    """Features are values."""
    spec: dict[str, Any] = dict(CONTEXT)
    features = PerArm(ACTIONS, context=spec)
    spec["age"] = Number(0, 1)
    assert features == FEATURES
    assert hash(features) == hash(FEATURES)


def test_actions_may_be_added() -> None:
    """Blocks at the end, as without encoders."""
    extended = FEATURES.with_actions(["letter"])
    assert extended.extends(FEATURES)
    assert extended.extends(FEATURES.fingerprint)
    assert extended.context == FEATURES.context


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("context", "match"),
    [
        ({"age": "old", "country": "AT", "member": True}, "'age' of the context must be a numb"),
        ({"age": 3, "country": ["AT"], "member": True}, "'country' of the context must be text"),
        ({"age": 3, "country": "AT", "member": "yes"}, "'member' .* must be True, False or None"),
        ({"age": 3, "country": "AT"}, "'member' of the context is missing; send null \\(None"),
        (None, "'age' of the context is missing"),
        ([3, 4, 5], "must be a mapping with the fields age, country, member"),
    ],
)
def test_contexts_that_are_refused(context: Any, match: str) -> None:
    """The error names the field and what was expected."""
    with pytest.raises(InvalidInput, match=match):
        FEATURES.rows(context, ACTIONS)


def test_a_category_for_numbers_says_what_to_do() -> None:
    """Features of numbers refuse text and None, with the encoder that accepts them."""
    plain = PerArm(ACTIONS, context=["age", "country"])
    with pytest.raises(InvalidInput, match=r"write context=\{'country': Category\(\['AT', \.\.\."):
        plain.rows({"age": 3.0, "country": "AT"}, ACTIONS)
    with pytest.raises(InvalidInput, match=r"write context=\{'age': Number\(low, high\)"):
        plain.rows({"age": None, "country": 1.0}, ACTIONS)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Number(3, 3), "the lower one first"),
        (lambda: Number("a", 3), "the lower one first"),  # type: ignore[arg-type]
        (lambda: Number(-math.inf, 3), "the lower one first"),
        (lambda: Category("AT"), r"as in Category\(\['AT', 'DE'\]\)"),
        (lambda: Category(["AT", "AT"]), "more than once"),
        (lambda: Category([1.5]), "a category must be text, a whole number"),  # type: ignore[list-item]
        (lambda: Category(["AT"], others=0), "`others` must be .*got 0"),
        (lambda: PerArm(ACTIONS, context={"age": float}), r"Number\(low, high\), Category"),  # type: ignore[dict-item]
        (lambda: PerArm(ACTIONS, context={3: Flag()}), "must be text"),  # type: ignore[dict-item]
        (lambda: PerArm(ACTIONS, context={}, intercept=False), "name at least one field"),
    ],
)
def test_encoders_that_are_refused(make: Any, match: str) -> None:
    """Before anything is decided with them."""
    with pytest.raises(InvalidInput, match=match):
        make()


# --- advice ------------------------------------------------------------------------------------


def test_the_advice_has_the_observed_numbers() -> None:
    """What to write, by the rows; with it rows have the right length."""
    plain = PerArm(ACTIONS, context=["age", "income"])
    rng = np.random.default_rng(0)
    contexts = [{"age": 18 + 72 * u, "income": 1e4 + 8e4 * v} for u, v in rng.random((300, 2))]
    rows = np.concatenate(
        [plain.rows(context, [ACTIONS[n % 2]]) for n, context in enumerate(contexts)]
    )
    advice = scaling_advice(rows, plain)
    assert "PerArm(..., context={'age': Number(1" in advice
    assert "features.fit(sample)" in advice
    fields = advice[advice.index("{") : advice.index("}") + 1]
    scaled = as_features(f"PerArm(['mail', 'call'], context={fields})")
    assert scaled.dim == plain.dim
    assert np.linalg.norm(scaled.rows(contexts[0], ["mail"])[:, 1:]) < 1.5
    shared = Shared(context=["age"], action=["price"])
    rows = shared.rows({"age": 40.0}, {1: {"price": 300.0}, 2: {"price": 500.0}})
    assert "context={'age': Number(" in scaling_advice(rows, shared)
    assert "action={'price': Number(" in scaling_advice(rows, shared)
    for unnamed in (None, PerArm(ACTIONS, context=2), Hashed(6), FEATURES):
        assert scaling_advice(rows[:, :4].repeat(3, axis=1), unnamed).startswith("divide your rows")
