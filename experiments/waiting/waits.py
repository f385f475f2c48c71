"""How long a warm-up lasts that waits for λ_min(W), and how long one by the theorem would."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable

import numpy as np
import pandas as pd

from belated import environments, simulate
from belated.exceptions import DelayWarning
from belated.model.families import Bernoulli
from belated.theory.confidence import min_slope, noise, threshold, warmup_paper
from experiments.parallel import Rows, table_of
from experiments.waiting.policies import DELAYS, HORIZON, WAITS, WORLDS

DELTA = 0.05
#: The length of θ* in both problems.
NORM = 3.0


def waits(seeds: Iterable[int], jobs: int) -> pd.DataFrame:
    """Rounds before the first choice that is not uniform."""
    cells = list(itertools.product(WAITS, WORLDS, DELAYS, seeds))
    return table_of(measure, cells, jobs=jobs, unit="wait")


def measure(policy: str, environment: str, delay: str, seed: int) -> Rows:
    world = WORLDS[environment](seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DelayWarning)  # long delays are meant
        trace = simulate(WAITS[policy](world), world, DELAYS[delay], horizon=HORIZON, seed=seed)
    chosen = np.flatnonzero(trace.propensities > 1.5 / world.n_arms)
    rounds = int(chosen[0]) if len(chosen) else HORIZON
    cell = {"policy": policy, "environment": environment, "delay": delay, "seed": seed}
    return [cell | {"rounds": rounds}]


def literal(seeds: Iterable[int]) -> dict[str, tuple[float, float]]:
    """For each problem λ_min(Σ), the median over seeds, and the least that τ can be.

    The theorem's constants C₁ and C₂ are not given, and what is missing depends on the delay: all
    three are taken as 0.
    """
    dim = environments.fresh(0).dim
    rows = [np.asarray(environments.fixed(seed).contexts) for seed in seeds]
    least = {
        "fixed": float(np.median([np.linalg.eigvalsh(x.T @ x / len(x))[0] for x in rows])),
        "fresh": 1.0 / dim,  # rows on the unit sphere
    }
    family = Bernoulli()
    sigma, kappa = noise(family, NORM), min_slope(family, NORM)
    target = threshold(dim, delta=DELTA, sigma=sigma, kappa=kappa)
    none = {"missing": 0.0, "c1": 0.0, "c2": 0.0}
    return {
        world: (value, warmup_paper(dim, delta=DELTA, target=target, least=value, **none))
        for world, value in least.items()
    }
