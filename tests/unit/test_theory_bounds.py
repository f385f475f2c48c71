"""Which bounds hold for which delays, and what is said of the others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from belated import theory
from belated.core.inputs import Vector
from belated.delays import (
    NEVER,
    Batched,
    BlockDependent,
    Constant,
    ContextDependent,
    DelayProcess,
    Empirical,
    Exponential,
    FiniteChain,
    Geometric,
    HalfNormal,
    LazyMarkov,
    Lognormal,
    Lomax,
    Mixture,
    Parameters,
    RegimeSwitch,
    RewardDependent,
    Uniform,
    Weibull,
    expected_missing,
)
from belated.exceptions import InvalidInput
from tests.missing import outstanding

SHARP = {"bennett", "union", "stopping", "rounds"}
SWITCH = [[0.99, 0.01], [0.03, 0.97]]

#: Every kind of delay, with the names of the bounds that hold for it.
HOLDING: list[tuple[DelayProcess, set[str]]] = [
    (Constant(7), SHARP | {"prop1", "hoeffding", "markov", "random", "bounded"}),
    (Constant(NEVER), SHARP),
    (Uniform(100), SHARP | {"prop1", "hoeffding", "markov", "random", "bounded"}),
    (Geometric(mean=100), SHARP | {"prop1", "iid", "markov"}),
    (Exponential(mean=50), SHARP | {"prop1", "iid", "markov"}),
    (Weibull(shape=0.6, scale=20), SHARP | {"markov"}),
    (Weibull(shape=1.5, scale=40), SHARP | {"prop1", "hoeffding", "markov"}),
    (Weibull(shape=4, scale=40), SHARP | {"prop1", "hoeffding", "markov", "random"}),
    (Weibull(shape=900, scale=40), SHARP | {"markov"}),
    (HalfNormal(scale=20), SHARP | {"prop1", "hoeffding", "markov"}),
    (Lognormal(median=30, sigma=1.5), SHARP | {"markov"}),
    (Lomax(shape=1.5, scale=50), SHARP | {"markov"}),
    (Lomax(shape=0.8, scale=50), SHARP),
    (Mixture(never=0.3, base=Geometric(mean=5)), SHARP),
    (Empirical([0, 0, 3, 50]), SHARP | {"prop1", "hoeffding", "markov", "random", "bounded"}),
    (Empirical([0, 3, math.inf]), SHARP),
    (LazyMarkov(0.5, base=Geometric(mean=20)), {"union", "rounds", "markov"}),
    (LazyMarkov(0.0, base=Geometric(mean=20)), SHARP | {"prop1", "iid", "markov"}),
    (LazyMarkov(0.5, base=Lomax(shape=0.8, scale=50)), {"union", "rounds"}),
    (RegimeSwitch(SWITCH, laws=[Constant(0), Geometric(mean=9)]), {"union", "rounds", "markov"}),
    (
        FiniteChain([[0.9, 0.1], [0.3, 0.7]], values=[1, 10]),
        {"union", "rounds", "markov", "random", "bounded"},
    ),
    (
        FiniteChain([[0.0, 1.0], [1.0, 0.0]], values=[1, 10]),
        {"union", "rounds", "random", "bounded"},
    ),
    (BlockDependent(Geometric(mean=9), length=30), {"union", "rounds"}),
    (BlockDependent(Weibull(shape=4, scale=30), length=30), {"union", "rounds", "random"}),
    (Batched(24), {"bounded", "rounds"}),
    (RewardDependent(zero_law=Constant(0), one_law=Geometric(mean=9)), {"rounds"}),
    (RewardDependent(zero_law=Constant(0), one_law=Uniform(9)), {"bounded", "rounds"}),
    (ContextDependent(lambda x: 0.1), {"rounds"}),
]
NAMES = [
    "prop1",
    "iid",
    "hoeffding",
    "markov",
    "random",
    "bounded",
    "bennett",
    "union",
    "stopping",
    "rounds",
]


def shown(value: object) -> str:
    """What a process prints, in one line."""
    return " ".join(repr(value).split()) if hasattr(value, "params") else ""


@pytest.mark.parametrize(("delay", "names"), HOLDING, ids=shown)
def test_those_whose_assumptions_hold_have_values(delay: DelayProcess, names: set[str]) -> None:
    """And no others; the order is always the same."""
    bounds = theory.bounds_for(delay, horizon=500)
    assert [bound.name for bound in bounds] == NAMES
    assert {bound.name for bound in bounds if bound.holds} == names
    for bound in bounds:
        assert (bound.maximum is None) == (bound.value is None)
        assert bound.value is None or 0.0 <= bound.value <= (bound.maximum or 0.0)
        assert bound.reference


@pytest.mark.parametrize(("delay", "names"), HOLDING, ids=shown)
def test_every_bound_says_why_in_one_sentence(delay: DelayProcess, names: set[str]) -> None:
    """It starts with a capital, ends with a full stop, and fits into a line."""
    for bound in theory.bounds_for(delay, horizon=500):
        assert bound.why[0].isupper()
        assert bound.why.endswith(".")
        assert "None" not in bound.why
        assert len(bound.why) <= 80


@pytest.mark.parametrize(("delay", "names"), HOLDING, ids=shown)
def test_the_best_is_the_least_that_holds(delay: DelayProcess, names: set[str]) -> None:
    """Never more than the rounds that have passed."""
    bounds = theory.bounds_for(delay, horizon=500)
    values = {bound.name: bound for bound in bounds if bound.holds}
    assert bounds.best == min(bound.value or 0.0 for bound in values.values()) <= 499
    assert bounds.best_maximum == min(bound.maximum or 0.0 for bound in values.values()) <= 499


def test_values_are_those_of_the_functions() -> None:
    """For geometric delays, with the expected number missing for Bennett."""
    law, T, delta = Geometric(mean=100), 300, 0.01
    p = law.params()
    assert p.sigma is not None
    bounds = theory.bounds_for(law, horizon=T, delta=delta)
    mean = float(expected_missing(law, T))
    assert mean < 96
    assert bounds["bennett"].value == theory.missing_bennett(mean, delta=delta)
    assert bounds["bennett"].maximum == theory.missing_bennett(mean, horizon=T, delta=delta)
    assert bounds["union"].value == theory.missing_union(law.tail, T, delta=delta)
    assert bounds["union"].maximum == theory.missing_union(law.tail, T, delta=delta, together=True)
    assert bounds["stopping"].value == theory.missing_stopping(law.tail, T, delta=delta)
    assert bounds["stopping"].maximum == theory.missing_stopping(
        law.tail, T, delta=delta, together=True
    )
    assert bounds["prop1"].value == theory.missing_prop1(100, 0, p.sigma, 0, delta=delta)
    assert bounds["iid"].maximum == theory.missing_iid(100, p.sigma, horizon=T, delta=delta)
    assert bounds["markov"].value == theory.missing_markov(100, 0, delta=delta)
    assert bounds["rounds"].value == bounds["rounds"].maximum == 299
    assert (bounds.horizon, bounds.delta) == (300, 0.01)


@pytest.mark.parametrize(
    ("delay", "name", "said"),
    [
        (LazyMarkov(0.5, base=Geometric(mean=20)), "bennett", "depend on one another"),
        (LazyMarkov(0.5, base=Geometric(mean=20)), "prop1", "depend on one another"),
        (Lomax(shape=0.8, scale=50), "markov", "mean delay is infinite"),
        (Lomax(shape=1.5, scale=50), "prop1", "as light as Assumption 2 requires"),
        (Geometric(mean=9), "hoeffding", "q = 0"),
        (HalfNormal(scale=9), "iid", "here q = 1"),
        (Geometric(mean=9), "random", "lighter than Gaussian"),
        (Geometric(mean=9), "bounded", "arbitrarily long"),
        (BlockDependent(Geometric(mean=9), length=9), "markov", "Markov chain with a spectral gap"),
        (Batched(24), "union", "The delay depends on the round"),
        (ContextDependent(lambda x: 0.1), "union", "depends on the row or the reward"),
        (Weibull(shape=900, scale=40), "prop1", "too large for a float"),
    ],
    ids=shown,
)
def test_the_reason_against_a_bound_is_the_one_that_counts(
    delay: DelayProcess, name: str, said: str
) -> None:
    """The first of the assumptions that fails."""
    bound = theory.bounds_for(delay, horizon=100)[name]
    assert not bound.holds
    assert said in bound.why


def test_midnight_would_break_the_union() -> None:
    """Its tail is that of a random round, so what it gives would be exceeded, and is not given."""
    process = Batched(1000)
    missing = outstanding(process.sample(1000, np.random.default_rng()))
    assert theory.missing_union(process.tail, 1000, delta=0.05) < missing[-1] == 999
    assert theory.bounds_for(process, horizon=1000).best == 999


def test_delays_that_were_seen_have_bounds() -> None:
    """A sample is a delay: its own tail, mean and longest delay are used."""
    delays = Geometric(mean=20).sample(2000, np.random.default_rng(1))
    bounds = theory.bounds_for(Empirical(delays), horizon=3000)
    law = theory.bounds_for(Geometric(mean=20), horizon=3000)
    assert bounds["bounded"].value == delays.max()
    assert bounds["bennett"].value == pytest.approx(law["bennett"].value, rel=0.1)
    assert bounds["union"].value == pytest.approx(law["union"].value, rel=0.1)


def test_one_round_has_nothing_missing() -> None:
    """At a horizon of 1."""
    bounds = theory.bounds_for(Geometric(mean=20), horizon=1)
    assert bounds.best == bounds.best_maximum == 0.0


class Alternating:
    """Delays of 0 and 4 in turn, begun at random: a process that is not built in."""

    mean = 2.0
    independent = False

    def tail(self, i: Any) -> Vector:
        """Half of them are 4."""
        i = np.asarray(i, dtype=np.float64)
        return np.where(i <= 0, 1.0, np.where(i <= 4, 0.5, 0.0))

    def params(self) -> Parameters:
        """Bounded."""
        return Parameters(mu=2.0, bound=4)

    def sample(self, horizon: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Begun at random."""
        return 4 * ((np.arange(horizon) + rng.integers(2)) % 2)


def test_a_process_of_ones_own_is_taken_at_its_word() -> None:
    """Its tail is that of every round, and its parameters are believed."""
    bounds = theory.bounds_for(Alternating(), horizon=100)
    assert {bound.name for bound in bounds if bound.holds} == {"bounded", "union", "rounds"}
    missing = outstanding(Alternating().sample(100, np.random.default_rng(0)))
    assert missing.max() <= bounds.best_maximum == 4


@pytest.mark.parametrize("delay", [[1, 2, 3], 5, None, "Geometric"])
def test_what_is_no_delay_is_refused_with_what_to_do(delay: Any) -> None:
    """A list of delays is told of `Empirical`."""
    with pytest.raises(InvalidInput, match=r"`delay` must be a delay process.*Empirical\(seen\)"):
        theory.bounds_for(delay, horizon=10)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"horizon": 0}, "`horizon` must be .*got 0"),
        ({"horizon": 10, "delta": 1.0}, "`delta` must be .*got 1.0"),
    ],
)
def test_horizon_and_level_are_checked(arguments: dict[str, Any], said: str) -> None:
    """Before anything is computed, for every delay."""
    for delay in (Geometric(mean=5), ContextDependent(lambda x: 0.1)):
        with pytest.raises(InvalidInput, match=said):
            theory.bounds_for(delay, **arguments)


def test_an_unknown_bound_is_refused() -> None:
    """As for any mapping."""
    with pytest.raises(KeyError):
        theory.bounds_for(Constant(1), horizon=10)["best"]
