"""Online estimation: a single step per observation, for any family."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from belated.core.inputs import Vector
from belated.model.blocks import Shape
from belated.model.estimators.estimate import Estimate
from belated.model.estimators.laplace import check_shape, newton_step
from belated.model.families import Family
from belated.model.model import Model
from belated.model.priors import Prior
from belated.model.statistics import Information, Seen


@dataclass(frozen=True)
class Online:
    """Online estimation by the model's rank-one steps, without fits of all observations.

    An observation takes O(d²) time and is not stored, which suits streams that are too long to
    store. The estimate depends on the order of arrival. With ridge 1 and at least 100 observations,
    it is on average within 0.3 posterior standard deviations of the maximum (root mean square over
    coordinates), and occasionally up to 0.8 away in one coordinate (see
    ``tests/statistical/test_online.py``). With a weak prior or strong effects it can be far off. An
    automatic ridge keeps its initial value of 1.

    >>> from belated import Bernoulli
    >>> from belated.model.statistics import Observations
    >>> seen = Observations(1)
    >>> handles = seen.extend([[1.0], [1.0], [1.0]], [1.0, 1.0, 0.0])
    >>> Online().fit(seen, family=Bernoulli(), prior=Prior.ridge(1)).theta.round(2)
    array([0.28])
    """

    def next_fit(self, n: int, shape: Shape) -> float:
        """Return infinity, because no further fit is ever due."""
        return math.inf

    def fit(
        self,
        data: Seen,
        *,
        family: Family,
        prior: Prior,
        start: Vector | None = None,
        polish: bool = True,
    ) -> Estimate:
        """Take one step per observation in order of arrival, starting from the frozen rows."""
        check_shape(data, prior)
        model, precision = Model(prior, family), prior.precision
        if (frozen := data.frozen) is not None:
            before = newton_step(frozen, family=family, prior=replace(prior, adaptive=False))
            model, precision = before.model(family), before.precision
        size = max(1000, 10 * prior.dim)
        for rows, y, counted in data.chunks(size):
            chosen = range(len(rows)) if counted is None else np.flatnonzero(counted)
            weights = [model.learn(rows[i], float(y[i])) for i in chosen]
            precision = precision + Information.of(rows[chosen], weights, data.shape).matrix
            model.renew(precision, precision)
        theta = model.theta
        return Estimate(theta, theta, precision, model.n, False, 1, prior, model.dispersion)
