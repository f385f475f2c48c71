"""Requests that come at the same time are decided together, which is quicker than one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from belated.decider import Decider, Made, ParsedRequest
from belated.events import Decision
from belated.ids import time_of
from belated.inputs import Row, as_rows
from belated.journals import UniqueLog
from belated.service.runtime import Runtime
from belated.service.serving.group_commit import ENOUGH, Done, GroupCommit, tell_all
from belated.service.serving.slots import Slots


class RequestBatcher:
    """Chooses for the requests of one turn of the event loop, and commits the decisions.

    A crowd is divided: while some of its decisions are committed, others are chosen.

    Args:
        decider: chooses; used by the event loop alone.
        commits: makes the decisions durable.
        journal: where they go.
        loop: of the callers.
        runtime: the clock of the decisions.
        rng: randomness of the choices.
        slots: of new ids.
        finds_by_id: whether the log does. If not, an id that was made by a client and is sent for
            the first time is taken to be new.
    """

    def __init__(
        self,
        decider: Decider,
        commits: GroupCommit,
        journal: UniqueLog,
        loop: asyncio.AbstractEventLoop,
        runtime: Runtime,
        rng: np.random.Generator,
        *,
        slots: Slots,
        finds_by_id: bool = True,
    ) -> None:
        self._decider = decider
        self._commits = commits
        self._journal = journal
        self._loop = loop
        self._clock = runtime.clock
        self._rng = rng
        self._slots = slots
        self._finds_by_id = finds_by_id
        self._waiting: list[_Batch] = []

    def decide(
        self,
        requests: Sequence[ParsedRequest],
        rows: Sequence[bytes],
        counted: Callable[[Sequence[Decision]], None],
        done: Done[list[Decision]],
    ) -> None:
        """Decide; the caller is told once all decisions are durable.

        Under an id of the caller's it is the decision that stands: another one, if another process
        was faster.

        Args:
            requests: of one caller.
            rows: of each, float32 numbers row after row.
            counted: is then told the decisions that were made here.
            done: is told all of them, or what went wrong.
        """
        if not self._waiting:
            self._loop.call_soon(self._choose)
        batch = _Batch(self._journal, requests, rows, self._decider, counted, done)
        if not self._finds_by_id:
            batch.named = [one.id for one in requests if one.id is not None and not _is_new(one)]
        self._waiting.append(batch)
        if len(self._waiting) == ENOUGH:  # they are committed while others are still read
            self._choose()

    def _choose(self) -> None:
        batches, self._waiting = self._waiting, []
        if not batches:
            return
        try:
            made = self._decide(
                [request for batch in batches for request in batch.requests],
                [rows for batch in batches for rows in batch.rows],
            )
        except Exception:  # of one of them: each is tried by itself, and hears what is wrong
            refusals = [one for batch in batches if (one := self._try(batch)) is not None]
        else:
            refusals = []
            start = 0
            for batch in batches:
                end = start + len(batch.requests)
                batch.events = made.decisions[start:end]
                if kept := made.requests:
                    batch.kept = {n - start: kept[n] for n in range(start, end) if n in kept}
                start = end
        self._commits.append_all([batch for batch in batches if batch.events])
        if refusals:  # not from within another one's request
            self._loop.call_soon(tell_all, refusals)

    def _try(self, batch: _Batch) -> Callable[[], None] | None:
        """Decide for one caller; returns how to tell that it cannot be done, if so."""
        try:
            batch.events, batch.kept = self._decide(batch.requests, batch.rows)
        except Exception as error:
            return partial(batch.refuse, error)
        return None

    def _decide(self, requests: Sequence[ParsedRequest], rows: Sequence[bytes]) -> Made:
        table = table_of(rows, self._decider.policy.dim)
        now = self._clock()
        self._decider.slot = self._slots.at(now)
        return self._decider.choose(requests, table, now=now, rng=self._rng, hold=True)


class _Batch:
    """The requests of one caller, which are decided all or none."""

    __slots__ = (
        "_counted", "_decider", "_done", "events", "journal", "kept", "named", "requests", "rows",
    )  # fmt: skip

    def __init__(
        self,
        journal: UniqueLog,
        requests: Sequence[ParsedRequest],
        rows: Sequence[bytes],
        decider: Decider,
        counted: Callable[[Sequence[Decision]], None],
        done: Done[list[Decision]],
    ) -> None:
        self.journal = journal
        self.requests = requests
        self.rows = rows
        self.events: list[Decision] = []
        self.kept: Mapping[int, bytes] = {}
        self.named = [request.id for request in requests if request.id is not None]
        self._decider = decider
        self._counted = counted
        self._done = done

    def durable(self, positions: Sequence[int], standing: Mapping[str, Decision]) -> None:
        made = self.events
        if standing:
            self.events = [standing.get(event.id, event) for event in made]
            pairs = list(zip(made, self.events, strict=True))
            made = [event for event, stands in pairs if stands == event]
            for event, stands in pairs:
                if stands != event:
                    self._decider.discard(event)
        unapplied = self._decider.unapplied
        for event, position in zip(self.events, positions, strict=True):
            unapplied.mark_durable(event.id, position)
        self._counted(made)
        self._done(self.events)

    def failed(self, error: Exception) -> None:
        for event in self.events:
            self._decider.discard(event)
        self.refuse(error)

    def refuse(self, error: Exception) -> None:
        self._done(error)


def _is_new(request: ParsedRequest) -> bool:
    return request.first_attempt and request.id is not None and time_of(request.id) is not None


def table_of(rows: Sequence[bytes], dim: int) -> Row:
    """Return rows as one table, checked."""
    return as_rows(np.frombuffer(b"".join(rows), np.float32).reshape(-1, dim), dim)
