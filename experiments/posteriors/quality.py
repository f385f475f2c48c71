"""The posteriors that estimators give, against the exact one, on one data set.

The exact one is a long Pólya–Gamma Gibbs run. Two measures, both in percent:

* ``error``, of the mean: root mean square over coordinates, in posterior standard deviations;
* ``variation``, the total variation between the probabilities with which draws from the two
  posteriors choose each of ten fresh rows, averaged over ten such choices: what a policy that
  samples would notice.

Draws have noise of their own. The rows named ``noise`` have half the difference between what the
even and the odd draws say of Laplace, which is as large as the noise of all of them together: of
the others, what is not above it is not there.
"""

from __future__ import annotations

import numpy as np

from belated import Bernoulli
from belated.core.inputs import Matrix, Vector
from belated.model.blocks import root_of
from belated.model.estimators import Laplace, Online
from belated.model.priors import Prior
from experiments.parallel import Rows
from experiments.posteriors.cases import CASES
from tests.statistical.polya_gamma import posterior_draws
from tests.statistical.problems import ARMS, bandit_like, sphere

NOISE = "noise"
ESTIMATORS = {
    "Laplace": Laplace(),
    "Laplace, mean corrected": Laplace(mean_correction=True),
    "Online": Online(),
}
#: Even, so that even and odd draws are of different chains.
CHAINS = 100
#: Draws of the normals that are compared; they are cheap.
DRAWS = 100_000
#: Sets of rows to choose from.
CHOICES = 10


def measure(name: str, seed: int) -> Rows:
    """The error and the variation of each estimator, and the noise in both."""
    case = CASES[name]
    rng = np.random.default_rng([case.dim, case.n, seed])
    problem = bandit_like(case.dim, case.n, case.norm, rng)
    prior = Prior.ridge(case.dim, case.ridge)
    exact = posterior_draws(
        problem.X, problem.y, prior, rng, chains=CHAINS, burn_in=case.burn_in, sweeps=case.sweeps
    )
    arms = np.stack([sphere(ARMS, case.dim, rng) for _ in range(CHOICES)])
    normal = rng.standard_normal((DRAWS, case.dim))
    mean, deviation, shares = exact.mean(axis=0), exact.std(axis=0), chosen(exact, arms)
    results = []
    for method, estimator in ESTIMATORS.items():
        estimate = estimator.fit(problem.seen(), family=Bernoulli(), prior=prior)
        draws = estimate.mean + normal @ root_of(estimate.precision).T
        off = chosen(draws, arms) - shares
        results.append((method, error(estimate.mean - mean, deviation), variation(off)))
        if method == "Laplace":
            halves = [chosen(draws[i::2], arms) - chosen(exact[i::2], arms) for i in (0, 1)]
            apart = exact[::2].mean(axis=0) - exact[1::2].mean(axis=0)
            noise = error(0.5 * apart, deviation), variation(0.5 * (halves[0] - halves[1]))
    results.append((NOISE, *noise))
    return [
        {"case": name, "seed": seed, "method": method, "error": off, "variation": varied}
        for method, off, varied in results
    ]


def chosen(draws: Matrix, arms: Matrix) -> Matrix:
    """For each set of rows, the share of draws that choose each of them."""
    best = (np.argmax(draws @ rows.T, axis=1) for rows in arms)
    return np.stack([np.bincount(index, minlength=ARMS) / len(draws) for index in best])


def error(off: Vector, deviation: Vector) -> float:
    """Root mean square in deviations, in percent."""
    return 100.0 * float(np.sqrt(np.mean(np.square(off / deviation))))


def variation(off: Matrix) -> float:
    """Half the sum of differences between shares, averaged over sets of rows, in percent."""
    return 50.0 * float(np.abs(off).sum(axis=1).mean())
