"""Environments: simulated problems for policies to learn.

An environment defines the rows offered in each round, their mean rewards, and the reward of a
choice as a function of a uniform number, so that every policy is run with the same contexts and
random numbers. The library's experiments use the named problems below.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Matrix, Vector
from belated.core.results import Shortened
from belated.exceptions import InvalidInput, extra
from belated.model.families import Bernoulli, Family, Gaussian, Poisson
from belated.model.kernels import special

#: The distribution of random rows.
Shape = Literal["sphere", "ball", "intercept"]
#: Number of rounds whose contexts are drawn together.
TOGETHER = 512


class Environment(Protocol):
    """A simulated problem.

    If each action has its own block of coefficients, the environment may define an attribute
    ``blocks``, the number of blocks. Rows then either have the format of :class:`~belated.PerArm`,
    or contain ``dim`` numbers, with one row per block, in order.
    """

    @property
    def dim(self) -> int:
        """Number of values in a row."""

    @property
    def family(self) -> Family:
        """The family of the rewards."""

    def rounds(self, horizon: int, rng: np.random.Generator) -> Iterator[tuple[Matrix, Vector]]:
        """Yield the rows of each round and their mean rewards."""

    def reward(self, mean: float, u: float) -> float:
        """Return the reward of a row with this mean, given a uniform number u in (0, 1)."""


def reward_of(family: Family, mean: float, u: float) -> float:
    """Return the reward for a uniform number u: u < p if Bernoulli, otherwise the quantile at u.

    >>> reward_of(Bernoulli(), 0.3, 0.2), reward_of(Bernoulli(), 0.3, 0.4)
    (1.0, 0.0)
    """
    if isinstance(family, Bernoulli):
        return 1.0 if u < mean else 0.0
    if isinstance(family, Gaussian):
        return mean + math.sqrt(family.dispersion or 1.0) * _normal_quantile(u)
    if isinstance(family, Poisson):
        if mean > 1e9:  # the normal approximation is accurate enough
            return float(max(0.0, round(mean + math.sqrt(mean) * _normal_quantile(u))))
        count = math.ceil(special.pdtrik(u, mean))
        return float(count - 1 if count >= 1 and special.pdtr(count - 1, mean) >= u else count)
    raise InvalidInput(
        f"no rewards can be drawn for {family}: define reward() in the environment", family
    )


def _normal_quantile(u: float) -> float:
    return float(special.ndtri(max(u, 1e-300)))


@dataclass(frozen=True, eq=False, repr=False)
class GLM(Shortened):
    """Rewards from a generalized linear model with a known θ*.

    Args:
        theta: θ*, the true coefficients.
        n_arms: K, the number of arms.
        contexts: "fresh" draws new rows in every round; an array of shape (K, d) is offered in
            every round; an array of shape (U, K, d) holds the rows of U users, one of whom is
            selected at random in each round.
        shape: distribution of fresh rows: uniform on the unit "sphere", uniform in the unit "ball",
            or an "intercept" of 1 followed by normal numbers.
        family: the family of the rewards.

    >>> world = GLM(np.array([1.0, 0.0]), n_arms=2, contexts=np.eye(2))
    >>> rows, means = next(world.rounds(1, np.random.default_rng(0)))
    >>> means.round(3)
    array([0.731, 0.5  ])
    """

    theta: Vector
    n_arms: int
    contexts: Literal["fresh"] | NDArray[Any] = "fresh"
    shape: Shape = "sphere"
    family: Family = field(default_factory=Bernoulli)

    @property
    def dim(self) -> int:
        """Number of values in a row."""
        return len(self.theta)

    def rounds(self, horizon: int, rng: np.random.Generator) -> Iterator[tuple[Matrix, Vector]]:
        """Yield random or repeated rows, and their means."""
        if isinstance(self.contexts, str):
            yield from self._fresh(horizon, rng)
            return
        tables = _as_float32(self.contexts.reshape(-1, self.n_arms, self.dim))
        means = [self.family.mean(table @ self.theta) for table in tables]
        users = rng.integers(len(tables), size=horizon) if len(tables) > 1 else [0] * horizon
        for user in users:
            yield tables[user], means[user]

    def reward(self, mean: float, u: float) -> float:
        """Draw a reward from the family."""
        return reward_of(self.family, mean, u)

    def _fresh(self, horizon: int, rng: np.random.Generator) -> Iterator[tuple[Matrix, Vector]]:
        for start in range(0, horizon, TOGETHER):
            size = (min(TOGETHER, horizon - start), self.n_arms, self.dim)
            tables = _as_float32(draw_rows(size, self.shape, rng))
            yield from zip(tables, self.family.mean(tables @ self.theta), strict=True)


@dataclass(frozen=True, eq=False, repr=False)
class Blocks(Shortened):
    """A separate θ for each arm and a context shared by all arms, so that rows consist of blocks.

    Args:
        thetas: one row per arm, beginning with an intercept.
        family: the family of the rewards.
    """

    thetas: Matrix
    family: Family = field(default_factory=Bernoulli)

    @property
    def dim(self) -> int:
        """Number of values in a row, over all blocks."""
        return self.thetas.size

    @property
    def blocks(self) -> int:
        """The number of blocks, one per arm."""
        return len(self.thetas)

    def rounds(self, horizon: int, rng: np.random.Generator) -> Iterator[tuple[Matrix, Vector]]:
        """Yield rows for contexts z = (1, u)/√2, with u uniform in a ball, and their means."""
        arms, width = self.thetas.shape
        for start in range(0, horizon, TOGETHER):
            count = min(TOGETHER, horizon - start)
            u = draw_rows((count, width - 1), "ball", rng)
            z = _as_float32(np.concatenate([np.ones((count, 1)), u], axis=1) / math.sqrt(2.0))
            means = self.family.mean(z @ self.thetas.T)
            for i in range(count):
                yield in_blocks(z[i], arms), means[i]

    def reward(self, mean: float, u: float) -> float:
        """Draw a reward from the family."""
        return reward_of(self.family, mean, u)


@dataclass(frozen=True, eq=False, repr=False)
class Classification(Shortened):
    """Classification: the reward is 1 for the correct class. Each class has a block of columns.

    Args:
        samples: one row per sample.
        labels: the class of each sample, starting at 0.
    """

    samples: NDArray[Any]
    labels: NDArray[np.int64]
    family: Family = field(default_factory=Bernoulli)

    @property
    def dim(self) -> int:
        """Number of values in a row, over all blocks."""
        return self.blocks * (int(self.samples.shape[1]) + 1)

    @property
    def blocks(self) -> int:
        """The number of blocks, one per class."""
        return int(self.labels.max()) + 1

    def rounds(self, horizon: int, rng: np.random.Generator) -> Iterator[tuple[Matrix, Vector]]:
        """Yield the rows of samples drawn with replacement, and a 1 for the correct class."""
        right = np.eye(self.blocks)
        ones = np.ones((len(self.samples), 1))
        z = _as_float32(np.concatenate([ones, self.samples], axis=1))
        for chosen in rng.integers(len(z), size=horizon):
            yield in_blocks(z[chosen], self.blocks), right[self.labels[chosen]]

    def reward(self, mean: float, u: float) -> float:
        """Return the mean, because the reward is deterministic."""
        return mean


@dataclass(frozen=True, eq=False, repr=False)
class Replay(Shortened):
    """A recorded table that contains the reward of every arm, replayed in order.

    Args:
        rows: the rows, of shape (n, K, d).
        rewards: the rewards, of shape (n, K); also used as mean rewards.
        family: the family of the rewards.
    """

    rows: NDArray[Any]
    rewards: Matrix
    family: Family = field(default_factory=Bernoulli)

    @property
    def dim(self) -> int:
        """Number of values in a row."""
        return int(self.rows.shape[2])

    def rounds(self, horizon: int, rng: np.random.Generator) -> Iterator[tuple[Matrix, Vector]]:
        """Yield the recorded rows and rewards in order."""
        tables = _as_float32(self.rows)
        for t in range(horizon):
            yield tables[t % len(tables)], self.rewards[t % len(tables)]

    def reward(self, mean: float, u: float) -> float:
        """Return the recorded reward."""
        return mean


def fixed(
    seed: int, *, dim: int = 10, n_arms: int = 20, norm: float = 3.0, family: Family | None = None
) -> GLM:
    """Return a problem with the same rows in every round.

    >>> fixed(3).dim
    10
    """
    rng = np.random.default_rng([seed, 1])
    theta = draw_theta(dim, norm, rng)
    rows = draw_rows((n_arms, dim), "sphere", rng)
    return GLM(theta, n_arms, rows, family=family or Bernoulli())


def users(
    seed: int,
    *,
    dim: int = 10,
    n_arms: int = 20,
    norm: float = 3.0,
    types: int = 5,
    family: Family | None = None,
) -> GLM:
    """Return a problem with several user types, one of which is selected at random in each round.

    >>> users(3).n_arms
    20
    """
    rng = np.random.default_rng([seed, 2])
    theta = draw_theta(dim, norm, rng)
    rows = draw_rows((types, n_arms, dim), "sphere", rng)
    return GLM(theta, n_arms, rows, family=family or Bernoulli())


def fresh(
    seed: int, *, dim: int = 10, n_arms: int = 20, norm: float = 3.0, family: Family | None = None
) -> GLM:
    """Return a problem with new rows on the unit sphere in every round.

    >>> fresh(3, dim=5).dim
    5
    """
    theta = draw_theta(dim, norm, np.random.default_rng([seed, 3]))
    return GLM(theta, n_arms, family=family or Bernoulli())


def ball(seed: int, *, dim: int = 10, n_arms: int = 10, norm: float = 3.0) -> GLM:
    """Return a problem with new rows in the unit ball in every round.

    >>> ball(3).shape
    'ball'
    """
    theta = draw_theta(dim, norm, np.random.default_rng([seed, 4]))
    return GLM(theta, n_arms, shape="ball")


def arms(seed: int, *, n_arms: int = 10, width: int = 5) -> Blocks:
    """Return a problem in which each arm has its own coefficients, drawn from 1.5 N(0, I).

    >>> arms(3).dim
    50
    """
    rng = np.random.default_rng([seed, 5])
    return Blocks(1.5 * rng.normal(size=(n_arms, width)))


def digits(seed: int = 0) -> Classification:
    """Return scikit-learn's digits as a problem: 1,797 images of 64 pixels in ten classes.

    Pixels are scaled so that a typical row has norm 1. The seed is ignored, and exists only for
    consistency with the other problems.
    """
    with extra("the digits problem", "experiments"):
        from sklearn.datasets import load_digits
    images, labels = load_digits(return_X_y=True)
    scale = math.sqrt(float(np.square(images).sum(axis=1).mean()))
    return Classification(images / scale, labels.astype(np.int64))


def draw_theta(dim: int, norm: float, rng: np.random.Generator) -> Vector:
    """Return a vector with this norm and a random direction."""
    theta = rng.normal(size=dim)
    return np.asarray(norm * theta / np.linalg.norm(theta))


def draw_rows(size: tuple[int, ...], shape: Shape, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw rows from this distribution, along the last axis."""
    rows = rng.normal(size=size)
    if shape == "intercept":
        rows[..., 0] = 1.0
        return rows
    rows /= np.linalg.norm(rows, axis=-1, keepdims=True)
    if shape == "ball":
        rows *= rng.random((*size[:-1], 1)) ** (1.0 / size[-1])
    return rows


def in_blocks(z: Vector, arms: int) -> Matrix:
    """Return one row per arm, with ``z`` in the arm's block and zeros elsewhere.

    >>> in_blocks(np.array([1.0, 2.0]), 2)
    array([[1., 2., 0., 0.],
           [0., 0., 1., 2.]])
    """
    blocks = np.zeros((arms, arms, len(z)))
    blocks[np.arange(arms), np.arange(arms)] = z
    rows = blocks.reshape(arms, -1)
    rows.flags.writeable = False
    return rows


def _as_float32(rows: NDArray[Any]) -> NDArray[np.float64]:
    """Return read-only rows for the kernels, rounded to float32 as in real decisions."""
    rounded = np.ascontiguousarray(rows, dtype=np.float32).astype(np.float64)
    rounded.flags.writeable = False
    return rounded
