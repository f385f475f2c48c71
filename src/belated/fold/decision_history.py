"""One decision on its own: what its records come to, without the others of its partition."""

from __future__ import annotations

from belated.core.events import Decision, DecisionEvent, Record, Settled
from belated.core.ids import key_of, partition_of, time_of
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
        self._ledger = Ledger(
            rewards,
            NullListener(),
            min_reward=min_reward,
            max_reward=max_reward,
            retention=retention,
        )
        self._ledger.undone = undone
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

    @property
    def state(self) -> str:
        """Its state; ``unmatched`` before the decision is known, ``unknown`` without any record."""
        if self.erased:
            return "erased"
        if self._entry is None or self.forgotten:
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


#: Events of one decision that are read, beside the decision: whoever sends more slows nobody down.
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
        history.request = journal.requests(partition, [position]).get(position)
    # Nothing is told of a decision before it is made; the base that knows is too large to read.
    made = time_of(id) if history.decision is None else history.decision.at_us
    trimmed = journal.start(partition)
    was_trimmed = trimmed.position > 0 and (made is None or made <= trimmed.stamp)
    history.incomplete = was_trimmed or len(told) > MOST
    return history
