"""Processes that use one bandit as hard as they can, until they are killed.

Run as a script it reads commands: ``start ROLE N`` forks process N and answers its process id,
``kill P`` ends process P with SIGKILL and answers when it is gone. A process appends a line to its
own file for every call that has returned: what it was told, and how long that took.

* A *writer* decides and observes: in disorder, twice, too early, for others too.
* A *learner* folds what the writers wrote and saves snapshots.
* A *caller* is a writer with a spool in front of the journal, which waits a little between calls.
* A *racer* decides under an id that others decide under at the same moment.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import signal
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import numpy as np

from belated import Bandit, Bernoulli, DelayedUCB, Explicit
from belated.core.events import Decision, Record
from belated.core.inputs import Matrix
from belated.exceptions import JournalUnavailable, SnapshotWarning
from belated.journals import (
    Journal,
    MemoryJournal,
    PostgresJournal,
    SpoolJournal,
    SQLiteJournal,
)
from belated.model import kernels

DIM = 3
POLICY = DelayedUCB(DIM, Bernoulli())
#: Short, so that windows end under way; a late reward is learned all the same.
REWARDS = Explicit(timedelta(milliseconds=200))
#: Racers at a time: each id has as many answers.
RACERS = 3
#: The file in which racers count their answers.
ANSWERS = "answers"

T = TypeVar("T")


def value_of(id: str, part: str) -> float:
    """What everyone reports of a decision: a function of its name."""
    return float(sum((id + part).encode()) % 2)


def rows_of(id: str) -> Matrix:
    """What is offered under a name: the same again in a retry."""
    seed = list(id.encode())
    return np.random.default_rng(seed).normal(size=(4, DIM)).astype(np.float32)


def patiently(attempt: Callable[[], T]) -> T:
    """Try until the journal answers: its server may have been killed, and be on its way back."""
    deadline = time.monotonic() + 120
    while True:
        try:
            return attempt()
        except JournalUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def opened(where: str, partitions: int | None = None, spool: Path | None = None) -> Bandit:
    """The bandit that all of them hold.

    Args:
        where: a file of SQLite, or the address of a PostgreSQL.
        partitions: of the journal.
        spool: a file for events while the journal is away.
    """

    def attempt() -> Bandit:
        journal: Journal
        if where.startswith("postgresql:"):
            wait = 10 if spool is None else 2
            journal = PostgresJournal(where, bandit="offers", partitions=partitions, wait=wait)
        else:
            journal = SQLiteJournal(where, bandit="offers", partitions=partitions, wait=60)
        try:
            if spool is not None:
                journal = SpoolJournal(journal, spool)
            return Bandit(policy=POLICY, rewards=REWARDS, journal=journal, kernels=kernels.plain())
        except BaseException:
            journal.close()
            raise

    return patiently(attempt)


def replayed(records: list[Record], partitions: int) -> Bandit:
    """The same bandit from its records alone, in memory."""
    journal = MemoryJournal("offers", partitions=partitions)
    journal.import_records(records)
    return Bandit(policy=POLICY, rewards=REWARDS, journal=journal, kernels=kernels.plain())


class Log:
    """The lines of one process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, *what: object) -> None:
        """One line: there, or cut off, if the process is killed now."""
        os.write(self._file, json.dumps(what).encode() + b"\n")


def write(
    folder: Path, number: int, where: str, partitions: int, *, with_spool: bool = False
) -> None:
    """Decide and observe for ever."""
    rng = random.Random(number)
    log = Log(folder / f"log {number}")
    spool = folder / f"spool {number}" if with_spool else None
    bandit = opened(where, partitions, spool)
    ids: list[str] = []

    def timed(what: str, id: str, call: Callable[[], T]) -> T | None:
        """Without a spool the same call is made until it succeeds."""
        start = time.monotonic()
        try:
            answer = call() if with_spool else patiently(call)
        except JournalUnavailable:
            log.write("refused", id, what, time.monotonic() - start)
            return None
        seconds = time.monotonic() - start
        for decision in answer if isinstance(answer, list) else [answer]:
            if isinstance(decision, Decision):
                log.write("decision", decision.id, decision.index, seconds)
                ids.append(decision.id)
        if what == "reward":
            log.write("reward", id, part, seconds)
        return answer

    n = 0
    while True:
        n += 1
        # A name of one's own, one that others use too, one that was used before, or none.
        name = rng.choice([f"{number}-{n}", f"shared-{n}", f"{number}-{rng.randint(1, n)}", None])
        rows = np.eye(DIM) if name is None else rows_of(name)
        timed("decision", name or "", lambda: bandit.decide(rows=rows, id=name))  # noqa: B023
        if n % 10 == 0:
            timed("decisions", "", lambda: bandit.decide_many(rows=[np.eye(DIM)] * 3))
        ids.append(f"{number}-{n + rng.randint(1, 5)}")  # before it is decided, if ever
        rng.shuffle(ids)
        for _ in range(rng.randint(0, 3)):
            id = ids[-1] if rng.random() < 0.3 else ids.pop()  # some of them again
            part = rng.choice(["", "", "click"])
            value = value_of(id, part)
            timed("reward", id, lambda: bandit.observe(id, value, part=part))  # noqa: B023
            if not ids:
                break
        if n % 7 == number % 7:
            _as_it_goes(bandit.save)
        if with_spool:  # and without the sync: to fold a long outage is not for one call to do
            time.sleep(0.01)
        elif n % 5 == 0:
            _as_it_goes(bandit.sync)


def call(folder: Path, number: int, where: str, partitions: int) -> None:
    """The same with a spool of one's own."""
    write(folder, number, where, partitions, with_spool=True)


def learn(folder: Path, number: int, where: str, partitions: int) -> None:
    """Fold and save for ever; write down what was known where."""
    log = Log(folder / f"log {number}")
    bandit = opened(where, partitions)
    while True:
        _as_it_goes(bandit.sync)
        for partition, ledger in bandit._fold.ledgers.items():
            position = bandit._fold.positions[partition]
            log.write("learned", partition, position, f"{ledger.digest:x}")
        _as_it_goes(bandit.save)
        time.sleep(0.005)


def _as_it_goes(what: Callable[[], object]) -> None:
    with suppress(JournalUnavailable):
        what()


def race(folder: Path, number: int, where: str, partitions: int) -> None:
    """Decide for ever under the id that the others decide under at this moment."""
    log = Log(folder / f"log {number}")
    bandit = opened(where, partitions)
    answers = _shared_number(folder / ANSWERS)
    while True:
        n = answers[0] // RACERS
        decision = patiently(lambda: bandit.decide(rows=np.eye(DIM), id=f"race-{n}"))  # noqa: B023
        log.write("answer", decision.id, decision.action, decision.at_us, decision.propensity)
        answers[0] += 1
        patience = time.monotonic() + 0.05
        while answers[0] // RACERS == n and time.monotonic() < patience:
            time.sleep(0.0002)
        answers[0] = max(answers[0], RACERS * (n + 1))  # one of the others was killed


def races_run(folder: Path) -> int:
    """How many ids the racers have been through."""
    return _shared_number(folder / ANSWERS)[0] // RACERS


def _shared_number(path: Path) -> memoryview[int]:
    """A number in a file, 0 at first, which several processes change."""
    with path.open("ab") as file:
        file.truncate(8)
    with path.open("r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), 8)).cast("q")


ROLES = {"writer": write, "learner": learn, "caller": call, "racer": race}


def main(folder: Path, where: str, partitions: int) -> None:
    """Take commands. Forks are quick: the library is loaded once."""
    warnings.simplefilter("ignore", SnapshotWarning)  # none can be saved while a server is away
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == "start":
            role, number = arguments
            process = os.fork()
            if process == 0:
                ROLES[role](folder, int(number), where, partitions)
            print(process, flush=True)
        else:
            process = int(arguments[0])
            os.kill(process, signal.SIGKILL)
            _, status = os.waitpid(process, 0)
            print(os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
