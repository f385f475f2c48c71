"""Whether rows are such that a model can learn from them."""

from __future__ import annotations

import math

import numpy as np

from belated.advice.evidence import Evidence
from belated.families import Gaussian
from belated.inputs import Matrix, Vector

#: The lengths of rows, and the prior standard deviations of xᵀθ, that make sense.
SENSIBLE = (1e-2, 1e2)
#: Rows before anything is said of them; and so many, and some for each column, are enough to find
#: an intercept.
ENOUGH, PLENTY = 20, 400
#: A missing intercept is told from chance by so many standard errors, and must explain so much of
#: what is left of the rewards.
ERRORS, EXPLAINED = 6.0, 0.2


def scale(seen: Evidence) -> str | None:
    """Rows are so long or so short that the prior says nothing sensible about them.

    Columns with one value besides zero, as an intercept, say nothing of the scale of the others.
    """
    rows = np.abs(seen.rows.astype(np.float64))
    if len(rows) < ENOUGH:
        return None
    top = rows.max(axis=0)
    varies = ((rows != 0.0) & (rows != top)).any(axis=0)
    if varies.any():
        rows, top = rows[:, varies], top[varies]
    squares = np.square(rows).sum(axis=1)
    if not squares.any():
        return None
    length = math.sqrt(squares[squares > 0.0].mean())
    deviation = length / math.sqrt(seen.ridge)
    if any(SENSIBLE[0] <= size <= SENSIBLE[1] for size in (length, deviation)):
        return None
    effect = "is no prior at all" if deviation > 1.0 else "drowns what the rewards say"
    return (
        f"rows have a typical length of {length:.2g}, and their largest feature is {top.max():.3g}:"
        f" a prior precision of {seen.ridge:.2g} {effect}. Scale the features so that rows have a"
        " length of about 1 (belated.features.scaling_advice says how), or use"
        f" ridge={1 / length**2:.1g}"
    )


def intercept(seen: Evidence) -> str | None:
    """Rewards have a level that the rows cannot express, for they have no intercept.

    Rewards of 0 and 1 that are learned as Gaussian always have one. For all others a score test
    says whether a constant would explain much of what the model leaves.
    """
    which = seen.learned[seen.at]
    if seen.defaults and seen.window is not None:  # before its end only some are known
        which &= seen.age[seen.at] >= seen.window
    here = np.flatnonzero(which)
    here = here[Evidence.spread(len(here), PLENTY + 4 * seen.rows.shape[1])]
    rows, y = seen.rows[here].astype(np.float64), seen.value[seen.at[here]]
    if len(y) < max(ENOUGH, 4 * rows.shape[1]) or (y == y[0]).all() or has_intercept(rows):
        return None
    clicks = isinstance(seen.family, Gaussian) and np.isin(y, (0.0, 1.0)).all()
    if not clicks and not _needs_constant(seen, rows, y):
        return None
    what = "rewards of 0 and 1 are learned as Gaussian" if clicks else f"rewards are {y.mean():.3g}"
    how = "" if clicks else " on average"
    cure = ", use Bernoulli(), or subtract the mean reward" if clicks else ""
    return (
        f"{what}{how}, and the rows have no intercept to say so: add a column of ones"
        f" (intercept=True){cure}"
    )


def has_intercept(rows: Matrix) -> bool:
    """Whether some weighted sum of the columns is 1 everywhere.

    >>> has_intercept(np.eye(3)[[0, 1, 2, 0]]), has_intercept(np.array([[1.0], [2.0]]))
    (True, False)
    """
    if ((rows == rows[0]).all(axis=0) & (rows[0] != 0.0)).any():
        return True
    if not rows.any():
        return False
    ones = np.ones(len(rows))
    gram = rows.T @ rows
    weights = np.linalg.solve(gram + 1e-9 * gram.trace() * np.eye(len(gram)), ones @ rows)
    return bool(np.abs(rows @ weights - ones).max() <= 1e-3)


def _needs_constant(seen: Evidence, rows: Matrix, y: Vector) -> bool:
    """The score test of a constant beside the rows, at the fit without it."""
    size = math.sqrt(np.square(rows).sum() / len(rows))
    rows = rows / (size or 1.0)
    theta = np.zeros(rows.shape[1])
    little = 1e-2 * np.eye(len(theta))  # where rewards are all alike in some direction
    steps, longest = (1, math.inf) if isinstance(seen.family, Gaussian) else (6, 2.0)
    for _ in range(steps):
        _, mean, slope = seen.family.cumulant_mean_slope(rows @ theta)
        score = (y - mean) @ rows - little @ theta
        step = np.linalg.solve((rows.T * slope) @ rows + little, score)
        theta = theta + step * min(1.0, longest / (np.abs(step).max() or 1.0))
    _, mean, slope = seen.family.cumulant_mean_slope(rows @ theta)
    across = slope @ rows
    left = slope.sum() - across @ np.linalg.solve((rows.T * slope) @ rows + little, across)
    noise = np.mean(np.square(y - mean) / np.maximum(slope, 1e-12))
    squared = np.square((y - mean).sum()) / max(left * noise, 1e-300)
    return bool(squared > max(ERRORS**2, EXPLAINED * len(y)))
