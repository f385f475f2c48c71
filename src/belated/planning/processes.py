"""What other processes take: CPU of servers on this machine, memory of a child."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from belated import kernels
from belated.events import Decision, Record
from belated.exceptions import InvalidInput, MissingExtra
from belated.ids import new_id
from belated.learner import Fold
from belated.policies import Policy
from belated.rewards import Explicit

#: Decisions whose memory is measured.
REMEMBERED = 100_000
#: Seconds to wait for a child process.
PATIENCE = 120.0


class ServerProcesses:
    """The CPU of servers on this machine, and of the processes they have started; on Linux.

    Args:
        pids: Their process ids, such as those of brokers, or of PostgreSQL's postmaster.

    Raises:
        InvalidInput: there is no such process, or the system does not tell.
    """

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = list(pids)
        for pid in self._pids:
            if not Path(f"/proc/{pid}/stat").exists():
                raise InvalidInput(f"--server-pid {pid}: there is no such process here", pid)

    def __bool__(self) -> bool:
        return bool(self._pids)

    def cpu(self) -> float:
        """Return seconds of CPU so far; children that have ended count as their parents'."""
        if not self._pids:
            return 0.0
        seconds = 0.0
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has just ended
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(folder.name) in self._pids or int(fields[1]) in self._pids:
                    seconds += sum(map(_running, folder.glob("task/*")))
                    seconds += sum(map(int, fields[13:15])) / os.sysconf("SC_CLK_TCK")
        return seconds


def _running(task: Path) -> float:
    """Seconds that a thread has run: to the nanosecond, where ``stat`` has ticks of 10 ms."""
    return int((task / "schedstat").read_text().split()[0]) / 1e9


def remembered_bytes(policy: Policy, count: int = REMEMBERED) -> float:
    """Return the memory that a learner needs for each decision that it remembers.

    Args:
        policy: Of the bandit.
        count: Decisions to measure with, in a process of its own.
    """
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=_remember, args=(policy, count, theirs), daemon=True)
    child.start()
    theirs.close()
    try:
        found = answer(ours)
        assert isinstance(found, float)
        return found
    finally:
        child.join(PATIENCE)


def answer(link: Connection) -> object:
    """Return what a child process sends.

    Raises:
        InvalidInput: it ended, or took too long.
    """
    try:
        if link.poll(PATIENCE):
            return link.recv()
    except (EOFError, OSError):
        pass
    raise InvalidInput("a process that was started to measure did not answer: see its messages")


def _remember(policy: Policy, count: int, link: Connection) -> None:
    fold = Fold(policy, Explicit(), kernels=kernels.plain())  # compilers take memory, too
    rows = np.random.default_rng(0).normal(size=(1_000, policy.dim)).astype(np.float32)
    now = time.time_ns() // 1000
    before = 0
    with fold.learner.bulk():
        for n in range(count + 1_000):
            if n == 1_000:  # what is needed once is there by now
                before = _resident()
            decision = Decision(new_id(now + n), now, 0, 0, rows[n % 1_000], 0.5, 1.0, 0)
            fold.take(Record(0, n + 1, now, decision))
    link.send((_resident() - before) / count)


def _resident() -> int:
    """Bytes of this process in memory."""
    statm = Path("/proc/self/statm")
    if statm.exists():  # what Linux says of the peak may be that of the parent
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    import resource  # Windows has none, nor does the service run there

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def wait_for_kernels() -> None:
    """Have the kernels that a process uses once it has run for a while."""
    try:
        kernels.compiled()
    except MissingExtra:  # then plain ones are used
        return
    while kernels.complete() is kernels.plain():
        time.sleep(0.05)
