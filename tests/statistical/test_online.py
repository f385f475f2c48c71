"""How far Online ends from the maximum of the posterior, and how much the order matters.

Logistic rewards, prior N(0, I), rows of length 1, drawn at random or chosen as by Thompson
sampling. A difference δ of two estimates is measured in posterior standard deviations, by H of the
Laplace fit, in three norms:

* ``typical``: √(δᵀHδ/d), the root mean square over all directions;
* ``coordinate``: max_j |δ_j|/sd(θ_j), the worst coordinate;
* ``direction``: √(δᵀHδ) = max_x |xᵀδ|/sd(xᵀθ), the worst direction there is.

``python -m tests.statistical.test_online`` prints the table.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from belated import Bernoulli
from belated.core.inputs import Matrix, Vector
from belated.model.estimators import Estimate, Laplace, Online
from belated.model.priors import Prior
from tests.statistical.problems import Design, bandit_like, independent

NORMS = ("typical", "coordinate", "direction")
CASES = [
    (design, size, dim, n)
    for design in (independent, bandit_like)
    for size in (1.0, 3.0)
    for dim in (5, 10, 20)
    for n in (100, 300, 1000)
]
IDS = [f"{design.__name__}-{size:g}-{dim}-{n}" for design, size, dim, n in CASES]
#: In posterior standard deviations.
BOUND = 0.3


def norms(delta: Vector, estimate: Estimate) -> tuple[float, float, float]:
    """The three norms of a difference."""
    length = math.sqrt(delta @ estimate.precision @ delta)
    deviations = np.sqrt(np.diag(estimate.covariance))
    return length / math.sqrt(len(delta)), float(np.abs(delta / deviations).max()), length


@cache
def distances(design: Design, size: float, dim: int, n: int, full: bool) -> tuple[Matrix, Matrix]:
    """To the maximum, and between orders: a row for each comparison, a column for each norm."""
    to_maximum, between = [], []
    prior = Prior.ridge(dim)
    for k in range(60 if full else 10):
        rng = np.random.default_rng([dim, n, int(size), k])
        problem = design(dim, n, size, rng)
        maximum = Laplace().fit(problem.seen(), family=Bernoulli(), prior=prior)
        orders = [np.arange(n), *(rng.permutation(n) for _ in range(4))]
        thetas = [
            Online().fit(problem.seen(order), family=Bernoulli(), prior=prior).theta
            for order in orders
        ]
        to_maximum += [norms(theta - maximum.theta, maximum) for theta in thetas]
        between += [norms(a - b, maximum) for i, a in enumerate(thetas) for b in thetas[:i]]
    return np.array(to_maximum), np.array(between)


def line(design: Design, size: float, dim: int, n: int, full: bool) -> str:
    """A line of the table: mean and maximum of each norm."""
    tables = distances(design, size, dim, n, full)
    cells = [f"{t[:, i].mean():.2f} {t[:, i].max():.2f}" for t in tables for i in range(len(NORMS))]
    return f"{design.__name__:12}{size:4.0f}{dim:4}{n:6} | " + " | ".join(cells)


@pytest.mark.parametrize(("design", "size", "dim", "n"), CASES, ids=IDS)
def test_online_ends_near_the_maximum_on_average(
    design: Design, size: float, dim: int, n: int, full: bool
) -> None:
    """Over data sets and orders, the typical and the worst coordinate's distance are below .3."""
    to_maximum, _ = distances(design, size, dim, n, full)
    print("\n" + line(design, size, dim, n, full))
    typical, coordinate, _ = to_maximum.mean(axis=0)
    assert typical <= BOUND
    assert coordinate <= BOUND


@pytest.mark.parametrize(("design", "size", "dim", "n"), CASES, ids=IDS)
def test_the_order_of_rewards_moves_online_little_on_average(
    design: Design, size: float, dim: int, n: int, full: bool
) -> None:
    """Between random orders .3 holds on average, even in the worst direction."""
    _, between = distances(design, size, dim, n, full)
    assert between.mean(axis=0).max() <= BOUND


@pytest.mark.parametrize(("design", "size", "dim", "n"), CASES, ids=IDS)
def test_no_data_set_takes_online_a_deviation_away(
    design: Design, size: float, dim: int, n: int, full: bool
) -> None:
    """In no data set and order is any coordinate a whole posterior deviation from the maximum."""
    to_maximum, _ = distances(design, size, dim, n, full)
    assert to_maximum[:, 1].max() < 1.0


if __name__ == "__main__":
    heading = " | ".join(f"{name:9}" for name in NORMS)
    print(f"{'design':12}|θ*|   d     n | to the maximum: {heading} | between orders: mean, max")
    for case in CASES:
        print(line(*case, full=True))
