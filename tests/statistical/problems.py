"""Simulated logistic problems, their rows as a store keeps them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from belated import Bernoulli
from belated.core.inputs import Matrix, Vector
from belated.model.model import Model
from belated.model.priors import Prior
from belated.model.statistics import Observations

#: Actions to choose from.
ARMS = 10


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows, their rewards, and the θ that made them."""

    X: Matrix
    y: Vector
    theta: Vector

    def seen(self, order: Any = slice(None)) -> Observations:
        """The observations, in this order."""
        return observed(self.X[order], self.y[order])


#: How rows are chosen: from d, n, |θ*| and a generator.
Design = Callable[[int, int, float, np.random.Generator], Problem]


def observed(X: Matrix, y: Vector) -> Observations:
    """These rows with their rewards."""
    data = Observations(X.shape[1])
    data.extend(X, y)
    return data


def sphere(count: int, dim: int, rng: np.random.Generator) -> Matrix:
    """Directions drawn uniformly, with the entries of a float32."""
    rows = rng.standard_normal((count, dim))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype(np.float32).astype(np.float64)


def independent(dim: int, n: int, size: float, rng: np.random.Generator) -> Problem:
    """Rows drawn uniformly from the unit sphere; |θ*| = size."""
    theta = size * sphere(1, dim, rng)[0]
    X = sphere(n, dim, rng)
    return Problem(X, Bernoulli().sample(X @ theta, rng), theta)


def bandit_like(dim: int, n: int, size: float, rng: np.random.Generator) -> Problem:
    """Rows as Thompson sampling chooses them, each among ten fresh ones from the unit sphere.

    A round draws θ from the model of the rewards so far, and takes the row it likes best; the
    reward comes at once. So rows crowd around θ* more and more.
    """
    theta = size * sphere(1, dim, rng)[0]
    model = Model(Prior.ridge(dim), Bernoulli())
    X, y = np.empty((n, dim)), np.empty(n)
    for t in range(n):
        arms = sphere(ARMS, dim, rng)
        draw = model.theta + model.observed @ rng.standard_normal(dim)
        X[t] = arms[np.argmax(arms @ draw)]
        y[t] = Bernoulli().sample(X[t] @ theta, rng)
        model.learn(X[t], float(y[t]))
    return Problem(X, y, theta)
