"""An oracle for the ledger: the seven rules as they are written, and nothing to make them fast.

It reads the records of one partition in order, keeps every event, and judges an id from all of its
events on demand. If a ledger and this oracle disagree, one of them is wrong.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

from belated.core.events import (
    ActionChanged,
    Activation,
    Configured,
    Decision,
    Erased,
    KeyChanged,
    ModeChanged,
    ModelChosen,
    Opaque,
    Overwritten,
    Record,
    Retracted,
    Reward,
    Settled,
    SubjectDecision,
    SubjectReward,
    Trimmed,
    Void,
    encode,
)
from belated.core.ids import erased_key_of, key_of
from belated.core.inputs import MAX_REWARD
from belated.core.rewards import Rewards
from belated.fold.rules import MAX_PARTS

#: An event of a decision, with the stamp of its record.
_Stamped = tuple[int, Activation | Reward | Void]
#: Events that change no decision by themselves.
_NOT_LEARNED = (
    ModeChanged
    | ActionChanged
    | ModelChosen
    | Configured
    | Erased
    | Retracted
    | Trimmed
    | KeyChanged
    | Overwritten
)
#: Every state of a decision, in the order of their numbers.
STATES = ("dormant", "pending", "rewarded", "defaulted", "censored", "voided")


@dataclass(frozen=True)
class Outcome:
    """The state of a decision.

    Attributes:
        state: dormant, pending, rewarded, defaulted, censored or voided.
        value: what it is learned with, None if it is not.
        late: whether its reward was first recorded after the window.
        conflict: whether two decisions or two rewards contradict each other.
        decision: the valid decision under its id.
        recorded: when the journal received it.
        began: when its age starts: when it was activated, or recorded as active.
        due: when its window ends, None if it has none.
        converted: when its value became other than 0; None if it is 0 or there is none.
    """

    state: str
    value: float | None
    late: bool
    conflict: bool
    decision: Decision
    recorded: int
    began: int
    due: int | None
    converted: int | None = None


@dataclass
class _Facts:
    """All events of one id, in the order of the journal."""

    decisions: list[tuple[int, Decision]] = field(default_factory=list)
    others: list[_Stamped] = field(default_factory=list)


#: Rewards of subjects by the decisions that they are credited to, with the stamps of their records.
_Credits = dict[str, list[tuple[int, Reward]]]


class Oracle:
    """The state that follows from the records of one partition.

    Args:
        records: the first records.
        rewards: what a missing reward means.
        min_reward: the lowest accepted reward.
        max_reward: the highest accepted reward.
        retention: how long after its record a decision accepts rewards, in microseconds.

    Attributes:
        watermark: the journal time that the partition has reached.
        forgotten: the forgotten decisions, as they were then.
        orphaned: how many unmatched events were dropped.

    >>> from datetime import timedelta
    >>> import numpy as np
    >>> from belated import Explicit
    >>> x = np.array([0.5, 1.0], dtype=np.float32)
    >>> rewards = Explicit(timedelta(microseconds=10))
    >>> oracle = Oracle(rewards=rewards, min_reward=0.0, max_reward=1.0)
    >>> oracle.apply_record(Record(0, 1, 100, Reward("a1", 99, 1.0)))
    >>> oracle.unmatched
    1
    >>> oracle.apply_record(Record(0, 2, 105, Decision("a1", 95, "blue", 0, x, 0.2, 1.0, 7)))
    >>> oracle.apply_record(Record(0, 3, 106, Decision("a2", 96, "red", 1, x, 0.2, 1.0, 7)))
    >>> oracle.observed, oracle.pending
    ({'a1': 1.0}, {'a2'})
    >>> oracle.apply_record(Record(0, 4, 130, Settled(0, 120)))
    >>> oracle.apply_record(Record(0, 5, 131, Reward("a2", 100, 0.0)))
    >>> oracle.entries["a2"].state, oracle.entries["a2"].late
    ('rewarded', True)
    """

    def __init__(
        self,
        records: Iterable[Record] = (),
        *,
        rewards: Rewards,
        min_reward: float,
        max_reward: float,
        retention: int | None = None,
    ) -> None:
        self.rewards = rewards
        self.min_reward, self.max_reward = min_reward, max_reward
        self.retention = retention
        self.forgotten: list[Outcome] = []
        self._records: list[Record] = []
        self._undoing: list[Erased | Retracted] = []
        self._begin()
        self.apply_records(records)

    def _begin(self) -> None:
        """Start with an empty state."""
        self.watermark = 0
        self.forgotten = []
        self.orphaned = 0
        self._facts: dict[str, _Facts] = {}  # by id, in the order in which ids were first seen
        self._subjects: dict[str, str] = {}  # of decisions, by their ids
        # By subject and the id of the event.
        self._outcomes: dict[tuple[str, str], list[tuple[int, SubjectReward]]] = {}
        self._since: dict[str, int] = {}  # when a value became other than 0
        self._ageing: deque[tuple[int, str]] = deque()  # ids with the stamps of their events
        self._aged: set[str] = set()  # ids with something older than the retention

    def apply_record(self, record: Record) -> None:
        """Apply one more record; stamps do not decrease."""
        self._records.append(record)
        if isinstance(record.event, Erased | Retracted):  # as if what it names had never come
            self._undoing.append(record.event)
            self._begin()
            for earlier_record in self._records:
                self._apply(earlier_record)
        else:
            self._apply(record)

    def _counts(self, record: Record) -> bool:
        """Return whether no record undoes this one."""
        event = record.event
        key = erased_key_of(getattr(event, "id", "?"))
        spans: dict[tuple[int, int], bool] = {}  # separately: a span may lie within another
        for undo in self._undoing:
            if isinstance(undo, Erased) and undo.key == key:
                return False
            if (
                isinstance(undo, Retracted)
                and isinstance(event, Reward | SubjectReward)
                and event.reporter == undo.reporter
                and undo.start <= record.recorded < undo.end
            ):
                spans[undo.start, undo.end] = undo.restored
        return all(spans.values())

    def _apply(self, record: Record) -> None:
        event, recorded = record.event, record.recorded
        if isinstance(event, _NOT_LEARNED) or not self._counts(record):
            return
        if isinstance(event, Opaque):
            raise TypeError(f"an oracle judges events, not unread bytes: {event!r}")
        if isinstance(event, Settled):
            # No time is beyond the journal's own last stamp.
            self.watermark = max(self.watermark, min(event.until, recorded))
            self._forget()
            self._note_values(recorded)
            return
        # Rule 4, of values: NaN is outside of everything.
        if isinstance(event, Reward | SubjectReward) and not (
            self.min_reward <= event.value <= self.max_reward
        ):
            return
        if isinstance(event, SubjectReward):
            self._outcomes.setdefault((event.subject, event.event_id), []).append((recorded, event))
        elif isinstance(event, SubjectDecision):
            if self._facts.get(event.decision, _Facts()).decisions:
                self._subjects.setdefault(event.decision, event.subject)
        else:
            self._apply_to_id(event, recorded)
        self._note_values(recorded)

    def _apply_to_id(self, event: Decision | Activation | Reward | Void, recorded: int) -> None:
        if isinstance(event, Decision):
            facts = self._facts.setdefault(event.id, _Facts())
            facts.decisions.append((recorded, event))
            self._ageing.append((recorded, event.id))
            return
        facts_of_id = self._facts.get(event.id)
        if facts_of_id is None:
            facts_of_id = self._facts[event.id] = _Facts()
            self._ageing.append((recorded, event.id))
        facts_of_id.others.append((recorded, event))

    def apply_records(self, records: Iterable[Record]) -> Self:
        """Apply many more records."""
        for record in records:
            self.apply_record(record)
        return self

    @property
    def entries(self) -> dict[str, Outcome]:
        """The state of each decision that is not forgotten, by id."""
        decided = {id: facts for id, facts in self._facts.items() if facts.decisions}
        credits = self._credits()[0]
        return {id: self._judge(facts, credits.get(id, [])) for id, facts in decided.items()}

    @property
    def counts(self) -> dict[str, int]:
        """The number of decisions in each state, including forgotten ones."""
        outcomes = (*self.forgotten, *self.entries.values())
        counts = Counter(outcome.state for outcome in outcomes)
        return {state: counts[state] for state in STATES}

    @property
    def pending(self) -> set[str]:
        """The ids of pending decisions."""
        return {id for id, outcome in self.entries.items() if outcome.state == "pending"}

    @property
    def observed(self) -> dict[str, float]:
        """The learned values, by ids that are not forgotten."""
        entries = self.entries.items()
        return {id: outcome.value for id, outcome in entries if outcome.value is not None}

    @property
    def learned(self) -> list[Outcome]:
        """All decisions whose value is learned: forgotten ones stay learned."""
        outcomes = (*self.forgotten, *self.entries.values())
        return [outcome for outcome in outcomes if outcome.value is not None]

    @property
    def unmatched(self) -> int:
        """The number of events that wait for their decision."""
        count = sum(_kept(facts) for facts in self._facts.values() if not facts.decisions)
        return count + len(self._credits()[1])

    def _credits(self) -> tuple[_Credits, list[tuple[str, str]]]:
        """Return the credited rewards of subjects, and the keys of the others.

        A reward belongs to the latest decision of its subject that was made at or before it, was
        activated and was not voided; but only within the window, and within the retention.
        """
        credits: _Credits = {}
        uncredited = []
        for (subject, event_id), reports in self._outcomes.items():
            stamp, reward = reports[0]  # the first report counts
            decisions = [
                (facts.decisions[0][1].at_us, key_of(id), id, facts.decisions[0][0])
                for id, facts in self._facts.items()
                if self._subjects.get(id) == subject and _is_live(facts)
            ]
            candidates = [decision for decision in decisions if decision[0] <= reward.at_us]
            window = self.rewards.attribution_us
            if candidates:
                at, _, id, recorded = max(candidates)
                is_in_time = window is None or reward.at_us - at <= window
                if is_in_time and (self.retention is None or stamp <= recorded + self.retention):
                    credits.setdefault(id, []).extend(
                        (since, Reward(id, report.at_us, report.value, f"\0{event_id}"))
                        for since, report in reports
                    )
                    continue
            uncredited.append((subject, event_id))
        return credits, uncredited

    def _note_values(self, recorded: int) -> None:
        """Record when decisions of subjects got a value other than 0."""
        if not self._subjects:
            return
        credits = self._credits()[0]
        for id in self._subjects:
            outcome = self._judge(self._facts[id], credits.get(id, []))
            if not outcome.value:
                self._since.pop(id, None)
            else:
                self._since.setdefault(id, recorded)

    def _judge(self, facts: _Facts, credits: Sequence[tuple[int, Reward]] = ()) -> Outcome:
        """Apply the seven rules."""
        # 1. The first decision counts.
        recorded, decision = facts.decisions[0]
        conflict = len({encode(rival) for _, rival in facts.decisions}) > 1
        # 3. Active or not, and until when a missing reward means nothing.
        activations = [since for since, event in facts.others if isinstance(event, Activation)]
        is_live = decision.activated or bool(activations)
        window = self.rewards.window_us
        began = activations[0] if activations else recorded
        due = None if window is None else began + window

        def outcome(
            state: str,
            value: float | None = None,
            late: bool = False,
            converted: int | None = None,
        ) -> Outcome:
            return Outcome(state, value, late, conflict, decision, recorded, began, due, converted)

        # 2. Any Void.
        if any(isinstance(event, Void) for _, event in facts.others):
            return outcome("voided")
        # 4. Rewards past the retention are ignored.
        rewards = [
            (since, event)
            for since, event in facts.others
            if isinstance(event, Reward)
            and (self.retention is None or since <= recorded + self.retention)
        ]
        rewards = sorted([*rewards, *credits], key=lambda reward: reward[0])
        # 5 and 6. A value.
        if rewards:
            value, contradicted = self._value([event for _, event in rewards])
            conflict = conflict or contradicted
            is_late = due is not None and rewards[0][0] > due
            converted = self._converted(rewards, recorded)
            if decision.id in self._subjects:
                converted = self._since.get(decision.id)
            return outcome("rewarded", value, is_late, converted)
        # 7. No value.
        if due is None or self.watermark < due:
            return outcome("pending" if is_live else "dormant")
        if not is_live:
            return outcome("voided")
        if self.rewards.on_timeout == "defaulted":
            return outcome("defaulted", self.rewards.default)
        return outcome("censored")

    def _value(self, rewards: list[Reward]) -> tuple[float, bool]:
        """Rule 5: one value of all parts, and whether two rewards contradict each other."""
        counted: list[Reward] = []
        contradicted = False
        for part in _parts(rewards):
            revisions = [reward for reward in rewards if reward.part == part]
            latest = max(reward.revision for reward in revisions)
            tied_rewards = [reward for reward in revisions if reward.revision == latest]
            counted.append(tied_rewards[0])
            contradicted = contradicted or len({reward.value for reward in tied_rewards}) > 1
        if self.rewards.reduce == "latest":
            return max(counted, key=lambda reward: (reward.at_us, reward.part)).value, contradicted
        values = [reward.value for reward in counted]
        if self.rewards.reduce == "max":
            return max(values), contradicted
        total = math.fsum(values)
        return min(max(total, -MAX_REWARD), MAX_REWARD), contradicted

    def _converted(self, rewards: list[tuple[int, Reward]], recorded: int) -> int | None:
        """Return since when the value is not 0: no reward counts before its decision."""
        converted_at = None
        for n, (stamp, _) in enumerate(rewards):
            value, _ = self._value([event for _, event in rewards[: n + 1]])
            if not value:
                converted_at = None
            elif converted_at is None:
                converted_at = max(stamp, recorded)
        return converted_at

    def _forget(self) -> None:
        """Forget what is older than the retention; only the watermark defines the time."""
        if self.retention is None:
            return
        horizon = self.watermark - self.retention
        while self._ageing and self._ageing[0][0] < horizon:
            self._aged.add(self._ageing.popleft()[1])
        remaining = set()
        credits = self._credits()[0]
        for id in sorted(self._aged):
            facts = self._facts.pop(id, _Facts())
            if not facts.decisions:  # unmatched: its decision has not come
                if facts.others and facts.others[0][0] >= horizon:  # an earlier decision was aged
                    self._facts[id] = facts
                    remaining.add(id)
                else:
                    self.orphaned += _kept(facts)
                continue
            outcome = self._judge(facts, credits.get(id, []))
            if outcome.recorded < horizon and outcome.state not in ("dormant", "pending"):
                self.forgotten.append(outcome)
                if id in self._subjects:
                    subject = self._subjects.pop(id)
                    self._since.pop(id, None)
                    for _, credit in credits.get(id, []):
                        self._outcomes.pop((subject, credit.part[1:]), None)
                continue
            self._facts[id] = facts
            remaining.add(id)
        self._aged = remaining
        for name in self._credits()[1]:
            if self._outcomes[name][0][0] < horizon:
                del self._outcomes[name]
                self.orphaned += 1


def _is_live(facts: _Facts) -> bool:
    """Return whether a decision took effect and was not voided."""
    marks = {type(event) for _, event in facts.others}
    return (facts.decisions[0][1].activated or Activation in marks) and Void not in marks


def _parts(rewards: list[Reward]) -> list[str]:
    """Return the accepted parts: the first ``MAX_PARTS``."""
    return list(dict.fromkeys(reward.part for reward in rewards))[:MAX_PARTS]


def _kept(facts: _Facts) -> int:
    """Return how many events wait: each part once, and nothing after a void."""
    rewards: list[Reward] = []
    marks: set[type] = set()
    for _, event in facts.others:
        if isinstance(event, Reward):
            if Void not in marks:
                rewards.append(event)
        else:
            marks.add(type(event))
    return len(_parts(rewards)) + len(marks)
