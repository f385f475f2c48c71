"""Data and priors for tests of estimators."""

from __future__ import annotations

import numpy as np

from belated.core.inputs import Matrix, Vector
from belated.model.priors import Prior
from belated.model.statistics import Observations


def seen_of(rows: Matrix, y: Vector) -> Observations:
    """Rows with their rewards."""
    seen = Observations(rows.shape[1])
    seen.extend(rows, y)
    return seen


def some_prior(dim: int) -> Prior:
    """One that is not at zero, and not round."""
    rng = np.random.default_rng(9)
    data = rng.normal(size=(dim, dim))
    return Prior.normal(rng.normal(size=dim), np.eye(dim) + data @ data.T)
