"""Decisions and rewards that are functions of a seed, so that results can be checked exactly.

Run as a script it appends commit after commit, from a number on, until SIGTERM:
``python -m tests.faults.kafka_generator ADDRESS SEED FIRST FILE``. For each commit that was
acknowledged it adds a line to the file. Started again at the first number that has none, it sends
again what may have been sent.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np

from belated.core.events import Decision, Event, Reward
from belated.core.ids import key_of, partition_of
from belated.exceptions import JournalUnavailable
from belated.journals import open_store

DIM, SIZE = 2, 10
#: Seconds between two commits; how many commits later a reward comes at most.
PAUSE, LATE = 0.1, 12
#: Of the decisions, those that have a reward; of the rewards, those that are reported twice.
REWARDED, TWICE = 0.7, 0.2
_START = 1_700_000_000_000_000


class Outcome(NamedTuple):
    """A decision and its reported reward, with the numbers of their commits; None if never."""

    decision: Decision
    value: float
    reported: tuple[int, ...]


def outcomes(seed: int, number: int) -> list[Outcome]:
    """Return the decisions of a commit, all of one partition, with their outcomes."""
    rng = np.random.default_rng([seed, number])
    batch = []
    for n in range(SIZE):
        tail = blake2b(f"{seed} {number} {n}".encode(), digest_size=8).hexdigest()
        at = _START + 1000 * number
        id = f"{at // 1000:012x}7{number % 4096:03x}8{tail[1:]}"
        x = rng.normal(size=DIM).astype(np.float32)
        decision = Decision(id, at, n, n, x, 0.5, 1.0, 0)
        # One commit before its decision is early.
        commits = [max(0, number + offset) for offset in rng.integers(-1, LATE, size=2).tolist()]
        reports = int(rng.random() < REWARDED) + int(rng.random() < REWARDED * TWICE)
        batch.append(Outcome(decision, float(rng.random() < 0.5), tuple(commits[:reports])))
    return batch


def commit(seed: int, number: int) -> list[Event]:
    """Return the events of a commit: decisions, and rewards of others."""
    neighbours = range(max(0, number - LATE), number + 2)
    reported = [outcome for neighbour in neighbours for outcome in outcomes(seed, neighbour)]
    rewards = [
        Reward(outcome.decision.id, _START + 1000 * number, outcome.value)
        for outcome in reported
        for at in outcome.reported
        if at == number
    ]
    return [*(outcome.decision for outcome in outcomes(seed, number)), *rewards]


class Truth(NamedTuple):
    """The expected state after some commits, computed without a journal or the library's sums."""

    rows: dict[str, np.ndarray]
    rewarded: int
    converted: int
    gram: np.ndarray
    cross: np.ndarray


def truth(seed: int, commits: int) -> Truth:
    """Return the expected state after the commits before a number."""
    all_outcomes = [outcome for number in range(commits) for outcome in outcomes(seed, number)]
    rewarded = [outcome for outcome in all_outcomes if any(at < commits for at in outcome.reported)]
    rows = np.array([outcome.decision.x for outcome in rewarded], dtype=np.float64).reshape(-1, DIM)
    values = np.array([outcome.value for outcome in rewarded])
    all_rows = {outcome.decision.id: outcome.decision.x for outcome in all_outcomes}
    return Truth(all_rows, len(rewarded), int(values.sum()), rows.T @ rows, values @ rows)


class Acknowledged(NamedTuple):
    """An acknowledged commit: its time, and the last position in each partition it touched."""

    number: int
    at: float
    positions: dict[int, int]


def read_acknowledged(file: Path) -> list[Acknowledged]:
    """Return the acknowledged commits, without a last line that is incomplete."""
    lines = file.read_text(encoding="utf-8").split("\n")[:-1] if file.exists() else []
    rows = [json.loads(line) for line in lines]
    return [Acknowledged(n, at, {int(p): end for p, end in ends.items()}) for n, at, ends in rows]


def main(address: str, seed: int, first: int, file: Path) -> None:
    """Append until stopped; failed commits are sent again."""
    signals = []
    signal.signal(signal.SIGTERM, lambda *_: signals.append(True))
    with open_store(address).journal("offers") as journal, file.open("a", encoding="utf-8") as log:
        number = first
        while not signals:
            events = commit(seed, number)
            try:
                positions = journal.append(events)
            except JournalUnavailable:
                continue
            ends: dict[int, int] = {}
            for event, position in zip(events, positions, strict=True):
                assert isinstance(event, Decision | Reward)
                partition = partition_of(key_of(event.id), journal.partitions)
                ends[partition] = max(position, ends.get(partition, 0))
            log.write(json.dumps([number, time.monotonic(), ends]) + "\n")
            log.flush()
            number += 1
            time.sleep(PAUSE)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
