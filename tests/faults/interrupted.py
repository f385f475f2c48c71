"""A bandit whose calls are interrupted at random places.

Python raises an asynchronous exception when a function is entered and when a call of a C function
returns. A profiler is called at the same places: so it can raise at any of them, reproducibly.
"""

from __future__ import annotations

import sqlite3
import sys
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from belated import Bandit, Bernoulli, ConversionsOnly, DefaultAfter, DelayedUCB, Explicit
from belated.core.events import Decision, Reward
from belated.core.tuning import Tuning
from belated.journals import Journal, MemoryJournal, SQLiteJournal
from belated.testing import ManualClock

MINUTE = 60_000_000
#: Behind every record: a replay up to here reads the whole journal, and no snapshot.
END = "9999-12-31T00:00Z"
#: Calls and returns among which the place of an interrupt is drawn: those of some ten calls.
PLACES = 6_000

KINDS: dict[str, dict[str, Any]] = {
    "explicit": {"rewards": Explicit()},
    "default": {"rewards": DefaultAfter("20m")},
    "conversions": {"rewards": ConversionsOnly("30m")},
    "half-life": {
        "rewards": Explicit(),
        "policy": DelayedUCB(2, Bernoulli(), half_life="1h"),
        "keep_requests": 0.0,  # so that the fast path is taken
    },
}


class TimeLimit(Exception):
    """A timeout of a worker."""


class InterruptedBandit:
    """A bandit, its journal, and what was acknowledged.

    Args:
        kind: one of ``KINDS``.
        path: of a SQLite journal; None for one in memory.
        seed: the random seed.

    Attributes:
        errors: the errors that interrupted every second call: notebooks and futures keep them, too,
            and with them all frames.
    """

    def __init__(self, kind: str, path: Path | None, seed: int) -> None:
        self.kind, self.path = kind, path
        self.clock = ManualClock()
        self.rng = np.random.default_rng(seed)
        self.memory = None if path else MemoryJournal(clock=self.clock)
        self.ids: list[str] = []
        self.named: dict[str, list[list[float]]] = {}
        self.rewards: dict[str, float] = {}
        self.errors: list[BaseException] = []
        self.bandit = self.open()
        for n in range(30):
            self.call(n)

    def open(self) -> Bandit:
        """Open the journal, as another process would."""
        tuning = Tuning(
            page=64, bulk=24, snapshot_every=50, dropped=16, block=16, link=16, new_id=self.new_id
        )
        defaults: dict[str, Any] = {"policy": DelayedUCB(2, Bernoulli()), "tuning": tuning}
        journal: Journal | None = self.memory
        if self.path is not None:
            journal = SQLiteJournal(self.path, bandit="offers", clock=self.clock, wait=0.5)
        seed = int(self.rng.integers(1 << 30))
        return Bandit(journal=journal, clock=self.clock, seed=seed, **(defaults | KINDS[self.kind]))

    def new_id(self, now: int, slot: int | None) -> str:
        """Return an id in the library's format, drawn from the seed."""
        return f"{now // 1000:012x}7{self.rng.integers(1 << 12):03x}8{self.rng.bytes(8).hex()[1:]}"

    def call(self, n: int) -> None:
        """Make one of fifteen kinds of calls, and note what was acknowledged."""
        bandit, rng = self.bandit, self.rng
        self.clock.now += int(rng.integers(MINUTE))
        match n % 15:
            case 0 | 1:
                self.ids.append(bandit.decide(rows=np.array(self.rows())).id)
            case 2 | 3:
                id = f"order-{rng.integers(1 << 40)}"
                self.named[id] = self.rows()
                self.ids.append(bandit.decide(rows=self.named[id], id=id).id)
            case 4:
                tables = [self.rows() for _ in range(int(rng.integers(1, 30)))]
                self.ids += [decision.id for decision in bandit.decide_many(rows=tables)]
            case 5 | 6 | 7:
                self.observe(self.ids[int(rng.integers(len(self.ids)))])
            case 8:
                ids = {self.ids[int(k)] for k in rng.integers(len(self.ids), size=5)}
                bandit.observe_many([(id, self.value(id)) for id in sorted(ids)])
                self.rewards |= {id: self.value(id) for id in ids}
            case 9:
                bandit.settle()
            case 10:
                bandit.save()
            case 11:
                _ = bandit.estimate, bandit.pending.oldest
            case 12:
                bandit.score(rows=self.rows())
            case 13:
                bandit.change_mode("freeze" if bandit.mode == "learn" else "learn")
            case 14:
                bandit.entry(self.ids[-1])

    def rows(self) -> list[list[float]]:
        """Return three rows."""
        rows: list[list[float]] = self.rng.normal(size=(3, 2)).tolist()
        return rows

    def value(self, id: str) -> float:
        """Return the reward of a decision: always the same, so repeating the report is a retry."""
        return 1.0 if self.kind == "conversions" else float(zlib.crc32(id.encode()) % 2)

    def observe(self, id: str) -> None:
        """Report a reward."""
        self.bandit.observe(id, self.value(id))
        self.rewards[id] = self.value(id)

    def interrupt(self, number: int) -> str:
        """Make calls until one is interrupted, and check all guarantees.

        Returns:
            The place of the interruption.
        """
        order = self.rng.permutation(15).tolist()
        place = self._interrupt([partial(self.call, n) for n in order * 20], number)
        self.check_unlocked()
        with ThreadPoolExecutor(1) as threads:  # another thread finds no lock held
            threads.submit(lambda: self.bandit.decision_counts).result(timeout=60)
        check_replay(self.bandit)
        self.retry()
        for n in order[:3]:
            self.call(n)
        check_replay(self.bandit)
        return place

    def _interrupt(self, calls: Sequence[Callable[[], object]], number: int) -> str:
        """Make calls, and raise an error at one of the places where Python may raise it.

        Returns:
            The place of the interruption; None if the calls ended before.
        """
        error = (KeyboardInterrupt, TimeLimit, MemoryError)[number % 3]
        calls_left, place = int(self.rng.integers(1, PLACES)), ""

        def profiler(frame: FrameType, event: str, arg: object) -> None:
            nonlocal calls_left, place
            calls_left -= event in ("call", "c_return")
            if not calls_left:
                sys.setprofile(None)
                place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                raise error

        sys.setprofile(profiler)
        try:
            for call in calls:
                call()
                if place:  # the library handled it, as it does errors of a policy
                    break
        except error as interruption:
            if number % 2:
                self.errors.append(interruption)
        finally:
            sys.setprofile(None)
        return place

    def retry(self) -> None:
        """Retry calls that got no response under the same id: they must take effect once."""
        journal = self.bandit.journal
        for id, rows in self.named.items():
            decision = self.bandit.decide(rows=rows, id=id)
            assert decision == self.bandit.decide(rows=rows, id=id)
            assert [type(record.event) for record in journal.records_of([id])].count(Decision) == 1
        self.named.clear()
        for id, value in self.rewards.items():
            records = [
                record for record in journal.records_of([id]) if type(record.event) is Reward
            ]
            assert len(records) == 1
            assert self.bandit.observe(id, value).status == "duplicate"
        self.rewards.clear()

    def check_unlocked(self) -> None:
        """Check that another process can write at once."""
        if self.path is None:
            return
        connection = sqlite3.connect(self.path, timeout=0, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        finally:
            connection.close()

    def reopen(self, number: int) -> None:
        """Interrupt closing, close, and open again: a saved snapshot must be correct."""
        if self.path is None:
            self._interrupt([self.bandit.save], number)
            self.bandit.save()
        else:
            self._interrupt([self.bandit.close], number)
            self.bandit.close()
            self.check_unlocked()
        self.bandit = self.open()
        check_replay(self.bandit)


def check_replay(bandit: Bandit) -> None:
    """Check that the bandit equals a replay of its journal."""
    replay = bandit.as_of(END)
    assert bandit.digest == replay.digest
    assert bandit.decision_counts == replay.decision_counts
    assert bandit.event_counts == replay.event_counts
    assert bandit.pending.count == replay.pending.count == len([*bandit.pending])
    assert bandit.mode == replay.mode
    assert bandit.estimate.n == replay.estimate.n
    np.testing.assert_allclose(bandit.estimate.theta, replay.estimate.theta, rtol=1e-6, atol=1e-6)
