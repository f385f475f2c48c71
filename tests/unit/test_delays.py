import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import zeta

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
    expected_missing,
    min_sigma,
)
from belated.delays.chains import Chain
from belated.exceptions import InvalidInput


def shown(process: object) -> str:
    """What a process prints, in one line."""
    return " ".join(repr(process).split())


LAWS: list[Law] = [
    Constant(0),
    Constant(7),
    Uniform(100),
    Uniform(0),
    Geometric(mean=5),
    Geometric(mean=100),
    Geometric(mean=0.01),
    Exponential(mean=50),
    Exponential(mean=1.001),
    Weibull(shape=0.6, scale=20),
    Weibull(shape=1.5, scale=40),
    Weibull(shape=2, scale=40),
    Weibull(shape=3, scale=40),
    Weibull(shape=4, scale=40),
    HalfNormal(scale=20),
    HalfNormal(scale=0.5),
    Lognormal(median=30, sigma=1.5),
    Lognormal(median=0.3, sigma=0.5),
    Lomax(shape=1.2, scale=100),
    Lomax(shape=0.8, scale=20),
    Mixture(never=0.3, base=Geometric(mean=100)),
    Mixture(never=0.0, base=Uniform(10)),
    Empirical([4, 0, 0, 12, 12, 3]),
    Empirical([4, 0, math.inf]),
]
SWITCH = [[0.99, 0.01], [0.03, 0.97]]
CYCLE = [[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.8, 0.1, 0.1]]  # not reversible
DEPENDENT: list[DelayProcess] = [
    LazyMarkov(0.5, base=Geometric(mean=20)),
    LazyMarkov(0.95, base=Weibull(shape=4, scale=40)),
    LazyMarkov(0.0, base=Uniform(9)),
    RegimeSwitch(SWITCH, laws=[Geometric(mean=5), Geometric(mean=50)]),
    RegimeSwitch(CYCLE, laws=[Uniform(3), Constant(9), Uniform(30)]),
    RegimeSwitch([[0.5, 0.5], [0.5, 0.5]], laws=[Uniform(3), Uniform(30)]),
    FiniteChain(CYCLE, values=[10, 0, 3]),
    FiniteChain([[0.2, 0.8], [0.2, 0.8]], values=[10, 0]),
    BlockDependent(Weibull(shape=4, scale=40), length=30),
    BlockDependent(Geometric(mean=5), length=1),
    Batched(10),
    Batched(10, offset=4),
]
PROCESSES = [*LAWS, *DEPENDENT]
HEAVY: list[DelayProcess] = [
    Weibull(shape=0.6, scale=20),
    Lognormal(median=30, sigma=1.5),
    Lomax(shape=1.2, scale=100),
]


def rng(seed: int = 0) -> np.random.Generator:
    """A new generator, the same for the same seed."""
    return np.random.default_rng(seed)


def outstanding(delay: NDArray[np.int64]) -> NDArray[np.int64]:
    """G_t of every round: the number of s ≤ t - 1 with s + D_s ≥ t."""
    s = np.arange(1, len(delay) + 1)
    return np.array([int((s[: t - 1] + delay[: t - 1] >= t).sum()) for t in s])


def atoms_above(process: DelayProcess) -> NDArray[np.float64]:
    """The delays above the mean whose tail is still a normal float."""
    i = np.arange(math.floor(process.mean) + 1.0, 200_000.0)
    return i[process.tail(i) > 1e-300]


def last_above(process: DelayProcess, floor: float) -> int:
    """The largest delay with at least this tail."""
    return int((process.tail(np.arange(1, 100_000)) > floor).sum())


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
    with pytest.raises(InvalidInput, match="u is"):
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


# --- a run


@pytest.mark.parametrize("process", PROCESSES, ids=shown)
def test_a_run_repeats_for_the_same_generator(process: DelayProcess) -> None:
    """The same seed gives the same delays: whole, one for each round."""
    first, again = process.sample(2000, rng(3)), process.sample(2000, rng(3))
    assert first.dtype == np.int64
    assert first.shape == (2000,)
    assert (first == again).all()
    assert (first >= 0).all()
    random = not isinstance(process, Batched) and len(np.unique(first)) > 1
    assert (first != process.sample(2000, rng(4))).any() == random


@pytest.mark.parametrize("process", PROCESSES, ids=shown)
def test_a_longer_run_begins_with_the_shorter_one(process: DelayProcess) -> None:
    """The delay of a round does not depend on how long the run will be."""
    longest = process.sample(1000, rng(5))
    for horizon in (0, 1, 2, 31, 32, 33, 999):
        assert process.sample(horizon, rng(5)).tolist() == longest[:horizon].tolist()


@pytest.mark.parametrize("horizon", [-1, 10.0, math.nan, None, True])
@pytest.mark.parametrize("process", [Geometric(mean=5), *DEPENDENT], ids=lambda p: type(p).__name__)
def test_a_horizon_is_a_whole_number(process: DelayProcess, horizon: Any) -> None:
    """Anything else is refused by name."""
    with pytest.raises(InvalidInput, match="horizon is"):
        process.sample(horizon, rng())


def test_runs_with_the_same_generator_share_their_luck() -> None:
    """A law with longer delays gives longer delays, round by round."""
    short, long = Geometric(mean=5).sample(1000, rng()), Geometric(mean=100).sample(1000, rng())
    assert (short <= long).all()
    lost = Mixture(never=0.3, base=Geometric(mean=5)).sample(1000, rng())
    assert (short <= lost).all()


@pytest.mark.parametrize("c", [0, 1, 7, 500])
def test_a_constant_delay_leaves_that_many_outstanding(c: int) -> None:
    """G_t = min(t - 1, c)."""
    t = np.arange(1, 301)
    assert (outstanding(Constant(c).sample(300, rng())) == np.minimum(t - 1, c)).all()


@pytest.mark.parametrize("period", [1, 2, 7, 100])
def test_midnight_empties_the_queue_once_a_period(period: int) -> None:
    """G_t = (t - 1) mod P, and with an offset the first period is shorter."""
    t = np.arange(1, 301)
    assert (outstanding(Batched(period).sample(300, rng())) == (t - 1) % period).all()
    for offset in range(0, period, 3):
        missing = outstanding(Batched(period, offset=offset).sample(300, rng()))
        assert (missing == np.minimum(t - 1, (t - 1 + offset) % period)).all()


def test_rewards_of_a_batch_arrive_at_its_end() -> None:
    """Batched(1000): rounds 1 to 1000 arrive in round 1000, 1001 to 2000 in round 2000."""
    arrival = np.arange(1, 2501) + Batched(1000).sample(2500, rng())
    assert (arrival == np.repeat([1000, 2000, 3000], [1000, 1000, 500])).all()


def test_blocks_share_one_delay() -> None:
    """Each block has one draw of the base, and a run may end within a block."""
    base = Uniform(10**6)
    delays = BlockDependent(base, length=30).sample(100, rng())
    assert delays.tolist() == np.repeat(base.sample(4, rng()), 30)[:100].tolist()


def test_a_lazy_chain_changes_by_draws_of_its_base() -> None:
    """Its delays are some of those that the second uniform of each round stands for."""
    base = Uniform(10**6)
    delays = LazyMarkov(0.7, base=base).sample(500, rng(2))
    u = rng(2).random((500, 2))
    state = -1
    for t in range(500):
        if t == 0 or u[t, 0] >= 0.7:
            state = int(base.quantile(u[t, 1]))
        assert delays[t] == state


def test_a_chain_walks_as_its_rows_say() -> None:
    """The path made in blocks is the one made round by round, from the same uniforms."""
    generator = rng(8)
    chains = [np.array(SWITCH), np.array(CYCLE), np.roll(np.eye(5), 1, axis=1), np.eye(1)]
    chains += [generator.dirichlet(np.full(n, 0.3), n) for n in (2, 5, 40)]
    for transition in chains:
        n = len(transition)
        chain = FiniteChain(transition, values=np.arange(n))
        for horizon in (1, 2, 10, 1000):
            u = rng(9).random(horizon)
            row = np.array([chain.tail(i) - chain.tail(i + 1) for i in range(n)])
            path = []
            for draw in u:
                path.append(int(np.searchsorted(np.cumsum(row), draw, side="right")))
                row = chain.transition[path[-1]]
            assert chain.sample(horizon, rng(9)).tolist() == path


def test_a_chain_keeps_to_its_rows_at_the_ends_of_the_unit_interval() -> None:
    """The largest and the least u lead to states of positive probability, however they round."""
    chain = Chain([[0.0, 0.5, 0.5, 0.0], [1, 0, 0, 0], [0.0, 0.0, 0.0, 1.0], [1, 0, 0, 0]])
    last = chain.walk(np.full(5, 1.0 - 2.0**-53))
    assert last.tolist() == [3, 0, 2, 3, 0]
    assert chain.walk(np.zeros(5)).tolist() == [0, 1, 0, 1, 0]


# --- the parameters of the paper's assumptions


@pytest.mark.parametrize(
    ("law", "twice_square", "q"),
    [
        (Geometric(mean=5), 5.485, 0.0),
        (Geometric(mean=100), 100.5, 0.0),
        (Exponential(mean=1.0 / (1.0 - math.exp(-1.0 / 50.0))), 50.0, 0.0),
        (Weibull(shape=1, scale=40), 40.0, 0.0),
        (Weibull(shape=1.5, scale=40), 252.98, 0.5),
        (Weibull(shape=2, scale=40), 1600.0, 1.0),
        (Weibull(shape=3, scale=40), 64_000.0, 2.0),
        (HalfNormal(scale=20), 800.0, 1.0),
        (Uniform(100), 5000.0, 1.0),
        (Constant(9), 0.0, 1.0),
    ],
    ids=shown,
)
def test_independent_laws_have_the_closed_form_of_assumption_2(
    law: Law, twice_square: float, q: float
) -> None:
    """2σ² and q of the specification, M = 0, and λ = 0."""
    params = law.params()
    assert params.sigma is not None
    assert 2.0 * params.sigma**2 == pytest.approx(twice_square, rel=1e-4)
    assert (params.q, params.M, params.spectral) == (q, 0.0, 0.0)
    assert params.mu == law.mean


@pytest.mark.parametrize("process", PROCESSES, ids=shown)
def test_the_tail_keeps_to_the_parameters(process: DelayProcess) -> None:
    """Assumptions 2 and 4 hold at every delay above the mean, and no delay exceeds the bound."""
    p = process.params()
    assert (p.sigma is None) == (p.q is None)
    assert (p.sigma_r is None) == (p.q_r is None)
    assert p.sigma is None or process.independent
    if p.mu is None:
        assert p == Parameters(spectral=p.spectral)
        return
    i = atoms_above(process)
    x, fall = i - p.mu, -np.log(process.tail(i))
    if p.sigma is not None and p.q is not None:
        assert (x ** (1.0 + p.q) <= 2.0 * p.sigma**2 * fall * (1.0 + 1e-9)).all()
    if p.sigma_r is not None and p.q_r is not None:
        assert p.q_r > 0.0
        assert (x ** (2.0 * (1.0 + p.q_r)) <= 2.0 * p.sigma_r**2 * fall * (1.0 + 1e-9)).all()


@pytest.mark.parametrize(
    ("law", "least"),
    [
        (Geometric(mean=5), 5.476),
        (Weibull(shape=1.5, scale=40), 248.1),
        (Weibull(shape=2, scale=40), 1485.5),
        (Weibull(shape=3, scale=40), 45_717.0),
        (HalfNormal(scale=20), 2.0 * 19.479**2),
    ],
    ids=shown,
)
def test_the_closed_form_is_the_limit_of_the_least_sigma(law: Law, least: float) -> None:
    """Up to a tail of 1e-250 the least 2σ² is below it; it rises towards it with every delay."""
    params = law.params()
    assert params.sigma is not None
    assert params.q is not None
    sigmas = [
        min_sigma(law.tail, law.mean, params.q, last_above(law, floor))
        for floor in (1e-100, 1e-200, 1e-250, 1e-300)
    ]
    assert 2.0 * sigmas[2] ** 2 == pytest.approx(least, rel=1e-4)
    assert sigmas == sorted(sigmas)
    assert sigmas[-1] < params.sigma
    gaps = [params.sigma - sigma for sigma in sigmas]
    assert gaps[-1] < 0.75 * gaps[0]


@pytest.mark.parametrize(
    ("law", "growth"),
    [
        (Lognormal(median=30, sigma=1.5), [195.8, 1007.9, 5788.1]),
        (Lomax(shape=1.5, scale=50), [197.2, 1244.6, 8761.6]),
    ],
    ids=shown,
)
def test_a_heavy_tail_has_no_sigma(law: Law, growth: list[float]) -> None:
    """The least 2σ² for q = 0 grows with the range, so Assumption 2 fails for every σ."""
    for upto, expected in zip([10**3, 10**4, 10**5], growth, strict=True):
        least = 2.0 * min_sigma(law.tail, law.mean, 0.0, upto) ** 2
        assert least == pytest.approx(expected, rel=1e-3)
    params = law.params()
    assert (params.sigma, params.q, params.sigma_r, params.q_r) == (None, None, None, None)
    assert params.mu == law.mean


def test_a_stretched_exponential_has_no_sigma() -> None:
    """A Weibull shape below 1 is heavier than an exponential; at 2 Assumption 4 still fails."""
    assert Weibull(shape=0.99, scale=40).params().sigma is None
    assert Weibull(shape=2.0, scale=40).params().sigma_r is None
    four = Weibull(shape=4, scale=40).params()
    assert four.sigma_r is not None
    assert 2.0 * four.sigma_r**2 == pytest.approx(40.0**4)
    assert four.q_r == 1.0


def test_the_least_sigma_is_the_least() -> None:
    """For delays uniform up to 100 it is 19.1; a smaller one breaks Assumption 2 somewhere."""
    law = Uniform(100)
    sigma = min_sigma(law.tail, 50.0, 1.0, 100)
    assert sigma == pytest.approx(19.0992, abs=1e-4)
    near = min_sigma(Uniform(4).tail, 2.0, 1.0, 4)  # at 4, with a tail of 1/5
    assert near == pytest.approx(math.sqrt(2.0 / math.log(5.0)))
    i = np.arange(51, 101)
    for factor, holds in [(1.0 + 1e-9, True), (1.0 - 1e-4, False)]:
        bound = np.exp(-((i - 50.0) ** 2) / (2.0 * (factor * sigma) ** 2))
        assert (law.tail(i) <= bound).all() == holds


def test_the_least_sigma_of_samples_is_exact() -> None:
    """It is found at the samples alone, and is that of all whole numbers up to the largest."""
    law = Empirical([0, 0, 1, 3, 3, 20, 50])
    params = law.params()
    assert params.bound == 50
    assert params.sigma == pytest.approx(min_sigma(law.tail, law.mean, 1.0, 50), rel=1e-12)
    assert params.sigma_r == pytest.approx(min_sigma(law.tail, law.mean, 3.0, 50), rel=1e-12)
    far = Empirical([0, 10**15]).params().sigma
    assert far == pytest.approx(math.sqrt(0.5 * (5e14) ** 2 / math.log(2.0)))


def test_the_least_sigma_of_a_constant_is_zero() -> None:
    """No delay is above the mean, even where the mean is a rounding error too small."""
    assert min_sigma(Constant(5).tail, 5.0, 1.0, 100) == 0.0
    assert min_sigma(Constant(5).tail, math.nextafter(5.0, 0.0), 0.0, 100) == 0.0
    assert Empirical([3, 3]).params().sigma == 0.0
    assert FiniteChain([[0.1, 0.9], [0.7, 0.3]], values=[3, 3]).params().sigma_r == 0.0


@pytest.mark.parametrize(("mu", "q"), [(math.inf, 0.0), (math.nan, 0.0), (-1.0, 0.0), (1.0, -0.1)])
def test_the_least_sigma_needs_a_finite_mean(mu: float, q: float) -> None:
    """So are negative q refused."""
    with pytest.raises(InvalidInput):
        min_sigma(Constant(5).tail, mu, q, 100)


def test_dependent_delays_do_not_claim_assumption_2() -> None:
    """What they keep of their base is its mean, its bound and Assumption 4."""
    base = Weibull(shape=4, scale=40)
    known = base.params()
    kept = Parameters(mu=known.mu, sigma_r=known.sigma_r, q_r=known.q_r)
    assert BlockDependent(base, length=30).params() == kept
    assert LazyMarkov(0.5, base=base).params() == dataclasses.replace(kept, spectral=0.5)
    assert Batched(100).params() == Parameters(mu=49.5, bound=99)


def test_dependent_delays_can_be_independent() -> None:
    """A chain that never stays and blocks of one round are their base; equal rows forget."""
    base = Geometric(mean=5)
    same: list[DelayProcess] = [LazyMarkov(0.0, base=base), BlockDependent(base, length=1)]
    for process in same:
        assert process.independent
        assert process.params() == base.params()
    chain = FiniteChain([[0.2, 0.8], [0.2, 0.8]], values=[10, 0])
    drawn = Empirical([10, 0, 0, 0, 0]).params()
    assert chain.independent
    for name, value in dataclasses.asdict(drawn).items():
        assert getattr(chain.params(), name) == pytest.approx(value, abs=1e-12)
    switch = RegimeSwitch([[0.5, 0.5], [0.5, 0.5]], laws=[Uniform(3), Uniform(30)])
    assert switch.independent
    assert (switch.params().sigma, switch.params().M) == (15.0, 0.0)


# --- Markov chains


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.95])
def test_the_spectral_norm_of_a_lazy_chain_is_rho(rho: float) -> None:
    """As that of the explicit chain ρ I + (1 - ρ) 1 πᵀ, here with a geometric π cut at 400."""
    base = Geometric(mean=20)
    i = np.arange(400)
    pi = base.tail(i) - base.tail(i + 1)
    pi /= pi.sum()
    explicit = FiniteChain(rho * np.eye(400) + (1.0 - rho) * pi, values=i)
    assert explicit.params().spectral == pytest.approx(rho, abs=1e-9)
    assert LazyMarkov(rho, base=base).params().spectral == rho
    assert explicit.tail(np.arange(100)) == pytest.approx(base.tail(np.arange(100)), abs=1e-7)


@pytest.mark.parametrize("transition", [SWITCH, CYCLE, [[0.3, 0.7], [0.9, 0.1]]])
def test_the_spectral_norm_of_regimes_is_that_of_regime_and_delay(transition: Any) -> None:
    """As that of the explicit chain of pairs, whatever the laws."""
    laws = [Uniform(4), Constant(9), Uniform(7)][: len(transition)]
    pairs = [
        (r, d) for r, law in enumerate(laws) for d in range(10) if law.tail(d) > law.tail(d + 1)
    ]
    explicit = [
        [transition[r][s] * float(laws[s].tail(d) - laws[s].tail(d + 1)) for s, d in pairs]
        for r, _ in pairs
    ]
    chain = FiniteChain(explicit, values=[d for _, d in pairs])
    process = RegimeSwitch(transition, laws=laws)
    assert process.params().spectral == pytest.approx(chain.params().spectral, abs=1e-12)
    assert process.mean == pytest.approx(chain.mean)
    assert process.tail(range(12)) == pytest.approx(chain.tail(range(12)), abs=1e-12)
    if len(transition) == 2:
        second = abs(transition[0][0] + transition[1][1] - 1.0)
        assert process.params().spectral == pytest.approx(second)


def test_the_spectral_norm_is_of_the_reversed_product() -> None:
    """λ² is the second largest eigenvalue of P P*, P* the chain run backwards."""
    for seed in range(5):
        p = rng(seed).dirichlet(np.ones(6), 6)
        pi = np.linalg.matrix_power(p, 200)[0]
        backwards = p.T * pi / pi[:, None]
        second = np.sort(np.linalg.eigvals(p @ backwards).real)[-2]
        chain = FiniteChain(p, values=range(6))
        assert chain.params().spectral == pytest.approx(math.sqrt(second))
        assert chain.mean == pytest.approx(pi @ np.arange(6))


def test_a_periodic_chain_has_no_spectral_gap() -> None:
    """λ is 1, so Assumption 3 fails."""
    assert FiniteChain([[0.0, 1.0], [1.0, 0.0]], values=[0, 5]).params().spectral is None
    assert FiniteChain(np.roll(np.eye(3), 1, axis=1), values=[0, 5, 6]).params().spectral is None
    assert FiniteChain([[1.0]], values=[5]).params().spectral == 0.0


def test_states_that_are_left_for_good_do_not_count() -> None:
    """A transient state has no share in the mean, the bound or λ, and no run begins in it."""
    p = [[0.9, 0.1, 0.0], [0.3, 0.7, 0.0], [0.2, 0.3, 0.5]]
    chain = FiniteChain(p, values=[1, 10, 1000])
    assert chain.mean == pytest.approx(3.25)
    assert chain.params().bound == 10
    assert chain.params().spectral == pytest.approx(0.6)
    assert chain.sample(10_000, rng()).max() == 10
    laws = [Constant(1), Constant(10), Lomax(shape=0.5, scale=1)]
    switch = RegimeSwitch(p, laws=laws)
    assert switch.mean == pytest.approx(3.25)
    assert switch.params().bound == 10


def test_small_shares_of_a_chain_are_accurate() -> None:
    """A birth and death chain with ratio 1e-3: the share of state k is 1e-3^k (1 - 1e-3)."""
    n = 30
    p = np.zeros((n, n))
    for k in range(n - 1):
        p[k, k + 1], p[k + 1, k] = 5e-4, 0.5
    p += np.diag(1.0 - p.sum(axis=1))
    chain = FiniteChain(p, values=range(n))
    states = np.arange(n)
    expected = (1e-3**states - 1e-3**n) / (1.0 - 1e-3**n)
    assert chain.tail(states) == pytest.approx(expected, rel=1e-9)


# --- the number outstanding


@pytest.mark.parametrize("process", PROCESSES, ids=shown)
def test_the_expected_number_outstanding_is_a_sum_of_the_tail(process: DelayProcess) -> None:
    """m_t = Σ_{i<t} P(D ≥ i): finite, at most t - 1, and at most the mean."""
    t = np.arange(1, 200)
    missing = expected_missing(process, t)
    direct = [math.fsum(process.tail(np.arange(1, k))) for k in t]
    assert missing == pytest.approx(np.array(direct), rel=1e-12)
    assert (missing <= np.minimum(t - 1.0, process.mean) * (1.0 + 1e-12)).all()


def test_the_expected_number_outstanding_has_the_known_forms() -> None:
    """Geometric μ (1 - r^(t-1)), constant min(t - 1, c), and p (t - 1) if a share p is lost."""
    t = np.array([[1, 2, 3], [10, 100, 10_000]])
    geometric = 100.0 * (1.0 - (100.0 / 101.0) ** (t - 1))
    assert expected_missing(Geometric(mean=100), t) == pytest.approx(geometric)
    assert expected_missing(Constant(7), t).tolist() == np.minimum(t - 1, 7).tolist()
    lost = Mixture(never=0.3, base=Constant(0))
    assert expected_missing(lost, t) == pytest.approx(0.3 * (t - 1))
    assert expected_missing(Geometric(mean=100), 10_000) == pytest.approx(100.0)
    heavy = 100.0 * ((1.0 + 9999.5 / 20.0) ** 0.2 - (1.0 + 0.5 / 20.0) ** 0.2)  # by its integral
    assert expected_missing(Lomax(shape=0.8, scale=20), 10_000) == pytest.approx(heavy, rel=1e-4)
    assert expected_missing(Constant(7), np.zeros(0, dtype=int)).shape == (0,)


@pytest.mark.parametrize("t", [0, -1, 2.0, [1, 0], math.nan, None])
def test_rounds_are_counted_from_one(t: Any) -> None:
    """Anything else is no round."""
    with pytest.raises(InvalidInput, match="t is"):
        expected_missing(Constant(0), t)


def test_a_mixture_loses_its_share() -> None:
    """never30 of the benchmarks: 30 % never come, the others have the law of the base."""
    base = Geometric(mean=100)
    law = Mixture(never=0.3, base=base)
    u = (np.arange(10_000) + 0.5) / 10_000
    delays = law.quantile(u)
    assert (delays == NEVER).sum() == 3000
    assert (delays[:7000] == base.quantile(u[:7000] / 0.7)).all()
    assert law.tail(NEVER) == pytest.approx(0.3)
    assert law.params() == Parameters(spectral=0.0)
    assert Mixture(never=0, base=base).params() == base.params()
    assert Mixture(never=0, base=base).mean == 100.0


# --- delays that depend on the row or the reward


def test_a_delay_can_depend_on_the_reward() -> None:
    """Failures at once and successes late; or failures never: conversions."""
    late = Geometric(mean=400)
    process = RewardDependent(zero_law=Constant(0), one_law=late)
    for u in (0.0, 0.3, 0.99):
        assert process.given(u, x=None, y=0.0) == 0
        assert process.given(u, x=None, y=1.0) == late.quantile(u)
    conversions = RewardDependent(zero_law=Constant(NEVER), one_law=late)
    assert conversions.given(0.5, x=None, y=0.0) == NEVER
    assert type(conversions.given(0.5, x=None, y=1.0)) is int


def test_a_delay_can_depend_on_the_row() -> None:
    """An exponential with the rate of the row, rounded up; the reward does not matter."""
    process = ContextDependent(lambda x: 0.01 * x[0])
    slow, quick = np.array([1.0]), np.array([20.0])
    for u in (0.1, 0.5, 0.999):
        assert process.given(u, slow, 0.0) == math.ceil(-100.0 * math.log1p(-u))
        assert process.given(u, quick, 1.0) == math.ceil(-5.0 * math.log1p(-u))
    assert process.given(0.0, slow, 0.0) == 1
    for x in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InvalidInput, match=r"rate\(x\) is"):
            process.given(0.5, np.array([x]), 0.0)
    with pytest.raises(InvalidInput, match="u is"):
        process.given(1.0, slow, 0.0)


@pytest.mark.parametrize(
    ("process", "what"),
    [
        (RewardDependent(zero_law=Constant(0), one_law=Constant(9)), "the reward"),
        (ContextDependent(lambda x: 1.0), "the row"),
    ],
    ids=["RewardDependent", "ContextDependent"],
)
def test_a_delay_that_depends_on_a_run_has_no_law_of_its_own(
    process: RewardDependent | ContextDependent, what: str
) -> None:
    """Its mean is not known, and samples and tails are refused with the way to go on."""
    delays: DelayProcess = process
    assert math.isnan(delays.mean)
    assert not delays.independent
    with pytest.raises(InvalidInput, match=f"depends on {what}: use simulate") as caught:
        process.sample(10, rng())
    assert caught.value.value is process
    with pytest.raises(InvalidInput, match=f"depends on {what}"):
        process.tail([1, 2])


def test_of_a_delay_that_depends_on_a_run_only_the_bound_is_known() -> None:
    """And that only if all its laws are bounded."""
    assert ContextDependent(lambda x: 1.0).params() == Parameters()
    both = RewardDependent(zero_law=Constant(0), one_law=Uniform(9))
    assert both.params() == Parameters(bound=9)
    one = RewardDependent(zero_law=Constant(0), one_law=Geometric(mean=9))
    assert one.params() == Parameters()


# --- what is refused


G = Geometric(mean=5)
REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: Constant(-1), "c is -1"),
    (lambda: Constant(1.5), "c is 1.5"),  # type: ignore[arg-type]
    (lambda: Constant(True), "c is True"),
    (lambda: Constant(NEVER + 1), r"c is \d+: a whole number from 0 to 2\*\*62"),
    (lambda: Uniform(-5), "upto is -5"),
    (lambda: Geometric(mean=0), "mean is 0"),
    (lambda: Geometric(mean=-2), "mean is -2"),
    (lambda: Geometric(mean=math.nan), "mean is nan"),
    (lambda: Geometric(mean=math.inf), "mean is inf"),
    (lambda: Exponential(mean=1), "mean is 1.0: a time rounded up"),
    (lambda: Exponential(mean=math.nan), "mean is nan"),
    (lambda: Weibull(shape=0, scale=1), "shape is 0"),
    (lambda: Weibull(shape=1, scale=-1), "scale is -1"),
    (lambda: HalfNormal(scale=math.nan), "scale is nan"),
    (lambda: Lognormal(median=0, sigma=1), "median is 0"),
    (lambda: Lognormal(median=1, sigma=-1), "sigma is -1"),
    (lambda: Lomax(shape=math.inf, scale=1), "shape is inf"),
    (lambda: Lomax(shape=1, scale=0), "scale is 0"),
    (lambda: Mixture(never=1, base=G), "never is 1"),
    (lambda: Mixture(never=-0.1, base=G), "never is -0.1"),
    (lambda: Mixture(never=math.nan, base=G), "never is nan"),
    (lambda: Mixture(never="some", base=G), "never is 'some'"),  # type: ignore[arg-type]
    (lambda: Mixture(never=0.3, base=Batched(5)), "base is Batched"),  # type: ignore[arg-type]
    (lambda: Empirical([]), r"samples has shape \(0,\)"),
    (lambda: Empirical([[1, 2]]), r"samples has shape \(1, 2\)"),
    (lambda: Empirical([1, -2]), r"samples\[1\] is -2.0"),
    (lambda: Empirical([1, math.nan]), r"samples\[1\] is nan"),
    (lambda: Empirical("many"), "samples is not a list"),
    (lambda: LazyMarkov(1, base=G), "rho is 1"),
    (lambda: LazyMarkov(1.1, base=G), "rho is 1.1"),
    (lambda: LazyMarkov(0.5, base=None), "base is None"),  # type: ignore[arg-type]
    (lambda: BlockDependent(G, length=0), "length is 0"),
    (lambda: BlockDependent(5, length=1), "base is 5"),  # type: ignore[arg-type]
    (lambda: Batched(0), "period is 0"),
    (lambda: Batched(10, offset=10), "offset is 10: less than the period of 10"),
    (lambda: Batched(10, offset=-1), "offset is -1"),
    (lambda: FiniteChain([[0.5, 0.4], [0.5, 0.5]], values=[0, 1]), "row 0 of .* sums to 0.9"),
    (lambda: FiniteChain([[1.5, -0.5], [0.5, 0.5]], values=[0, 1]), r"transition\[0, 0\] is 1.5"),
    (lambda: FiniteChain([[1, 0], [math.nan, 1]], values=[0, 1]), r"transition\[1, 0\] is nan"),
    (lambda: FiniteChain([0.5, 0.5], values=[0, 1]), r"transition has shape \(2,\)"),
    (lambda: FiniteChain([[0.5, 0.5]], values=[0, 1]), r"transition has shape \(1, 2\)"),
    (lambda: FiniteChain([[1], [1, 0]], values=[0, 1]), "transition is not a matrix"),
    (lambda: FiniteChain(np.eye(2), values=[0, 1]), "transition has several stationary"),
    (lambda: FiniteChain(SWITCH, values=[0, 1, 2]), "3 values for 2 states"),
    (lambda: FiniteChain(SWITCH, values=[0, -1]), r"values\[1\] is -1.0"),
    (lambda: RegimeSwitch(SWITCH, laws=[G]), "1 laws for 2 states"),
    (lambda: RegimeSwitch(SWITCH, laws=[G, 5]), r"laws\[1\] is 5"),  # type: ignore[list-item]
    (lambda: RewardDependent(zero_law=0, one_law=G), "zero_law is 0"),  # type: ignore[arg-type]
    (lambda: RewardDependent(zero_law=G, one_law=0), "one_law is 0"),  # type: ignore[arg-type]
    (lambda: ContextDependent(0.5), "rate is 0.5"),  # type: ignore[arg-type]
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
    assert eval(repr(process)) == process


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
