"""One run: a time in which anything may fail, then everything heals, and all must agree."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from belated.exceptions import BelatedWarning
from belated.kernels import page_kernels
from tests.simulator.cluster import Cluster
from tests.simulator.service_cluster import ServiceCluster
from tests.simulator.shared_cluster import SharedCluster
from tests.simulator.world import World


@dataclass(frozen=True)
class Result:
    """What a run came to.

    Attributes:
        seed: of the run.
        trace: names all that happened.
        digest: of the ledgers at the end.
        records: in the journal at the end.
        faults: how often each happened.
    """

    seed: int
    trace: str
    digest: str
    records: int
    faults: Counter[str]


def run(
    seed: int, listen: Callable[[str], object] | None = None, *, shared: bool = False
) -> Result:
    """Run one seed.

    Args:
        seed: draws the settings, the faults, and all that happens.
        listen: is given each line of the trace.
        shared: with a service whose learners share the partitions.

    Raises:
        Disagreement: something that must hold does not.

    >>> run(7) == run(7)
    True
    """
    page_kernels(wait=True)  # where there are any, pages are folded as columns
    world = World(seed, listen, shared=shared)
    with warnings.catch_warnings():
        # Snapshots that were discarded are counted, and what it plants may well hurt users.
        warnings.simplefilter("ignore", BelatedWarning)
        town = cluster_of(world)
        try:
            town.live()
            town.heal()
            digest = town.agree()
        finally:
            town.end()
    return Result(
        seed,
        world.trace,
        digest,
        sum(len(world.store.records(p)) for p in range(world.knobs.partitions)),
        world.faults.counts,
    )


def cluster_of(world: World) -> Cluster:
    """Return those who live in a world: with a service, or with bandits in their processes."""
    if world.knobs.shared:
        return SharedCluster(world)
    return ServiceCluster(world) if world.knobs.served else Cluster(world)
