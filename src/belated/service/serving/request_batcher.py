"""Batching of concurrent decision requests, which is faster than handling them one by one."""

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

#: The rows of a request, packed as float32 numbers, or a function that returns the rows.
Rows = bytes | Callable[[], bytes]
#: Microseconds for which new ids share a slot. The interval is long enough for many commits, and
#: short enough to spread decisions evenly over the partitions.
WHILE = 1_000_000


@dataclass(eq=False)
class RequestBatcher:
    """Makes the decisions for all requests in an event-loop turn together, and commits them.

    If there are many requests, some decisions are committed while others are being made. Large
    batches are processed in several turns, so that the event loop can serve other requests in
    between.

    Args:
        decider: Chooses actions. Used only on the event loop.
        commits: Commits the decisions.
        journal: Log to which the decisions are appended.
        loop: Event loop of the callers.
        runtime: Clock for the times of decisions.
        rng: Random number generator for the choices.
        slots: Slots for new ids.
        finds_by_id: Whether the log can look up ids. If not, an id that a client has generated and
            sends for the first time is assumed to be new.
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
        self._queue: deque[_Batch] = deque()
        self._scheduled = False

    def decide(
        self,
        requests: Sequence[ParsedRequest],
        rows: Sequence[Rows],
        counted: Callable[[Sequence[Decision]], None],
        done: Done[list[Decision]],
    ) -> None:
        """Queue one caller's requests.

        If another process has already committed a decision with the same id, the caller gets that
        decision.

        Args:
            requests: The caller's requests.
            rows: Rows of each request, packed as float32 numbers.
            counted: Called after `done`, with the decisions that this process has made.
            done: Called with all decisions once they are durable, or with an error.
        """
        self._schedule()
        ids = [
            request.id
            for request in requests
            if request.id is not None and (self.finds_by_id or not _is_new(request))
        ]
        self._queue.append(
            _Batch(self.journal, [], counted, done, {}, ids, requests, rows, self.decider)
        )
        if len(self._queue) == ENOUGH:  # commit these decisions while reading further requests
            self._choose()

    def record(
        self,
        requests: Sequence[ParsedRequest],
        rows: Sequence[Rows],
        counted: Callable[[Sequence[Decision]], None],
        done: Done[list[Decision]],
    ) -> None:
        """Commit decisions that the caller has made. The arguments are the same as for `decide`."""
        ids = [request.id for request in requests if request.id is not None and self.finds_by_id]
        batch = _Batch(self.journal, [], counted, done, {}, ids, requests, rows, self.decider)
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
            result = self._decide(parts)
        except Exception:  # one of the batches is invalid: try each one separately
            refusals = [refusal for part in parts if (refusal := self._try(part)) is not None]
        else:
            start = 0
            for batch, end in parts:
                start = batch.add(result, start, end)
        batches = [batch for batch, _ in parts]
        self.commits.append_all([batch for batch in batches if batch.is_complete])
        self._queue.extend(
            batch for batch in batches if not batch.is_complete and not batch.refused
        )
        if self._queue:
            self._schedule()
        if refusals:  # in a later turn, not while handling another caller's request
            self.loop.call_soon(call_all, refusals)

    def _next_parts(self) -> list[tuple[_Batch, int]]:
        """Remove the requests for one turn from the queue: batches, and where to stop in each.

        There are at most `ENOUGH` requests, and fewer if their rows have more than `AT_ONCE`
        numbers.
        """
        parts, room, rows = [], ENOUGH, AT_ONCE / self.decider.policy.row_width
        while self._queue and room > 0 and rows > 0:
            batch = self._queue.popleft()
            end = len(batch.decisions)
            while end < len(batch.requests) and room > 0 and rows > 0:
                rows -= batch.requests[end].n_rows
                room -= 1
                end += 1
            parts.append((batch, end))
        return parts

    def _try(self, part: tuple[_Batch, int]) -> Callable[[], None] | None:
        """Make one caller's decisions; on error, return the callback that reports the error."""
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
            requests += batch.requests[len(batch.decisions) : end]
            rows += batch.rows[len(batch.decisions) : end]
        table = table_of(rows, self.decider.policy.row_width)
        now = self._clock()
        self.decider.slot = self.slots.at(now)
        return self.decider.choose(requests, table, now=now, rng=self.rng, hold=True)


@dataclass(slots=True, eq=False)
class _Batch(Append):
    """One caller's requests. Either all of them are decided, or none."""

    stored_requests: dict[int, bytes]
    ids: list[str]
    requests: Sequence[ParsedRequest]
    rows: Sequence[Rows]
    decider: Decider
    decisions: list[Decision] = field(default_factory=list)
    refused: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether all decisions have been made."""
        return len(self.decisions) == len(self.requests)

    def add(self, made: Made, start: int, end: int) -> int:
        """Add decisions to this batch, and return the index of the next batch's first decision.

        Args:
            made: Decisions for several batches.
            start: Index of this batch's first decision.
            end: Number of decisions that this batch will have.
        """
        first = len(self.decisions)
        stop = start + end - first
        self.decisions += made.decisions[start:stop]
        self.events = self.decisions
        if self.is_complete:
            self.events = with_subjects(self.decisions, self.requests)
        if stored := made.requests:
            self.stored_requests |= {
                n - start + first: stored[n] for n in range(start, stop) if n in stored
            }
        return stop

    def durable(self, positions: Sequence[int], standing: Mapping[str, Decision]) -> None:
        own = decisions = self.decisions
        if standing:
            decisions = [standing.get(event.id, event) for event in own]
            pairs = list(zip(own, decisions, strict=True))
            own = [event for event, committed in pairs if committed == event]
            for event, committed in pairs:
                if committed != event:
                    self.decider.discard(event)
        try:
            self.done(decisions)  # answer the caller first
        finally:
            unapplied = self.decider.unapplied
            # The positions of decisions are followed by those of subject decisions.
            for event, position in zip(decisions, positions, strict=False):
                unapplied.mark_durable(event.id, position)
            self.counted(own)

    def failed(self, error: Exception) -> None:
        for event in self.decisions:
            self.decider.discard(event)
        self.done(error)


def _is_new(request: ParsedRequest) -> bool:
    return request.first_attempt and request.id is not None and time_of(request.id) is not None


def table_of(rows: Sequence[Rows], dim: int) -> Row:
    """Combine the rows of several requests into one validated table."""
    data = b"".join([part if isinstance(part, bytes) else part() for part in rows])
    return as_rows(np.frombuffer(data, np.float32).reshape(-1, dim), dim)


class Slots:
    """Draws a random slot for new ids every second, so that each commit writes to few partitions.

    Args:
        new_id: Returns an id with a random slot, given a time in microseconds since 1970.

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
        """Return the slot for ids generated at ``now_us``, in microseconds since 1970."""
        # The clock may jump back.
        if self._slot is None or not 0 <= now_us - self._since < WHILE:
            self._slot, self._since = slot_of(key_of(self._new_id(now_us, None))), now_us
        return self._slot
