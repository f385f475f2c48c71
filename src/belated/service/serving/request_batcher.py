"""Requests that come at the same time are decided together, which is quicker than one by one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from belated.core.events import Decision
from belated.core.ids import key_of, slot_of, time_of
from belated.core.inputs import Row, as_rows
from belated.decider import Decider, Made, ParsedRequest
from belated.decider.decider import AT_ONCE
from belated.decider.requests import with_subjects
from belated.journals import UniqueLog
from belated.service.runtime import Runtime
from belated.service.serving.group_commit import ENOUGH, Append, Done, GroupCommit, call_all

#: The rows of a request as float32 numbers, row after row; or what makes them when they are used.
Rows = bytes | Callable[[], bytes]
#: Microseconds for which a slot is used: for many commits, and soon all partitions have a share.
WHILE = 1_000_000


@dataclass(eq=False)
class RequestBatcher:
    """Chooses for the requests of one turn of the event loop, and commits the decisions.

    A crowd is divided: while some of its decisions are committed, others are chosen. A large batch
    is chosen for in several turns, so that the event loop can serve others in between.

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

    decider: Decider
    commits: GroupCommit
    journal: UniqueLog
    loop: asyncio.AbstractEventLoop
    runtime: Runtime
    rng: np.random.Generator
    slots: Slots
    finds_by_id: bool = True

    def __post_init__(self) -> None:
        self._clock = self.runtime.clock
        self._waiting: deque[_Batch] = deque()
        self._scheduled = False

    def decide(
        self,
        requests: Sequence[ParsedRequest],
        rows: Sequence[Rows],
        counted: Callable[[Sequence[Decision]], None],
        done: Done[list[Decision]],
    ) -> None:
        """Decide; `done` is called once all decisions are durable.

        Under an id of the caller's it is the decision that stands: another one, if another process
        was faster.

        Args:
            requests: of one caller.
            rows: of each, float32 numbers row after row.
            counted: is called at last with the decisions that were made here.
            done: is called with all of them, or with the error.
        """
        self._schedule()
        named = [
            request.id
            for request in requests
            if request.id is not None and (self.finds_by_id or not _is_new(request))
        ]
        self._waiting.append(
            _Batch(self.journal, [], counted, done, {}, named, requests, rows, self.decider)
        )
        if len(self._waiting) == ENOUGH:  # they are committed while others are still read
            self._choose()

    def record(
        self,
        requests: Sequence[ParsedRequest],
        rows: Sequence[Rows],
        counted: Callable[[Sequence[Decision]], None],
        done: Done[list[Decision]],
    ) -> None:
        """Commit decisions that one caller made itself; arguments as of :meth:`decide`."""
        named = [request.id for request in requests if request.id is not None and self.finds_by_id]
        batch = _Batch(self.journal, [], counted, done, {}, named, requests, rows, self.decider)
        for n, request in enumerate(requests):
            table = table_of(rows[n : n + 1], self.decider.policy.row_width)
            batch.add(self.decider.record(request, table), 0, n + 1)
        self.commits.append_all([batch])

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        self._choose()

    def _choose(self) -> None:
        parts = self._next_parts()
        if not parts:
            return
        refusals = []
        try:
            made = self._decide(parts)
        except Exception:  # due to one of them: try each by itself
            refusals = [one for part in parts if (one := self._try(part)) is not None]
        else:
            start = 0
            for batch, end in parts:
                start = batch.add(made, start, end)
        batches = [batch for batch, _ in parts]
        self.commits.append_all([one for one in batches if one.is_chosen])
        self._waiting.extend(one for one in batches if not one.is_chosen and not one.refused)
        if self._waiting:
            self._schedule()
        if refusals:  # not from within another one's request
            self.loop.call_soon(call_all, refusals)

    def _next_parts(self) -> list[tuple[_Batch, int]]:
        """Take from the queue what is chosen for in one turn: each batch, and up to which request.

        That is `ENOUGH` requests; fewer if their rows have more than `AT_ONCE` numbers.
        """
        parts, room, rows = [], ENOUGH, AT_ONCE / self.decider.policy.row_width
        while self._waiting and room > 0 and rows > 0:
            batch = self._waiting.popleft()
            end = len(batch.made)
            while end < len(batch.requests) and room > 0 and rows > 0:
                rows -= batch.requests[end].n_rows
                room -= 1
                end += 1
            parts.append((batch, end))
        return parts

    def _try(self, part: tuple[_Batch, int]) -> Callable[[], None] | None:
        """Decide for one caller; returns the callback of an error, if there is one."""
        batch, end = part
        try:
            batch.add(self._decide([part]), 0, end)
        except Exception as error:
            batch.refused = True
            return partial(batch.failed, error)
        return None

    def _decide(self, parts: Sequence[tuple[_Batch, int]]) -> Made:
        requests: list[ParsedRequest] = []
        rows: list[Rows] = []
        for batch, end in parts:
            requests += batch.requests[len(batch.made) : end]
            rows += batch.rows[len(batch.made) : end]
        table = table_of(rows, self.decider.policy.row_width)
        now = self._clock()
        self.decider.slot = self.slots.at(now)
        return self.decider.choose(requests, table, now=now, rng=self.rng, hold=True)


@dataclass(slots=True, eq=False)
class _Batch(Append):
    """The requests of one caller, which are decided all or none."""

    kept: dict[int, bytes]
    named: list[str]
    requests: Sequence[ParsedRequest]
    rows: Sequence[Rows]
    decider: Decider
    made: list[Decision] = field(default_factory=list)
    refused: bool = False

    @property
    def is_chosen(self) -> bool:
        """Whether all its decisions are made."""
        return len(self.made) == len(self.requests)

    def add(self, made: Made, start: int, end: int) -> int:
        """Add decisions, those of `made` from `start` on; returns where those of others begin."""
        first = len(self.made)
        stop = start + end - first
        self.made += made.decisions[start:stop]
        self.events = self.made
        if self.is_chosen:
            self.events = with_subjects(self.made, self.requests)
        if kept := made.requests:
            self.kept |= {n - start + first: kept[n] for n in range(start, stop) if n in kept}
        return stop

    def durable(self, positions: Sequence[int], standing: Mapping[str, Decision]) -> None:
        made = decisions = self.made
        if standing:
            decisions = [standing.get(event.id, event) for event in made]
            pairs = list(zip(made, decisions, strict=True))
            made = [event for event, stands in pairs if stands == event]
            for event, stands in pairs:
                if stands != event:
                    self.decider.discard(event)
        try:
            self.done(decisions)  # the caller is waiting
        finally:
            unapplied = self.decider.unapplied
            for event, position in zip(decisions, positions, strict=False):  # then of subjects
                unapplied.mark_durable(event.id, position)
            self.counted(made)

    def failed(self, error: Exception) -> None:
        for event in self.made:
            self.decider.discard(event)
        self.done(error)


def _is_new(request: ParsedRequest) -> bool:
    return request.first_attempt and request.id is not None and time_of(request.id) is not None


def table_of(rows: Sequence[Rows], dim: int) -> Row:
    """Return rows as one table, checked."""
    data = b"".join([one if isinstance(one, bytes) else one() for one in rows])
    return as_rows(np.frombuffer(data, np.float32).reshape(-1, dim), dim)


class Slots:
    """Draws the slot of new ids, one for all of a while, so that a commit fills one partition.

    Args:
        new_id: Makes an id of the time in microseconds since 1970, with a slot at random.

    >>> from belated.core.ids import new_id
    >>> slots = Slots(new_id)
    >>> first = slots.at(1_700_000_000_000_000)
    >>> first == slots.at(1_700_000_000_999_999)
    True
    """

    def __init__(self, new_id: Callable[[int, None], str]) -> None:
        self._new_id = new_id
        self._since = 0
        self._slot: int | None = None

    def at(self, now_us: int) -> int:
        """Return the slot of ids that are made at a time."""
        # A clock may step back.
        if self._slot is None or not 0 <= now_us - self._since < WHILE:
            self._slot, self._since = slot_of(key_of(self._new_id(now_us, None))), now_us
        return self._slot
