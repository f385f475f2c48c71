"""Bounds on regret: the paper's theorems written out, and what they are made from."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest
from scipy.special import zeta

from belated import Bernoulli, Gaussian, Poisson, theory
from belated.delays import (
    Batched,
    BlockDependent,
    Geometric,
    HalfNormal,
    LazyMarkov,
    Lomax,
    Parameters,
    Uniform,
    Weibull,
)
from belated.exceptions import InvalidInput
from belated.theory.regret import Assumption

SETTING = theory.Setting(horizon=10**6, dim=5, sigma=0.5, kappa=0.1, max_slope=0.25)
DELTA, WARMUP = 0.05, 1234.0

#: Theorem by theorem: its function, its Bayesian twin, a delay it is for, and its G* bound.
THEOREMS: dict[str, Parameters] = {
    "independent": HalfNormal(scale=5).params(),
    "iid": Geometric(mean=100).params(),
    "bounded": Batched(1000).params(),
    "markov": LazyMarkov(0.5, base=Geometric(mean=20)).params(),
    "random": Weibull(shape=4, scale=30).params(),
}


def regret(name: str) -> Callable[..., float]:
    """The theorem for DUCB."""
    return partial(theory.regret_theorem, cast("Assumption", name))


def bayes(name: str) -> Callable[..., float]:
    """The theorem for DTS."""
    return partial(theory.regret_bayes_theorem, cast("Assumption", name))


def most_missing(name: str, p: Any, horizon: int, delta: float) -> float:
    """The bound on G*_T that a theorem is made from."""
    arguments = {"horizon": horizon, "delta": delta}
    if name in ("independent", "iid"):
        return theory.missing_prop1(p.mu, p.M, p.sigma, p.q, **arguments)  # type: ignore[arg-type]
    if name == "markov":
        return theory.missing_markov(p.mu, p.spectral, **arguments)  # type: ignore[arg-type]
    if name == "random":
        return theory.missing_random(p.mu, p.sigma_r, p.q_r, **arguments)  # type: ignore[arg-type]
    return theory.missing_bounded(p.bound)


def learning(s: theory.Setting, delta: float) -> float:
    """(2dσ̂/κ) log(T/(dδ)) √T."""
    T, d = s.horizon, s.dim
    return 2 * d * s.sigma / s.kappa * math.log(T / (d * delta)) * math.sqrt(T)


@pytest.mark.parametrize(
    ("norm", "horizon", "per_round"),
    [
        (1.0, 10**4, 15.8),
        (1.0, 10**6, 0.95),
        (1.0, 10**8, 0.11),
        (3.0, 10**4, 351.0),
        (3.0, 10**6, 5.9),
        (3.0, 10**8, 0.36),
    ],
)
def test_theorem_1_has_the_values_that_were_computed(
    norm: float, horizon: int, per_round: float
) -> None:
    """Logistic rewards, d = 10, geometric delays of mean 100: more than T for all T below 10⁶."""
    setting = theory.Setting.of(Bernoulli(), horizon=horizon, dim=10, norm_bound=norm)
    law = Geometric(mean=100).params()
    assert law.mu is not None
    assert law.sigma is not None
    target = theory.threshold(10, delta=DELTA, sigma=setting.sigma, kappa=setting.kappa)
    missing = theory.missing_prop1(law.mu, 0.0, law.sigma, 0.0, delta=DELTA)
    warmup = theory.warmup_chernoff(10, delta=DELTA, target=target, missing=missing)
    regret_bound = theory.regret_theorem("independent", setting, law, warmup=warmup, delta=DELTA)
    digits = 0.05 if per_round > 1 else 0.005
    assert regret_bound / horizon == pytest.approx(per_round, abs=max(digits, 0.0015 * per_round))


def test_theorem_1_is_its_formula() -> None:
    """Equation (16), term by term, with an M that is not 0."""
    law = Parameters(mu=7.5, M=2.0, sigma=1.5, q=0.7)
    T, d, L = SETTING.horizon, SETTING.dim, math.log(1 / DELTA)
    sG, C3, root = 1.5 * math.sqrt(2.7), 2 * 1.5**2 + 1, math.sqrt(T * d * math.log(T / d))
    inner = 2 * L + 2 * math.log(C3) * sG * math.sqrt(2 * math.log(T)) + 2 * math.log(C3)
    expected = WARMUP + 0.25 * (
        4 * math.sqrt(9.5) * root
        + 2**1.75 * math.sqrt(sG) * math.log(T) ** 0.25 * root
        + learning(SETTING, DELTA)
        + 2
        * math.sqrt(2)
        * root
        * (math.sqrt(sG) * inner**0.25 + math.sqrt(1 + 2 * sG**2 * math.log(C3)))
    )
    bound = theory.regret_theorem("independent", SETTING, law, warmup=WARMUP, delta=DELTA)
    assert bound == pytest.approx(expected)
    # Proposition 2.2 is the same without M.
    incomplete = dataclasses.replace(law, M=0.0)
    assert theory.regret_theorem("iid", SETTING, law, warmup=WARMUP, delta=DELTA) == pytest.approx(
        theory.regret_theorem("independent", SETTING, incomplete, warmup=WARMUP, delta=DELTA)
    )


def test_proposition_2_is_its_formula() -> None:
    """Equation (18): the root of the longest delay, not the delay itself."""
    T, d = SETTING.horizon, SETTING.dim
    waiting = 2 * math.sqrt(999) * math.sqrt(2 * T * d * math.log(T / d))
    bound = theory.regret_theorem(
        "bounded", SETTING, Batched(1000).params(), warmup=WARMUP, delta=DELTA
    )
    assert bound == pytest.approx(WARMUP + 0.25 * (waiting + learning(SETTING, DELTA)))


def test_theorem_3_is_its_formula() -> None:
    """Equation (25), with the fourth root of the mean."""
    T, d = SETTING.horizon, SETTING.dim
    log, a1, a2 = math.log(T / DELTA), 3.0, 10.0
    roots = math.sqrt(20) + math.sqrt(a2 * log) + (2 * a1 * 20 * log) ** 0.25
    waiting = 2 * math.sqrt(2 * T * d * math.log(T / d)) * roots
    bound = theory.regret_theorem("markov", SETTING, THEOREMS["markov"], warmup=WARMUP, delta=DELTA)
    assert bound == pytest.approx(WARMUP + 0.25 * (waiting + learning(SETTING, DELTA)))


def test_theorem_5_is_its_formula() -> None:
    """Equation (29), with C₄ where the theorem prints C₃."""
    law, T, d = Uniform(10).params(), SETTING.horizon, SETTING.dim
    sG, C4 = 25 * float(zeta(2.0)), 2 * 25**2 + 1
    roots = math.sqrt(5) + math.sqrt(sG) * (2 * math.log(T)) ** 0.25
    roots += math.sqrt(sG) * (2 * math.log(C4 / DELTA)) ** 0.25
    waiting = 2 * math.sqrt(2 * T * d * math.log(T / d)) * roots
    bound = theory.regret_theorem("random", SETTING, law, warmup=WARMUP, delta=DELTA)
    assert bound == pytest.approx(WARMUP + 0.25 * (waiting + learning(SETTING, DELTA)))


def test_theorem_2_is_its_formula() -> None:
    """The last display of its proof, with 2 for the two ways in which it fails."""
    law = Parameters(mu=7.5, M=2.0, sigma=1.5, q=0.7)
    T, d = SETTING.horizon, SETTING.dim
    sG, C3, log = 1.5 * math.sqrt(2.7), 2 * 1.5**2 + 1, math.log(T)
    beta = 5.0 * math.sqrt(d / 2 * math.log(1 + 2 * T / d) + log)
    inner = 2 * sG**2 * (log + math.log(C3) * sG * math.sqrt(2 * log) + math.log(C3))
    roots = math.sqrt(19.0) + math.sqrt(sG) * (2 * log) ** 0.25
    roots += math.sqrt(2 * sG**2 * math.log(C3) + 2) + inner**0.25
    potential = math.sqrt(2 * T * d * math.log(T / d))
    bound = theory.regret_bayes_theorem("independent", SETTING, law, warmup=WARMUP)
    assert bound == pytest.approx(WARMUP + 2 + 2 * 0.25 * (beta + roots) * potential)
    incomplete = dataclasses.replace(law, M=0.0)
    assert theory.regret_bayes_theorem("iid", SETTING, law, warmup=WARMUP) == pytest.approx(
        theory.regret_bayes_theorem("independent", SETTING, incomplete, warmup=WARMUP)
    )


def test_corollary_2_is_its_formula() -> None:
    """β + √D_max, without anything for a bound that never fails."""
    T, d = SETTING.horizon, SETTING.dim
    beta = 5.0 * math.sqrt(d / 2 * math.log(1 + 2 * T / d) + math.log(T))
    potential = math.sqrt(2 * T * d * math.log(T / d))
    bound = theory.regret_bayes_theorem("bounded", SETTING, Batched(1000).params(), warmup=WARMUP)
    assert bound == pytest.approx(WARMUP + 2 + 0.5 * (beta + math.sqrt(999)) * potential)


@pytest.mark.parametrize(("name", "law"), THEOREMS.items(), ids=THEOREMS)
def test_a_theorem_is_no_better_than_the_inequality_it_comes_from(
    name: str, law: Parameters
) -> None:
    """√(a + b) ≤ √a + √b, and as large where there is one term."""
    missing = most_missing(name, law, SETTING.horizon, DELTA)
    master = theory.regret_ucb(SETTING, missing=missing, warmup=WARMUP, delta=DELTA)
    bound = regret(name)(SETTING, law, warmup=WARMUP, delta=DELTA)
    assert bound == pytest.approx(master) if name == "bounded" else bound > master


@pytest.mark.parametrize(("name", "law"), THEOREMS.items(), ids=THEOREMS)
def test_a_bayesian_theorem_is_no_better_than_the_inequality_it_comes_from(
    name: str, law: Parameters
) -> None:
    """The same, at δ = 1/T and with one more missing on average unless delays are bounded."""
    missing = most_missing(name, law, SETTING.horizon, 1 / SETTING.horizon)
    average = missing if name == "bounded" else missing + 1
    master = theory.regret_bayes(SETTING, missing=average, warmup=WARMUP)
    bound = bayes(name)(SETTING, law, warmup=WARMUP)
    assert bound == pytest.approx(master) if name == "bounded" else bound > master


@pytest.mark.parametrize(("horizon", "delta"), [(10**4, 0.2), (10**6, 0.05)])
def test_the_last_step_of_the_proof_fails_with_one_feature(horizon: int, delta: float) -> None:
    """21.99 > 21.64 and 33.66 > 33.62: then the side before the step is the bound."""
    setting = theory.Setting(horizon=horizon, dim=1, sigma=1.0, kappa=1.0, max_slope=1.0)
    bound = theory.regret_ucb(setting, missing=0, warmup=0, delta=delta) / math.sqrt(horizon)
    stated = 2 * math.log(horizon / delta)
    root = math.sqrt(0.5 * math.log(1 + 2 * horizon) + math.log(1 / delta))
    before = 2 * root * math.sqrt(2 * math.log(horizon))
    expected = {0.2: (21.99, 21.64), 0.05: (33.66, 33.62)}[delta]
    assert (before, stated) == pytest.approx(expected, abs=0.006)
    assert bound == pytest.approx(before)


def test_the_last_step_of_the_proof_holds_with_more_features() -> None:
    """For d ≥ 2 the stated term is the greater one, wherever it was tried."""
    for d, T in itertools.product([2, 5, 10, 50], [10**3, 10**4, 10**6, 10**8]):
        for delta in (0.5, 0.2, 0.05, 1 / T):
            s = theory.Setting(horizon=T, dim=d, sigma=1.0, kappa=1.0, max_slope=1.0)
            bound = theory.regret_ucb(s, missing=0, warmup=0, delta=delta)
            assert bound == pytest.approx(learning(s, delta), rel=1e-12)


def test_the_average_is_that_at_one_in_t_and_five() -> None:
    """Five events fail with 1/T each, and then all is lost."""
    regret_of_ucb = theory.regret_ucb(SETTING, missing=50, warmup=WARMUP, delta=1 / SETTING.horizon)
    expected = theory.regret_expected(SETTING, missing=50, warmup=WARMUP)
    assert expected == pytest.approx(regret_of_ucb + 5)
    wide_setting = dataclasses.replace(SETTING, span=3.0)
    regret_of_ucb = theory.regret_ucb(
        wide_setting, missing=50, warmup=WARMUP, delta=1 / SETTING.horizon
    )
    assert theory.regret_expected(wide_setting, missing=50, warmup=WARMUP) == pytest.approx(
        regret_of_ucb + 15
    )


def test_a_round_of_the_warm_up_costs_what_a_round_can_cost() -> None:
    """The paper's rewards are in [0, 1]; for others the span counts."""
    for span in (1.0, 3.0):
        setting = dataclasses.replace(SETTING, span=span)
        shorter, longer = (
            theory.regret_ucb(setting, missing=50, warmup=warmup, delta=DELTA)
            for warmup in (0, 100)
        )
        assert longer - shorter == pytest.approx(100 * span)
        shorter, longer = (
            theory.regret_bayes(setting, missing=50, warmup=warmup) for warmup in (0, 100)
        )
        assert longer - shorter == pytest.approx(100 * span)


def test_regret_grows_with_what_is_missing_and_as_it_may_fail_less_often() -> None:
    """And slower than the horizon: the bound per round falls."""
    bounds_by_missing = [
        theory.regret_ucb(SETTING, missing=m, warmup=0, delta=DELTA) for m in (0, 1, 100, 10**6)
    ]
    bounds_by_delta = [
        theory.regret_ucb(SETTING, missing=9, warmup=0, delta=d) for d in (0.5, 0.05, 1e-6)
    ]
    assert bounds_by_missing == sorted(bounds_by_missing)
    assert bounds_by_delta == sorted(bounds_by_delta)
    settings = [dataclasses.replace(SETTING, horizon=10**k) for k in (3, 5, 7, 9)]
    per_round = [
        theory.regret_ucb(s, missing=9, warmup=0, delta=DELTA) / s.horizon for s in settings
    ]
    assert per_round == sorted(per_round, reverse=True)


@pytest.mark.parametrize(
    ("name", "law", "lacking"),
    [
        ("independent", Lomax(shape=1.5, scale=50).params(), "sigma"),
        ("iid", Lomax(shape=0.8, scale=50).params(), "mu"),
        ("bounded", Geometric(mean=5).params(), "bound"),
        ("markov", BlockDependent(Geometric(mean=5), length=9).params(), "spectral"),
        ("random", Geometric(mean=5).params(), "sigma_r"),
    ],
)
def test_a_theorem_that_does_not_apply_says_what_to_take(
    name: str, law: Parameters, lacking: str
) -> None:
    """It names the number that is not there."""
    message = rf"^{lacking} of the delay is None: .*regret_ucb with bounds_for"
    with pytest.raises(InvalidInput, match=message):
        regret(name)(SETTING, law, warmup=WARMUP, delta=DELTA)
    with pytest.raises(InvalidInput, match=message):
        bayes(name)(SETTING, law, warmup=WARMUP)


def test_constants_come_from_the_family() -> None:
    """Logistic: L_g = 1/4 and rewards in [0, 1]. Linear: slope 1 and means up to S apart."""
    logistic = theory.Setting.of(Bernoulli(), horizon=100, dim=3, norm_bound=3.0)
    assert logistic.max_slope == 0.25
    assert logistic.kappa == pytest.approx(0.0177, abs=5e-5)
    assert (logistic.sigma, logistic.span) == (0.5, 1.0)
    linear = theory.Setting.of(Gaussian(0.09), horizon=100, dim=3, norm_bound=3.0)
    assert (linear.kappa, linear.max_slope, linear.span) == (1.0, 1.0, 6.0)
    assert linear.sigma == pytest.approx(0.3)
    counts = theory.Setting.of(Poisson(), horizon=100, dim=3, norm_bound=1.0)
    assert counts.max_slope == pytest.approx(math.exp(2.0))
    assert counts.span == pytest.approx(2.0 * math.sinh(1.0))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"horizon": 5}, "`horizon` must be .*got 5"),
        ({"horizon": 1e6}, "`horizon` must be a whole number"),
        ({"dim": 0}, "`dim` must be .*got 0"),
        ({"sigma": 0.0}, "`sigma` must be .*got 0.0"),
        ({"kappa": -1.0}, "`kappa` must be .*got -1.0"),
        ({"max_slope": math.nan}, "`max_slope` must be .*got nan"),
        ({"span": math.inf}, "`span` must be .*got inf"),
    ],
)
def test_a_setting_is_checked(change: dict[str, Any], said: str) -> None:
    """By name and value."""
    with pytest.raises(InvalidInput, match=said):
        dataclasses.replace(SETTING, **change)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"missing": -1.0}, "`missing` must be .*got -1.0"),
        ({"missing": math.inf}, "`missing` must be .*got inf"),
        ({"warmup": -1.0}, "`warmup` must be .*got -1.0"),
        ({"warmup": math.nan}, "`warmup` must be .*got nan"),
        ({"delta": 0.0}, "`delta` must be .*got 0.0"),
    ],
)
def test_what_regret_cannot_be_computed_from_is_refused(
    arguments: dict[str, Any], said: str
) -> None:
    """By name, in both inequalities."""
    numbers = {"missing": 1.0, "warmup": 1.0, "delta": 0.05, **arguments}
    with pytest.raises(InvalidInput, match=said):
        theory.regret_ucb(SETTING, **numbers)
    if "delta" not in arguments:
        del numbers["delta"]
        with pytest.raises(InvalidInput, match=said):
            theory.regret_bayes(SETTING, **numbers)
        with pytest.raises(InvalidInput, match=said):
            theory.regret_expected(SETTING, **numbers)
