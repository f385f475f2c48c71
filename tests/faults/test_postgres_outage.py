"""A server that hangs or is out of reach, behind a spool: callers are answered, nothing is lost."""

from __future__ import annotations

import os
import random
import signal
import statistics
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from belated.journals import PostgresJournal, SpoolJournal
from tests.faults import harness
from tests.faults.gates import Between
from tests.faults.service_load import BESIDE_OTHERS, PROMISED
from tests.integration.postgres_server import PostgresServer
from tests.waiting import eventually

#: An empty spool is no larger.
EMPTY = 100
#: How many answers come in each half of an outage, at least.
ANSWERS = 10


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="there is no SIGSTOP here")
def test_calls_are_answered_while_server_is_unavailable(
    doomed: PostgresServer, way: Between, tmp_path: Path, full: bool
) -> None:
    """Within a second, whatever happens to the server; and later all that was told is there."""
    seconds = 30.0 if full else 1.0
    rng = random.Random(0)
    proxied_dsn = doomed.dsn.replace(str(doomed.port), str(way.port))
    crowd = harness.Crowd(tmp_path, proxied_dsn, partitions=2)
    outages: dict[str, AbstractContextManager[None]] = {
        "hung": hung(doomed.dsn),
        "cut off": cut_off(way),
        "swallowed": swallowed(way),
    }
    counts, medians = {}, {}

    def answers() -> set[tuple[Any, ...]]:
        return {tuple(line) for line in crowd.told("decision", "reward")}

    def answers_come() -> None:
        """Let the outage last, and callers be answered meanwhile."""
        goal = len(answers()) + ANSWERS
        time.sleep(seconds / 2)
        eventually(lambda: len(answers()) >= goal, "callers are not answered")

    try:
        for role in ("caller", "caller", "caller", "learner"):
            crowd.start(role)
        for name, outage in outages.items():
            crowd.wait_for_all()
            with outage:
                answers_before = answers()
                answers_come()
                # It leaves a spool behind.
                victim = rng.choice([member for member in crowd.running if member.role == "caller"])
                crowd.kill(victim)
                answers_come()
                new_answers = answers() - answers_before
                counts[name] = len(new_answers)
                medians[name] = statistics.median(duration for *_, duration in new_answers)
            callers = [member for member in crowd.running if member.role == "caller"]
            eventually(
                lambda callers=callers: all(  # type: ignore[misc]
                    size_of(tmp_path, caller.number) < EMPTY for caller in callers
                ),
                "what waits is not handed over",
                120,
            )
            crowd.start("caller")  # which folds, as it opens, what the others have handed over
        crowd.wait_for_all()
    finally:
        crowd.close()
    for number in range(crowd.started):  # what the killed have left
        path = tmp_path / f"spool {number}"
        if path.exists():
            journal = PostgresJournal(proxied_dsn, bandit="offers")
            with SpoolJournal(journal, path) as spool:
                assert spool.status.queued == 0
    result = harness.assert_nothing_lost(crowd)
    lines = crowd.told("decision", "reward", "refused")
    longest = max(duration for *_, duration in lines)
    refusals = [line for line in lines if line[0] == "refused"]
    print(
        f"\n{type(way).__name__}, {seconds:g} s each, answered meanwhile: {counts}; worst answer "
        f"{longest:.3f} s, {len(refusals)} of {len(lines)} refused; {result}"
    )
    assert max(medians.values()) < PROMISED
    assert longest < (PROMISED if full else BESIDE_OTHERS)
    # To give a decision of old back it must be read; everything new is taken.
    assert all(kind == "decision" and id for _, id, kind, _ in refusals)


def size_of(folder: Path, number: int) -> int:
    """The bytes of a caller's spool; more than empty if it is not there yet."""
    path = folder / f"spool {number}"
    return path.stat().st_size if path.exists() else EMPTY


# --- what can happen to a server ---------------------------------------------------------------


@contextmanager
def cut_off(way: Between) -> Iterator[None]:
    """While it cannot be reached."""
    way.cut()
    try:
        yield
    finally:
        way.open()


@contextmanager
def swallowed(way: Between) -> Iterator[None]:
    """While nothing comes back, and nothing is refused either."""
    way.swallow()
    try:
        yield
    finally:
        way.open()


@contextmanager
def hung(dsn: str) -> Iterator[None]:
    """While all processes of the server are stopped."""
    processes = harness.processes_of(dsn)
    try:
        for process in processes:
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(process, signal.SIGSTOP)
        yield
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)
