import warnings
from typing import Any

import numpy as np
import pytest

from belated.exceptions import BelatedWarning, InterceptWarning
from belated.families import Bernoulli, Family, Gaussian, Poisson
from belated.features import (
    Features,
    FromTransform,
    Hashed,
    PerArm,
    Shared,
    warn_missing_intercept,
)


class Fake:
    """Like a fitted scikit-learn transformer: two columns, and no names for them."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def transform(self, records: list[dict[str, Any]]) -> Any:
        """Age and price."""
        self.seen = records
        return np.array([[r.get("age", 0.0), r.get("price", 0.0)] for r in records])


def rows_without_intercept() -> Any:
    """Fifty rows of three numbers around zero."""
    return np.random.default_rng(0).normal(size=(50, 3))


BINARY = np.arange(50) % 2


def warned(source: Any, family: Family, rewards: Any) -> list[str]:
    """The kinds of warning given."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_missing_intercept(source, family, rewards)
    return [warning.category.__name__ for warning in caught]


def test_binary_rewards_as_gaussian_without_intercept_are_warned_of() -> None:
    """The warning says what to do, and points at the caller."""
    with pytest.warns(InterceptWarning, match=r"Bernoulli\(\)") as caught:
        warn_missing_intercept(rows_without_intercept(), Gaussian(), BINARY)
    assert caught[0].filename == __file__
    assert issubclass(InterceptWarning, BelatedWarning)
    assert warned(rows_without_intercept(), Gaussian("estimate"), [0, 1.0, True])


@pytest.mark.parametrize("family", [Bernoulli(), Poisson()])
def test_other_families_are_not_warned_of(family: Family) -> None:
    """The trap is that of the identity link."""
    assert warned(rows_without_intercept(), family, BINARY) == []


@pytest.mark.parametrize("rewards", [[0.0, 0.5, 1.0], [0, 0], [1], [], [-1, 1], [0, 1, 2]])
def test_rewards_that_are_not_binary_are_not_warned_of(rewards: Any) -> None:
    """Zeros alone may be amounts, and so may ones."""
    assert warned(rows_without_intercept(), Gaussian(), rewards) == []


def test_a_constant_column_or_indicators_are_an_intercept() -> None:
    """Whatever the constant, and however it is spread over columns; zeros are none."""
    rows = rows_without_intercept()
    constant = np.insert(rows, 1, 0.25, axis=1)
    assert warned(constant, Gaussian(), BINARY) == []
    assert warned(np.insert(rows, 1, 0.0, axis=1), Gaussian(), BINARY) == ["InterceptWarning"]
    arms = PerArm(["a", "b"], context=3)
    blocks = np.vstack(
        [arms.rows(row, ["a", "b"])[i % 2 : i % 2 + 1] for i, row in enumerate(rows)]
    )
    assert warned(blocks, Gaussian(), BINARY) == []
    bare = np.delete(blocks, [0, 4], axis=1)
    assert warned(bare, Gaussian(), BINARY) == ["InterceptWarning"]


def test_too_few_rows_tell_nothing_of_an_intercept() -> None:
    """Three rows of three numbers can be weighed to be 1 everywhere."""
    assert warned(rows_without_intercept()[:3], Gaussian(), BINARY) == []
    assert warned(np.empty((0, 3)), Gaussian(), BINARY) == []
    assert warned(rows_without_intercept()[:8], Gaussian(), BINARY) == ["InterceptWarning"]


def test_many_rows_are_sampled() -> None:
    """An intercept is seen among a hundred thousand rows, and so is its absence."""
    rows = np.random.default_rng(1).normal(size=(100_000, 5))
    assert warned(rows, Gaussian(), BINARY) == ["InterceptWarning"]
    indicators = np.eye(5)[np.arange(100_000) % 5]
    assert warned(indicators, Gaussian(), BINARY) == []


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (Shared(action=["price"]), []),
        (Shared(action=["price"], intercept=False), ["InterceptWarning"]),
        (PerArm(["a"], context=1), []),
        (PerArm(["a"], context=1, intercept=False), ["InterceptWarning"]),
        (Hashed(8), []),
        (Hashed(8, intercept=False), ["InterceptWarning"]),
        (FromTransform(Fake(), name="fake", dim=2), []),
    ],
)
def test_features_say_whether_they_add_an_intercept(features: Features, expected: Any) -> None:
    """A transformer does not say, so only its rows can tell."""
    assert warned(features, Gaussian(), BINARY) == expected
