"""The state and records of a single decision, without folding the rest of its partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from belated.core.events import (
    Decision,
    DecisionEvent,
    Record,
    Settled,
    SubjectDecision,
    SubjectReward,
    Void,
)
from belated.core.ids import key_of, partition_of, subject_id, time_of
from belated.core.rewards import Rewards
from belated.fold.ledger import Ledger, NullListener
from belated.fold.rules import DecisionStatus, State
from belated.fold.undone import Undone
from belated.journals import Journal
from belated.journals.arrivals import assignment_of


class DecisionHistory:
    """The state and records of one decision, determined by the rules of the ledger.

    Only the records of the decision and the ``Settled`` records are needed; others are ignored.

    Args:
        id: the id of the decision.
        rewards: what a missing reward means.
        min_reward: the smallest reward that is accepted.
        max_reward: the largest reward that is accepted.
        retention: how long a decision accepts rewards after it is recorded, in microseconds.
        undone: the erasures and retractions in the decision's partition.

    >>> import math
    >>> from belated.core.events import Reward
    >>> from belated.core.rewards import Explicit
    >>> history = DecisionHistory("a1", Explicit(), min_reward=-math.inf, max_reward=math.inf)
    >>> history.state
    'unknown'
    >>> history.take(Record(0, 1, 7, Reward("a1", 5, 1.0)))
    >>> history.state, [status for _, status in history.records]
    ('unmatched', ['unmatched'])
    """

    def __init__(
        self,
        id: str,
        rewards: Rewards,
        *,
        min_reward: float,
        max_reward: float,
        retention: int | None = None,
        undone: Undone | None = None,
    ) -> None:
        self.id = id
        #: The records in order of position, each with its status when it was folded.
        self.records: list[tuple[Record, str]] = []
        #: The encoded request; None if it was not stored.
        self.request: bytes | None = None
        self._key = key_of(id)
        self._rewards = rewards

        def new_ledger() -> Ledger:
            ledger = Ledger(
                rewards,
                NullListener(),
                min_reward=min_reward,
                max_reward=max_reward,
                retention=retention,
            )
            ledger.undone = undone
            return ledger

        self._new_ledger = new_ledger
        self._ledger = new_ledger()
        #: The subject of the decision; None if it has none.
        self.subject: str | None = None
        self._is_credited = False
        #: Whether the decision was erased; ``records`` is then empty.
        self.erased = undone is not None and undone.erases(id)
        #: Whether records may be missing, because old records were trimmed or there are too many to
        #: read. The actual state may then differ.
        self.incomplete = False
        self._entry: DecisionStatus | None = None

    def take(self, record: Record) -> None:
        """Add the next record, in order of position."""
        event = record.event
        if isinstance(event, Settled):
            self._ledger.fold(record)
        elif not isinstance(event, DecisionEvent):
            return
        elif key_of(event.id) == self._key:
            status = self._ledger.fold(record)
            if not self.erased:
                self.records.append((record, status))
        else:
            return
        self._entry = self._ledger.entry(self.id) or self._entry

    def credit(self, subject: str, records: Iterable[Record]) -> None:
        """Add the subject's rewards that are credited to this decision.

        Args:
            subject: the subject of the decision.
            records: all records of the subject and of the subject's decisions, and all ``Settled``
                records, in order.
        """
        self.subject = subject
        ledger, outcomes, credits = self._new_ledger(), list[Record](), set[str]()
        entry = None
        for record in records:
            ledger.fold(record)
            event = record.event
            if isinstance(event, SubjectReward):
                outcomes.append(record)
            elif isinstance(event, SubjectDecision) and ledger.entry(event.decision) is None:
                # The record of another decision, which may have earned some rewards, was trimmed.
                self.incomplete = True
            if (latest := ledger.entry(self.id)) is not None:
                entry, credits = latest, ledger.credits_of(self.id)
        if credits and not self.erased:
            self._entry, self._is_credited = entry, True
            self.records += [
                (record, "credited")
                for record in outcomes
                if isinstance(record.event, SubjectReward) and record.event.event_id in credits
            ]
            self.records.sort(key=lambda entry: entry[0].position)

    @property
    def state(self) -> str:
        """The state; ``unmatched`` if only the decision is missing, ``unknown`` without records."""
        if self.erased:
            return "erased"
        if self._entry is None or (self.forgotten and not self._is_credited):
            # A forgotten decision is still counted, and this ledger has no other decision.
            states = [state.name.lower() for state in State if self._ledger.counts[state]]
            return states[0] if states else "unmatched" if self.records else "unknown"
        return self._entry.state

    @property
    def forgotten(self) -> bool:
        """Whether the retention period has ended, so that the decision can no longer change."""
        return any(self._ledger.counts) and self._ledger.entry(self.id) is None

    @property
    def entry(self) -> DecisionStatus | None:
        """The last known status; None if the decision is unknown."""
        return self._entry

    @property
    def value(self) -> float | None:
        """The value that the model learns from; None if the model ignores the decision."""
        if self.forgotten and self.state == "defaulted":
            return self._rewards.default
        return None if self._entry is None else self._entry.value

    @property
    def decision(self) -> Decision | None:
        """The first decision with this id, which is the one that counts."""
        for record, _ in self.records:
            if self._entry is not None and record.position == self._entry.position:
                assert isinstance(record.event, Decision)
                return record.event
        return None

    @property
    def watermark(self) -> int:
        """The watermark of the partition, in microseconds since 1970."""
        return self._ledger.watermark


#: Maximum number of records read per id, so that a caller who sends many cannot slow others down.
MOST = 1_000


def read_history(
    journal: Journal,
    id: str,
    rewards: Rewards,
    *,
    min_reward: float,
    max_reward: float,
    retention: int | None,
) -> DecisionHistory:
    """Read a decision's records from the journal and apply the rules of the ledger.

    Args:
        journal: the journal.
        id: the id of the decision.
        rewards: what a missing reward means.
        min_reward: the smallest reward that counts.
        max_reward: the largest reward that counts.
        retention: how long a decision accepts rewards after it is recorded, in microseconds.
    """
    # Read the Settled records first, so that all records before each of them are included.
    settles = rewards.window_us is not None or retention is not None
    partition = partition_of(key_of(id), journal.partitions)
    records = journal.settlements(partition) if settles else []
    own = journal.records_of([id], MOST)
    records += own
    history = DecisionHistory(
        id,
        rewards,
        min_reward=min_reward,
        max_reward=max_reward,
        retention=retention,
        undone=Undone.of(journal.undone(partition)),
    )
    for record in sorted(records, key=lambda record: record.position):
        history.take(record)
    if history.entry is not None:
        position = history.entry.position
        decided = next(record for record in own if record.position == position)
        assigned = assignment_of(journal.read, decided)
        if assigned is not None:
            assert isinstance(assigned.event, SubjectDecision)
            subject = assigned.event.subject
            history.credit(subject, _records_of_subject(journal, subject, records))
        history.request = journal.requests(partition, [position]).get(position)
    start = journal.start(partition)
    history.incomplete |= len(own) > MOST
    history.incomplete |= start.position > 0 and _may_lack(history, start.stamp, retention)
    return history


def _may_lack(history: DecisionHistory, trimmed: int, retention: int | None) -> bool:
    """Return whether some records of a decision may have been trimmed.

    The base contains the answer, but is too large to read. A generated id cannot have rewards
    before its decision is made. If a caller chose the id, or the decision has a subject, a reward
    may arrive first. The ledger remembers such a reward until the retention ends, or longer if no
    ``Settled`` record follows.

    Args:
        history: the history according to the remaining records.
        trimmed: the timestamp of the last trimmed record.
        retention: the retention in microseconds; None if it is unlimited.
    """
    id, decision, entry = history.id, history.decision, history.entry
    recorded = None if entry is None else entry.recorded_us
    decided = time_of(id) if decision is None else decision.at_us
    if decided is None or decided <= trimmed:
        return True
    if recorded is None or (time_of(id) is not None and history.subject is None):
        return False
    return retention is None or recorded <= trimmed + 2 * retention


def _records_of_subject(journal: Journal, subject: str, others: Iterable[Record]) -> list[Record]:
    """Merge other records with all records of a subject and the subject's decisions, in order."""
    records = {record.position: record for record in others}
    own = journal.records_of([subject_id(subject)], MOST)
    ids = [record.event.decision for record in own if isinstance(record.event, SubjectDecision)]
    records |= {record.position: record for record in (*own, *journal.records_of(ids, MOST))}
    return [records[position] for position in sorted(records)]


def read_current(journal: Journal, since: Mapping[str, int]) -> dict[str, Decision]:
    """Return each subject's latest decision that was not voided, unless it is too old.

    Args:
        journal: the journal.
        since: a time for each subject, in microseconds since 1970; decisions made at or before that
            time are too old.
    """
    assigned: dict[str, SubjectDecision] = {}
    for record in journal.records_of([subject_id(subject) for subject in since]):
        event = record.event
        if isinstance(event, SubjectDecision) and event.at_us > since[event.subject]:
            assigned.setdefault(event.decision, event)
    if not assigned:
        return {}
    events = [record.event for record in journal.records_of([*assigned])]
    partitions = {partition_of(key_of(event.id), journal.partitions) for event in assigned.values()}
    undone = Undone(act for partition in partitions for act in journal.undone(partition))
    removed = {event.id for event in events if isinstance(event, Void)}
    removed |= {id for id, event in assigned.items() if undone.erased_key_of(event) is not None}
    # If an id was used twice, the subject's record may have the time of the second use.
    first = {event.id: event for event in reversed(events) if isinstance(event, Decision)}
    current: dict[str, Decision] = {}
    for decision in sorted(first.values(), key=lambda event: (event.at_us, key_of(event.id))):
        subject = assigned[decision.id].subject
        if decision.id not in removed and decision.at_us > since[subject]:
            current[subject] = decision
    return current
