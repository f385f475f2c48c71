"""Many seeds: what failed, and whether every fault occurred."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context

from tests.simulator.faults import FAULTS, SHARED_FAULTS
from tests.simulator.runs import run

#: Seeds handed to a process at a time.
_CHUNK = 20


@dataclass
class Sweep:
    """What many runs came to.

    Attributes:
        seeds: how many were run.
        seconds: of processor time, over all of them.
        failures: what was wrong, by seed.
        faults: how often each happened.
        shared: whether learners shared the partitions of a service.
    """

    seeds: int = 0
    seconds: float = 0.0
    failures: dict[int, str] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    shared: bool = False

    @property
    def never(self) -> list[str]:
        """The faults that did not happen in any run: such a sweep shows less than it seems to."""
        return [name for name in self._possible if not self.faults[name]]

    @property
    def _possible(self) -> tuple[str, ...]:
        return SHARED_FAULTS if self.shared else FAULTS

    def add(self, other: Sweep) -> None:
        """Take those of another sweep too."""
        self.seeds += other.seeds
        self.seconds += other.seconds
        self.failures |= other.failures
        self.faults += other.faults

    def __str__(self) -> str:
        table = [f"{name:36}{self.faults[name]:>9}" for name in self._possible]
        each = 1000 * self.seconds / max(1, self.seeds)
        last = f"{self.seeds} seeds, {each:.0f} ms each, {len(self.failures)} failed"
        return "\n".join([*self.failures.values(), *table, last])


def sweep(
    seeds: Iterable[int],
    *,
    jobs: int = 1,
    shared: bool = False,
    progress: Callable[[Sweep], object] | None = None,
) -> Sweep:
    """Run many seeds.

    Args:
        seeds: to run.
        jobs: in so many processes.
        shared: with a service whose learners share the partitions.
        progress: is told now and then how far it is.

    >>> done = sweep(range(3))
    >>> done.seeds, done.failures
    (3, {})
    """
    wanted = list(seeds)
    chunks = [wanted[n : n + _CHUNK] for n in range(0, len(wanted), _CHUNK)]
    total = Sweep(shared=shared)
    work = partial(some, shared=shared)
    if jobs == 1:
        for chunk in chunks:
            total.add(work(chunk))
            if progress is not None:
                progress(total)
        return total
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for part in pool.map(work, chunks):
            total.add(part)
            if progress is not None:
                progress(total)
    return total


def some(seeds: Iterable[int], *, shared: bool = False) -> Sweep:
    """Run some seeds, here."""
    done = Sweep()
    start = time.process_time()
    for seed in seeds:
        try:
            done.faults += run(seed, shared=shared).faults
        except Exception as error:
            where = "".join(traceback.format_tb(error.__traceback__)[-1:])
            done.failures[seed] = (
                f"{where}{type(error).__name__}: {error}\n{repeat(seed, shared=shared)}"
            )
        done.seeds += 1
    done.seconds = time.process_time() - start
    return done


def repeat(seed: int, *, shared: bool = False) -> str:
    """The command that repeats a run."""
    kind = "--shared " if shared else ""
    return f"repeat it with: python -m tests.simulator {kind}{seed}"
