"""One base case, and what is varied around it one at a time.

The base case: 10 features, 20 actions, 10,000 rounds, geometric delays of mean 100. The policy
knows nothing of the horizon, so a run of 30,000 rounds is one of 10,000 on its way.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from belated import delays, environments
from belated.delays import DelayProcess
from belated.simulation.environments import Environment
from experiments.regret.policies import POLICIES

#: One object for all problems: the default.
POLICY = {"DelayedUCB": POLICIES["DelayedUCB"]}

HORIZON, LONG = 10_000, 30_000
#: Where the regret of a long run is recorded.
ROUNDS = (1_000, 2_000, 3_000, 5_000, HORIZON, 20_000, LONG)
DIM, N_ARMS = 10, 20
DIMS = (5, 10, 20, 40)
ARMS = (5, 10, 20, 50, 100)
#: Of geometric delays; 0 is no delay.
MEANS = (0, 30, 100, 300, 1_000, 3_000)
BASE = "geo100"
#: Of Lomax delays, from light to heavy: the variance is infinite up to 2, the mean up to 1.
SHAPES = (3.0, 2.0, 1.5, 1.2, 0.8)

WORLDS = {"fixed": environments.fixed, "fresh": environments.fresh}


def with_dim(world: str, dim: int) -> str:
    """The name of a problem with so many features."""
    return world if dim == DIM else f"{world} d{dim}"


def with_arms(world: str, n_arms: int) -> str:
    """The name of a problem with so many actions."""
    return world if n_arms == N_ARMS else f"{world} K{n_arms}"


def with_mean(mean: int) -> str:
    """The name of a geometric delay."""
    return f"geo{mean}" if mean else "0"


def with_shape(shape: float) -> str:
    """The name of a Lomax delay."""
    return f"lomax{shape:g}"


#: Problems of other sizes than the base case.
SIZES: dict[str, Callable[[int], Environment]] = {
    **{
        with_dim(name, dim): partial(make, dim=dim) for name, make in WORLDS.items() for dim in DIMS
    },
    **{
        with_arms(name, n_arms): partial(make, n_arms=n_arms)
        for name, make in WORLDS.items()
        for n_arms in ARMS
    },
}
for _base in WORLDS:
    del SIZES[_base]

GEOMETRIC: dict[str, DelayProcess] = {
    with_mean(mean): delays.Geometric(mean=mean) if mean else delays.Constant(0) for mean in MEANS
}
#: Half of the delays of the base case are above it, and half of every Lomax delay.
MEDIAN = int(delays.Geometric(mean=100).quantile(0.5))
LOMAX: dict[str, DelayProcess] = {
    with_shape(shape): delays.Lomax(shape=shape, scale=MEDIAN / (2.0 ** (1.0 / shape) - 1.0))
    for shape in SHAPES
}
