import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import zeta

from belated import delays
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
    Law,
    LazyMarkov,
    Lognormal,
    Lomax,
    Mixture,
    Parameters,
    RegimeSwitch,
    RewardDependent,
    Uniform,
    Weibull,
)
from belated.exceptions import InvalidInput
from tests.unit.delay_processes import LAWS, PROCESSES, SWITCH, rng, shown

HEAVY: list[DelayProcess] = [
    Weibull(shape=0.6, scale=20),
    Lognormal(median=30, sigma=1.5),
    Lomax(shape=1.2, scale=100),
]


# --- laws, tails and quantiles


@pytest.mark.parametrize("process", PROCESSES, ids=shown)
def test_a_tail_falls_from_one_to_zero(process: DelayProcess) -> None:
    """P(D ≥ i) is 1 up to i = 0, never rises, and never leaves [0, 1]."""
    tail = process.tail(np.arange(-3, 5_000))
    assert (tail[:4] == 1.0).all()
    assert (np.diff(tail) <= 0.0).all()
    assert (tail >= 0.0).all()
    assert tail.dtype == np.float64
    bound = process.params().bound
    if bound is not None:
        assert process.tail(bound) > 0.0
        assert process.tail(bound + 1) == 0.0


@pytest.mark.parametrize("process", PROCESSES, ids=shown)
def test_a_tail_takes_any_shape(process: DelayProcess) -> None:
    """Numbers, lists and tables; between two delays the tail is that of the larger."""
    table = np.arange(6).reshape(2, 3)
    assert process.tail(table).shape == (2, 3)
    assert process.tail(2) == process.tail(table)[0, 2] == process.tail([1.5])[0]


@pytest.mark.parametrize(
    "process", [p for p in PROCESSES if math.isfinite(p.mean) and p not in HEAVY], ids=shown
)
def test_the_tail_sums_to_the_mean(process: DelayProcess) -> None:
    """E D = Σ P(D ≥ i), to rounding where the tail ends within the sum."""
    total = process.tail(np.arange(1, 100_001)).sum()
    assert process.mean == pytest.approx(total, rel=1e-10)


@pytest.mark.parametrize(("shape", "scale"), [(1.2, 100.0), (1.5, 50.0), (3.0, 2.0), (1.05, 1e6)])
def test_the_mean_of_a_power_tail_is_hurwitz_zeta(shape: float, scale: float) -> None:
    """Σ (1 + i/c)^-a = c^a ζ(a, c + 1), though no sum of terms gets near it."""
    exact = scale**shape * zeta(shape, scale + 1.0)
    assert Lomax(shape=shape, scale=scale).mean == pytest.approx(exact, rel=1e-10)


@pytest.mark.parametrize(
    "law",
    [
        Weibull(shape=0.6, scale=20),
        Weibull(shape=0.7, scale=2e4),
        Weibull(shape=3, scale=7e4),
        HalfNormal(scale=1e5),
        Lognormal(median=1e4, sigma=0.8),
        Lognormal(median=30, sigma=1.5),
    ],
    ids=shown,
)
def test_the_mean_of_a_long_tail_is_that_of_millions_of_terms(law: Law) -> None:
    """The integral stands for the terms beyond the first 65,536."""
    total = law.tail(np.arange(1, 1 << 22)).sum()
    assert law.mean == pytest.approx(total, rel=1e-9)


def test_a_mean_is_infinite_where_the_tail_does_not_sum() -> None:
    """A power tail with shape up to 1, and rewards that may be lost."""
    for law in (
        Lomax(shape=1, scale=1),
        Lomax(shape=0.8, scale=20),
        Mixture(never=1e-9, base=Constant(0)),
        Constant(NEVER),
        Empirical([1, math.inf]),
    ):
        assert law.mean == math.inf
        assert law.params() == Parameters(spectral=0.0)
    chain = FiniteChain(SWITCH, values=[1, math.inf])
    assert chain.mean == math.inf
    assert chain.tail(10**9) == pytest.approx(0.25)


def test_exact_means_are_those_of_the_formulas() -> None:
    """The means of the specification, for whole delays."""
    b = Exponential(mean=50).scale
    assert 1.0 / (1.0 - math.exp(-1.0 / b)) == pytest.approx(50.0)
    assert Weibull(shape=1, scale=b).mean == pytest.approx(50.0)
    assert Uniform(100).mean == 50.0
    assert Batched(1000).mean == 499.5
    assert Lomax(shape=1.2, scale=100).mean == pytest.approx(499.501)
    assert Empirical([1, 2, 2.5]).mean == 2.0
    assert RegimeSwitch(SWITCH, laws=[Constant(0), Geometric(mean=100)]).mean == pytest.approx(25.0)


@pytest.mark.parametrize("law", LAWS, ids=shown)
def test_quantiles_have_the_law_of_the_tail(law: Law) -> None:
    """On a grid of n numbers u the share with D ≥ i is P(D ≥ i), to 1/n."""
    n = 100_003
    delays = law.quantile((np.arange(n) + 0.5) / n)
    for i in [1, 2, 3, 4, 5, 7, 10, 13, 20, 50, 100, 101, 300, 1000, 100_000]:
        assert abs((delays >= i).mean() - law.tail(i)) <= 1.0 / n


def test_a_weibull_that_is_nearly_constant_has_a_mean() -> None:
    """Its tail falls from 1 to 0 within a round: no power of it is beyond the floats."""
    law = Weibull(shape=900, scale=40)
    assert law.mean == pytest.approx(float(law.tail(np.arange(1, 100)).sum()))
    assert 40.0 < law.mean < 41.0


@pytest.mark.parametrize("law", LAWS, ids=shown)
def test_quantiles_rise_with_u(law: Law) -> None:
    """They are whole, not negative, at most NEVER, and begin at the least delay."""
    u = np.concatenate([[0.0], np.sort(rng().random(1000)), [1.0 - 2.0**-53]])
    delays = law.quantile(u)
    assert delays.dtype == np.int64
    assert (np.diff(delays) >= 0).all()
    assert 0 <= delays[0] <= delays[-1] <= NEVER
    assert law.tail(delays[0]) == 1.0
    assert law.tail(delays[0] + 1) < 1.0 or delays[0] == NEVER
    assert law.quantile(0.5).shape == ()
    assert law.quantile(np.full((2, 3), 0.5)).tolist() == [[int(law.quantile(0.5))] * 3] * 2


@pytest.mark.parametrize("u", [1.0, -1e-300, math.nan, math.inf])
@pytest.mark.parametrize("law", LAWS, ids=shown)
def test_quantiles_outside_of_the_unit_interval_are_refused(law: Law, u: float) -> None:
    """1 itself is refused: no delay need be the largest."""
    with pytest.raises(InvalidInput, match="`u` must be"):
        law.quantile([0.5, u])


@pytest.mark.parametrize(
    ("law", "time"),
    [
        (Exponential(mean=50), lambda u: -Exponential(mean=50).scale * np.log1p(-u)),
        (Weibull(shape=2, scale=40), lambda u: 40.0 * np.sqrt(-np.log1p(-u))),
    ],
    ids=["Exponential", "Weibull"],
)
def test_a_time_is_rounded_up(law: Law, time: Callable[[Any], Any]) -> None:
    """A time just below k is k rounds, and one just above is k + 1."""
    u = rng().random(10_000)
    assert (law.quantile(u) == np.ceil(time(u))).all()
    edge = 1.0 - law.tail([3, 4, 5])  # P(time ≤ 2), P(time ≤ 3), P(time ≤ 4)
    assert law.quantile(edge - 1e-9).tolist() == [2, 3, 4]
    assert law.quantile(edge + 1e-9).tolist() == [3, 4, 5]


@pytest.mark.parametrize(
    "law",
    [
        Exponential(mean=50),
        Weibull(shape=2, scale=40),
        HalfNormal(scale=20),
        Lognormal(median=30, sigma=1.5),
    ],
    ids=shown,
)
def test_a_time_that_is_rounded_up_is_at_least_one_round(law: Law) -> None:
    """Even for u = 0, whose time is 0."""
    assert law.quantile(0.0) == 1
    assert law.tail(1) == 1.0


def test_lomax_is_rounded_down() -> None:
    """It is floor(100 (U^(-1/1.2) - 1)) for U = 1 - u: the benchmark's heavy tail."""
    law = Lomax(shape=1.2, scale=100)
    u = rng().random(100_000)
    assert (law.quantile(u) == np.floor(100.0 * ((1.0 - u) ** (-1.0 / 1.2) - 1.0))).all()
    edge = 1.0 - law.tail([1, 2, 3])
    assert law.quantile(edge - 1e-9).tolist() == [0, 1, 2]
    assert law.quantile(edge + 1e-9).tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    "law",
    [
        Lomax(shape=0.001, scale=1),
        Weibull(shape=0.001, scale=1),
        Lognormal(median=1, sigma=1e3),
        Uniform(NEVER),
        Exponential(mean=1e300),
        Geometric(mean=1e300),
        HalfNormal(scale=1e300),
    ],
    ids=shown,
)
def test_a_delay_beyond_all_horizons_is_never(law: Law) -> None:
    """It is held at NEVER, without a warning, and a round plus NEVER is still an int64."""
    delays = law.sample(100, rng())
    assert delays.max() == NEVER or law == Uniform(NEVER)
    assert (np.int64(2**40) + delays > 0).all()


# --- what is refused


G = Geometric(mean=5)
REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: Constant(-1), "`c` must be .*got -1"),
    (lambda: Constant(1.5), "`c` must be .*got 1.5"),  # type: ignore[arg-type]
    (lambda: Constant(True), "`c` must be .*got True"),
    (lambda: Constant(NEVER + 1), r"`c` must be a whole number from 0 to 2\*\*62"),
    (lambda: Uniform(-5), "`high` must be .*got -5"),
    (lambda: Geometric(mean=0), "`mean` must be .*got 0"),
    (lambda: Geometric(mean=-2), "`mean` must be .*got -2"),
    (lambda: Geometric(mean=math.nan), "`mean` must be .*got nan"),
    (lambda: Geometric(mean=math.inf), "`mean` must be .*got inf"),
    (lambda: Exponential(mean=1), "`mean` must be .*got 1.0"),
    (lambda: Exponential(mean=math.nan), "`mean` must be .*got nan"),
    (lambda: Weibull(shape=0, scale=1), "`shape` must be .*got 0"),
    (lambda: Weibull(shape=1, scale=-1), "`scale` must be .*got -1"),
    (lambda: HalfNormal(scale=math.nan), "`scale` must be .*got nan"),
    (lambda: Lognormal(median=0, sigma=1), "`median` must be .*got 0"),
    (lambda: Lognormal(median=1, sigma=-1), "`sigma` must be .*got -1"),
    (lambda: Lomax(shape=math.inf, scale=1), "`shape` must be .*got inf"),
    (lambda: Lomax(shape=1, scale=0), "`scale` must be .*got 0"),
    (lambda: Mixture(never=1, base=G), "`never` must be .*got 1"),
    (lambda: Mixture(never=-0.1, base=G), "`never` must be .*got -0.1"),
    (lambda: Mixture(never=math.nan, base=G), "`never` must be .*got nan"),
    (lambda: Mixture(never="some", base=G), "`never` must be .*got 'some'"),  # type: ignore[arg-type]
    (lambda: Mixture(never=0.3, base=Batched(5)), "`base` must be .*got Batched"),  # type: ignore[arg-type]
    (lambda: Empirical([]), r"`samples` must be .*got shape \(0,\)"),
    (lambda: Empirical([[1, 2]]), r"`samples` must be .*got shape \(1, 2\)"),
    (lambda: Empirical([1, -2]), r"`samples\[1\]` must be .*got -2.0"),
    (lambda: Empirical([1, math.nan]), r"`samples\[1\]` must be .*got nan"),
    (lambda: Empirical("many"), "`samples` must be a list of numbers"),
    (lambda: LazyMarkov(1, base=G), "`rho` must be .*got 1"),
    (lambda: LazyMarkov(1.1, base=G), "`rho` must be .*got 1.1"),
    (lambda: LazyMarkov(0.5, base=None), "`base` must be .*got None"),  # type: ignore[arg-type]
    (lambda: BlockDependent(G, length=0), "`length` must be .*got 0"),
    (lambda: BlockDependent(5, length=1), "`base` must be .*got 5"),  # type: ignore[arg-type]
    (lambda: Batched(0), "`period` must be .*got 0"),
    (lambda: Batched(10, offset=10), "`offset` must be .*got 10"),
    (lambda: Batched(10, offset=-1), "`offset` must be .*got -1"),
    (
        lambda: FiniteChain([[0.5, 0.4], [0.5, 0.5]], values=[0, 1]),
        "row 0 of .* must sum to 1, got 0.9",
    ),
    (
        lambda: FiniteChain([[1.5, -0.5], [0.5, 0.5]], values=[0, 1]),
        r"`transition\[0, 0\]` must be .*got 1.5",
    ),
    (
        lambda: FiniteChain([[1, 0], [math.nan, 1]], values=[0, 1]),
        r"`transition\[1, 0\]` must be .*got nan",
    ),
    (lambda: FiniteChain([0.5, 0.5], values=[0, 1]), r"`transition` must be .*got shape \(2,\)"),
    (
        lambda: FiniteChain([[0.5, 0.5]], values=[0, 1]),
        r"`transition` must be .*got shape \(1, 2\)",
    ),
    (lambda: FiniteChain([[1], [1, 0]], values=[0, 1]), "`transition` must be a matrix"),
    (lambda: FiniteChain(np.eye(2), values=[0, 1]), "transition has several stationary"),
    (lambda: FiniteChain(SWITCH, values=[0, 1, 2]), "3 values for 2 states"),
    (lambda: FiniteChain(SWITCH, values=[0, -1]), r"`values\[1\]` must be .*got -1.0"),
    (lambda: RegimeSwitch(SWITCH, laws=[G]), "1 laws for 2 states"),
    (lambda: RegimeSwitch(SWITCH, laws=[G, 5]), r"`laws\[1\]` must be .*got 5"),  # type: ignore[list-item]
    (lambda: RewardDependent(zero_law=0, one_law=G), "`zero_law` must be .*got 0"),  # type: ignore[arg-type]
    (lambda: RewardDependent(zero_law=G, one_law=0), "`one_law` must be .*got 0"),  # type: ignore[arg-type]
    (lambda: ContextDependent(0.5), "`rate` must be .*got 0.5"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("make", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_makes_no_sense_is_refused_by_name(make: Callable[[], object], message: str) -> None:
    """The message begins with the argument and its value."""
    with pytest.raises(InvalidInput, match=f"^{message}"):
        make()


@pytest.mark.parametrize("process", PROCESSES, ids=shown)
def test_a_process_is_a_value(process: DelayProcess) -> None:
    """It cannot be changed, and its parameters stay what they are."""
    first = dataclasses.fields(process)[0].name  # type: ignore[arg-type]
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(process, first, 3)
    assert process.params() == process.params()


@pytest.mark.parametrize(
    "process",
    [p for p in PROCESSES if not isinstance(p, Empirical | FiniteChain | RegimeSwitch)],
    ids=shown,
)
def test_a_process_can_be_written_down(process: DelayProcess) -> None:
    """What it prints makes an equal one."""
    assert eval(repr(process), dict(vars(delays))) == process


def test_the_arrays_of_a_process_cannot_be_changed() -> None:
    """They are copies, and read only."""
    samples = np.array([3, 1, 2])
    law = Empirical(samples)
    samples[:] = 9
    assert law.samples.tolist() == [1, 2, 3]
    chain = FiniteChain(SWITCH, values=[1, 2])
    for array in (law.samples, chain.values, chain.transition):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0
