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
    seen = Observations(3, family, block=block)
    seen.extend(X, y)
    return seen, X, y


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
    seen, X, y = filled(family, 100)
    seen.freeze(AT, most=50)
    assert (seen.n, seen.exact) == (100, 36)
    same(likelihood(seen), expanded(X[:64], y[:64], family, AT))
    rows = np.concatenate([rows.copy() for rows, _, _ in seen.chunks(7)])
    np.testing.assert_array_equal(rows, X[64:])
    np.testing.assert_allclose(seen.moments().gram, X.T @ X, rtol=1e-12)
    assert seen.total == pytest.approx(y.sum(), rel=1e-13)


@every_family
def test_what_is_frozen_is_taken_out_as_it_was_put_in(family: Family) -> None:
    """Sums after revisions and removals equal sums of the remaining rows."""
    seen, X, y = filled(family, 100)
    seen.freeze(AT, most=0)
    assert seen.revise(3, 1.0) == y[3]
    y[3] = 1.0
    for handle in (5, 40, 97):
        seen.remove(handle)
    kept = np.setdiff1d(np.arange(96), [5, 40])
    if family == Gaussian():
        kept = np.setdiff1d(np.arange(100), [5, 40, 97])
    same(likelihood(seen), expanded(X[kept], y[kept], family, AT))
    rest = np.setdiff1d(np.arange(100), [5, 40, 97])
    found, wanted = seen.moments(), Moments.of(X[rest], y[rest])
    assert found.n == seen.n == 97
    np.testing.assert_allclose(found.gram, wanted.gram, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(found.cross, wanted.cross, rtol=1e-11, atol=1e-11)
    assert found.square == pytest.approx(wanted.square, rel=1e-12)
    assert seen.total == pytest.approx(y[rest].sum(), rel=1e-12)
    with pytest.raises(UnknownHandle):
        seen.remove(5)


@every_family
def test_removing_all_that_is_frozen_leaves_nothing(family: Family) -> None:
    """Not even rounding errors remain."""
    seen, _, _ = filled(family, 32)
    seen.freeze(AT, most=0)
    for handle in range(32):
        seen.remove(handle)
    assert seen.frozen is None
    assert not seen.moments().gram.any()


@every_family
def test_rows_go_once_they_are_frozen_and_nobody_can_ask_for_them(family: Family) -> None:
    """Blocks are dropped, sums stay, and handles are unknown."""
    seen, X, y = filled(family, 100)
    seen.forget(np.arange(40))
    seen.drop_forgotten()
    if family != Gaussian():
        assert seen.get(0)[1] == y[0]
        seen.freeze(AT, most=0)
        seen.drop_forgotten()
    for handle in (0, 31):
        with pytest.raises(UnknownHandle):
            seen.get(handle)
    assert seen.get(32)[1] == y[32]
    assert seen.next_handle == 100
    np.testing.assert_allclose(seen.moments().cross, y @ X, rtol=1e-11, atol=1e-12)


@every_family
def test_what_is_frozen_survives_as_bytes(family: Family) -> None:
    """Sums, stored rows, their θ and the next handle are restored."""
    seen, X, y = filled(family, 96)
    seen.freeze(AT, most=40)
    seen.forget(np.arange(20))
    seen.drop_forgotten()
    again = Observations(3, family)  # how large blocks are is told too
    again.unpack(seen.pack())
    assert (again.n, again.exact, again.next_handle) == (96, seen.exact, 96)
    same(likelihood(again), likelihood(seen))
    for store in (seen, again):
        store.remove(20)
    same(likelihood(again), likelihood(seen))
    assert again.add(X[0], y[0]) == 96
    again.forget_others(np.array([30, 96]))
    again.freeze(AT, most=0)
    again.drop_forgotten()
    assert again.get(30)[1] == y[30]
    with pytest.raises(UnknownHandle):
        again.get(40)


@not_gaussian
def test_stored_rows_are_frozen_again_after_the_estimate_moved(family: Family) -> None:
    """Dropped rows keep their expansion."""
    seen, X, y = filled(family, 64)
    seen.freeze(np.zeros(3), most=32)
    seen.forget(np.arange(16))
    seen.drop_forgotten()
    before = likelihood(seen)
    seen.freeze(np.full(3, 1e-9), most=32, moved=1e-6)
    assert likelihood(seen) is before
    seen.freeze(AT, most=32, moved=1e-6)
    gone = expanded(X[:16], y[:16], family, np.zeros(3))
    same(likelihood(seen), gone + expanded(X[16:32], y[16:32], family, AT))


@every_family
def test_merged_stores_have_the_frozen_rows_of_both(family: Family) -> None:
    """Copies and joined stores; changes to one do not affect the other."""
    left, _, _ = filled(family, 40)
    right, _, _ = filled(family, 40)
    left.freeze(AT, most=0)
    merged = left + right
    assert (merged.n, merged.exact) == (80, left.exact + right.exact)
    theta = np.array([0.1, 0.2, 0.3])
    both = quadratic_at(Joined([left, right]), family, theta)
    same(quadratic_at(merged, family, theta), both)
    merged.remove(0)
    merged.remove(merged.next_block - 32)  # of the right: the first of 48 places after the left
    same(quadratic_at(Joined([left, right]), family, theta), both)
    with pytest.raises(InvalidInput, match="cannot merge"):
        left + Observations(3, Bernoulli() if family != Bernoulli() else Poisson())


def test_a_gaussian_keeps_no_rows() -> None:
    """Only sums are stored; estimate and variance are those of all rows."""
    seen, X, y = filled(Gaussian(), 1000)
    assert seen.exact == 0
    assert not list(seen.chunks(100))
    plain = Observations(3)
    plain.extend(X, y)
    seen.forget(np.arange(1000))
    seen.drop_forgotten()
    assert sum(name.startswith("y ") for name in seen.pack()) == 1  # the block that is not full
    found, wanted = (
        Ridge().fit(one, family=Gaussian(), prior=Prior.ridge(3, "auto")) for one in (seen, plain)
    )
    np.testing.assert_allclose(found.theta, wanted.theta, rtol=1e-10)
    np.testing.assert_allclose(found.precision, wanted.precision, rtol=1e-10)
    assert found.dispersion == pytest.approx(wanted.dispersion, rel=1e-10)


# --- estimates ---------------------------------------------------------------------------------


@not_gaussian
def test_rows_frozen_at_the_estimate_leave_it_where_it_is(family: Family) -> None:
    """The maximum and its precision: score and information there are those of the rows."""
    seen, _, _ = filled(family, 400)
    prior = Prior.ridge(3, "auto")
    full = Laplace().fit(seen, family=family, prior=prior)
    seen.freeze(full.theta, most=0)
    again = Laplace().fit(seen, family=family, prior=prior)
    deviations = np.sqrt(np.diag(full.covariance))
    assert np.abs((again.theta - full.theta) / deviations).max() < 1e-6
    np.testing.assert_allclose(again.precision, full.precision, rtol=1e-6, atol=1e-6)
    assert (again.n, again.converged) == (400, True)


def test_online_goes_on_from_what_is_frozen() -> None:
    """Its steps are exact for Gaussian rewards."""
    X, y = data(Gaussian(0.09), 60)
    plain, frozen = Observations(3), Observations(3, Gaussian(0.09), block=16)
    for seen in (plain, frozen):
        seen.extend(X, y)
    found, wanted = (
        Online().fit(seen, family=Gaussian(0.09), prior=Prior.ridge(3)) for seen in (frozen, plain)
    )
    np.testing.assert_allclose(found.theta, wanted.theta, rtol=1e-9)
    np.testing.assert_allclose(found.precision, wanted.precision, rtol=1e-9)
    assert found.n == wanted.n == 60


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
    found = []
    for count in (1, 4, 16):
        total = Quadratic.zero(3)
        for part in range(count):
            seen = Observations(3)
            seen.extend(X[part::count], y[part::count])
            total += quadratic_at(seen, family, published.theta)
        found.append(newton_step(total, family=family, prior=prior))
        assert np.abs((found[-1].theta - full.theta) / deviations).max() < 0.01
        assert found[-1].n == 4000
        np.testing.assert_allclose(found[-1].theta, found[0].theta, rtol=1e-10)
    start = np.abs((published.theta - full.theta) / deviations).max()
    assert start > 0.05  # there was something to be found


@not_gaussian
def test_a_step_from_the_estimate_stays_there(family: Family) -> None:
    """The total score is zero there, except for the prior's."""
    seen, _, _ = filled(family, 300)
    prior = Prior.normal(np.array([0.5, 0.0, 0.0]), 3.0 * np.eye(3))
    full = Laplace().fit(seen, family=family, prior=prior)
    found = newton_step(quadratic_at(seen, family, full.theta), family=family, prior=prior)
    np.testing.assert_allclose(found.theta, full.theta, atol=1e-9)
    np.testing.assert_allclose(found.precision, full.precision, rtol=1e-9)
    with pytest.raises(InvalidInput, match="the prior has 2"):
        newton_step(Quadratic.zero(3), family=family, prior=Prior.ridge(2))


# --- a learner ---------------------------------------------------------------------------------

SMALL = Tuning(exact=600, block=32, batch=50)


def taught(
    learner: Learner, X: Matrix, y: Vector, *, forget: bool = False
) -> list[tuple[int, int]]:
    """Learn all rewards, by partitions in turn; return their partitions and handles."""
    places, partitions = [], len(learner.observations)
    for n, (x, reward) in enumerate(zip(X, y.tolist(), strict=True)):
        learner.add_pending(x, 0.25)
        partition = n % partitions
        places.append((partition, learner.learn(x, reward, 0.25, partition=partition)))
        if forget:
            learner.forget(places[-1][1], partition)
    return places


def kept(learner: Learner) -> int:
    """Return the number of rows in memory."""
    pieces = [store.pack() for store in learner.observations]
    return sum(len(data) for one in pieces for name, data in one.items() if name[:2] == "y ") // 8


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
    found = learner.estimate
    deviations = np.sqrt(np.diag(full.covariance))
    assert found.n == learner.model.n == 6000
    assert np.abs((found.theta - full.theta) / deviations).max() < 0.15
    ratios = np.linalg.eigvals(np.linalg.solve(full.precision, found.precision)).real
    assert np.abs(ratios - 1.0).max() < 0.06


@not_gaussian
def test_below_the_limit_nothing_is_frozen(family: Family) -> None:
    """The estimate is bit for bit what it would be without a limit."""
    X, y = data(family, 600)
    found = []
    for exact in (600, 10**9):
        learner = Learner(DelayedUCB(3, family), tuning=Tuning(exact=exact, block=32, batch=50))
        taught(learner, X, y, forget=True)
        assert learner.observed.frozen is None
        found.append(learner.estimate)
    assert found[0].theta.tobytes() == found[1].theta.tobytes()
    assert found[0].precision.tobytes() == found[1].precision.tobytes()


@every_family
def test_frozen_rewards_are_revised_and_retracted(family: Family) -> None:
    """Sums equal those of a learner that never froze."""
    X, y = data(family, 3000)
    learners = [
        Learner(DelayedUCB(3, family, ridge=1.0), tuning=Tuning(exact=exact, block=32, batch=50))
        for exact in (300, 10**9)
    ]
    for learner in learners:
        places = taught(learner, X, y)
        for partition, handle in places[:200]:
            learner.revise(handle, 1.0, partition=partition)
        for partition, handle in places[200:260]:
            row = learner.retract(handle, partition=partition)
            np.testing.assert_array_equal(row, X[handle])
    first, second = (learner.observed.moments() for learner in learners)
    assert first.n == second.n == 2940
    np.testing.assert_allclose(first.gram, second.gram, rtol=1e-10)
    np.testing.assert_allclose(first.cross, second.cross, rtol=1e-9, atol=1e-9)
    found, wanted = (learner.estimate for learner in learners)
    deviations = np.sqrt(np.diag(wanted.covariance))
    assert np.abs((found.theta - wanted.theta) / deviations).max() < 0.15


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
    whole = learner.estimate
    deviations = np.sqrt(np.diag(whole.covariance))
    assert np.abs((learner.model.theta - whole.theta) / deviations).max() < 0.3


def test_bulk_freezes_at_an_estimate_of_its_own() -> None:
    """The model's own estimate is outdated during a bulk load."""
    learner = Learner(DelayedUCB(3, Bernoulli()), tuning=SMALL)
    X, y = data(Bernoulli(), 2000)
    with learner.bulk():
        taught(learner, 8.0 * X, y)
        pieces = learner.pack(0)
    frozen = [np.frombuffer(one) for name, one in pieces.items() if name.startswith("frozen-at")]
    assert len(frozen) > 20
    assert all(np.linalg.norm(theta) > 0.05 for theta in frozen)
