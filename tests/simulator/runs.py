"""Runs: anything may fail, then everything heals, and all must agree. One seed, or many."""

from __future__ import annotations

import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from unittest import mock

from belated.exceptions import BelatedWarning
from belated.fold import columns as learner_columns
from belated.journals import pages as journal_pages
from tests.simulator.checks import PAGES
from tests.simulator.embedded import Cluster
from tests.simulator.faults import FAULTS, SHARED_FAULTS
from tests.simulator.service import ServiceCluster
from tests.simulator.shared import SharedCluster
from tests.simulator.world import World

#: Seeds handed to a process at a time.
_CHUNK = 20


@dataclass(frozen=True)
class Result:
    """The result of a run.

    Attributes:
        seed: of the run.
        trace: digest of all that happened.
        digest: of the ledgers at the end.
        records: in the journal at the end.
        faults: how often each occurred.
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
        listen: receives each line of the trace.
        shared: with a service whose learners share the partitions.

    Raises:
        Disagreement: something that must hold does not.

    >>> run(7) == run(7)
    True
    """
    world = World(seed, listen, shared=shared)
    kind: type[Cluster] = ServiceCluster if world.settings.served else Cluster
    kernels = mock.Mock(return_value=PAGES if world.settings.paged else None)
    with (
        # Compiled kernels arrive at any time, and a run is to be its seed.
        mock.patch.object(learner_columns, "page_kernels", kernels),
        mock.patch.object(journal_pages, "page_kernels", kernels),
        warnings.catch_warnings(),
    ):
        # Discarded snapshots are counted, and the faults are bound to raise advice.
        warnings.simplefilter("ignore", BelatedWarning)
        cluster = (SharedCluster if shared else kind)(world)
        try:
            cluster.run()
            cluster.heal()
            digest = cluster.check()
        finally:
            cluster.end()
    return Result(seed, world.trace, digest, sum(map(len, world.records)), world.faults.counts)


@dataclass
class Sweep:
    """The results of many runs.

    Attributes:
        seeds: how many were run.
        seconds: of CPU time, over all of them.
        failures: what was wrong, by seed.
        faults: how often each occurred.
        shared: whether learners shared the partitions of a service.
    """

    seeds: int = 0
    seconds: float = 0.0
    failures: dict[int, str] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    shared: bool = False

    @property
    def never(self) -> list[str]:
        """The faults that did not occur in any run: the sweep shows less than it seems to."""
        return [name for name in self._possible if not self.faults[name]]

    @property
    def _possible(self) -> tuple[str, ...]:
        return SHARED_FAULTS if self.shared else FAULTS

    def add(self, other: Sweep) -> None:
        """Add the runs of another sweep."""
        self.seeds += other.seeds
        self.seconds += other.seconds
        self.failures |= other.failures
        self.faults += other.faults

    def __str__(self) -> str:
        table = [f"{name:36}{self.faults[name]:>9}" for name in self._possible]
        milliseconds = 1000 * self.seconds / max(1, self.seeds)
        summary = f"{self.seeds} seeds, {milliseconds:.0f} ms each, {len(self.failures)} failed"
        return "\n".join([*self.failures.values(), *table, summary])


def sweep(
    seeds: Iterable[int],
    *,
    jobs: int = 1,
    shared: bool = False,
    progress: Callable[[Sweep], object] = lambda result: None,
) -> Sweep:
    """Run many seeds.

    Args:
        seeds: to run.
        jobs: number of processes.
        shared: with a service whose learners share the partitions.
        progress: called with the runs so far.

    >>> result = sweep(range(3))
    >>> result.seeds, result.failures
    (3, {})
    """
    seed_list = list(seeds)
    chunks = [seed_list[n : n + _CHUNK] for n in range(0, len(seed_list), _CHUNK)]
    total = Sweep(shared=shared)
    work = partial(_run_all, shared=shared)
    if jobs == 1:
        for chunk in chunks:
            total.add(work(chunk))
            progress(total)
        return total
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for part in pool.map(work, chunks):
            total.add(part)
            progress(total)
    return total


def _run_all(seeds: Iterable[int], *, shared: bool) -> Sweep:
    result = Sweep()
    start = time.process_time()
    for seed in seeds:
        try:
            result.faults += run(seed, shared=shared).faults
        except Exception as error:
            location = "".join(traceback.format_tb(error.__traceback__)[-1:])
            command = f"python -m tests.simulator {'--shared ' if shared else ''}{seed}"
            message = f"{location}{type(error).__name__}: {error}\nrepeat it with: {command}"
            result.failures[seed] = message
        result.seeds += 1
    result.seconds = time.process_time() - start
    return result
