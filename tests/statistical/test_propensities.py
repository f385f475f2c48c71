"""How often a row is chosen, against how often the policy says it chooses it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from belated import (
    Bernoulli,
    BlindThompson,
    BlindUCB,
    DelayedThompson,
    DelayedUCB,
    EpsilonGreedy,
    Gaussian,
    Greedy,
    Uniform,
    WaitForWindow,
    delays,
    environments,
    paper_dts,
    paper_dts_lcb,
    paper_ducb,
    simulate,
)
from belated.core.inputs import Matrix, Vector
from belated.fold.learner import Learner
from belated.model import kernels
from belated.model.kernels import Kernels
from belated.model.model import Model
from belated.policies import Policy
from belated.policies.delayed_ucb import rayleigh_shares

DIM = 4


def sphere(count: int, rng: np.random.Generator) -> Matrix:
    """Rows of length 1."""
    rows = rng.normal(size=(count, DIM))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows.astype(np.float32).astype(np.float64))


def settled(
    policy: Policy, seed: int = 0, decisions: int = 50, using: Kernels | None = None
) -> Model:
    """A model with history: so many decisions, and the rewards of four fifths of them."""
    rng = np.random.default_rng(seed)
    learner = Learner(policy, kernels=using)
    theta = np.array([1.0, -1.0, 0.5, 0.0])
    rows = sphere(decisions, rng) if decisions else np.empty((0, DIM))
    weights = [learner.model.predict(x)[1] for x in rows]
    for x, weight in zip(rows, weights, strict=True):
        learner.add_pending(x, weight)
    for x, weight in list(zip(rows, weights, strict=True))[: 4 * decisions // 5]:
        mean = float(policy.family.mean(x @ theta))
        learner.learn(x, float(rng.random() < mean), weight)
    return learner.model


@dataclass(frozen=True)
class Audit:
    """What many choices from one state were, and what was said of them."""

    counts: Vector
    said: dict[int, set[float]]

    @classmethod
    def of(cls, policy: Policy, model: Model, rows: Matrix, size: int, seed: int = 1) -> Audit:
        """Choose ``size`` times; nothing is decided, so the model stays as it is."""
        rng = np.random.default_rng(seed)
        counts = np.zeros(len(rows))
        propensities: dict[int, set[float]] = {}
        for _ in range(size):
            choice = policy.choose(model, rows, rng)
            counts[choice.index] += 1.0
            propensities.setdefault(choice.index, set()).add(choice.propensity)
        return cls(counts, propensities)

    @property
    def size(self) -> float:
        """How many choices."""
        return float(self.counts.sum())

    @property
    def shares(self) -> Vector:
        """The one propensity of each row that was chosen, 0 for any other."""
        assert all(len(values) == 1 for values in self.said.values()), "a propensity that moves"
        shares = np.zeros(len(self.counts))
        for index, values in self.said.items():
            shares[index] = next(iter(values))
        return shares

    def p_value(self) -> float:
        """Of the chi-square test, rows expected less than five times taken together."""
        return chi_square(self.counts, self.size * self.shares)


def chi_square(counts: Vector, expected: Vector) -> float:
    """The p-value of counts against what was expected, small cells taken together."""
    rare = expected < 5.0
    observed = np.append(counts[~rare], counts[rare].sum())
    expected_counts = np.append(
        expected[~rare], max(float(counts.sum() - expected[~rare].sum()), 0.0)
    )
    used = expected_counts > 0.5
    statistic = float((np.square(observed - expected_counts)[used] / expected_counts[used]).sum())
    return float(chi2.sf(statistic, used.sum() - 1)) if used.sum() > 1 else 1.0


@dataclass(frozen=True)
class Case:
    """A policy in a state, with rows to choose from."""

    policy: Policy
    rows: Matrix
    decisions: int = 50
    using: Kernels | None = None


ROWS = sphere(6, np.random.default_rng(5))
TWINS = np.vstack([ROWS, ROWS, ROWS[::-1]])
UNEVEN = np.vstack([ROWS, ROWS[:2], ROWS[1:2]])
MANY = sphere(40, np.random.default_rng(6))
B = Bernoulli()
CASES: dict[str, Case] = {
    "ucb": Case(DelayedUCB(DIM, B), ROWS),
    "ucb-plain": Case(DelayedUCB(DIM, B), ROWS, using=kernels.plain()),
    "ucb-all-tie": Case(DelayedUCB(DIM, B), np.eye(DIM), decisions=0),
    "ucb-twins": Case(DelayedUCB(DIM, B), TWINS),
    "ucb-gram": Case(DelayedUCB(DIM, B, metric="gram"), ROWS),
    "rayleigh": Case(DelayedUCB(DIM, B, randomized=True), ROWS),
    "rayleigh-many": Case(DelayedUCB(DIM, B, randomized=True), MANY, decisions=10),
    "rayleigh-twins": Case(DelayedUCB(DIM, B, randomized=True, alpha=3.0), UNEVEN),
    "rayleigh-all-tie": Case(DelayedUCB(DIM, B, randomized=True), np.eye(DIM), decisions=0),
    "thompson": Case(DelayedThompson(DIM, B), ROWS),
    "thompson-plain": Case(DelayedThompson(DIM, B), ROWS, using=kernels.plain()),
    "thompson-twins": Case(DelayedThompson(DIM, B), TWINS),
    "thompson-many": Case(DelayedThompson(DIM, B, scale=1.0), MANY),
    "blind-ucb": Case(BlindUCB(DIM, B), TWINS),
    "blind-thompson": Case(BlindThompson(DIM, B), MANY),
    "waiting": Case(WaitForWindow(DIM, B), TWINS),
    "greedy": Case(Greedy(DIM, B), ROWS),
    "greedy-all-tie": Case(Greedy(DIM, B), ROWS, decisions=0),
    "epsilon-greedy": Case(EpsilonGreedy(DIM, B), ROWS),
    "uniform": Case(Uniform(DIM, B), ROWS),
}


@pytest.mark.parametrize(
    ("name", "floor"),
    [(name, floor) for name in CASES for floor in (0.0, 0.1) if not (floor and name == "uniform")],
)
def test_rows_are_chosen_as_often_as_is_said(name: str, floor: float, full: bool) -> None:
    """Each row has one propensity, chosen frequencies match them (p > .001), and they add to 1."""
    case = CASES[name]
    policy = replace(case.policy, prior=None)
    if floor:
        policy = replace(policy, floor=floor)
    floor = policy.floor
    model = settled(policy, decisions=case.decisions, using=case.using)
    audit = Audit.of(policy, model, case.rows, 100_000 if full else 10_000)
    shares = audit.shares
    assert (shares[audit.counts > 0] > 0.0).all()
    assert audit.p_value() > 0.001
    if floor:
        assert (audit.counts > 0).all()
        assert shares.min() >= floor / len(shares) * (1.0 - 1e-12)
        assert shares.sum() == pytest.approx(1.0, abs=1e-9)
    elif "rayleigh" in name:  # a row on the envelope for a sliver may not have been chosen yet
        assert 1.0 - 20.0 / audit.size <= shares.sum() <= 1.0 + 1e-9
    else:
        assert shares.sum() == pytest.approx(1.0, abs=1e-9)


def test_the_cases_are_not_all_certain() -> None:
    """Ties, twins and draws have propensities below 1, a plain best row has 1."""
    largest = {}
    for name, case in CASES.items():
        model = settled(case.policy, decisions=case.decisions, using=case.using)
        largest[name] = Audit.of(case.policy, model, case.rows, 200).shares.max()
    assert largest["ucb"] == largest["greedy"] == 1.0
    assert largest["ucb-all-tie"] == largest["rayleigh-all-tie"] == 0.25
    assert largest["ucb-twins"] == largest["blind-ucb"] == pytest.approx(1.0 / 3.0)
    assert largest["rayleigh"] < 1.0
    assert largest["greedy-all-tie"] == largest["uniform"] == pytest.approx(1.0 / 6.0)
    assert all(largest[name] < 0.95 for name in largest if "thompson" in name)


@pytest.mark.parametrize("floor", [0.0, 0.1])
def test_thompson_divides_evenly_among_equal_rows(floor: float) -> None:
    """Each of three twins has a third of what their row would have alone."""
    policy = DelayedThompson(DIM, B, floor=floor)
    model = settled(policy)
    alone = Audit.of(policy, model, ROWS, 5_000).shares - floor / 6
    shares = Audit.of(policy, model, TWINS, 5_000).shares - floor / 18
    np.testing.assert_allclose(shares, np.concatenate([alone, alone, alone[::-1]]) / 3, atol=1e-9)
    assert (alone > 0.0).sum() > 1


def test_a_randomized_ucb_is_audited_in_many_states(full: bool) -> None:
    """Ten random states, with rows and lengths of their own: p > .0001 in each."""
    for seed in range(10):
        policy = DelayedUCB(DIM, B, randomized=True, alpha=2.0)
        model = settled(policy, seed=seed, decisions=5 * (seed + 1))
        rng = np.random.default_rng(seed)
        rows = sphere(8, rng) * rng.uniform(0.2, 2.0, size=(8, 1))
        audit = Audit.of(policy, model, rows, 20_000 if full else 4_000)
        assert audit.p_value() > 1e-4
        assert audit.shares.sum() == pytest.approx(1.0, abs=0.005)


def test_pools_are_audited_in_many_states(full: bool) -> None:
    """Ten random states of Thompson sampling: p > .0001 in each."""
    for seed in range(10):
        policy = DelayedThompson(DIM, B, scale=1.0, draws=16 + seed)
        model = settled(policy, seed=seed, decisions=5 * (seed + 1))
        rows = sphere(8, np.random.default_rng(seed))
        audit = Audit.of(policy, model, rows, 20_000 if full else 4_000)
        assert audit.p_value() > 1e-4
        assert audit.shares.sum() == pytest.approx(1.0, abs=1e-9)
        np.testing.assert_allclose(audit.shares * (16 + seed) % 1.0 % (1 - 1e-9), 0.0, atol=1e-9)


PAPER: dict[str, Policy] = {
    "ducb": paper_ducb(DIM, B, 1.0, warmup=20, ridge=1.0),
    "ducb-warming": paper_ducb(DIM, B, 1.0, warmup=100, ridge=1.0),
    "dts-warming": paper_dts(DIM, B, warmup=100),
    "dts-lcb-warming": paper_dts_lcb(DIM, warmup=100),
}


@pytest.mark.parametrize("name", PAPER)
@pytest.mark.parametrize("rows", [ROWS, TWINS], ids=["plain", "twins"])
def test_the_papers_rows_are_chosen_as_often_as_is_said(
    name: str, rows: Matrix, full: bool
) -> None:
    """The warm-up is uniform; after it DUCB splits ties evenly."""
    policy = PAPER[name]
    audit = Audit.of(policy, settled(policy), rows, 100_000 if full else 10_000)
    assert audit.p_value() > 0.001
    assert audit.shares.sum() == pytest.approx(1.0, abs=1e-9)
    expected = len(rows) if "warming" in name else 1 if rows is ROWS else 3
    assert audit.shares.max() == pytest.approx(1.0 / expected)


FRESH: dict[str, Policy] = {
    "dts": paper_dts(DIM, B, warmup=5),
    "dts-lcb": paper_dts_lcb(DIM, noise=0.7, warmup=5),
    "every-choice": DelayedThompson(DIM, Gaussian(), refresh=0.0),
    "every-choice-floor": DelayedThompson(DIM, B, refresh=0.0, floor=0.1),
}


@pytest.mark.parametrize("name", FRESH)
def test_a_propensity_given_its_pool_weighs_choices_right(name: str, full: bool) -> None:
    """Where pools are drawn anew the mean of 1{a = i}/p is 1 for each row, to five errors.

    More exactly it is the probability that a pool has row i at all, 1 - (1 - π)^64 without a
    floor, where π is how often a draw of θ likes row i best: frequencies match π too.
    """
    policy = FRESH[name]
    model = settled(policy, decisions=12)
    rows = sphere(4, np.random.default_rng(8))
    inner: Any = getattr(policy, "then", policy)
    size = 100_000 if full else 20_000
    rng = np.random.default_rng(2)
    weighed, counts, propensities = np.zeros((size, 4)), np.zeros(4), set()
    for k in range(size):
        choice = policy.choose(model, rows, rng)
        weighed[k, choice.index] = 1.0 / choice.propensity
        counts[choice.index] += 1.0
        propensities.add(choice.propensity)
    assert len(propensities) > 10
    thetas = model.theta + inner.scale * rng.standard_normal((1_000_000, DIM)) @ model.decided.T
    best = np.bincount((thetas @ rows.T).argmax(axis=1), minlength=4) / len(thetas)
    assert best.min() > 0.02
    present = np.ones(4) if inner.floor else 1.0 - (1.0 - best) ** inner.draws
    errors = weighed.std(axis=0) / math.sqrt(size)
    assert (np.abs(weighed.mean(axis=0) - present) <= 5.0 * errors).all()
    assert chi_square(counts, size * ((1.0 - inner.floor) * best + inner.floor / 4)) > 1e-4


def test_propensities_of_a_run_weigh_its_choices_right(full: bool) -> None:
    """Over a run with a floor, Σ 1{a_t = i}/p_t is T for every row, to five errors.

    The state changes all the time; the sum less T is a martingale all the same.
    """
    world = environments.fixed(1, dim=DIM, n_arms=4, norm=1.0)
    horizon = 100_000 if full else 10_000
    for policy in (
        DelayedThompson(DIM, B, floor=0.2),
        DelayedUCB(DIM, B, floor=0.2),
        DelayedUCB(DIM, B, floor=0.2, randomized=True),
    ):
        trace = simulate(policy, world, delays.Geometric(mean=50), horizon=horizon)
        assert trace.propensities.min() >= 0.05 - 1e-12
        for i in range(4):
            weighed = (trace.actions == i) / trace.propensities
            error = weighed.std() / math.sqrt(horizon)
            assert abs(weighed.mean() - 1.0) <= 5.0 * error


def test_rayleigh_shares_are_those_of_draws(full: bool) -> None:
    """On 50 random problems they lie within .005 of the shares of 2·10^5 draws, and add to 1."""
    rng = np.random.default_rng(4)
    worst = 0.0
    for _ in range(50):
        arms = int(rng.integers(2, 25))
        means = rng.normal(size=arms)
        deviations = rng.uniform(0.05, 2.0, size=arms)
        if arms > 5:
            means[3], deviations[3] = means[1], deviations[1]  # the same line twice
            deviations[4] = deviations[2]  # the same slope
        shares = rayleigh_shares(means, deviations)
        assert shares.sum() == pytest.approx(1.0, abs=1e-12)
        assert shares.min() >= 0.0
        b = np.sqrt(-2.0 * np.log(1.0 - rng.random(2_000_000 if full else 200_000)))
        wins = np.zeros(arms)
        for chunk in np.array_split(b, 10):
            scores = means + np.multiply.outer(chunk, deviations)
            top = scores == scores.max(axis=1, keepdims=True)
            wins += (top / top.sum(axis=1, keepdims=True)).sum(axis=0)
        worst = max(worst, float(np.abs(wins / len(b) - shares).max()))
    assert worst <= (0.0015 if full else 0.005)
