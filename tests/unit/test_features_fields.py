"""Times, embeddings, texts, logarithms and random features; what is counted and what is refused."""

from __future__ import annotations

import math
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest

from belated import (
    Bandit,
    Category,
    Datetime,
    Explicit,
    Flag,
    Number,
    PerArm,
    RandomFeatures,
    Shared,
    Text,
    Vector,
)
from belated.core.events import Decision
from belated.exceptions import InvalidInput
from belated.expressions import as_features
from belated.features.encoders import Encoder
from belated.fold.contexts import pack_context, read_context

NOON = datetime(2026, 11, 18, 12, tzinfo=ZoneInfo("Europe/Vienna"))
#: The first random features of a context, as they stay in every release.
WRITTEN = [0.0396374, 0.0385382, 0.0435521, 0.0403402]
WAVES = RandomFeatures({"x": Number(-2, 2), "member": Flag()}, size=512)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (Datetime("Europe/Vienna"), "2026-11-18T12:00:00Z"),
        (Datetime(), datetime(2026, 11, 18, tzinfo=timezone(timedelta(hours=3)))),
        (Vector(3), [0.1, 20.0, -3.0]),
        (Vector(3), np.array([1.0, 2.0, 3.0], dtype=np.float32)),
        (Vector(3, norm=3.0), (1, 2, 2)),
        (Text(), "Red shoes, size 42"),
    ],
)
def test_a_field_has_a_length_of_one(field: Encoder, value: Any) -> None:
    """As the prior expects; and zeros if it is missing."""
    assert math.hypot(*field.encode(value)) == pytest.approx(1.0)
    assert len(field.encode(value)) == len(field.labels)
    for missing in (None, math.nan, pd.NaT, pd.NA):
        assert field.encode(missing) == [0.0] * len(field.labels)


def test_midnight_and_monday_are_near_their_neighbours() -> None:
    """Hour and day are points on a circle, in the zone that is named."""
    vienna = Datetime("Europe/Vienna")
    before = vienna.encode("2026-11-17T23:59:00+01:00")
    after = vienna.encode("2026-11-17T23:01:00Z")
    assert np.allclose(before, after, atol=0.02)
    assert vienna.encode(NOON)[0] == pytest.approx(-1 / 1.5)
    assert vienna.encode(NOON) != Datetime().encode(NOON)
    weekend = [vienna.encode(f"2026-11-{day}T12:00:00Z")[-1] > 0 for day in range(16, 23)]
    assert weekend == [False] * 5 + [True] * 2


@pytest.mark.parametrize(
    "same",
    [
        "2026-11-18T12:00:00+01:00",
        "2026-11-18T11:00:00Z",
        NOON.astimezone(UTC),
        pd.Timestamp(NOON),
        np.int64(NOON.timestamp() * 1e6),
    ],
)
def test_a_time_is_the_same_however_it_is_written(same: Any) -> None:
    """Also after it was stored with the decision."""
    field = Datetime("Europe/Vienna")
    assert field.encode(same) == field.encode(NOON)
    packed = pack_context({"at": same, "tags": np.array([1.0])}, ["mail"])
    assert packed is not None
    context = bytes(16) + packed.of_decision(0)
    x = np.zeros(1, np.float32)
    stored = read_context(Decision("a", 1, "mail", 0, x, 0.5, 1.0, 0, context=context))
    assert stored is not None
    assert field.encode(stored.context["at"]) == field.encode(NOON)
    assert stored.context["tags"] == [1.0]


def test_a_vector_is_scaled_by_its_norm_or_by_a_typical_one() -> None:
    """One that is more than twice as long is shortened; a zero vector has no direction."""
    assert Vector(2).encode([30, 40]) == pytest.approx([0.6, 0.8])
    assert Vector(2).encode([0.0, 0.0]) == [0.0, 0.0]
    assert Vector(2, norm=50).encode([30, 40]) == pytest.approx([0.6, 0.8])
    assert Vector(2, norm=5).encode([30, 40]) == pytest.approx([1.2, 1.6])


def test_a_logarithm() -> None:
    """Equal ratios are equal steps; a number without a logarithm counts as the lower end."""
    price = Number(1, 10_000, log=True)
    assert [price.encode(10.0**n)[0] for n in range(5)] == pytest.approx([-2, -1, 0, 1, 2])
    assert price.encode(-5) == price.encode(0) == [-2.0]
    assert price.encode(math.inf) == [2.0]
    assert price != Number(1, 10_000)


def test_words_are_told_apart_and_their_order_is_not() -> None:
    """Case and punctuation do not count."""
    text = Text(hash=256)
    assert text.encode("red SHOES!") == text.encode("Shoes_red") != text.encode("blue shoes")
    assert text.encode("…") == [0.0] * 256
    assert Text(hash=4).encode("Oslo") == [1.0, 0.0, 0.0, 0.0]  # for good


def test_random_features_are_alike_if_contexts_are() -> None:
    """Their product is about exp(-|z - z'|²/2), so a linear model can fit curves."""
    features = PerArm(["mail"], context=WAVES)

    def waves(x: float) -> Any:
        row = features.rows({"x": x, "member": True}, ["mail"])[0]
        return row[-512:] * math.sqrt(2)

    for x in (-1.0, 0.0, 0.5, 2.0):
        distance = (x - 0.5) / math.sqrt(3)  # two fields and a 1 share a length of 1
        assert waves(x) @ waves(0.5) == pytest.approx(math.exp(-(distance**2) / 2), abs=0.1)
    row = features.rows({"x": 1.0, "member": False}, ["mail"])[0]
    assert np.linalg.norm(row) == pytest.approx(1.0, abs=0.3)


def test_random_features_are_the_same_in_every_process() -> None:
    """They are drawn from a digest; another seed or scale draws others."""
    program = (
        "from belated.expressions import as_features\n"
        f"features = as_features({repr(PerArm(['mail'], context=WAVES))!r})\n"
        "print(features.rows({'x': 1.0, 'member': None}, ['mail']).tobytes().hex())\n"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "OPENBLAS_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    row = PerArm(["mail"], context=WAVES).rows({"x": 1.0, "member": None}, ["mail"])
    assert outputs == [row.tobytes().hex() + "\n"] * 2
    assert row[0, 4:8].tolist() == pytest.approx(WRITTEN, abs=1e-7)  # for good
    settings: list[dict[str, Any]] = [{}, {"seed": 1}, {"scale": 0.5}]
    prints = {
        PerArm(["mail"], context=RandomFeatures(WAVES.fields, size=512, **setting)).fingerprint
        for setting in settings
    }
    assert len(prints) == 3


def test_fields_can_be_written_as_text() -> None:
    """As in the configuration of a service."""
    fields = {
        "at": Datetime("Europe/Vienna"),
        "words": Text(hash=8),
        "embedding": Vector(4, norm=2.0),
        "price": Number(1, 100, log=True),
    }
    features = PerArm(["mail"], context=RandomFeatures(fields, size=4, scale=0.5, seed=3))
    assert as_features(repr(features)) == features
    assert as_features(repr(features)).fingerprint == features.fingerprint
    assert features.fit([]) == features
    assert features.dim == 1 + 5 + 8 + 4 + 1 + 4 == len(features.names)


def test_times_and_vectors_in_a_sample_are_fitted() -> None:
    """From records or from a frame."""
    sample = [{"at": NOON, "embedding": [0.1, 0.2]}, {"at": None, "embedding": [0.3, 0.4]}]
    features = PerArm(["mail"], context=["at", "embedding"])
    expected = {"at": Datetime("UTC"), "embedding": Vector(2)}
    assert features.fit(sample).context == features.fit(pd.DataFrame(sample)).context == expected
    with pytest.raises(InvalidInput, match=r"'embedding' in the sample must have 2 numbers, got 1"):
        features.fit([sample[0], {"at": NOON, "embedding": [0.3]}])
    with pytest.raises(InvalidInput, match=r"'at' in the sample is .*, which has no time zone"):
        features.fit(pd.DataFrame({"at": [datetime(2026, 11, 18)], "embedding": [[1.0]]}))


def test_unusual_values_are_counted_by_field() -> None:
    """Missing, unknown and clipped ones, of contexts and of actions."""
    fields = {"age": Number(18, 90), "country": Category(["AT"]), "e": Vector(2, norm=1.0)}
    bandit = Bandit(PerArm(["mail", "call"], context=fields), rewards=Explicit(), seed=0)
    for age, country, e in [(18, "AT", [1, 0]), (91, "FR", [3, 0]), (17, "DE", None)]:
        bandit.decide({"age": age, "country": country, "e": e})
    bandit.decide({"age": None, "country": math.nan, "e": [0, 0]})
    assert isinstance(bandit.features, PerArm)
    assert bandit.features.field_counts == {
        "age": {"ok": 1, "missing": 1, "unknown": 0, "clipped": 2, "refused": 0},
        "country": {"ok": 1, "missing": 1, "unknown": 2, "clipped": 0, "refused": 0},
        "e": {"ok": 2, "missing": 1, "unknown": 0, "clipped": 1, "refused": 0},
    }
    shared = Shared(context=["age"], action={"brand": Category(["A"])})
    shared.rows({"age": 0.5}, {"blue": {"brand": "A"}, "red": {"brand": "B"}})
    brands = {"ok": 1, "missing": 0, "unknown": 1, "clipped": 0, "refused": 0}
    assert shared.field_counts == {"action brand": brands}
    assert PerArm(["mail"], context=["age"]).field_counts == {}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Datetime("Vienna"), "`zone` is 'Vienna', which is not a known time zone"),
        (lambda: Number(0, 9, log=True), "low must be above 0"),
        (lambda: Vector(0), "`size` must be .*got 0"),
        (lambda: Vector(2, norm=0), "`norm` must be .*got 0"),
        (lambda: Text(hash=1.5), "`hash` must be .*got 1.5"),  # type: ignore[arg-type]
        (lambda: RandomFeatures({}, size=4), "pass a mapping of fields to encoders"),
        (lambda: RandomFeatures({"x": Flag()}, size=3), "must be an even number"),
        (lambda: RandomFeatures({"x": Flag()}, seed="a"), "`seed` must be .*got 'a'"),  # type: ignore[arg-type]
        (lambda: RandomFeatures({"x": Flag()}, scale=0), "`scale` must be .*got 0"),
    ],
)
def test_fields_that_are_refused(make: Any, message: str) -> None:
    """With what was expected."""
    with pytest.raises(InvalidInput, match=message):
        make()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (
            Datetime(),
            "2026-11-18T12:00:00",
            "no time zone: write '2026-11-18T12:00:00Z' if it is UTC",
        ),
        (Datetime(), datetime(2026, 11, 18), "which has no time zone"),
        (Datetime(), np.datetime64("2026-11-18"), "which has no time zone"),
        (Datetime(), 1_700_000_000, "looks like seconds since 1970"),
        (Datetime(), "noon", "must be ISO 8601 text such as '2026-11-16T12:00:00Z', got 'noon'"),
        (Datetime(), [1.0], r"must be a timezone-aware datetime.*'f': Vector\(1\)"),
        (Datetime("Europe/Vienna"), "9999-12-31T23:59:00Z", "between the years 2 and 9998"),
        (Vector(2), [1.0, math.nan], "must contain finite numbers of .* got nan at index 1"),
        (Vector(2), [1.0, 1e9], "got 1000000000.0 at index 1"),
        (
            Vector(2),
            [1.0],
            r"must have 2 numbers, got 1: .* or declare Vector\(1\) in the fe",
        ),
        (Vector(2), [[1.0, 2.0]], r"must be a list of 2 numbers or None, got \[\[1\.0, 2\.0\]\]$"),
        (Vector(2), ["1", "2"], r"must be a list of 2 numbers or None, got \['1', '2'\]$"),
        (Vector(2), [None, 1.0], r"must be a list of 2 numbers or None, got \[None, 1\.0\]$"),
        (Vector(2), 3.0, r"must be a list of 2 numbers or None, got 3\.0$"),
        (Vector(2), "red", r"must be a list of 2 numbers or None, got 'red'; .*Category\(\['red'"),
        (Text(), "x" * 10_001, "at most 10,000 characters, got 10,001$"),
        (Text(), ["red"], "must be text, a whole number or None"),
        (Number(0, 1), NOON, r"must be a number or None.*write context=\{'f': Datetime\('Europe"),
        (Number(0, 1), "2026-11-18T12:00:00Z", r"'f': Datetime\('Europe/Vienna'\), \.\.\.\}$"),
        (Number(0, 1), pd.Timestamp(NOON), r"'f': Datetime\("),
        (Number(0, 1), [0.5, 0.5], r"must be a number or None.*'f': Vector\(2\)"),
        (Number(0, 1), np.array([0.5, 0.5]), r"'f': Vector\(2\)"),
        (Number(0, 1), "red", r"'f': Category\(\['red', \.\.\.\]\)"),
        (Category(["AT"]), NOON, r"'f': Datetime\("),
        (Flag(), "yes", r"'f': Category\(\['yes'"),
    ],
)
def test_values_that_are_refused(field: Encoder, value: Any, message: str) -> None:
    """With the field that would do, if another one would."""
    with pytest.raises(InvalidInput, match=f"'f' of the context .*{message}"):
        PerArm(["mail"], context={"f": field}).rows({"f": value}, ["mail"])


@pytest.mark.parametrize(
    ("value", "better"),
    [(NOON, "Datetime"), ("2026-11-18", "Datetime"), ([1.0, 2.0], "Vector"), ("AT", "Category")],
)
def test_names_alone_hint_at_the_field_too(value: Any, better: str) -> None:
    """If they are read as numbers and are none."""
    with pytest.raises(InvalidInput, match=rf"write context=\{{'f': {better}\("):
        PerArm(["mail"], context=["f", "x"]).rows({"f": value, "x": 1.0}, ["mail"])
