import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from belated import Bernoulli, Gaussian, Poisson
from belated.core.inputs import Matrix, Vector
from belated.exceptions import InvalidInput
from belated.model import kernels
from belated.model.blocks import root_of
from belated.model.families import Family
from belated.model.model import Model
from belated.model.priors import Prior
from belated.model.statistics import Information

Make = Callable[..., Model]
FAMILIES: list[Family] = [Gaussian(), Gaussian(0.25), Bernoulli(), Poisson()]
every_family = pytest.mark.parametrize("family", FAMILIES, ids=repr)


@pytest.fixture(params=["plain", "compiled"])
def make(request: pytest.FixtureRequest) -> Make:
    """Models on either set of kernels."""
    chosen = kernels.plain() if request.param == "plain" else kernels.compiled()

    def model(prior: Prior, family: Family | None = None, **more: Any) -> Model:
        return Model(prior, family or Gaussian(), kernels=chosen, **more)

    return model


def _exact(prior: Prior, rows: Matrix, y: Vector, phi: float) -> tuple[Vector, Matrix]:
    """The Gaussian posterior, from the textbook."""
    precision = prior.precision + rows.T @ rows / phi
    covariance = np.asarray(np.linalg.inv(precision), dtype=np.float64)
    return covariance @ (prior.precision @ prior.mean + rows.T @ y / phi), covariance


def _prior(dim: int) -> Prior:
    rng = np.random.default_rng(1)
    data = rng.normal(size=(dim, dim))
    return Prior.normal(rng.normal(size=dim), np.eye(dim) + data @ data.T)


def _covariance(root: Matrix) -> Matrix:
    return root @ root.T


def _busy(make: Make, family: Family) -> Model:
    """A model with some history."""
    rng = np.random.default_rng(4)
    model = make(Prior.ridge(3), family)
    for _ in range(20):
        x = rng.normal(size=3)
        model.add_pending(x, model.argmax_ucb([x], 1.0)[3])
        model.learn(x, float(rng.integers(0, 2)))
    return model


@pytest.mark.parametrize("dim", [1, 2, 5, 20])
@pytest.mark.parametrize("variance", [1.0, 0.25])
def test_gaussian_steps_give_the_exact_posterior(make: Make, dim: int, variance: float) -> None:
    """After every arrival θ and the covariance equal the textbook's to 1e-10."""
    rng = np.random.default_rng(dim)
    prior = _prior(dim)
    model = make(prior, Gaussian(variance))
    rows, y = rng.normal(size=(60, dim)), rng.normal(size=60)
    for i in range(60):
        assert model.learn(rows[i], float(y[i])) == 1.0 / variance
        theta, covariance = _exact(prior, rows[: i + 1], y[: i + 1], variance)
        np.testing.assert_allclose(model.theta, theta, atol=1e-10)
        np.testing.assert_allclose(_covariance(model.observed), covariance, atol=1e-10)
    assert (model.n, model.pending) == (60, -60)


def test_gaussian_steps_can_be_taken_back_and_corrected(make: Make) -> None:
    """After retractions and revisions the posterior is that of what is left, to 1e-10."""
    rng = np.random.default_rng(0)
    prior = _prior(4)
    model = make(prior, Gaussian(0.5))
    rows, y = rng.normal(size=(90, 4)), rng.normal(size=90)
    for x, reward in zip(rows, y.tolist(), strict=True):
        model.learn(x, reward)
    for i in range(0, 60, 2):
        assert model.retract(rows[i], float(y[i]), 2.0)
    for i in range(61, 90):
        model.revise(rows[i], float(y[i]), float(-y[i]))
        y[i] = -y[i]
    remaining = [i for i in range(90) if i >= 60 or i % 2]
    theta, covariance = _exact(prior, rows[remaining], y[remaining], 0.5)
    np.testing.assert_allclose(model.theta, theta, atol=1e-10)
    np.testing.assert_allclose(_covariance(model.observed), covariance, atol=1e-10)
    assert (model.n, model.pending) == (60, -60)


@pytest.mark.parametrize("family", [Gaussian(), Poisson()], ids=repr)
def test_a_reward_that_was_nearly_all_is_left_to_a_fit(make: Make, family: Family) -> None:
    """Retract says that no step can take it out, and changes nothing but the counts."""
    model = make(Prior.ridge(2, 1e-8), family)
    model.add_pending([1.0, 0.0], 1.0)
    weight = model.learn([1.0, 0.0], 1.0)
    theta, observed = model.theta.copy(), model.observed.copy()
    assert not model.retract([1.0, 0.0], 1.0, weight)
    assert model.theta.tobytes() == theta.tobytes()
    assert model.observed.tobytes() == observed.tobytes()
    assert (model.n, model.pending) == (0, 1)


@every_family
def test_a_revision_moves_theta_and_leaves_the_weight(make: Make, family: Family) -> None:
    """θ moves by H⁻¹x (new - old)/φ, capped but for Gaussian rewards; root and counts stay."""
    for reward in (0.0, 0.5):
        model, x = _busy(make, family), np.array([0.5, -1.0, 0.25])
        theta, observed = model.theta.copy(), model.observed.copy()
        model.revise(x, 1.0, reward)
        step = (reward - 1.0) / (family.dispersion or 1.0) * (_covariance(observed) @ x)
        np.testing.assert_allclose(model.theta, theta + step, atol=1e-12)
        assert model.observed.tobytes() == observed.tobytes()
        assert (model.n, model.pending) == (20, 0)


@every_family
def test_what_is_expected_and_withdrawn_leaves_no_trace(make: Make, family: Family) -> None:
    """The decided root comes back to 1e-9, in whatever order the rows leave."""
    rng = np.random.default_rng(0)
    model = _busy(make, family)
    before, observed = _covariance(model.decided), model.observed.copy()
    rows, weights = rng.normal(size=(90, 3)), rng.random(90)
    for x, weight in zip(rows, weights.tolist(), strict=True):
        model.add_pending(x, weight)
    assert model.pending == 90
    expected = np.linalg.inv(before) + (rows.T * weights) @ rows
    np.testing.assert_allclose(_covariance(model.decided), np.linalg.inv(expected), atol=1e-10)
    for i in rng.permutation(90):
        assert model.remove_pending(rows[i], float(weights[i]))
    np.testing.assert_allclose(_covariance(model.decided), before, atol=1e-9)
    assert model.observed.tobytes() == observed.tobytes()
    assert model.pending == 0


@pytest.mark.parametrize("size", [1.0, 1e3, 1e5, 1e8])
@pytest.mark.parametrize("ridge", [1.0, 1e-4, 1e-8])
def test_withdrawing_a_dominant_row_stays_sound(make: Make, ridge: float, size: float) -> None:
    """It either restores the prior, or says that it cannot and leaves the root for renewal."""
    prior = Prior.ridge(3, ridge)
    model = make(prior)
    x = size * np.array([0.6, -0.64, 0.48])
    model.add_pending(x, 0.25)
    expected = model.decided.copy()
    if not model.remove_pending(x, 0.25):
        assert model.decided.tobytes() == expected.tobytes()
        model.renew(prior.precision, prior.precision)
    assert np.isfinite(model.decided).all()
    assert np.linalg.svd(model.decided, compute_uv=False).min() > 0.0
    # Where a step is taken, 1 - w q is at least 1e-6: rounding may grow by as much.
    close = 1e-9 if size**2 / ridge < 1e5 else 1e-3
    np.testing.assert_allclose(ridge * _covariance(model.decided), np.eye(3), atol=close)
    assert model.pending == 0


@every_family
def test_new_roots_are_the_old_ones_without_their_rounding(make: Make, family: Family) -> None:
    """After a thousand steps each way, renewing from the sums changes nothing beyond 1e-12."""
    rng = np.random.default_rng(0)
    model = make(Prior.ridge(4), family)
    observed, decided = Information.zero(4), Information.zero(4)
    for _ in range(1_000):
        x = rng.normal(size=4) / 2.0
        weight = model.argmax_ucb([x], 1.0)[3]
        model.add_pending(x, weight)
        decided += Information.of([x], [weight])
        observed += Information.of([x], [model.learn(x, float(rng.integers(0, 2)))])
    before = _covariance(model.observed), _covariance(model.decided)
    theta = model.theta.copy()
    model.renew(np.eye(4) + observed.matrix, np.eye(4) + decided.matrix)
    for old_root, new_root in zip(before, (model.observed, model.decided), strict=True):
        np.testing.assert_allclose(
            old_root, _covariance(new_root), rtol=0.0, atol=1e-12 * np.abs(old_root).max()
        )
    assert model.theta.tolist() == theta.tolist()
    assert not np.shares_memory(model.observed, model.decided)


def test_scores_count_what_is_pending(make: Make) -> None:
    """A decision that is out makes its direction less uncertain, though nothing was learned."""
    model, x = make(_prior(2), Bernoulli()), np.array([1.0, -0.5])
    model.add_pending(x, 0.25)
    eta, deviation = model.score([x])
    covariance = np.linalg.inv(_prior(2).precision + 0.25 * np.outer(x, x))
    assert eta[0] == pytest.approx(float(x @ _prior(2).mean))
    assert deviation[0] == pytest.approx(math.sqrt(x @ covariance @ x))
    assert (model.n, model.pending, model.dim) == (0, 1, 2)


@every_family
def test_the_upper_row_comes_with_its_mean_and_weight(make: Make, family: Family) -> None:
    """The mean is g(η), and the weight g'(η)/φ."""
    model = _busy(make, family)
    rows = np.random.default_rng(3).normal(size=(6, 3))
    index, ties, mean, weight = model.argmax_ucb(rows, 1.5)
    eta, deviation = model.score(rows)
    assert (index, ties) == (int(np.argmax(eta + 1.5 * deviation)), 1)
    assert mean == pytest.approx(float(family.mean(eta[index])))
    assert weight == pytest.approx(float(family.slope(eta[index])) / (family.dispersion or 1.0))


def test_a_model_shares_nothing_with_what_it_was_made_of(make: Make) -> None:
    """Steps leave the prior, the given θ and the rows as they were."""
    prior, x = _prior(2), np.array([1.0, 2.0])
    mean, precision = prior.mean.copy(), prior.precision.copy()
    model = make(prior)
    model.add_pending(x, 1.0)
    model.learn(x, 5.0)
    assert x.tolist() == [1.0, 2.0]
    assert prior.mean.tolist() == mean.tolist() != model.theta.tolist()
    assert prior.precision.tolist() == precision.tolist()
    assert not np.shares_memory(model.observed, model.decided)


@pytest.mark.parametrize("dim", [1, 3, 30])
def test_a_root_is_one_of_the_inverse(dim: int) -> None:
    """S Sᵀ = H⁻¹ for any positive definite H, C-ordered."""
    root = root_of(_prior(dim).precision)
    np.testing.assert_allclose(_covariance(root), np.linalg.inv(_prior(dim).precision), atol=1e-12)
    assert root.flags.c_contiguous


SINGULAR = [
    [[1.0, 1.0], [1.0, 1.0]],
    [[1.0, 1.0 + 1e-12], [1.0 + 1e-12, 1.0]],
    [[1.0, 0.0], [0.0, 0.0]],
    [[1.0, 0.0], [0.0, -0.25]],
    [[1e16, 0.0], [0.0, -2.0]],
]


@pytest.mark.parametrize("matrix", SINGULAR, ids=repr)
def test_a_root_of_what_rounding_made_singular_is_finite(matrix: list[list[float]]) -> None:
    """A direction that vanished beside others is very uncertain, not infinite or NaN."""
    root = root_of(np.array(matrix))
    assert np.isfinite(root).all()
    assert np.isfinite(_covariance(root)).all()
    assert (np.diag(_covariance(root)) > 0.0).all()


def test_large_rows_that_come_and_go_leave_a_sound_root(make: Make) -> None:
    """Rows the door lets in, taken out in another order, may leave a sum below zero."""
    rng = np.random.default_rng(0)
    rows = 3e7 * rng.normal(size=(6, 2)) * [1.0, 0.0]
    precision = 1e-3 * np.eye(2)
    for x in rows:
        precision = precision + Information.of([x], [0.25]).matrix
    for x in rng.permutation(rows):
        precision = precision - Information.of([x], [0.25]).matrix
    model = make(Prior.ridge(2, 1e-3))
    model.renew(precision, precision)
    deviation = model.score(np.eye(2))[1]
    assert (np.isfinite(deviation) & (deviation > 0.0)).all()
    assert np.isfinite(_covariance(model.decided)).all()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_many_rows_are_scored_in_pieces_as_few_are(make: Make, kind: type) -> None:
    """The choice and its weight are those of one product; ties are found across pieces."""
    model, rng = _busy(make, Bernoulli()), np.random.default_rng(6)
    rows: Any = rng.normal(size=(30_000, 3)).astype(kind)
    means, deviations = model.score(rows)
    numbers = rows.astype(np.float64)
    np.testing.assert_allclose(means, numbers @ model.theta, atol=1e-12)
    lengths = np.linalg.norm(numbers @ model.decided, axis=1)
    np.testing.assert_allclose(deviations, lengths, atol=1e-12)
    index, ties, mean, weight = model.argmax_ucb(rows, 2.0)
    assert (index, ties) == ((means + 2.0 * lengths).argmax(), 1)
    assert (mean, weight) == pytest.approx(model.predict(rows[index]))
    rows[[7, 29_999]] = rows[index]
    tied = sorted({7, index, 29_999})
    assert [model.argmax_ucb(rows, 2.0, u)[0] for u in (0.1, 0.5, 0.9)] == tied
    assert model.argmax_ucb(rows, 2.0)[1] == 3


def test_many_rows_with_a_number_that_is_not_finite_are_refused(make: Make) -> None:
    """Wherever it is, as among few rows."""
    rows = np.zeros((30_000, 3), dtype=np.float32)
    rows[29_000, 1] = np.nan
    model = make(Prior.ridge(3), Bernoulli())
    for call in (model.score, lambda rows: model.argmax_ucb(rows, 0.0)):
        with pytest.raises(InvalidInput, match="not finite"):
            call(rows)
