"""Old rows are frozen as sums, from which they can be removed, with nearly no effect on fits."""

from __future__ import annotations

import numpy as np
import pytest

from belated import Bernoulli, DelayedUCB, Gaussian, Poisson
from belated.core.inputs import Matrix, Vector
from belated.core.tuning import Tuning
from belated.exceptions import InvalidInput, UnknownHandle
from belated.fold.learner import Learner
from belated.model.estimators import Laplace, Online, Ridge, newton_step
from belated.model.families import Family
from belated.model.priors import Prior
from belated.model.statistics import Joined, Moments, Observations, Quadratic, quadratic_at

THETA = np.array([0.8, -0.5, 0.2])
AT = np.array([0.7, -0.4, 0.1])
not_gaussian = pytest.mark.parametrize("family", [Bernoulli(), Poisson()], ids=repr)
every_family = pytest.mark.parametrize("family", [Bernoulli(), Poisson(), Gaussian()], ids=repr)


def data(family: Family, count: int, seed: int = 0) -> tuple[Matrix, Vector]:
    """Rows and rewards."""
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(count, 3)) / 2).astype(np.float32).astype(np.float64)
    return X, family.sample(X @ THETA, rng, 0.3)


def filled(family: Family, count: int, block: int = 16) -> tuple[Observations, Matrix, Vector]:
    """Return a store with small blocks, in which only Gaussian rewards are frozen."""
    X, y = data(family, count)
    observations = Observations(3, family, block=block)
    observations.extend(X, y)
    return observations, X, y


def expanded(X: Matrix, y: Vector, family: Family, theta: Vector) -> Quadratic:
    """Return the expansion row by row, by its definition."""
    total = Quadratic.zero(3)
    for x, reward in zip(X, y, strict=True):
        slope = float(family.slope(x @ theta))
        score = (reward - float(family.mean(x @ theta))) * x
        information = slope * np.outer(x, x)
        total += Quadratic(1, information, information @ theta + score)
    return total


def same(one: Quadratic, other: Quadratic) -> None:
    """Assert equality up to rounding."""
    assert one.n == other.n
    np.testing.assert_allclose(one.information, other.information, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(one.pull, other.pull, rtol=1e-11, atol=1e-11)


def likelihood(seen: Observations) -> Quadratic:
    """Return the likelihood of the frozen rows, which must exist."""
    assert seen.frozen is not None
    return seen.frozen


# --- observations ------------------------------------------------------------------------------


@not_gaussian
def test_the_oldest_full_blocks_are_frozen_where_they_are_told(family: Family) -> None:
    """Only the requested number remains; moments still include all rows."""
    observations, X, y = filled(family, 100)
    observations.freeze(AT, most=50)
    assert (observations.n, observations.exact) == (100, 36)
    same(likelihood(observations), expanded(X[:64], y[:64], family, AT))
    rows = np.concatenate([rows.copy() for rows, _, _ in observations.chunks(7)])
    np.testing.assert_array_equal(rows, X[64:])
    np.testing.assert_allclose(observations.moments().gram, X.T @ X, rtol=1e-12)
    assert observations.total == pytest.approx(y.sum(), rel=1e-13)


@every_family
def test_what_is_frozen_is_taken_out_as_it_was_put_in(family: Family) -> None:
    """Sums after revisions and removals equal sums of the remaining rows."""
    observations, X, y = filled(family, 100)
    observations.freeze(AT, most=0)
    assert observations.revise(3, 1.0) == y[3]
    y[3] = 1.0
    for handle in (5, 40, 97):
        observations.remove(handle)
    indices = np.setdiff1d(np.arange(96), [5, 40])
    if family == Gaussian():
        indices = np.setdiff1d(np.arange(100), [5, 40, 97])
    same(likelihood(observations), expanded(X[indices], y[indices], family, AT))
    remaining = np.setdiff1d(np.arange(100), [5, 40, 97])
    actual, expected = observations.moments(), Moments.of(X[remaining], y[remaining])
    assert actual.n == observations.n == 97
    np.testing.assert_allclose(actual.gram, expected.gram, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(actual.cross, expected.cross, rtol=1e-11, atol=1e-11)
    assert actual.square == pytest.approx(expected.square, rel=1e-12)
    assert observations.total == pytest.approx(y[remaining].sum(), rel=1e-12)
    with pytest.raises(UnknownHandle):
        observations.remove(5)


@every_family
def test_removing_all_that_is_frozen_leaves_nothing(family: Family) -> None:
    """Not even rounding errors remain."""
    observations, _, _ = filled(family, 32)
    observations.freeze(AT, most=0)
    for handle in range(32):
        observations.remove(handle)
    assert observations.frozen is None
    assert not observations.moments().gram.any()


@every_family
def test_rows_go_once_they_are_frozen_and_nobody_can_ask_for_them(family: Family) -> None:
    """Blocks are dropped, sums stay, and handles are unknown."""
    observations, X, y = filled(family, 100)
    observations.forget(np.arange(40))
    observations.drop_forgotten()
    if family != Gaussian():
        assert observations.get(0)[1] == y[0]
        observations.freeze(AT, most=0)
        observations.drop_forgotten()
    for handle in (0, 31):
        with pytest.raises(UnknownHandle):
            observations.get(handle)
    assert observations.get(32)[1] == y[32]
    assert observations.next_handle == 100
    np.testing.assert_allclose(observations.moments().cross, y @ X, rtol=1e-11, atol=1e-12)


@every_family
def test_what_is_frozen_survives_as_bytes(family: Family) -> None:
    """Sums, stored rows, their θ and the next handle are restored."""
    observations, X, y = filled(family, 96)
    observations.freeze(AT, most=40)
    observations.forget(np.arange(20))
    observations.drop_forgotten()
    restored = Observations(3, family)  # how large blocks are is told too
    restored.unpack(observations.pack())
    assert (restored.n, restored.exact, restored.next_handle) == (96, observations.exact, 96)
    same(likelihood(restored), likelihood(observations))
    for store in (observations, restored):
        store.remove(20)
    same(likelihood(restored), likelihood(observations))
    assert restored.add(X[0], y[0]) == 96
    restored.forget_others(np.array([30, 96]))
    restored.freeze(AT, most=0)
    restored.drop_forgotten()
    assert restored.get(30)[1] == y[30]
    with pytest.raises(UnknownHandle):
        restored.get(40)


@not_gaussian
def test_stored_rows_are_frozen_again_after_the_estimate_moved(family: Family) -> None:
    """Dropped rows keep their expansion."""
    observations, X, y = filled(family, 64)
    observations.freeze(np.zeros(3), most=32)
    observations.forget(np.arange(16))
    observations.drop_forgotten()
    before = likelihood(observations)
    observations.freeze(np.full(3, 1e-9), most=32, moved=1e-6)
    assert likelihood(observations) is before
    observations.freeze(AT, most=32, moved=1e-6)
    dropped = expanded(X[:16], y[:16], family, np.zeros(3))
    same(likelihood(observations), dropped + expanded(X[16:32], y[16:32], family, AT))


@every_family
def test_merged_stores_have_the_frozen_rows_of_both(family: Family) -> None:
    """Copies and joined stores; changes to one do not affect the other."""
    left, _, _ = filled(family, 40)
    right, _, _ = filled(family, 40)
    left.freeze(AT, most=0)
    merged = left + right
    assert (merged.n, merged.exact) == (80, left.exact + right.exact)
    theta = np.array([0.1, 0.2, 0.3])
    expected = quadratic_at(Joined([left, right]), family, theta)
    same(quadratic_at(merged, family, theta), expected)
    merged.remove(0)
    merged.remove(merged.next_block - 32)  # of the right: the first of 48 places after the left
    same(quadratic_at(Joined([left, right]), family, theta), expected)
    with pytest.raises(InvalidInput, match="cannot merge"):
        left + Observations(3, Bernoulli() if family != Bernoulli() else Poisson())


def test_a_gaussian_keeps_no_rows() -> None:
    """Only sums are stored; estimate and variance are those of all rows."""
    observations, X, y = filled(Gaussian(), 1000)
    assert observations.exact == 0
    assert not list(observations.chunks(100))
    plain = Observations(3)
    plain.extend(X, y)
    observations.forget(np.arange(1000))
    observations.drop_forgotten()
    # The block that is not full.
    assert sum(name.startswith("y ") for name in observations.pack()) == 1
    actual, expected = (
        Ridge().fit(store, family=Gaussian(), prior=Prior.ridge(3, "auto"))
        for store in (observations, plain)
    )
    np.testing.assert_allclose(actual.theta, expected.theta, rtol=1e-10)
    np.testing.assert_allclose(actual.precision, expected.precision, rtol=1e-10)
    assert actual.dispersion == pytest.approx(expected.dispersion, rel=1e-10)


# --- estimates ---------------------------------------------------------------------------------


@not_gaussian
def test_rows_frozen_at_the_estimate_leave_it_where_it_is(family: Family) -> None:
    """The maximum and its precision: score and information there are those of the rows."""
    observations, _, _ = filled(family, 400)
    prior = Prior.ridge(3, "auto")
    full = Laplace().fit(observations, family=family, prior=prior)
    observations.freeze(full.theta, most=0)
    refit = Laplace().fit(observations, family=family, prior=prior)
    deviations = np.sqrt(np.diag(full.covariance))
    assert np.abs((refit.theta - full.theta) / deviations).max() < 1e-6
    np.testing.assert_allclose(refit.precision, full.precision, rtol=1e-6, atol=1e-6)
    assert (refit.n, refit.converged) == (400, True)


def test_online_goes_on_from_what_is_frozen() -> None:
    """Its steps are exact for Gaussian rewards."""
    X, y = data(Gaussian(0.09), 60)
    plain, frozen = Observations(3), Observations(3, Gaussian(0.09), block=16)
    for observations in (plain, frozen):
        observations.extend(X, y)
    actual, expected = (
        Online().fit(observations, family=Gaussian(0.09), prior=Prior.ridge(3))
        for observations in (frozen, plain)
    )
    np.testing.assert_allclose(actual.theta, expected.theta, rtol=1e-9)
    np.testing.assert_allclose(actual.precision, expected.precision, rtol=1e-9)
    assert actual.n == expected.n == 60


@not_gaussian
@pytest.mark.parametrize("ridge", [1.0, "auto"])
def test_one_step_of_merged_partitions_is_the_estimate(family: Family, ridge: float) -> None:
    """From an estimate of 95 % of the rewards, to .01 deviations."""
    X, y = data(family, 4000)
    prior = Prior.ridge(3, ridge)
    plain = Observations(3)
    plain.extend(X[:3800], y[:3800])
    published = Laplace().fit(plain, family=family, prior=prior)
    plain.extend(X[3800:], y[3800:])
    full = Laplace().fit(plain, family=family, prior=prior)
    deviations = np.sqrt(np.diag(full.covariance))
    steps = []
    for count in (1, 4, 16):
        total = Quadratic.zero(3)
        for part in range(count):
            observations = Observations(3)
            observations.extend(X[part::count], y[part::count])
            total += quadratic_at(observations, family, published.theta)
        steps.append(newton_step(total, family=family, prior=prior))
        assert np.abs((steps[-1].theta - full.theta) / deviations).max() < 0.01
        assert steps[-1].n == 4000
        np.testing.assert_allclose(steps[-1].theta, steps[0].theta, rtol=1e-10)
    start = np.abs((published.theta - full.theta) / deviations).max()
    assert start > 0.05  # there was something to be found


@not_gaussian
def test_a_step_from_the_estimate_stays_there(family: Family) -> None:
    """The total score is zero there, except for the prior's."""
    observations, _, _ = filled(family, 300)
    prior = Prior.normal(np.array([0.5, 0.0, 0.0]), 3.0 * np.eye(3))
    full = Laplace().fit(observations, family=family, prior=prior)
    step = newton_step(quadratic_at(observations, family, full.theta), family=family, prior=prior)
    np.testing.assert_allclose(step.theta, full.theta, atol=1e-9)
    np.testing.assert_allclose(step.precision, full.precision, rtol=1e-9)
    with pytest.raises(InvalidInput, match="the prior has 2"):
        newton_step(Quadratic.zero(3), family=family, prior=Prior.ridge(2))


# --- a learner ---------------------------------------------------------------------------------

SMALL = Tuning(exact=600, block=32, batch=50)


def taught(
    learner: Learner, X: Matrix, y: Vector, *, forget: bool = False
) -> list[tuple[int, int]]:
    """Learn all rewards, by partitions in turn; return their partitions and handles."""
    handles, partitions = [], len(learner.observations)
    for n, (x, reward) in enumerate(zip(X, y.tolist(), strict=True)):
        learner.add_pending(x, 0.25)
        partition = n % partitions
        handles.append((partition, learner.learn(x, reward, 0.25, partition=partition)))
        if forget:
            learner.forget(handles[-1][1], partition)
    return handles


def kept(learner: Learner) -> int:
    """Return the number of rows in memory."""
    pieces = [store.pack() for store in learner.observations]
    return (
        sum(len(data) for blocks in pieces for name, data in blocks.items() if name[:2] == "y ")
        // 8
    )


@not_gaussian
@pytest.mark.parametrize("partitions", [1, 4])
@pytest.mark.parametrize("bulk", [False, True])
def test_a_learner_keeps_few_rows_and_hardly_errs(
    family: Family, partitions: int, bulk: bool
) -> None:
    """Estimates are within .15 deviations, precisions within 6 %."""
    learner = Learner(DelayedUCB(3, family, ridge=1.0), partitions=partitions, tuning=SMALL)
    X, y = data(family, 6000)
    if bulk:
        with learner.bulk():
            taught(learner, X, y, forget=True)
    else:
        taught(learner, X, y, forget=True)
    assert kept(learner) <= 600 + 50 + 32 * partitions
    plain = Observations(3)
    plain.extend(X, y)
    full = Laplace().fit(plain, family=family, prior=Prior.ridge(3))
    estimate = learner.estimate
    deviations = np.sqrt(np.diag(full.covariance))
    assert estimate.n == learner.model.n == 6000
    assert np.abs((estimate.theta - full.theta) / deviations).max() < 0.15
    ratios = np.linalg.eigvals(np.linalg.solve(full.precision, estimate.precision)).real
    assert np.abs(ratios - 1.0).max() < 0.06


@not_gaussian
def test_below_the_limit_nothing_is_frozen(family: Family) -> None:
    """The estimate is bit for bit what it would be without a limit."""
    X, y = data(family, 600)
    estimates = []
    for exact in (600, 10**9):
        learner = Learner(DelayedUCB(3, family), tuning=Tuning(exact=exact, block=32, batch=50))
        taught(learner, X, y, forget=True)
        assert learner.observed.frozen is None
        estimates.append(learner.estimate)
    assert estimates[0].theta.tobytes() == estimates[1].theta.tobytes()
    assert estimates[0].precision.tobytes() == estimates[1].precision.tobytes()


@every_family
def test_frozen_rewards_are_revised_and_retracted(family: Family) -> None:
    """Sums equal those of a learner that never froze."""
    X, y = data(family, 3000)
    learners = [
        Learner(DelayedUCB(3, family, ridge=1.0), tuning=Tuning(exact=exact, block=32, batch=50))
        for exact in (300, 10**9)
    ]
    for learner in learners:
        handles = taught(learner, X, y)
        for partition, handle in handles[:200]:
            learner.revise(handle, 1.0, partition=partition)
        for partition, handle in handles[200:260]:
            row = learner.retract(handle, partition=partition)
            np.testing.assert_array_equal(row, X[handle])
    first, second = (learner.observed.moments() for learner in learners)
    assert first.n == second.n == 2940
    np.testing.assert_allclose(first.gram, second.gram, rtol=1e-10)
    np.testing.assert_allclose(first.cross, second.cross, rtol=1e-9, atol=1e-9)
    actual, expected = (learner.estimate for learner in learners)
    deviations = np.sqrt(np.diag(expected.covariance))
    assert np.abs((actual.theta - expected.theta) / deviations).max() < 0.15


def test_rows_wait_for_a_fit_beside_the_fold() -> None:
    """During a fit nothing is frozen or dropped; arrivals are added after it."""
    learner = Learner(DelayedUCB(3, Bernoulli(), ridge=1.0), tuning=SMALL)
    learner.defers = True
    X, y = data(Bernoulli(), 4000)
    taught(learner, X[:1000], y[:1000], forget=True)
    fit = learner.begin_fit()
    taught(learner, X[1000:], y[1000:], forget=True)
    assert kept(learner) > 3000
    assert learner.finish_fit(fit())
    assert kept(learner) <= 700
    estimate = learner.estimate
    deviations = np.sqrt(np.diag(estimate.covariance))
    assert np.abs((learner.model.theta - estimate.theta) / deviations).max() < 0.3


def test_bulk_freezes_at_an_estimate_of_its_own() -> None:
    """The model's own estimate is outdated during a bulk load."""
    learner = Learner(DelayedUCB(3, Bernoulli()), tuning=SMALL)
    X, y = data(Bernoulli(), 2000)
    with learner.bulk():
        taught(learner, 8.0 * X, y)
        pieces = learner.pack(0)
    frozen = [
        np.frombuffer(buffer) for name, buffer in pieces.items() if name.startswith("frozen-at")
    ]
    assert len(frozen) > 20
    assert all(np.linalg.norm(theta) > 0.05 for theta in frozen)
