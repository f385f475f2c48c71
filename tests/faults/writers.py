"""Processes that use one bandit on one file as hard as they can, until they are killed.

Run as a script it reads commands: ``start N`` forks writer N and answers its process id, ``kill P``
ends process P with SIGKILL and answers when it is gone. A writer appends a line to its own file for
every call that has returned: what it was told is safe.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from datetime import timedelta
from pathlib import Path

import numpy as np

from belated import Bandit, Bernoulli, DelayedUCB, Explicit, kernels
from belated.inputs import Matrix
from belated.journals import SQLiteJournal

DIM = 3
POLICY = DelayedUCB(DIM, Bernoulli())
#: Short, so that windows end under way; a late reward is learned all the same.
REWARDS = Explicit(timedelta(milliseconds=200))


def value_of(id: str, part: str) -> float:
    """What everyone reports of a decision: a function of its name."""
    return float(sum((id + part).encode()) % 2)


def rows_of(id: str) -> Matrix:
    """What is offered under a name: the same again in a retry."""
    seed = list(id.encode())
    return np.random.default_rng(seed).normal(size=(4, DIM)).astype(np.float32)


def opened(path: Path, partitions: int | None = None) -> Bandit:
    """The bandit that all of them hold."""
    journal = SQLiteJournal(path, bandit="offers", partitions=partitions, wait=60)
    return Bandit(policy=POLICY, rewards=REWARDS, journal=journal, using=kernels.plain())


def write(folder: Path, number: int, partitions: int) -> None:
    """Decide and observe for ever: in disorder, twice, too early, for others too."""
    rng = random.Random(number)
    log = os.open(folder / f"acknowledged {number}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def acknowledge(*what: object) -> None:
        os.write(log, json.dumps(what).encode() + b"\n")

    bandit = opened(folder / "offers.db", partitions)
    waiting: list[str] = []
    n = 0
    while True:
        n += 1
        # A name of one's own, one that others use too, one that was used before, or none.
        name = rng.choice([f"{number}-{n}", f"shared-{n}", f"{number}-{rng.randint(1, n)}", None])
        rows = np.eye(DIM) if name is None else rows_of(name)
        decision = bandit.decide(rows, id=name)
        acknowledge("decision", decision.id, decision.index)
        waiting.append(decision.id)
        if n % 10 == 0:
            for one in bandit.decide_many([np.eye(DIM)] * 3):
                acknowledge("decision", one.id, one.index)
                waiting.append(one.id)
        waiting.append(f"{number}-{n + rng.randint(1, 5)}")  # before it is decided, if ever
        rng.shuffle(waiting)
        for _ in range(rng.randint(0, 3)):
            id = waiting[-1] if rng.random() < 0.3 else waiting.pop()  # some of them again
            part = rng.choice(["", "", "click"])
            bandit.observe(id, value_of(id, part), part=part)
            acknowledge("reward", id, part)
            if not waiting:
                break
        if n % 7 == number % 7:
            bandit.save()
        if n % 5 == 0:
            bandit.sync()


def main(folder: Path, partitions: int) -> None:
    """Take commands. Forks are quick: the library is loaded once."""
    for line in sys.stdin:
        command, number = line.split()
        if command == "start":
            process = os.fork()
            if process == 0:
                write(folder, int(number), partitions)
            print(process, flush=True)
        else:
            os.kill(int(number), signal.SIGKILL)
            _, status = os.waitpid(int(number), 0)
            print(os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
