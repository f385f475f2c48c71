"""The problems to learn on: what they offer, and what they pay."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from belated import Bernoulli, Gaussian, Poisson, environments
from belated.core.inputs import Matrix, Vector
from belated.exceptions import InvalidInput
from belated.model.families import Family
from belated.simulation.environments import (
    GLM,
    TOGETHER,
    Blocks,
    Classification,
    Environment,
    Replay,
    draw_rows,
    draw_theta,
    in_blocks,
    reward_of,
)

Make = Callable[[int], Environment]
NAMED: dict[str, tuple[Make, int, int]] = {
    "fixed": (environments.fixed, 10, 20),
    "users": (environments.users, 10, 20),
    "fresh": (environments.fresh, 10, 20),
    "ball": (environments.ball, 10, 10),
    "arms": (environments.arms, 50, 10),
    "digits": (environments.digits, 650, 10),
}
every_problem = pytest.mark.parametrize("name", NAMED)


def rounds(world: Environment, count: int, seed: int = 0) -> list[tuple[Matrix, Vector]]:
    """What a world offers in so many rounds."""
    return list(world.rounds(count, np.random.default_rng(seed)))


@every_problem
def test_a_problem_has_the_size_it_is_known_for(name: str) -> None:
    """Rows (K, d) and K means in [0, 1] every round; rows are float32 values not to be changed."""
    factory, dim, arms = NAMED[name]
    world = factory(1)
    assert world.dim == dim
    assert isinstance(world.family, Bernoulli)
    offers = rounds(world, 30)
    assert len(offers) == 30
    for rows, means in offers:
        assert rows.shape == (arms, dim)
        assert rows.dtype == np.float64
        assert (rows == rows.astype(np.float32)).all()
        assert not rows.flags.writeable
        assert np.shape(means) == (arms,)
        assert ((means >= 0.0) & (means <= 1.0)).all()


@every_problem
def test_a_seed_makes_the_same_problem_again(name: str) -> None:
    """The same seed and generator give the same rows and means."""
    factory = NAMED[name][0]
    for first, second in zip(rounds(factory(4), 20, 3), rounds(factory(4), 20, 3), strict=True):
        assert (first[0] == second[0]).all()
        assert (first[1] == second[1]).all()


@pytest.mark.parametrize("name", ["fixed", "users", "fresh", "ball", "arms"])
def test_another_seed_makes_another_problem(name: str) -> None:
    """θ* differs, and with it the means."""
    factory = NAMED[name][0]
    first, second = rounds(factory(4), 3), rounds(factory(5), 3)
    assert not any((a[1] == b[1]).any() for a, b in zip(first, second, strict=True))


def test_problems_of_one_seed_have_thetas_of_their_own() -> None:
    """The four with one θ* do not share it."""
    worlds = (environments.fixed(1), environments.users(1), environments.fresh(1))
    thetas = [world.theta for world in (*worlds, environments.ball(1))]
    products = [float(a @ b) / 9.0 for i, a in enumerate(thetas) for b in thetas[:i]]
    assert max(map(abs, products)) < 0.95


@pytest.mark.parametrize("name", ["fixed", "users", "fresh", "ball"])
@pytest.mark.parametrize("norm", [0.5, 3.0])
def test_theta_has_the_norm_that_was_asked_for(name: str, norm: float) -> None:
    """|θ*| = S, and the means are g(xᵀθ*)."""
    world = getattr(environments, name)(2, norm=norm)
    assert np.linalg.norm(world.theta) == pytest.approx(norm)
    for rows, means in rounds(world, 10):
        np.testing.assert_allclose(means, 1.0 / (1.0 + np.exp(-rows @ world.theta)), rtol=1e-12)


@pytest.mark.parametrize("name", ["fixed", "users", "fresh"])
def test_rows_are_of_length_one(name: str) -> None:
    """On the unit sphere, to the rounding of float32."""
    for rows, _ in rounds(NAMED[name][0](3), 50):
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-6)


def test_fixed_rows_are_the_same_every_round() -> None:
    """One table, whatever the generator of the contexts."""
    world = environments.fixed(3)
    first = rounds(world, 1, seed=0)[0][0]
    assert all((rows == first).all() for rows, _ in rounds(world, 40, seed=9))


def test_users_have_five_tables_in_equal_shares() -> None:
    """Five different tables, each fixed, come in shares of a fifth."""
    world = environments.users(3)
    counts: dict[bytes, int] = {}
    for rows, _ in rounds(world, 5_000):
        counts[rows.tobytes()] = counts.get(rows.tobytes(), 0) + 1
    assert len(counts) == 5
    assert stats.chisquare(list(counts.values())).pvalue > 0.001
    assert set(counts) == {rows.tobytes() for rows, _ in rounds(world, 200, seed=8)}


def test_another_number_of_users() -> None:
    """As many tables as types were asked for."""
    tables = {rows.tobytes() for rows, _ in rounds(environments.users(3, types=3), 200)}
    assert len(tables) == 3


def test_fresh_rows_never_come_twice() -> None:
    """All rows of 600 rounds differ, over the edge of what is drawn together."""
    rows = np.vstack([table for table, _ in rounds(environments.fresh(1), TOGETHER + 88)])
    assert len(np.unique(rows, axis=0)) == 20 * (TOGETHER + 88)


def test_fresh_rows_point_everywhere_alike() -> None:
    """E x = 0 and E x xᵀ = I/d, to five standard errors."""
    rows = np.vstack([table for table, _ in rounds(environments.fresh(1), 1_000)])
    assert np.abs(rows.mean(axis=0)).max() < 5.0 * math.sqrt(0.1 / len(rows))
    second = rows.T @ rows / len(rows)
    assert np.abs(second - 0.1 * np.eye(10)).max() < 5.0 * 0.15 / math.sqrt(len(rows))


def test_rows_of_a_ball_fill_it_evenly() -> None:
    """|x|^d is uniform on [0, 1] (Kolmogorov–Smirnov), and directions are those of the sphere."""
    rows = np.vstack([table for table, _ in rounds(environments.ball(1), 1_000)])
    lengths = np.linalg.norm(rows, axis=1)
    assert lengths.max() <= 1.0 + 1e-6
    assert stats.kstest(lengths**10, "uniform").pvalue > 0.001
    assert abs(np.corrcoef(lengths, rows[:, 0] / lengths)[0, 1]) < 0.05


@pytest.mark.parametrize("shape", ["sphere", "ball"])
def test_drawn_rows_have_any_size(shape: Any) -> None:
    """The last axis is a row."""
    rows = draw_rows((3, 4, 5), shape, np.random.default_rng(0))
    assert rows.shape == (3, 4, 5)
    assert np.linalg.norm(rows, axis=-1).max() <= 1.0 + 1e-12


def test_a_drawn_theta_is_uniform_in_direction() -> None:
    """In two dimensions its angle is uniform."""
    rng = np.random.default_rng(0)
    thetas = np.array([draw_theta(2, 2.0, rng) for _ in range(2_000)])
    angles = (np.arctan2(thetas[:, 1], thetas[:, 0]) + math.pi) / (2.0 * math.pi)
    assert stats.kstest(angles, "uniform").pvalue > 0.001


def test_arms_see_one_context_in_their_own_block() -> None:
    """Row a is z = (1, u)/√2 in block a and zero elsewhere, |u| ≤ 1, and its mean g(zᵀθ_a)."""
    world = environments.arms(2)
    assert isinstance(world, Blocks)
    assert world.thetas.shape == (10, 5)
    u = []
    for rows, means in rounds(world, TOGETHER + 20):
        blocks = rows.reshape(10, 10, 5)
        z = blocks[0, 0]
        for a in range(10):
            assert (blocks[a, a] == z).all()
            assert np.count_nonzero(blocks[a]) == np.count_nonzero(z)
        assert z[0] == pytest.approx(1.0 / math.sqrt(2.0))
        u.append(math.sqrt(2.0) * z[1:])
        np.testing.assert_allclose(means, 1.0 / (1.0 + np.exp(-world.thetas @ z)), rtol=1e-6)
    lengths = np.linalg.norm(u, axis=1)
    assert stats.kstest(lengths**4, "uniform").pvalue > 0.001


def test_coefficients_of_arms_are_normal() -> None:
    """1.5 N(0, I), over seeds."""
    values = np.concatenate(
        [np.asarray(environments.arms(seed).thetas).ravel() for seed in range(40)]
    )
    assert stats.kstest(values / 1.5, "norm").pvalue > 0.001


def test_digits_are_1797_images_in_ten_classes() -> None:
    """Rows of 10 blocks with 65 numbers, the first always the same; the right class pays 1."""
    world = environments.digits()
    assert isinstance(world, Classification)
    assert world.samples.shape == (1797, 64)
    assert sorted(np.unique(world.labels).tolist()) == list(range(10))
    assert world.dim == 650
    for rows, means in rounds(world, 50):
        blocks = rows.reshape(10, 10, 65)
        z = blocks[0, 0]
        assert z[0] == 1.0
        assert all((blocks[a, a] == z).all() for a in range(10))
        assert all(not blocks[a, b].any() for a in range(10) for b in range(10) if a != b)
        assert sorted(means.tolist()) == [0.0] * 9 + [1.0]
        sample = np.flatnonzero((world.samples.astype(np.float32) == z[1:]).all(axis=1))
        assert means[world.labels[sample[0]]] == 1.0
    assert np.square(world.samples).sum(axis=1).mean() == pytest.approx(1.0)


def test_digits_come_with_replacement_and_in_equal_shares() -> None:
    """Ten classes about a tenth each; 1,797 draws leave a share 1/e of the images out."""
    world = environments.digits()
    images = [rows[0, 1:65].tobytes() for rows, _ in rounds(world, 1797)]
    assert len(set(images)) / 1797 == pytest.approx(1.0 - math.exp(-1.0), abs=0.03)


def test_a_guess_pays_without_luck() -> None:
    """Classification and Replay pay the mean itself, whatever u is."""
    table = Replay(np.zeros((1, 2, 3)), np.array([[0.25, 1.0]]))
    for world in (environments.digits(), table):
        assert [world.reward(mean, u) for mean in (0.0, 1.0) for u in (0.01, 0.99)] == [0, 0, 1, 1]


def test_a_replay_offers_its_records_in_order_and_again() -> None:
    """Round t has record t mod n, its rewards are the means, and no generator matters."""
    rng = np.random.default_rng(0)
    recorded, rewards = rng.normal(size=(7, 3, 2)), rng.random((7, 3))
    world = Replay(recorded, rewards)
    assert (world.dim, world.family) == (2, Bernoulli())
    for t, (rows, means) in enumerate(rounds(world, 20)):
        assert (rows == recorded[t % 7].astype(np.float32)).all()
        assert means.tolist() == rewards[t % 7].tolist()
    assert world.reward(0.3, 0.9) == 0.3


def test_blocks_hold_the_context_once() -> None:
    """Row a of K has z from column a·len(z) on."""
    z = np.array([1.0, 2.0, 3.0])
    rows = in_blocks(z, 4)
    assert rows.shape == (4, 12)
    for a in range(4):
        expected = np.zeros(12)
        expected[3 * a : 3 * a + 3] = z
        assert rows[a].tolist() == expected.tolist()


def test_a_table_of_ones_own_may_be_offered() -> None:
    """(K, d) is offered every round, (U, K, d) are those of users."""
    theta = np.array([1.0, -1.0])
    table = np.arange(12.0).reshape(2, 3, 2) / 12.0
    fixed = GLM(theta, 3, table[0])
    assert all((rows == table[0].astype(np.float32)).all() for rows, _ in rounds(fixed, 5))
    tables = {rows.tobytes() for rows, _ in rounds(GLM(theta, 3, table), 60)}
    assert tables == {part.astype(np.float32).astype(np.float64).tobytes() for part in table}


@pytest.mark.parametrize("family", [Gaussian(0.25), Poisson()], ids=repr)
@pytest.mark.parametrize("name", ["fixed", "users", "fresh"])
def test_problems_may_have_other_rewards(name: str, family: Family) -> None:
    """Means are those of the family, and so are rewards."""
    world = getattr(environments, name)(2, norm=1.0, family=family)
    assert world.family is family
    rows, means = rounds(world, 1)[0]
    np.testing.assert_allclose(means, family.mean(rows @ world.theta), rtol=1e-12)
    assert world.reward(2.0, 0.9) == reward_of(family, 2.0, 0.9)


LUCK = [1e-12, 1e-6, 0.001, 0.1, 0.25, 0.5, 0.75, 0.9, 0.999, 1.0 - 1e-6, 1.0 - 1e-12]


@pytest.mark.parametrize("u", LUCK)
@pytest.mark.parametrize("mean", [1e-9, 0.2, 0.5, 0.8, 1.0 - 1e-9])
def test_a_bernoulli_reward_is_one_where_luck_is_below_its_mean(mean: float, u: float) -> None:
    """U < p, one uniform number a round: the upper quantile of its law."""
    reward = reward_of(Bernoulli(), mean, u)
    assert reward == float(u < mean)
    # The same by scipy: with 1 - U for U, greater luck is a greater reward.
    assert reward == stats.bernoulli.ppf(1.0 - u, mean) or u == pytest.approx(mean, abs=1e-9)


@pytest.mark.parametrize("u", LUCK)
@pytest.mark.parametrize("mean", [-3.0, 0.0, 1.5])
@pytest.mark.parametrize("variance", [1.0, 0.04, 9.0])
def test_a_gaussian_reward_is_a_quantile(variance: float, mean: float, u: float) -> None:
    """The quantile of N(mean, φ), as scipy has it."""
    expected = stats.norm.ppf(u, mean, math.sqrt(variance))
    assert reward_of(Gaussian(variance), mean, u) == pytest.approx(expected, rel=1e-12)


def test_a_gaussian_reward_of_unknown_variance_has_variance_one() -> None:
    """An environment must draw with some variance: it is 1."""
    assert reward_of(Gaussian("estimate"), 1.0, 0.9) == pytest.approx(stats.norm.ppf(0.9, 1.0))


@pytest.mark.parametrize("u", LUCK)
@pytest.mark.parametrize("mean", [1e-300, 1e-9, 0.01, 0.3, 1.0, 2.5, 7.0, 40.0, 1e3, 1e6, 1e8])
def test_a_poisson_reward_is_a_quantile(mean: float, u: float) -> None:
    """The least count whose distribution function reaches u, as scipy has it."""
    assert reward_of(Poisson(), mean, u) == stats.poisson.ppf(u, mean)


@pytest.mark.parametrize("mean", [0.3, 2.5, 7.0, 40.0])
def test_a_poisson_reward_jumps_where_its_distribution_does(mean: float) -> None:
    """Just below F(k) it is k, just above k + 1."""
    for k in range(math.ceil(2 * mean)):
        edge = float(stats.poisson.cdf(k, mean))
        if edge < 1e-6:
            continue
        assert reward_of(Poisson(), mean, edge - 1e-9) == k
        assert reward_of(Poisson(), mean, edge + 1e-9) == k + 1


@pytest.mark.parametrize("family", [Bernoulli(), Gaussian(0.25), Poisson()], ids=repr)
def test_rewards_have_the_mean_and_variance_of_their_family(family: Family) -> None:
    """Over 20,000 uniform numbers, to five standard errors."""
    u = np.random.default_rng(0).random(20_000)
    rewards = np.array([reward_of(family, 0.6, value) for value in u.tolist()])
    variance = {"Bernoulli": 0.24, "Gaussian": 0.25, "Poisson": 0.6}[type(family).__name__]
    assert abs(rewards.mean() - 0.6) < 5.0 * math.sqrt(variance / 20_000)
    assert rewards.var() == pytest.approx(variance, rel=0.06)


def test_a_family_without_a_law_is_refused() -> None:
    """The error names the family."""

    class Odd:
        def __repr__(self) -> str:
            return "Odd()"

    with pytest.raises(InvalidInput, match=r"Odd\(\)"):
        reward_of(Odd(), 0.5, 0.5)  # type: ignore[arg-type]
