"""Send the outcomes of decisions to the store as they change.

The version of an outcome is the position of the record that changed it, so folding the same records
again sends the same messages. An erasure or a retraction makes learners fold a partition again, and
may change the outcome of a decision as of an earlier record. The version of an outcome that may
have changed in this way is therefore at least the position of the erasure or retraction. Such
outcomes are held back until the fold reaches that position, so that no two messages with the same
version differ.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple

import msgspec

from belated.core.events import Decision, Record
from belated.core.outcomes import DecisionOutcome, OutcomeState
from belated.core.times import as_datetime
from belated.fold.contexts import read_context
from belated.journals.arrivals import AT_ONCE, assignment_of
from belated.journals.outcomes import OutcomeLog, OutcomeMessage

#: Maximum number of outcomes to send at a time, and of records to read at a time.
BATCH, PAGE = 2_000, 512
#: Interval at which outcomes are sent while records keep arriving, in microseconds of journal time.
#: Sending more often would be inefficient, because a transaction costs as much as many outcomes.
PAUSE = 1_000_000
#: Maximum size of a message with its context, in bytes.
MAX_BYTES = 1 << 20

_encode = msgspec.json.encode


class OutcomeChange(NamedTuple):
    """The outcome of a decision after the record that changed it.

    Attributes:
        version: the version of the outcome.
        state: the state of the decision.
        value: the reward or the default, if there is one.
        effective: when the decision took effect, in microseconds since 1970.
        rewarded: when the first reward was recorded, if there is one.
        late: whether the reward arrived after the window.
        conflict: whether another record contradicts the decision.
        has_subject: whether the decision was made for a subject.
    """

    version: int
    state: OutcomeState
    value: float | None = None
    effective: int = 0
    rewarded: int | None = None
    late: bool = False
    conflict: bool = False
    has_subject: bool = False


class OutcomeChanges:
    """The outcomes of one partition that have changed and have not been sent yet.

    Attributes:
        ready: outcomes to send, by the position of the decision.
        held: outcomes to send once the fold has reached ``undone_at``.
        position: the position of the record being folded.
        recorded: the timestamp of the record being folded, in microseconds since 1970.
        undone_at: the position of the last erasure or retraction; 0 if there is none.
        affected: keys of the decisions and subjects to which erased or retracted records belong.
    """

    def __init__(self) -> None:
        self.ready: dict[int, OutcomeChange] = {}
        self.held: dict[int, OutcomeChange] = {}
        self.position = self.recorded = 0
        self.undone_at = 0
        self.affected: set[bytes] = set()
        self._sent_at = 0

    def note(self, decision: int, change: OutcomeChange, *, affected: bool) -> None:
        """Note a changed outcome.

        Args:
            decision: the position of the decision.
            change: the outcome, with the current position as its version.
            affected: whether an erasure or retraction may have changed earlier versions.
        """
        self.ready.pop(decision, None)
        self.held.pop(decision, None)
        if affected and self.position < self.undone_at:
            self.held[decision] = change._replace(version=self.undone_at)
        else:
            self.ready[decision] = change

    def reach(self, position: int, recorded: int) -> None:
        """Continue with the record at this position; release outcomes that are no longer held."""
        self.position, self.recorded = position, recorded
        if (self.held or self.affected) and position >= self.undone_at:
            self.ready |= self.held
            self.held, self.affected = {}, set()

    @property
    def are_due(self) -> bool:
        """Whether to send outcomes now, although more records are likely to follow."""
        return len(self.ready) >= BATCH or self.recorded >= self._sent_at + PAUSE

    def clear(self) -> None:
        """Forget the outcomes that were ready, because they were sent."""
        self.ready = {}
        self._sent_at = self.recorded

    @property
    def are_sent(self) -> bool:
        """Whether a snapshot may be saved, because no outcome of its records would be missing."""
        return not self.ready and self.position >= self.undone_at


def send_outcomes(log: OutcomeLog, partition: int, changes: OutcomeChanges) -> None:
    """Send the outcomes that are ready, in the order of their versions.

    The decisions are read from the log again. If sending fails, all outcomes stay ready, and some
    may be sent twice.
    """
    if not changes.ready:
        return
    start = log.start(partition).position  # earlier decisions were trimmed
    waiting = iter(sorted(changes.ready.items(), key=lambda item: (item[1].version, item[0])))
    while batch := dict(islice(waiting, BATCH)):
        messages = {}  # an erased id may have several decisions
        for record, subject in _decisions(log, partition, batch, start):
            message = _message(record, subject, batch[record.position])
            messages[message.id] = message
        log.put_outcomes(partition, sorted(messages.values(), key=lambda message: message.version))
    changes.clear()


def _decisions(
    log: OutcomeLog, partition: int, changes: Mapping[int, OutcomeChange], start: int
) -> Iterable[tuple[Record, str | None]]:
    """Yield the records of decisions with their subjects; skip records that no longer exist."""
    page: list[Record] = []
    size, hits = AT_ONCE, 0

    def read(partition: int, after: int, limit: int) -> list[Record]:
        """Return records after a position, from the page if it contains any."""
        at = bisect_left(page, after + 1, key=_position)
        return page[at : at + limit] or log.read_again(partition, after, limit)

    for position in sorted(position for position in changes if position > start):
        if not page or page[-1].position < position:
            # Outcomes of neighboring decisions often change together, when their windows end.
            size = min(2 * size, PAGE) if 4 * hits > len(page) else AT_ONCE
            page, hits = log.read_again(partition, position - 1, size), 0
        hits += 1
        record = page[bisect_left(page, position, key=_position)] if page else None
        if record is None or record.position != position or not isinstance(record.event, Decision):
            continue
        assigned = assignment_of(read, record) if changes[position].has_subject else None
        yield record, None if assigned is None else assigned.event.subject  # type: ignore[union-attr]


def _position(record: Record) -> int:
    return record.position


def _message(record: Record, subject: str | None, change: OutcomeChange) -> OutcomeMessage:
    decision = record.event
    assert isinstance(decision, Decision)
    if change.state == "erased":
        outcome = DecisionOutcome(id=decision.id, version=change.version, state=change.state)
        return OutcomeMessage(outcome.id, outcome.version, _encode(outcome))
    stored, rewarded = read_context(decision), change.rewarded
    overall = decision.overall
    if overall is None and decision.source != "holdout":
        overall = decision.propensity
    outcome = DecisionOutcome(
        id=decision.id,
        version=change.version,
        state=change.state,
        at=decision.at,
        recorded=as_datetime(record.recorded),
        effective=as_datetime(change.effective),
        subject=subject,
        action=decision.action,
        index=decision.index,
        propensity=decision.propensity,
        overall=overall,
        mean=decision.mean,
        model=decision.model,
        source=decision.source,
        group=decision.group,
        context=None if stored is None else stored.context,
        record=None if stored is None else stored.record,
        value=change.value,
        rewarded=None if rewarded is None else as_datetime(rewarded),
        delay=None if rewarded is None else (rewarded - change.effective) / 1e6,
        late=change.late,
        conflict=change.conflict,
    )
    data = _encode(outcome)
    if len(data) > MAX_BYTES:
        data = _encode(msgspec.structs.replace(outcome, context=None, record=None))
    return OutcomeMessage(outcome.id, outcome.version, data)
