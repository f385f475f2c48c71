"""Bennett, union and stopping times against exact laws of the number missing."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from belated import theory
from belated.core.inputs import Vector
from belated.delays import (
    Constant,
    Empirical,
    Exponential,
    Geometric,
    HalfNormal,
    Law,
    Lognormal,
    Lomax,
    Mixture,
    Uniform,
    Weibull,
    expected_missing,
)
from belated.exceptions import InvalidInput
from tests.missing import chances

LAWS: list[Law] = [
    Constant(0),
    Constant(7),
    Uniform(100),
    Geometric(mean=0.01),
    Geometric(mean=5),
    Geometric(mean=100),
    Exponential(mean=50.5),
    HalfNormal(scale=5),
    HalfNormal(scale=50),
    Weibull(shape=4, scale=30),
    Lomax(shape=1.5, scale=50),
    Lomax(shape=0.8, scale=50),
    Lognormal(median=30, sigma=1.5),
    Empirical([0, 0, 3, 50]),
    Mixture(never=0.2, base=Geometric(mean=5)),
]
ROUNDS = 400
DELTAS = [0.5, 0.05, 1e-3, 1e-8]

#: The bounds that are made from a tail, in one round and in all.
FROM_TAIL: list[Callable[..., float]] = [
    theory.missing_union,
    partial(theory.missing_union, together=True),
    theory.missing_stopping,
    partial(theory.missing_stopping, together=True),
]


def shown(law: object) -> str:
    """What a law prints, in one line."""
    return " ".join(repr(law).split())


def test_bennett_has_the_number_that_was_computed() -> None:
    """125.5 at a mean of 100."""
    assert theory.missing_bennett(100, delta=0.05) == pytest.approx(125.5, abs=0.05)


@pytest.mark.parametrize("mean", [1e-200, 1e-6, 0.3, 1.0, 20.0, 1e4, 1e9])
@pytest.mark.parametrize("delta", [0.999, *DELTAS, 1e-300])
def test_bennett_solves_its_equation(mean: float, delta: float) -> None:
    """m h(u) = log 1/δ for h(u) = (1 + u) log(1 + u) - u, from the smallest mean to the largest."""
    v = theory.missing_bennett(mean, delta=delta) / mean
    assert v >= 1.0
    # h(v - 1) loses its digits near v = 1: there it is u²/2 - u³/6 and further terms.
    u = v - 1.0
    h = v * math.log(v) - u if u > 1e-3 else u**2 / 2 - u**3 / 6 + u**4 / 12
    assert mean * h == pytest.approx(-math.log(delta), rel=1e-4)


def test_bennett_has_the_limits_of_small_means() -> None:
    """Nothing is missing where nothing is expected to be, and the limit is continuous."""
    assert theory.missing_bennett(0, delta=0.05) == 0.0
    values = [theory.missing_bennett(m, delta=0.05) for m in (5e-324, 1e-300, 1e-100, 1e-9, 1e-3)]
    assert values == sorted(values)
    assert 0.0 < values[0] < 0.01


@pytest.mark.parametrize("law", LAWS, ids=shown)
@pytest.mark.parametrize("delta", DELTAS)
def test_no_bound_fails_more_often_than_it_may(law: Law, delta: float) -> None:
    """The exact probability that more are missing is at most δ, for independent delays."""
    tail_chances = chances(law.tail(np.arange(1.0, ROUNDS)))

    def failing(bound: float) -> float:
        return float(tail_chances[min(math.floor(bound), ROUNDS - 1)])

    mean = float(expected_missing(law, ROUNDS))
    # The sum of 400 roundings is far below 1e-13.
    assert failing(theory.missing_bennett(mean, delta=delta)) <= delta + 1e-13
    assert failing(theory.missing_union(law.tail, ROUNDS, delta=delta)) <= delta + 1e-13
    assert failing(theory.missing_stopping(law.tail, ROUNDS, delta=delta)) <= delta + 1e-13


@pytest.mark.parametrize("law", LAWS, ids=shown)
@pytest.mark.parametrize("delta", DELTAS)
def test_stopping_times_are_never_worse_than_the_union(law: Law, delta: float) -> None:
    """The product has the union's sum as its last factor."""
    stopping = theory.missing_stopping(law.tail, ROUNDS, delta=delta)
    assert stopping <= theory.missing_union(law.tail, ROUNDS, delta=delta)


@pytest.mark.parametrize("law", LAWS, ids=shown)
def test_the_union_over_delays_is_never_worse_than_the_union_over_rounds(law: Law) -> None:
    """A late reward is counted once, not in every round in which it is missing."""
    for delta in DELTAS:
        separate = theory.missing_union(law.tail, ROUNDS, delta=delta / ROUNDS)
        assert theory.missing_union(law.tail, ROUNDS, delta=delta, together=True) <= separate


@pytest.mark.parametrize("law", LAWS, ids=shown)
def test_a_maximum_is_no_less_than_a_bound_of_one_round(law: Law) -> None:
    """For all three, and for every δ."""
    mean = float(expected_missing(law, ROUNDS))
    for delta in DELTAS:
        bound = theory.missing_bennett(mean, delta=delta)
        assert theory.missing_bennett(mean, horizon=ROUNDS, delta=delta) >= bound
        bound = theory.missing_stopping(law.tail, ROUNDS, delta=delta)
        assert theory.missing_stopping(law.tail, ROUNDS, delta=delta, together=True) >= bound
        bound = theory.missing_union(law.tail, ROUNDS, delta=delta)
        assert theory.missing_union(law.tail, ROUNDS, delta=delta, together=True) >= bound


@pytest.mark.parametrize("law", LAWS, ids=shown)
@pytest.mark.parametrize("bound", FROM_TAIL)
def test_a_bound_from_a_tail_grows_with_the_rounds_and_as_it_may_fail_less_often(
    law: Law, bound: Callable[..., float]
) -> None:
    """And it never exceeds the rounds that have passed."""
    for delta in DELTAS:
        values = [bound(law.tail, t, delta=delta) for t in (1, 2, 10, 100, 400, 1000)]
        assert values == sorted(values)
        assert all(v <= t - 1 for v, t in zip(values, (1, 2, 10, 100, 400, 1000), strict=True))
    values = [bound(law.tail, ROUNDS, delta=delta) for delta in DELTAS]
    assert values == sorted(values)


def test_bounds_from_a_tail_know_a_constant_delay() -> None:
    """G_t = min(t - 1, c), and this is what they say."""
    for t in (1, 3, 8, 100):
        for bound in FROM_TAIL:
            assert bound(Constant(7).tail, t, delta=0.05) == min(t - 1, 7)


def test_the_union_is_as_it_was_derived() -> None:
    """Σ P(D ≥ i) over i > k is (μ + 1) r^(k+1) for geometric delays; it first is ≤ δ at k."""
    mean, delta = 20.0, 0.05
    r = mean / (1 + mean)
    k = math.ceil(math.log(delta / (mean + 1)) / math.log(r)) - 1
    assert theory.missing_union(Geometric(mean=mean).tail, 5000, delta=delta) == k == 123
    # and all of T - 1 - k delays exceed k with P(D ≥ k + 1) = r^(k+1) each
    bound = theory.missing_union(Geometric(mean=mean).tail, 3000, delta=delta, together=True)
    assert (2999 - bound) * r ** (bound + 1) <= delta < (3000 - bound) * r**bound


def test_the_stopping_times_are_as_they_were_derived() -> None:
    """The product of min(1, Σ_{i ≥ k} p_i) over k ≤ j, multiplied out."""
    law, t, delta = Geometric(mean=2), 40, 0.01
    tails = law.tail(np.arange(1.0, t))
    product, j = 1.0, 0
    while product > delta:
        j += 1
        product *= min(1.0, float(tails[j - 1 :].sum()))
    assert theory.missing_stopping(law.tail, t, delta=delta) == j - 1


def test_heavy_tails_are_bounded_all_the_same() -> None:
    """With an infinite mean delay the expected number missing is finite, and so is the bound."""
    law = Lomax(shape=0.8, scale=50)
    assert law.mean == math.inf
    mean = float(expected_missing(law, 3000))
    assert mean < theory.missing_bennett(mean, delta=0.05) < 1.2 * mean


@pytest.mark.parametrize("mean", [-1.0, math.inf, math.nan, "5", None])
def test_a_mean_is_finite(mean: Any) -> None:
    """An infinite mean is refused by name: `expected_missing` gives a finite one."""
    with pytest.raises(InvalidInput, match="`mean` must be"):
        theory.missing_bennett(mean, delta=0.05)
    with pytest.raises(InvalidInput, match="`mean` must be"):
        theory.missing_bennett(mean, horizon=10, delta=0.05)


@pytest.mark.parametrize("bound", FROM_TAIL)
def test_bounds_from_a_tail_refuse_what_is_no_round_or_level(bound: Callable[..., float]) -> None:
    """By name."""
    tail = Constant(3).tail
    for t in (0, -1, 2.5, True, None):
        with pytest.raises(InvalidInput, match=r"`(t|horizon)` must be a whole number from 1"):
            bound(tail, t, delta=0.05)
    for delta in (0.0, 1.0, math.nan, "0.05"):
        with pytest.raises(InvalidInput, match=r"`delta` must be"):
            bound(tail, 10, delta=delta)


@pytest.mark.parametrize("bound", FROM_TAIL)
@pytest.mark.parametrize(
    "tail",
    [lambda i: 2.0 / i, lambda i: -np.ones_like(i), lambda i: np.full(i.shape, np.nan), np.max],
)
def test_a_tail_gives_probabilities(
    bound: Callable[..., float], tail: Callable[[Vector], Vector]
) -> None:
    """One for each age, in [0, 1]."""
    with pytest.raises(InvalidInput, match="`tail` must return a probability"):
        bound(tail, 10, delta=0.05)
