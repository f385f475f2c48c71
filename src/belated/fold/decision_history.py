"""One decision on its own: what its records come to, without the others of its partition."""

from __future__ import annotations

from collections.abc import Iterable

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


class DecisionHistory:
    """Reads records of a partition, and tells the story of one decision by the ledger's rules.

    Only its own records and those that settle are needed; all others are passed over.

    Args:
        id: of the decision.
        rewards: what a missing reward means.
        min_reward: the least reward that is taken.
        max_reward: the greatest.
        retention: for how long after its record a decision takes rewards, in microseconds.
        undone: what counts no longer in its partition.

    >>> import math
    >>> from belated.core.events import Reward
    >>> from belated.core.rewards import Explicit
    >>> telling = DecisionHistory("a1", Explicit(), min_reward=-math.inf, max_reward=math.inf)
    >>> telling.state
    'unknown'
    >>> telling.take(Record(0, 1, 7, Reward("a1", 5, 1.0)))
    >>> telling.state, [meant for _, meant in telling.records]
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
        #: Its records in the order they were taken, and what each of them meant then.
        self.records: list[tuple[Record, str]] = []
        #: What it was chosen from, as the journal has it; None if that was not kept.
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
        #: The subject it was made for; None without one.
        self.subject: str | None = None
        self._is_credited = False
        #: Whether it was erased: then nothing of it is told.
        self.erased = undone is not None and undone.erases(id)
        #: Whether records of it may be gone, for old ones were trimmed: it may be known otherwise.
        self.incomplete = False
        self._entry: DecisionStatus | None = None

    def take(self, record: Record) -> None:
        """Read one more, in the order of positions."""
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
        """Add the rewards of its subject that are credited to it.

        Args:
            subject: that it was made for.
            records: all of the subject and its decisions, and those that settle, in order.
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
                self.incomplete = True  # rewards may be credited to it, and its record was trimmed
            if (known := ledger.entry(self.id)) is not None:
                entry, credits = known, ledger.credits_of(self.id)
        if credits and not self.erased:
            self._entry, self._is_credited = entry, True
            self.records += [
                (record, "credited")
                for record in outcomes
                if isinstance(record.event, SubjectReward) and record.event.event_id in credits
            ]
            self.records.sort(key=lambda told: told[0].position)

    @property
    def state(self) -> str:
        """Its state; ``unmatched`` before the decision is known, ``unknown`` without any record."""
        if self.erased:
            return "erased"
        if self._entry is None or (self.forgotten and not self._is_credited):
            # One that was forgotten is still counted, and no other is in this ledger.
            states = [state.name.lower() for state in State if self._ledger.counts[state]]
            return states[0] if states else "unmatched" if self.records else "unknown"
        return self._entry.state

    @property
    def forgotten(self) -> bool:
        """Whether its retention has ended: then nothing of it can change any more."""
        return any(self._ledger.counts) and self._ledger.entry(self.id) is None

    @property
    def entry(self) -> DecisionStatus | None:
        """What it has come to, as it was last known."""
        return self._entry

    @property
    def value(self) -> float | None:
        """What it is learned with, None if it is not."""
        if self.forgotten and self.state == "defaulted":
            return self._rewards.default
        return None if self._entry is None else self._entry.value

    @property
    def decision(self) -> Decision | None:
        """The decision that counts, as it was made."""
        for record, _ in self.records:
            if self._entry is not None and record.position == self._entry.position:
                assert isinstance(record.event, Decision)
                return record.event
        return None

    @property
    def watermark(self) -> int:
        """The time to which the partition is settled."""
        return self._ledger.watermark


#: Events of one decision that are read, beside the decision, and decisions of one call: whoever
#: sends more slows nobody down.
MOST = 1_000
#: Records that are read at a time to find the subject of a decision.
AT_ONCE = 8


def read_history(
    journal: Journal,
    id: str,
    rewards: Rewards,
    *,
    min_reward: float,
    max_reward: float,
    retention: int | None,
) -> DecisionHistory:
    """Return what the records of a decision come to, by the rules of the ledger.

    Args:
        journal: where the records are.
        id: of the decision.
        rewards: what a missing reward means.
        min_reward: the least reward that counts.
        max_reward: the greatest.
        retention: for how long after its record a decision takes rewards, in microseconds.
    """
    # First these: what they settle must not be settled without a record that came before.
    settles = rewards.window_us is not None or retention is not None
    partition = partition_of(key_of(id), journal.partitions)
    records = journal.settlements(partition) if settles else []
    told = journal.records_of([id], MOST)
    records += told
    history = DecisionHistory(
        id,
        rewards,
        min_reward=min_reward,
        max_reward=max_reward,
        retention=retention,
        undone=Undone.of(journal.undone(partition)),
    )
    for record in sorted(records, key=lambda one: one.position):
        history.take(record)
    if history.entry is not None:
        position = history.entry.position
        subject = _subject_of(journal, partition, position, id)
        if subject is not None:
            history.credit(subject, _records_of_subject(journal, subject, records))
        history.request = journal.requests(partition, [position]).get(position)
    start = journal.start(partition)
    history.incomplete |= len(told) > MOST
    history.incomplete |= start.position > 0 and _may_lack(history, start.stamp, retention)
    return history


def _may_lack(history: DecisionHistory, trimmed: int, retention: int | None) -> bool:
    """Return whether records that were trimmed may say more of a decision.

    The base, which knows, is too large to read. An id that is made here is not rewarded before its
    decision is made. Under an id that callers chose, and for a subject, a reward may come first:
    the ledger remembers it for the retention, and longer while nothing is settled.

    Args:
        history: what the remaining records say of it.
        trimmed: the stamp of the last record that was trimmed.
        retention: in microseconds; None: for ever.
    """
    id, decision, entry = history.id, history.decision, history.entry
    recorded = None if entry is None else entry.recorded_us
    made = time_of(id) if decision is None else decision.at_us
    if made is None or made <= trimmed:
        return True
    if recorded is None or (time_of(id) is not None and history.subject is None):
        return False
    return retention is None or recorded <= trimmed + 2 * retention


def _subject_of(journal: Journal, partition: int, position: int, id: str) -> str | None:
    """Return the subject of a decision: it is recorded behind the decisions of the same call."""
    read = 0
    while read < 2 * MOST and (records := journal.read(partition, position, AT_ONCE)):
        read += len(records)
        for record in records:
            event = record.event
            if not isinstance(event, Decision | SubjectDecision):
                return None
            if isinstance(event, SubjectDecision) and event.decision == id:
                return event.subject
        position = records[-1].position
    return None


def _records_of_subject(journal: Journal, subject: str, others: Iterable[Record]) -> list[Record]:
    """Return all records of a subject and its decisions, together with others, in order."""
    records = {record.position: record for record in others}
    told = journal.records_of([subject_id(subject)], MOST)
    ids = [one.event.decision for one in told if isinstance(one.event, SubjectDecision)]
    records |= {record.position: record for record in (*told, *journal.records_of(ids, MOST))}
    return [records[position] for position in sorted(records)]


def read_current(journal: Journal, subject: str, since: int) -> Decision | None:
    """Return the latest decision of a subject that was not voided; None if it was made earlier.

    Args:
        journal: where the records are.
        subject: that decisions were made for.
        since: in microseconds since 1970; one that was made at this time is too old.
    """
    key = subject_id(subject)
    undone = Undone.of(journal.undone(partition_of(key_of(key), journal.partitions))) or Undone()
    if undone.erases(key):
        return None
    made = [
        record.event.decision
        for record in journal.records_of([key])
        if isinstance(record.event, SubjectDecision)
        and record.event.at_us > since
        and not undone.erases(record.event.decision)
    ]
    told = [record.event for record in journal.records_of(made)] if made else []
    voided = {event.id for event in told if isinstance(event, Void)}
    # An id that was used twice may have a record of the subject with the time of the second use.
    first = {event.id: event for event in reversed(told) if isinstance(event, Decision)}
    current = [one for one in first.values() if one.id not in voided and one.at_us > since]
    return max(current, key=lambda one: (one.at_us, key_of(one.id)), default=None)
