"""The ledger: folds the records of one partition into the state of each decision.

The rules are in :mod:`belated.fold.rules`. The ledger stores each decision as a table entry; facts
that do not fit into the entry are stored separately. The ledger is independent of the model, and
reports changes to a :class:`LedgerListener`.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Protocol, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from belated.advice.issues import KINDS, Noticed
from belated.core.events import (
    ActionChanged,
    Activation,
    Configured,
    Decision,
    Erased,
    KeyChanged,
    Mark,
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
)
from belated.core.ids import key_of, subject_id
from belated.core.outcomes import OutcomeState
from belated.core.rewards import Rewards
from belated.core.times import CLOCK_SKEW
from belated.core.tuning import USUAL, Tuning
from belated.exceptions import HistoryUndone
from belated.fold.outcomes import OutcomeChange, OutcomeChanges
from belated.fold.rules import (
    DecisionStatus,
    Facts,
    ReportedReward,
    State,
    clamped_time,
    crc_of,
    due_of,
    judge,
    meaning_of,
    take_mark,
    take_reward,
    unknown_event,
)
from belated.fold.subjects import UNCREDITED, Credit, SubjectHistory, SubjectIndex, credited
from belated.fold.table import NONE, NOWHERE, EntryTable, Index, key_from
from belated.fold.undone import Undone
from belated.fold.unmatched import UnmatchedEvents
from belated.model.kernels.pages import (
    ACTIVATED,
    CONFLICT,
    EXPECTED,
    FORGOTTEN,
    LATE,
    MORE,
    OWNED,
    WITHHELD,
)


class LedgerListener(Protocol):
    """Receives the changes of a ledger. Decisions are identified by their number in the partition.

    ``began`` is when a decision took effect: when it was recorded or, if later, activated.
    ``recorded`` is the timestamp of the record being folded. Both are in microseconds since 1970.

    Attributes:
        table: the ledger's table, where the listener also stores data for each decision.
    """

    table: EntryTable

    def enter(self, number: int, decision: Decision, expected: bool) -> None:
        """Add a decision; decisions are added in order of their numbers.

        If ``expected``, the decision is pending from the start: pending + 1.
        """

    def add_pending(self, number: int, began: int, again: bool) -> None:
        """Make a decision pending: pending + 1. ``again`` is True if it was pending before."""

    def remove_pending(self, number: int, began: int) -> None:
        """End the pending state of a decision that gets no reward: pending - 1."""

    def move(self, number: int, before: int, began: int) -> None:
        """Change the time at which a pending or observed decision took effect."""

    def learn(self, number: int, value: float, began: int, recorded: int) -> None:
        """Learn from the value of a pending decision: pending - 1, observed + 1."""

    def revise(self, number: int, value: float, recorded: int) -> None:
        """Change the value of an observed decision."""

    def retract(self, number: int, recorded: int) -> None:
        """Remove the value of an observed decision: observed - 1."""

    def forget(self, number: int) -> None:
        """Release a decision that can no longer change."""

    def finish(self, recorded: int) -> None:
        """Finish a record, after all of its changes have been reported."""


class NullListener:
    """Ignores all changes, for callers that only need the states of decisions."""

    def __init__(self) -> None:
        self.table = EntryTable()

    def _ignore(self, *change: object) -> None:
        pass

    enter = add_pending = remove_pending = move = learn = revise = retract = forget = _ignore
    finish = _ignore


DORMANT, PENDING, REWARDED = State.DORMANT, State.PENDING, State.REWARDED
#: The name of each state.
NAMES: tuple[OutcomeState, ...] = get_args(OutcomeState)
#: The roles that a decision can have for the learner, and the role of each state.
NOTHING, AWAITED, OBSERVED = 0, 1, 2
ROLE = (NOTHING, AWAITED, OBSERVED, OBSERVED, NOTHING, NOTHING)
#: The status of each event type that does not concern a decision.
_OTHERS = {
    ModeChanged: "switched",
    ActionChanged: "switched",
    ModelChosen: "switched",
    Configured: "configured",
    Trimmed: "operated",
    KeyChanged: "operated",
}


class Ledger:
    """The decisions of one partition and their states.

    A value may be *withheld* from the learner: the decision is then rewarded, but the learner still
    treats it as pending. The value is reported when the window of the decision ends
    (``learn="together"``), or after a number of further decisions (``learn_after``).

    Args:
        rewards: what a missing reward means.
        changes: the listener that receives the changes.
        min_reward: the smallest reward that is accepted.
        max_reward: the largest reward that is accepted.
        retention: how long a decision accepts rewards after it is recorded, in microseconds.
        learn_after: number of further decisions after which a value is reported; 0 means
            immediately.
        tuning: internal sizes.

    Attributes:
        watermark: the time up to which ended windows take effect, from the last ``Settled`` record,
            in microseconds since 1970.
        counts: number of decisions by state, including forgotten decisions.
        counters: number of events by status.
        latest: the time and id of the last event for each status that is an issue, since the ledger
            was loaded.
        undone: erasures and retractions; must be set before anything is folded.
        outcomes: receives the changes of outcomes; None if they are not needed.
        soonest: a lower bound for the time of the next settlement, in microseconds since 1970.
    """

    def __init__(
        self,
        rewards: Rewards,
        changes: LedgerListener,
        *,
        min_reward: float,
        max_reward: float,
        retention: int | None = None,
        learn_after: int = 0,
        tuning: Tuning = USUAL,
    ) -> None:
        self.rewards = rewards
        self.changes = changes
        self.watermark = 0
        self.counts = [0] * len(State)
        self.counters: Counter[str] = Counter()
        self.latest: dict[str, tuple[int, str]] = {}
        self.undone: Undone | None = None
        self.outcomes: OutcomeChanges | None = None
        self.soonest: float = 0.0
        self._together = getattr(rewards, "learn", "on arrival") == "together"
        self._after = learn_after
        self._retention = retention
        self._window = rewards.window_us
        self._attribution = rewards.attribution_us
        self._dropped = tuning.dropped
        self._least, self._most = min_reward, max_reward
        self._table = changes.table
        self._index = Index(self._table)
        # The last id that was looked up, and the number of its decision.
        self._last_lookup: tuple[str | None, int] = None, -1
        self._facts: dict[int, Facts] = {}  # for decisions whose facts do not fit into an entry
        self._unmatched = UnmatchedEvents()
        self._subjects = SubjectIndex()
        self._recorded = 0  # the timestamp of the record being folded
        # Windows end in order of decision numbers, except for the windows in this heap.
        self._first_open = 0
        self._moved_windows: list[tuple[int, int]] = []
        # Time after a decision is recorded during which it need not be settled or forgotten.
        spans = [span for span in (self._window, retention) if span is not None]
        self._patience: float = min(spans, default=math.inf)
        self._forgotten = 0  # decisions with smaller numbers are forgotten or stragglers
        self._stragglers: set[int] = set()
        self._forgotten_digest = 0

    @property
    def withholds(self) -> bool:
        """Whether some values are reported to the listener later than they arrive."""
        return self._together or self._after > 0

    def fold(self, record: Record) -> str:
        """Fold a record; return and count its status.

        Raises:
            UnknownEvent: a newer release wrote the record; the ledger is unchanged.
            HistoryUndone: the record is an erasure or a retraction that was not known when the fold
                began; the ledger is unchanged.
        """
        event, self._recorded = record.event, record.recorded
        if self.outcomes is not None:
            self.outcomes.reach(record.position, record.recorded)
        undone = None if self.undone is None else self.undone.status_of(record)
        status = undone or _OTHERS.get(type(event)) or self._fold(event, record)
        if (
            self.outcomes is not None
            and self.undone is not None
            and record.position < self.undone.last
            and (undone or self.undone.has_retracted(record))
        ):
            self._note_undone(record, self.outcomes)
        self.counters[status] += 1
        if status in KINDS:
            self.latest[status] = record.recorded, getattr(event, "id", "")
        self.changes.finish(record.recorded)
        return status

    def _fold(self, event: object, record: Record) -> str:
        match event:
            case Decision():
                return self._decided(event, record)
            case Reward():
                return self._rewarded(event)
            case Activation() | Void():
                return self._marked(event)
            case SubjectDecision():
                return self._decided_for(event)
            case SubjectReward():
                return self._subject_rewarded(event)
            case Settled():
                return self._settled(event)
            case Erased() | Retracted():
                if self.undone is None or not self.undone.knows(event):
                    raise HistoryUndone(record.partition, record.position)
                return "undoing"
            case Overwritten():  # the erasure was not known before, or does not exist
                raise HistoryUndone(record.partition, record.position)
            case Opaque():
                raise unknown_event(record)
        raise AssertionError(event)

    # --- decisions -----------------------------------------------------------------------------

    def _decided(self, decision: Decision, record: Record) -> str:
        key, recorded = key_of(decision.id), record.recorded
        # A checksum to distinguish decisions with the same id, from the journal's digest if any.
        crc = int.from_bytes(record.digest[:4]) if record.digest else crc_of(decision)
        existing = self._index.find_or_enter(key)
        if existing >= 0:
            return self._decided_again(existing, decision, crc)
        live = decision.activated
        number = self._table.append(
            key,
            recorded=recorded,
            position=record.position,
            at=clamped_time(decision.at_us),
            state=PENDING if live else DORMANT,
            flags=ACTIVATED | EXPECTED if live else 0,
            crc=crc,
        )
        self._last_lookup = decision.id, number  # the decision's subject record may follow
        self.counts[PENDING if live else DORMANT] += 1
        self.changes.enter(number, decision, live)
        self.expect(recorded)
        if self._window is not None and self.watermark >= recorded + self._window:
            self._review(number)
        if self._unmatched.ids and (facts := self._unmatched.take(key)) is not None:
            facts.recorded, facts.activated = recorded, live
            self._match(number, facts)
        if self.outcomes is not None and key in self.outcomes.affected:
            self._note_outcome(number, self.outcomes)
        if self._after:
            i = len(self._table) - 1 - self._after
            if i >= 0 and self._table.flags[i] & WITHHELD:
                self._review(self._table.base + i)
        return "decided"

    def expect(self, recorded: int) -> None:
        """Update ``soonest`` for a decision that was recorded at this time."""
        self.soonest = min(self.soonest, recorded + self._patience)

    def _match(self, number: int, facts: Facts) -> None:
        """Apply the events that arrived before their decision."""
        self._keep(number, facts)
        if facts.activation is not None:
            self._began_later(number, facts.recorded, facts.activation)
        self._review(number, facts)
        self.counters["unmatched"] -= facts.events
        self.counters["voided"] += facts.void
        self.counters["activated"] += facts.activation is not None
        if facts.void:
            self.counters["voided"] += len(facts.parts)
        elif facts.parts:
            late = self._table.flags[number - self._table.base] & LATE
            self.counters["late" if late else "rewarded"] += 1
            self.counters["revised"] += len(facts.parts) - 1

    def _decided_again(self, number: int, decision: Decision, crc: int) -> str:
        """Handle a second decision with the same id, which is a duplicate or a conflict."""
        table, i = self._table, number - self._table.base
        if (clamped_time(decision.at_us), crc) == (table.at[i], table.crc[i]):
            return "duplicate"
        facts = self._facts_of(number)
        if not facts.rival:
            facts.rival = True
            self._keep(number, facts)
            self._review(number, facts)
        return "conflict"

    # --- rewards, activations, voids -----------------------------------------------------------

    def _rewarded(self, reward: Reward) -> str:
        if not self._least <= reward.value <= self._most:
            return "invalid"
        number, recorded = self.find(reward.id), self._recorded
        if number < 0:
            return self._unmatched_event(reward)
        table, i = self._table, number - self._table.base
        if self._retention is not None and recorded > table.recorded[i] + self._retention:
            return "expired"
        facts = self._facts_of(number)
        contradicted = table.flags[i] & CONFLICT
        status = take_reward(facts, reward, recorded)
        if status in ("rewarded", "revised") or (status == "conflict" and not contradicted):
            self._keep(number, facts)
            self._review(number, facts)
        return "late" if status == "rewarded" and table.flags[i] & LATE else status

    def _marked(self, event: Mark) -> str:
        number = self.find(event.id)
        if number < 0:
            return self._unmatched_event(event)
        facts, before = self._facts_of(number), self.began(number)
        status = take_mark(facts, event, self._recorded)
        if status == "duplicate":
            return status
        self._keep(number, facts)
        if status == "activated":
            self._began_later(number, before, self._recorded)
        self._review(number, facts)
        if (history := self._subjects.owners.get(number)) is not None:
            self._credit(history, self.rewarded_since(history, number))
        return status

    def _unmatched_event(self, event: Reward | Mark) -> str:
        self.soonest = min(self.soonest, self._recorded)
        return self._unmatched.add(key_of(event.id), event, self._recorded)

    def _began_later(self, number: int, before: int, began: int) -> None:
        """Restart the age and the window of a decision when it takes effect."""
        if self._role(number - self._table.base) != NOTHING:
            self.changes.move(number, before, began)
        if self._window is not None:
            heappush(self._moved_windows, (began + self._window, number))
            self.soonest = min(self.soonest, began + self._window)

    # --- subjects ------------------------------------------------------------------------------

    def _decided_for(self, event: SubjectDecision) -> str:
        """Assign a decision to its subject, if the decision is known."""
        number = self.find(event.decision)
        return "orphaned" if number < 0 else self.assign(number, key_of(event.id))

    def assign(self, number: int, subject: bytes) -> str:
        """Assign a decision to a subject, unless it already has one."""
        index, table = self._subjects, self._table
        if number in index.owners:
            return "duplicate"
        table.touch(number - table.base)
        table.flags[number - table.base] |= OWNED
        if (outcomes := self.outcomes) is not None and (
            table.state[number - table.base] > PENDING or subject in outcomes.affected
        ):
            self._note_outcome(number, outcomes)
        history = index.histories.get(subject)
        if history is None:
            index.begin(subject, number)
            return "assigned"
        index.owners[number] = history
        insort(history.decisions, number, key=self._order)
        if credits := self.rewarded_since(history, number):
            self._credit(history, credits)
        return "assigned"

    def _subject_rewarded(self, event: SubjectReward) -> str:
        if not self._least <= event.value <= self._most:
            return "invalid"
        index = self._subjects
        history = index.history(key_of(event.id))
        status = index.meaning(history, event)
        if status == "conflict":
            credit = history.rewards[event.event_id]
            credit.reward.conflict = True
            if credit.number >= 0:
                self._review_credits({credit.number: self._facts_of(credit.number)})
        if status != "unmatched":
            return status
        number = self._decision_for(history, clamped_time(event.at_us), self._recorded)
        # Get the facts before adding the reward, because the entry may hold another reward.
        changed = {number: self._facts_of(number)} if number >= 0 else {}
        index.add_reward(history, event, self._recorded, number)
        if not changed:
            self.soonest = min(self.soonest, self._recorded)
            return "unmatched"
        self._review_credits(changed)
        return "credited"

    def credit_plainly(self, event: SubjectReward, history: SubjectHistory | None) -> int:
        """Credit a subject reward to a pending decision that has no other facts.

        Returns:
            The number of the decision, so that the caller can report the reward to the learner; -1
            if nothing was changed because the event must be folded by the full rules.
        """
        index, table, recorded = self._subjects, self._table, self._recorded
        if (
            history is None
            or not self._least <= event.value <= self._most
            or index.meaning(history, event) != "unmatched"
        ):
            return -1
        at = clamped_time(event.at_us)
        number = self._decision_for(history, at, recorded)
        i = number - table.base
        if (
            number < 0
            or table.state[i] != PENDING
            or table.flags[i] != ACTIVATED | EXPECTED | OWNED
            or recorded - table.recorded[i] > self._patience
            or table.where[i] <= NOWHERE
        ):
            return -1
        index.add_reward(history, event, recorded, number)
        table.touch(i)
        table.state[i], table.value[i] = State.REWARDED, event.value
        table.reward_recorded[i], table.reward_at[i] = recorded, at
        self.counts[PENDING] -= 1
        self.counts[State.REWARDED] += 1
        return number

    def rewarded_since(self, history: SubjectHistory, number: int) -> list[Credit]:
        """Return the subject's rewards that happened when a decision was made or later."""
        if not history.rewards:
            return []
        since = self._made(number)
        return [credit for credit in history.rewards.values() if credit.reward.at_us >= since]

    def _credit(self, history: SubjectHistory, credits: Iterable[Credit]) -> None:
        """Credit a subject's rewards again, and re-evaluate the affected decisions."""
        changed: dict[int, Facts] = {}
        for credit in credits:
            reward, before = credit.reward, credit.number
            number = self._decision_for(history, reward.at_us, reward.recorded_us)
            if number == before:
                continue
            for decision in (before, number):
                if decision >= 0 and decision not in changed:
                    changed[decision] = self._facts_of(decision)
            change = self._subjects.assign(credit, number)
            self.counters["unmatched"] -= change
            self.counters["credited"] += change
        self._review_credits(changed)

    def _review_credits(self, changed: Mapping[int, Facts]) -> None:
        """Re-evaluate decisions whose credited rewards have changed.

        Args:
            changed: the facts of each decision before the change, by its number.
        """
        table = self._table
        for number, facts in sorted(changed.items()):
            facts.credits = self._subjects.credits_of(number)
            self._keep(number, facts)
            rewarded, i = facts.rewarded, number - table.base
            table.reward_recorded[i] = NONE if rewarded is None else rewarded
            if not facts.parts:
                times = (credit.at_us for credit in facts.credits.values())
                table.reward_at[i] = min(times, default=0)
            self._review(number, facts)

    def _made(self, number: int) -> int:
        """Return when a decision was made, by the decider's clock."""
        return self._table.at[number - self._table.base]

    def _order(self, number: int) -> tuple[int, int, int]:
        """Return the key by which a subject's decisions are sorted."""
        table, i = self._table, number - self._table.base
        return table.at[i], table.high[i], table.low[i]

    def _is_live(self, number: int) -> bool:
        flags = self._table.flags[number - self._table.base]
        if flags & MORE:
            return self._facts[number].live
        return bool(flags & ACTIVATED)

    def _decision_for(self, history: SubjectHistory, at: int, recorded: int) -> int:
        """Return the decision to which a reward is credited, or ``UNCREDITED``."""
        decisions = history.decisions
        number = credited(decisions, at, self._attribution, self._made, self._is_live)
        if number < 0 or self._retention is None:
            return number
        end = self._table.recorded[number - self._table.base] + self._retention
        return UNCREDITED if recorded > end else number

    # --- facts and verdicts ----------------------------------------------------------------------

    def began(self, number: int) -> int:
        """Return when a decision took effect: when it was recorded or, if later, activated."""
        facts = self._facts.get(number)
        if facts is None or facts.activation is None:
            return self._table.recorded[number - self._table.base]
        return facts.activation

    def _facts_of(self, number: int) -> Facts:
        """Return the facts of a decision; to store changes to the facts, call :meth:`_keep`."""
        facts = self._facts.get(number)
        if facts is None:
            table, i = self._table, number - self._table.base
            facts = Facts(table.recorded[i], bool(table.flags[i] & ACTIVATED))
            if table.flags[i] & OWNED:
                facts.credits = self._subjects.credits_of(number)
            if table.reward_recorded[i] != NONE and not facts.credits:
                facts.reported = table.reward_recorded[i]
                facts.parts[""] = ReportedReward(facts.reported, table.reward_at[i], table.value[i])
        return facts

    def _keep(self, number: int, facts: Facts) -> None:
        """Store changed facts, in the decision's entry if they fit."""
        table, i = self._table, number - self._table.base
        table.touch(i)
        if not facts.plain:
            self._facts[number] = facts
            table.flags[i] |= MORE
            return
        if table.flags[i] & MORE:
            del self._facts[number]
            table.flags[i] &= ~MORE
        for reward in facts.parts.values():
            table.reward_recorded[i], table.reward_at[i] = reward.recorded_us, reward.at_us

    def _role(self, i: int) -> int:
        """Return the role that a decision has for the learner."""
        return AWAITED if self._table.flags[i] & WITHHELD else ROLE[self._table.state[i]]

    def _withholds(self, number: int, facts: Facts) -> bool:
        """Return whether a decision's value must be withheld from the learner for now."""
        if self._together:
            due = due_of(facts, self.rewards)
            return due is not None and self.watermark < due
        return self._table.next - 1 - number < self._after

    def _review(self, number: int, facts: Facts | None = None) -> None:
        """Re-evaluate a decision and report the changes."""
        facts = facts or self._facts_of(number)
        verdict = judge(facts, self.watermark, self.rewards)
        table, i, changes = self._table, number - self._table.base, self.changes
        state, value = verdict.state, 0.0 if verdict.value is None else verdict.value
        old_role, role, old_value = self._role(i), ROLE[state], table.value[i]
        withheld = role == OBSERVED and old_role != OBSERVED and self._withholds(number, facts)
        table.touch(i)
        has_outcome = max(table.state[i], state) > PENDING
        self.counts[table.state[i]] -= 1
        self.counts[state] += 1
        table.state[i], table.value[i] = state, value
        flags = table.flags[i] & ~(LATE | CONFLICT | WITHHELD)
        flags |= LATE * verdict.late | CONFLICT * verdict.conflict | WITHHELD * withheld
        was_expected = bool(flags & EXPECTED)
        if withheld:
            role = AWAITED
        if role != NOTHING:
            flags |= EXPECTED
        table.flags[i] = flags
        if self.outcomes is not None and has_outcome:
            self._note_outcome(number, self.outcomes, facts)
        # The decision may be pending again because its reward was credited to another decision.
        if number < self._first_open and self._is_open(i):
            self._first_open = number
            self.expect(table.recorded[i])
        if old_role == role:
            if role == OBSERVED and old_value != value:
                changes.revise(number, value, self._recorded)
            return
        began = facts.recorded if facts.activation is None else facts.activation
        if old_role == OBSERVED:
            changes.retract(number, self._recorded)
        elif old_role == AWAITED and role == NOTHING:
            changes.remove_pending(number, began)
        if role != NOTHING and old_role != AWAITED:
            changes.add_pending(number, began, was_expected)
        if role == OBSERVED:
            changes.learn(number, value, began, self._recorded)

    # --- outcomes --------------------------------------------------------------------------------

    def _note_outcome(
        self, number: int, outcomes: OutcomeChanges, facts: Facts | None = None
    ) -> None:
        """Note that the outcome of a decision has changed."""
        facts = facts or self._facts_of(number)
        table, i = self._table, number - self._table.base
        state, flags = table.state[i], table.flags[i]
        effective = max(facts.recorded, facts.activation or 0)
        rewarded = facts.rewarded if state == REWARDED else None
        change = OutcomeChange(
            outcomes.position,
            NAMES[state],
            table.value[i] if ROLE[state] == OBSERVED else None,
            effective,
            None if rewarded is None else max(rewarded, effective),
            bool(flags & LATE),
            bool(flags & CONFLICT),
            bool(flags & OWNED),
        )
        # Which subject an overwritten record belonged to is unknown.
        affected = flags & OWNED or key_from(table.high[i], table.low[i]) in outcomes.affected
        outcomes.note(table.position[i], change, affected=bool(affected))

    def _note_undone(self, record: Record, outcomes: OutcomeChanges) -> None:
        """Note outcomes that may have been different before a record was erased or retracted."""
        event, position = record.event, record.position
        if isinstance(event, Decision):
            outcomes.note(position, OutcomeChange(position, "erased"), affected=True)
        elif isinstance(event, Reward | Mark | SubjectReward):
            key = key_of(event.id)
            outcomes.affected.add(key)
            history = self._subjects.histories.get(key)
            for number in [self._index.find(key)] if history is None else history.decisions:
                if number >= 0:
                    self._note_outcome(number, outcomes)

    # --- settling and forgetting ---------------------------------------------------------------

    def _settled(self, settled: Settled) -> str:
        # The watermark never exceeds the journal's own timestamps, whatever the event contains.
        self.watermark = max(self.watermark, min(settled.until, self._recorded))
        if self._window is not None:
            self._settle(self._window)
        if self._retention is not None:
            self._forget(self._retention)
        return "settled"

    def _is_open(self, i: int) -> bool:
        """Return whether a decision is dormant or pending, or its value is withheld."""
        return self._table.state[i] <= PENDING or bool(self._table.flags[i] & WITHHELD)

    def _settle(self, window: int) -> None:
        table, watermark = self._table, self.watermark
        number, stop = max(self._first_open, table.base), table.base + len(table)
        while number < stop and table.recorded[number - table.base] + window <= watermark:
            if self._is_open(number - table.base):
                self._review(number)
            number += 1
        self._first_open = number
        while self._moved_windows and self._moved_windows[0][0] <= watermark:
            number = heappop(self._moved_windows)[1]
            if number >= table.base and not table.flags[number - table.base] & FORGOTTEN:
                self._review(number)

    def _forget(self, retention: int) -> None:
        table, horizon = self._table, self.watermark - retention
        subjects: set[bytes] = set()
        for number in [n for n in self._stragglers if not self._is_open(n - table.base)]:
            self._stragglers.discard(number)
            self._forget_one(number, subjects)
        number, stop = max(self._forgotten, table.base), table.base + len(table)
        while number < stop and table.recorded[number - table.base] < horizon:
            if self._is_open(number - table.base):
                self._stragglers.add(number)
            else:
                self._forget_one(number, subjects)
            number += 1
        self._forgotten = number
        for subject in sorted(subjects & self._subjects.histories.keys()):
            history = self._subjects.histories[subject]
            self._credit(history, history.rewards.values())
        orphaned = self._unmatched.orphan(horizon) + self._subjects.orphan(horizon)
        self.counters["unmatched"] -= orphaned
        self.counters["orphaned"] += orphaned
        droppable = min(self._stragglers, default=self._forgotten) - table.base
        if droppable >= self._dropped and 3 * droppable >= len(table):
            table.drop(droppable)

    def _forget_one(self, number: int, subjects: set[bytes]) -> None:
        """Forget a decision; add its subject to ``subjects``."""
        if (history := self._subjects.owners.get(number)) is not None:
            subjects.add(history.key)
        self._forgotten_digest += self._digest_of(number)
        self._index.remove(number)
        self._last_lookup = None, -1
        self._table.touch(number - self._table.base)
        self._table.flags[number - self._table.base] |= FORGOTTEN
        self._facts.pop(number, None)
        self._subjects.forget(number)
        self.changes.forget(number)

    # --- when something is due ------------------------------------------------------------------

    @property
    def due(self) -> int | None:
        """The earliest time at which a window ends; None if no window is open."""
        due = self._next_window_end()
        return None if due == math.inf else int(due)

    def is_due(self, now: int) -> bool:
        """Return whether a ``Settled`` event is due, because a window or a retention has ended."""
        if now < self.soonest:
            return False
        return self._next_window_end() <= now or self._next_retention_end() <= now

    def next_settlement(self) -> float:
        """Return when :meth:`is_due` will become true, in microseconds since 1970."""
        return min(self._next_window_end(), self._next_retention_end())

    def _next_window_end(self) -> float:
        table, end = self._table, math.inf
        if self._window is not None:
            number, stop = max(self._first_open, table.base), table.base + len(table)
            while number < stop and not self._is_open(number - table.base):
                number += 1
            self._first_open = number
            if number < stop:
                end = table.recorded[number - table.base] + self._window
            if self._moved_windows:
                end = min(end, self._moved_windows[0][0])
        self.soonest = min(end, self._next_retention_end())
        return end

    def _next_retention_end(self) -> float:
        """Return when to forget decisions.

        This is a sixteenth of the retention after the oldest retention ends, so that decisions are
        forgotten in batches.
        """
        if self._retention is None:
            return math.inf
        table, number = self._table, max(self._forgotten, self._table.base)
        oldest = min(self._unmatched.oldest, self._subjects.oldest)
        if number < table.base + len(table):
            oldest = min(oldest, table.recorded[number - table.base])
        return oldest + self._retention + 1 + self._retention // 16

    # --- queries ---------------------------------------------------------------------------------

    def find(self, id: str) -> int:
        """Return the number of a remembered decision; -1 if the id is unknown."""
        last, number = self._last_lookup  # callers often look up an id before its event is folded
        if id != last:
            number = self._index.find(key_of(id))
            if number >= 0:
                self._last_lookup = id, number
        return number

    def entry(self, id: str) -> DecisionStatus | None:
        """Return the status of a remembered decision; None if the id is unknown."""
        number = self.find(id)
        if number < 0:
            return None
        table, i = self._table, number - self._table.base
        facts = self._facts_of(number)
        return DecisionStatus(
            id=id,
            state=State(table.state[i]).name.lower(),
            value=table.value[i] if ROLE[table.state[i]] == OBSERVED else None,
            late=bool(table.flags[i] & LATE),
            conflict=bool(table.flags[i] & CONFLICT),
            recorded_us=table.recorded[i],
            position=table.position[i],
            due_us=due_of(facts, self.rewards),
            reported=[*facts.parts.values(), *facts.credits.values()],
        )

    def decided_at(self, id: str) -> int | None:
        """Return when a remembered decision was made, in microseconds since 1970."""
        number = self.find(id)
        return None if number < 0 else self._table.at[number - self._table.base]

    def early(self) -> Noticed:
        """Summarize rewards dated before their decision, among remembered decisions."""
        table = self._table
        reported, at = table.column("reward_recorded"), table.column("reward_at")
        lines = np.flatnonzero((reported != NONE) & (at < table.column("at") - CLOCK_SKEW))
        if not len(lines):
            return Noticed()
        i = int(lines[reported[lines].argmax()])
        return Noticed(len(lines), int(reported[i]), key_from(table.high[i], table.low[i]).hex())

    def credits_of(self, id: str) -> set[str]:
        """Return the event ids of the outcomes credited to a remembered decision."""
        return set(self._facts_of(self.find(id)).credits)

    def current(self, subject: str) -> tuple[int, int] | None:
        """Return the time and position of a subject's latest decision that was not voided."""
        history = self._subjects.histories.get(key_of(subject_id(subject)))
        table = self._table
        for number in reversed(history.decisions if history else ()):
            i = number - table.base
            if table.state[i] != State.VOIDED:
                return table.at[i], table.position[i]
        return None

    def meaning(self, reward: Reward) -> str:
        """Return the status that a reward would have, ignoring rules that depend on time."""
        number = self.find(reward.id)
        return "unmatched" if number < 0 else meaning_of(self._facts_of(number), reward)

    @property
    def unmatched(self) -> dict[str, int]:
        """Number of unknown decision ids that events refer to, by reporter of the first event.

        Each uncredited subject reward is also counted.
        """
        counts = self._unmatched.reporters + self._subjects.reporters
        return {name: count for name, count in counts.items() if count}

    @property
    def subjects_size(self) -> int:
        """Approximate size of all subjects in a snapshot, in bytes."""
        return self._subjects.size

    def awaited(self) -> NDArray[np.int64]:
        """Return the numbers of all decisions that are pending for the learner."""
        table = self._table
        pending = table.column("state") == PENDING
        return table.base + np.flatnonzero(pending | (table.column("flags") & WITHHELD > 0))

    def began_all(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return when each decision took effect; ``numbers`` must be sorted."""
        began = self._table.column("recorded")[numbers - self._table.base]
        for number, facts in self._facts.items():
            if facts.activation is not None:
                i = int(np.searchsorted(numbers, number))
                if i < len(numbers) and numbers[i] == number:
                    began[i] = facts.activation
        return began

    def numbers(self, state: State) -> NDArray[np.int64]:
        """Return the numbers of all remembered decisions in the given state."""
        table = self._table
        remembered = table.column("flags") & FORGOTTEN == 0
        return table.base + np.flatnonzero(remembered & (table.column("state") == state))

    def pending(self) -> Iterator[tuple[bytes, int]]:
        """Yield the key and the record time of each pending decision, oldest first."""
        table = self._table
        for i in (self.numbers(PENDING) - table.base).tolist():
            yield key_from(table.high[i], table.low[i]), table.recorded[i]

    @property
    def oldest(self) -> int | None:
        """The record time of the oldest pending decision; None if there is none."""
        i = self._table.first(PENDING)
        return None if i < 0 else self._table.recorded[i]

    @property
    def digest(self) -> int:
        """A digest of the state of all decisions, including forgotten ones.

        The digest is a sum over decisions modulo 2^128, so the total over all partitions does not
        depend on how decisions are partitioned.
        """
        table, total = self._table, self._forgotten_digest
        for i in range(len(table)):
            if not table.flags[i] & FORGOTTEN:
                total += self._digest_of(table.base + i)
        return total % (1 << 128)

    def _digest_of(self, number: int) -> int:
        table, i = self._table, number - self._table.base
        flags = table.flags[i] & (LATE | CONFLICT)
        entry = table.state[i], flags, table.at[i], table.value[i] + 0.0
        data = key_from(table.high[i], table.low[i]) + msgspec.msgpack.encode(entry)
        return int.from_bytes(blake2b(data, digest_size=16).digest())
