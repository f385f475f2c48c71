"""A model together with the sums its roots come from, as a learner keeps them."""

from __future__ import annotations

import warnings

import numpy as np

from belated.core.inputs import Matrix, Vector
from belated.model.estimators import Laplace
from belated.model.families import Family
from belated.model.kernels import Kernels
from belated.model.model import Model
from belated.model.priors import Prior
from belated.model.statistics import Information, Observations


class Kept:
    """A model whose roots are renewed as its documentation asks.

    A decision is named by the number :meth:`add_pending` returns. Sums are made from the decisions
    that are left, so that nothing is lost when a long row is taken out of them.
    """

    def __init__(self, prior: Prior, family: Family, using: Kernels | None = None) -> None:
        self.prior = prior
        self.model = Model(prior, family, kernels=using)
        self.rows: dict[int, Vector] = {}
        self.frozen: dict[int, float] = {}
        self.learned: dict[int, float] = {}
        self.rewards: dict[int, float] = {}
        self._next = 0
        self._steps = 0

    def weight(self, x: Vector) -> float:
        """The information of a row at its linear predictor, as it is frozen at the choice."""
        return self.model.argmax_ucb(x[None, :], 0.0)[3]

    def add_pending(self, x: Vector) -> int:
        """A decision for this row."""
        name = self._next
        self._next += 1
        self.rows[name] = x
        self.frozen[name] = self.weight(x)
        self.model.add_pending(x, self.frozen[name])
        self._stepped()
        return name

    def learn(self, name: int, y: float) -> None:
        """Its reward came."""
        self.learned[name] = self.model.learn(self.rows[name], y)
        self.rewards[name] = y
        self._stepped()

    def retract(self, name: int) -> None:
        """Its reward is taken back."""
        y, weight = self.rewards.pop(name), self.learned.pop(name)
        if self.model.retract(self.rows[name], y, weight):
            self._stepped()
        else:
            self._fit()
            self.renew()

    def revise(self, name: int, y: float) -> None:
        """Its reward is another."""
        self.model.revise(self.rows[name], self.rewards[name], y)
        self.rewards[name] = y
        self._stepped()

    def remove_pending(self, name: int) -> None:
        """It is left without a reward."""
        if self.model.remove_pending(self.rows.pop(name), self.frozen.pop(name)):
            self._stepped()
        else:
            self.renew()

    def renew(self) -> None:
        """Both roots from their sums."""
        self.model.renew(self._sum(self.learned), self._sum(self.frozen))
        self._steps = 0

    def _fit(self) -> None:
        observations = Observations(self.prior.dim)
        for name, y in self.rewards.items():
            observations.add(self.rows[name], y)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            estimate = Laplace().fit(observations, family=self.model.family, prior=self.prior)
        self.model.restart(estimate.theta, estimate.dispersion)

    def _sum(self, weights: dict[int, float]) -> Matrix:
        if not weights:
            return self.prior.precision
        rows = np.array([self.rows[name] for name in weights])
        return self.prior.precision + Information.of(rows, list(weights.values())).matrix

    def _stepped(self) -> None:
        self._steps += 1
        if self._steps >= max(1000, 10 * self.prior.dim):
            self.renew()
