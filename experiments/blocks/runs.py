"""One bandit on one problem, with frozen rows or with all rows, compared with the full fit.

A cheap driver stands in for the service: decisions are made in batches that grow by a fifth, each
with the default policy's upper bounds on the model at its start, among four new rows; their rewards
arrive together and are learned in bulk. Learner, freezing and fits are the real ones. By default,
every decision is forgotten once its reward has arrived, so that no frozen row can be frozen again:
the worst case.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from belated import Bernoulli, DelayedUCB, Poisson
from belated.core.inputs import Matrix, Row, Vector
from belated.core.tuning import Tuning
from belated.fold.learner import Learner
from belated.model.estimators import Laplace, newton_step
from belated.model.families import Family
from belated.model.statistics import Observations, Quadratic, quadratic_at

#: Rows on offer in each round.
ACTIONS = 4
#: Length of θ by family.
FAMILIES: dict[str, tuple[Family, float]] = {
    "bernoulli": (Bernoulli(), 3.0),
    "poisson": (Poisson(), 1.5),
}
#: Number of exact rows if none are to be frozen.
ALL = 10**12


class Run(NamedTuple):
    """The results of a run.

    Attributes:
        regret: Σ of the expected reward of the best row less that of the chosen one.
        off: the worst coordinate of the estimate, in posterior deviations from the full fit.
        step: the same for one Newton step from the second-last model, summed over all partitions.
        precision: the largest relative error of the precision, in any direction.
        rows: the number of exact rows at the end.
    """

    regret: float
    off: float
    step: float
    precision: float
    rows: int


def batches(rewards: int) -> Iterator[int]:
    """Yield the batch sizes."""
    total = 0
    while total < rewards:
        size = min(max(100, total // 5), rewards - total)
        total += size
        yield size


def drawn(seed: int, batch: int, size: int, dim: int) -> Row:
    """Return the rows on offer, of length 1."""
    rng = np.random.default_rng([seed, batch, 0])
    rows = rng.standard_normal((size, ACTIONS, dim), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    return rows


def run(
    name: str,
    dim: int,
    partitions: int,
    seed: int,
    rewards: int,
    exact: int,
    *,
    remembered: bool = False,
    changes: bool = False,
) -> Run:
    """Run a bandit.

    Args:
        name: the family.
        dim: the number of features.
        partitions: the number of partitions.
        seed: the random seed.
        rewards: the number of rewards.
        exact: the number of rows counted one by one.
        remembered: whether decisions are remembered for the whole run, so that rows can be frozen
            again.
        changes: whether θ changes after half of the rewards.
    """
    family, length = FAMILIES[name]
    thetas = np.random.default_rng([seed, 10**6]).standard_normal((2, dim))
    thetas *= length / np.linalg.norm(thetas, axis=1, keepdims=True)
    policy = DelayedUCB(dim, family)
    tuning = Tuning(exact=exact, block=min(8_192, max(1, exact // 12)))
    learner = Learner(policy, partitions=partitions, tuning=tuning)
    observations, regret, published = Observations(dim), 0.0, np.zeros(dim)
    for batch, size in enumerate(batches(rewards)):
        theta = thetas[int(changes and observations.n >= rewards // 2)]
        offered = drawn(seed, batch, size, dim)
        x = chosen(learner, offered)
        means = family.mean(offered @ theta)
        regret += float((means.max(axis=1) - family.mean(x @ theta)).sum())
        y = family.sample(x @ theta, np.random.default_rng([seed, batch, 1]))
        observations.extend(x, y)
        published = learner.model.theta.copy()
        learn(learner, x, y, np.random.default_rng([seed, batch, 2]), remembered)
    full = Laplace().fit(observations, family=family, prior=policy.start, start=learner.model.theta)
    estimate, total = learner.estimate, Quadratic.zero(dim)
    for store in learner.observations:
        total += quadratic_at(store, family, published)
    step = newton_step(total, family=family, prior=policy.start)
    deviations = np.sqrt(np.diag(full.covariance))
    ratios = np.linalg.eigvals(np.linalg.solve(full.precision, estimate.precision)).real
    return Run(
        regret,
        float(np.abs((estimate.theta - full.theta) / deviations).max()),
        float(np.abs((step.theta - full.theta) / deviations).max()),
        float(np.abs(ratios - 1.0).max()),
        sum(store.exact for store in learner.observations),
    )


def chosen(learner: Learner, offered: Row) -> Matrix:
    """Return the rows with the greatest upper bounds."""
    size, actions, dim = offered.shape
    x, width = np.empty((size, dim)), learner.policy.width(learner.model)  # type: ignore[attr-defined]
    for start in range(0, size, 2_000):
        part = offered[start : start + 2_000].astype(np.float64)
        means, deviations = learner.model.score(part.reshape(-1, dim))
        best = (means + width * deviations).reshape(-1, actions).argmax(axis=1)
        x[start : start + 2_000] = part[np.arange(len(part)), best]
    return x


def learn(
    learner: Learner, x: Matrix, y: Vector, rng: np.random.Generator, remembered: bool
) -> None:
    """Learn all rewards at once, each in a random partition."""
    partitions = len(learner.observations)
    where = rng.integers(partitions, size=len(y))
    nothing = np.empty((0, x.shape[1]), np.float32), np.empty(0), np.empty(0, np.int64)
    with learner.bulk():
        for partition in range(partitions):
            here = where == partition
            rows, times = x[here].astype(np.float32), np.zeros(int(here.sum()), np.int64)
            arrivals, old = (rows, np.zeros(len(rows)), times), np.zeros(len(rows), np.bool_)
            first = learner.next_handle(partition)
            for handle in range(first, first + (0 if remembered else len(rows))):
                learner.forget(handle, partition)
            learner.learn_page(len(rows), nothing, arrivals, (y[here], times), old, partition)
