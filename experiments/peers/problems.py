"""The problems as files: what ``belated.simulate`` would offer under a seed, for any library.

A file holds the whole of a run that does not depend on who chooses: what is offered each round, the
mean rewards, one uniform number a round, and the delays of every delay process. They come from the
same four streams of the seed as in ``simulate``, so a peer meets exactly what our policies meet.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

from belated import delays, environments
from belated.delays import DelayProcess
from belated.simulation.environments import GLM, Environment

HERE = Path(__file__).parent
HORIZON = 10_000

#: In ``ball`` every arm has a row of its own and all share one θ; in the others every arm has a θ
#: of its own and all share one context.
PROBLEMS: dict[str, Callable[[int], Environment]] = {
    "ball": environments.ball,
    "arms": environments.arms,
    "digits": environments.digits,
}

DELAYS: dict[str, DelayProcess] = {
    "0": delays.Constant(0),
    "geo100": delays.Geometric(mean=100),
    "geo1000": delays.Geometric(mean=1000),
    "lomax": delays.Lomax(shape=1.2, scale=100),
    "batch1000": delays.Batched(1000),
}


def write(problem: str, seed: int, horizon: int = HORIZON) -> Path:
    """The file of a problem, made unless it is there."""
    path = HERE / ".problems" / f"{problem}-{seed}-{horizon}.npz"
    if path.exists():
        return path
    world = PROBLEMS[problem](seed)
    contexts, luck, *_ = streams(seed)
    offered, means = [], []
    for rows, mean in world.rounds(horizon, contexts):
        # Rows in blocks repeat one context: the first block of the first row is all there is.
        shared = isinstance(world, GLM)
        offered.append((rows if shared else rows[0, : world.dim // len(rows)]).astype(np.float32))
        means.append(mean)
    path.parent.mkdir(exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}.npz")
    np.savez_compressed(
        unfinished,
        offered=np.array(offered),
        means=np.array(means),
        uniform=luck.random(horizon),
        **{name: delay.sample(horizon, streams(seed)[2]) for name, delay in DELAYS.items()},
    )
    return unfinished.replace(path)  # in one step: another may be looking for it


def streams(seed: int) -> list[np.random.Generator]:
    """Contexts, luck, delays and the policy's own draws, as ``simulate`` takes them."""
    return [np.random.default_rng(stream) for stream in np.random.SeedSequence(seed).spawn(4)]
