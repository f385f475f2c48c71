"""Delays over a run: what repeats, what is outstanding, what depends on row and reward."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from belated.delays import (
    NEVER,
    Batched,
    BlockDependent,
    Constant,
    ContextDependent,
    DelayProcess,
    FiniteChain,
    Geometric,
    LazyMarkov,
    Lomax,
    Mixture,
    Parameters,
    RewardDependent,
    Uniform,
    expected_missing,
)
from belated.delays.dependent import Chain
from belated.exceptions import InvalidInput
from tests.unit.delay_processes import CYCLE, DEPENDENT, PROCESSES, SWITCH, rng, shown


def outstanding(delay: NDArray[np.int64]) -> NDArray[np.int64]:
    """G_t of every round: the number of s ≤ t - 1 with s + D_s ≥ t."""
    s = np.arange(1, len(delay) + 1)
    return np.array([int((s[: t - 1] + delay[: t - 1] >= t).sum()) for t in s])


# --- a run


@pytest.mark.parametrize("process", PROCESSES, ids=shown)
def test_a_run_repeats_for_the_same_generator(process: DelayProcess) -> None:
    """The same seed gives the same delays: whole, one for each round."""
    first, second = process.sample(2000, rng(3)), process.sample(2000, rng(3))
    assert first.dtype == np.int64
    assert first.shape == (2000,)
    assert (first == second).all()
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
    with pytest.raises(InvalidInput, match="`horizon` must be"):
        process.sample(horizon, rng())


def test_runs_with_the_same_generator_share_their_luck() -> None:
    """A law with longer delays gives longer delays, round by round."""
    short, long = Geometric(mean=5).sample(1000, rng()), Geometric(mean=100).sample(1000, rng())
    assert (short <= long).all()
    lossy = Mixture(never=0.3, base=Geometric(mean=5)).sample(1000, rng())
    assert (short <= lossy).all()


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
    path = chain.walk(np.full(5, 1.0 - 2.0**-53))
    assert path.tolist() == [3, 0, 2, 3, 0]
    assert chain.walk(np.zeros(5)).tolist() == [0, 1, 0, 1, 0]


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
    lossy = Mixture(never=0.3, base=Constant(0))
    assert expected_missing(lossy, t) == pytest.approx(0.3 * (t - 1))
    assert expected_missing(Geometric(mean=100), 10_000) == pytest.approx(100.0)
    heavy = 100.0 * ((1.0 + 9999.5 / 20.0) ** 0.2 - (1.0 + 0.5 / 20.0) ** 0.2)  # by its integral
    assert expected_missing(Lomax(shape=0.8, scale=20), 10_000) == pytest.approx(heavy, rel=1e-4)
    assert expected_missing(Constant(7), np.zeros(0, dtype=int)).shape == (0,)


@pytest.mark.parametrize("t", [0, -1, 2.0, [1, 0], math.nan, None])
def test_rounds_are_counted_from_one(t: Any) -> None:
    """Anything else is no round."""
    with pytest.raises(InvalidInput, match="`t` must be"):
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
        with pytest.raises(InvalidInput, match=r"`rate\(x\)` must be"):
            process.given(0.5, np.array([x]), 0.0)
    with pytest.raises(InvalidInput, match="`u` must be"):
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
    with pytest.raises(InvalidInput, match=f"depends on {what}: use simulate") as error:
        process.sample(10, rng())
    assert error.value.value is process
    with pytest.raises(InvalidInput, match=f"depends on {what}"):
        process.tail([1, 2])


def test_of_a_delay_that_depends_on_a_run_only_the_bound_is_known() -> None:
    """And that only if all its laws are bounded."""
    assert ContextDependent(lambda x: 1.0).params() == Parameters()
    bounded = RewardDependent(zero_law=Constant(0), one_law=Uniform(9))
    assert bounded.params() == Parameters(bound=9)
    unbounded = RewardDependent(zero_law=Constant(0), one_law=Geometric(mean=9))
    assert unbounded.params() == Parameters()
