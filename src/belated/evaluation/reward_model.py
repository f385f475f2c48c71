"""A model of the rewards, fitted on folds: it makes off-policy values less noisy, never biased."""

from __future__ import annotations

import numpy as np

from belated.core.inputs import Matrix, Vector
from belated.evaluation.offers import Offers
from belated.model.families import Family

#: Folds: what a decision is predicted with was not fitted to it.
FOLDS = 5
#: Precision of the prior, steps of Newton's method, and the longest step on the linear predictor.
RIDGE, STEPS, LONGEST = 1.0, 8, 4.0


def cross_fitted(
    offers: Offers, outcome: Vector, weight: Vector, family: Family, seed: int = 0
) -> Vector:
    """Return the predicted mean of every row, each by a model that did not see its decision.

    Args:
        offers: of the decisions.
        outcome: what the chosen row of each came to; may be anything where its weight is 0.
        weight: how much each counts.
        family: of the rewards.
        seed: of the folds.
    """
    fold = np.random.default_rng(seed).integers(FOLDS, size=len(offers))
    chosen = offers.rows[offers.chosen].astype(np.float64)
    means = np.empty(len(offers.rows))
    outcome = np.where(weight > 0.0, outcome, 0.0)
    row_fold = np.repeat(fold, offers.counts)
    for one in range(FOLDS):
        others = (fold != one) & (weight > 0.0)
        theta = fitted(chosen[others], outcome[others], weight[others], family)
        here = row_fold == one
        means[here] = family.mean(offers.rows[here].astype(np.float64) @ theta)
    return means


def fitted(rows: Matrix, outcome: Vector, weight: Vector, family: Family) -> Vector:
    """The coefficients of a weighted fit."""
    theta = np.zeros(rows.shape[1])
    ridge = RIDGE * np.eye(len(theta))
    for _ in range(STEPS):
        _, mean, slope = family.cumulant_mean_slope(rows @ theta)
        score = rows.T @ (weight * (outcome - mean)) - RIDGE * theta
        step = np.linalg.solve((rows.T * (weight * slope)) @ rows + ridge, score)
        moved = float(np.abs(rows @ step).max(initial=0.0)) if family.number else 0.0
        theta = theta + step * min(1.0, LONGEST / max(moved, LONGEST))
    return theta
