"""The normal that Laplace fits, against the exact posterior of logistic rewards.

The exact posterior is a long Pólya–Gamma Gibbs run (:mod:`tests.statistical.polya_gamma`). Prior
N(0, I), rows of length 1 chosen by Thompson sampling among ten fresh ones, |θ*| = 3. Two measures,
each averaged over data sets:

* the total variation between the shares of posterior draws for which each of ten fresh arms is the
  best, averaged over ten such sets of arms: what a policy that samples would notice;
* the error of the mean: root mean square over coordinates, in posterior standard deviations.

Nothing is subtracted for the noise of the draws. :attr:`Quality.floor` measures it: the variation
between two halves of the Gibbs draws, each a little noisier than what is compared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from belated import Bernoulli
from belated.core.inputs import Matrix, Vector
from belated.model.blocks import root_of
from belated.model.estimators import Laplace
from belated.model.priors import Prior
from tests.statistical.polya_gamma import posterior_draws
from tests.statistical.problems import ARMS, bandit_like, sphere

#: Draws of the normal that is compared; they are cheap.
NORMAL_DRAWS = 100_000


@dataclass(frozen=True)
class Quality:
    """Averages over data sets; ``corrected`` is with mean_correction, ``wide`` a fifth too wide."""

    variation: float
    corrected_variation: float
    wide_variation: float
    floor: float
    error: float
    corrected_error: float


def shares(draws: Matrix, arms: Matrix) -> Matrix:
    """For each set of arms, the share of draws for which each arm is the best."""
    best = np.argmax(draws @ arms.transpose(0, 2, 1), axis=2)
    return np.stack([np.bincount(row, minlength=ARMS) / len(draws) for row in best])


def variation(first: Matrix, second: Matrix) -> float:
    """Total variation, averaged over sets of arms."""
    return 0.5 * float(np.abs(first - second).sum(axis=1).mean())


@cache
def quality(dim: int, n: int, sets: int, sweeps: int) -> Quality:
    """The quality of Laplace, averaged over ``sets`` data sets."""
    rows = [_quality(dim, n, sweeps, np.random.default_rng([dim, n, k])) for k in range(sets)]
    result = Quality(*np.mean(rows, axis=0).tolist())
    print(f"\nd={dim} n={n}, {sets} data sets, {100 * sweeps} Gibbs draws each: {result}")
    return result


def _quality(dim: int, n: int, sweeps: int, rng: np.random.Generator) -> Vector:
    problem = bandit_like(dim, n, 3.0, rng)
    prior = Prior.ridge(dim)
    exact = posterior_draws(
        problem.X, problem.y, prior, rng, chains=100, burn_in=100, sweeps=sweeps
    )
    plain = Laplace().fit(problem.seen(), family=Bernoulli(), prior=prior)
    corrected = Laplace(mean_correction=True).fit(problem.seen(), family=Bernoulli(), prior=prior)
    arms = np.stack([sphere(ARMS, dim, rng) for _ in range(10)])
    expected = shares(exact, arms)
    spread = rng.standard_normal((NORMAL_DRAWS, dim)) @ root_of(plain.precision).T
    half = len(exact) // 2
    scale = exact.std(axis=0)
    centre = exact.mean(axis=0)
    return np.array(
        [
            variation(shares(plain.mean + spread, arms), expected),
            variation(shares(corrected.mean + spread, arms), expected),
            variation(shares(plain.mean + 1.2 * spread, arms), expected),
            variation(shares(exact[:half], arms), shares(exact[half:], arms)),
            math.sqrt(np.mean(np.square((plain.mean - centre) / scale))),
            math.sqrt(np.mean(np.square((corrected.mean - centre) / scale))),
        ]
    )


def size(dim: int, n: int, full: bool) -> Quality:
    """The study of a case, at the size asked for."""
    if n >= 1000:
        return quality(dim, n, 5, 400) if full else quality(dim, n, 1, 100)
    return quality(dim, n, 20, 400) if full else quality(dim, n, 4, 300)


@pytest.mark.parametrize(("dim", "n"), [(5, 100), (20, 100), (20, 1000)])
def test_laplace_chooses_arms_as_the_exact_posterior_does(dim: int, n: int, full: bool) -> None:
    """Total variation of the arm chosen at most .03 on average, from n = 100 at ridge 1."""
    assert size(dim, n, full).variation <= 0.03


@pytest.mark.parametrize(("dim", "n"), [(5, 20), (5, 100), (20, 100), (20, 1000)])
def test_the_draws_are_many_enough_to_tell_total_variations_of_03(
    dim: int, n: int, full: bool
) -> None:
    """Halves of the exact draws differ by at most .02; a normal a fifth too wide is beyond .03."""
    result = size(dim, n, full)
    assert result.floor <= 0.02
    assert result.wide_variation > 0.03


@pytest.mark.parametrize(("dim", "n"), [(5, 20), (20, 100)])
def test_the_corrected_mean_is_the_posterior_mean(dim: int, n: int, full: bool) -> None:
    """Root mean square error at most .05 posterior standard deviations on average."""
    assert size(dim, n, full).corrected_error <= 0.05


@pytest.mark.parametrize(("dim", "n"), [(5, 20), (5, 100), (20, 100)])
def test_the_correction_brings_the_mean_nearer(dim: int, n: int, full: bool) -> None:
    """The corrected mean has less than half the error of the maximum, on the same data sets."""
    result = size(dim, n, full)
    assert result.corrected_error < 0.5 * result.error


def test_the_correction_brings_the_choice_of_arms_nearer_where_rewards_are_few(full: bool) -> None:
    """With d = 5 and n = 20 the total variation is smaller with the corrected mean."""
    result = size(5, 20, full)
    assert result.corrected_variation < result.variation
