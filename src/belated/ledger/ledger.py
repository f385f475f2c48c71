"""The join: the records of one partition, folded into what each decision has come to.

The first reward of a pending decision, and a new decision, take a short way. Whatever is less usual
goes through :func:`~belated.ledger.entries.judge`, which knows all the rules; the short ways are
those rules for their case.

The ledger touches no numbers of a model: it tells :class:`LedgerListener` what has changed.
"""

from __future__ import annotations

import math
from collections import Counter
from heapq import heappop, heappush

from belated.events import (
    Activation,
    Configured,
    Decision,
    Erased,
    KeyChanged,
    ModeChanged,
    Opaque,
    Overwritten,
    Record,
    Retracted,
    Reward,
    Settled,
    Trimmed,
    Void,
)
from belated.exceptions import HistoryUndone
from belated.ids import key_of
from belated.kernels.pages import ACTIVATED, CONFLICT, EXPECTED, FORGOTTEN, LATE
from belated.ledger.entries import (
    Facts,
    State,
    crc_of,
    held_time,
    same_value,
    take_mark,
    take_reward,
    unknown_event,
)
from belated.ledger.entry_store import EntryStore
from belated.ledger.listener import LedgerListener
from belated.ledger.table import NONE
from belated.ledger.undone import Undone
from belated.ledger.unmatched import UnmatchedEvents
from belated.rewards import Rewards
from belated.tuning import USUAL, Tuning

DORMANT, PENDING, REWARDED = State.DORMANT, State.PENDING, State.REWARDED


class Ledger(EntryStore):
    """The entries of one partition.

    Args:
        rewards: what silence means.
        changes: who is told.
        min_reward: the least reward that is taken.
        max_reward: the greatest.
        retention: for how long after its record a decision takes rewards, in microseconds.
        tuning: sizes.
    """

    def __init__(
        self,
        rewards: Rewards,
        changes: LedgerListener,
        *,
        min_reward: float,
        max_reward: float,
        retention: int | None = None,
        tuning: Tuning = USUAL,
    ) -> None:
        super().__init__(rewards, changes, retention)
        self._dropped = tuning.dropped
        #: What counts no longer; to be known before anything is folded.
        self.undone: Undone | None = None
        #: Events by status.
        self.counters: Counter[str] = Counter()
        self._least, self._most = min_reward, max_reward
        self._window = rewards.window_us
        self._unmatched = UnmatchedEvents()
        # Decisions come due in the order of their numbers, but for those in the heap.
        self._due = 0
        self._dues: list[tuple[int, int]] = []
        #: Nothing is due before, in microseconds since 1970.
        self.soonest: float = 0.0
        # For how long nothing is to be done about a decision.
        spans = [span for span in (self._window, retention) if span is not None]
        self._patience: float = min(spans, default=math.inf)
        self._forgotten = 0  # numbers below were forgotten, or are stragglers
        self._stragglers: set[int] = set()

    def fold(self, record: Record) -> str:
        """Take one record; returns what it meant, which is counted.

        Raises:
            UnknownEvent: written by a newer release; nothing was changed.
            HistoryUndone: it undoes others, and was not known before; nothing was changed.
        """
        event = record.event
        kind = type(event)
        undone = None if self.undone is None else self.undone.status_of(record)
        if undone is not None:
            status = undone
        elif kind is Decision:
            status = self._decided(event, record)  # type: ignore[arg-type]
        elif kind is Reward:
            status = self._rewarded(event, record.recorded)  # type: ignore[arg-type]
        elif kind is Settled:
            status = self._settled(event, record.recorded)  # type: ignore[arg-type]
        elif kind is ModeChanged:
            status = "switched"
        elif kind is Configured:
            status = "configured"
        elif kind is Trimmed or kind is KeyChanged:
            status = "operated"
        elif kind is Erased or kind is Retracted:
            if self.undone is None or not self.undone.knows(event):  # type: ignore[arg-type]
                raise HistoryUndone(record.partition, record.position)
            status = "undoing"
        elif kind is Overwritten:  # by an erasure that was not known before, if by any
            raise HistoryUndone(record.partition, record.position)
        elif kind is Opaque:
            raise unknown_event(record)
        else:
            status = self._told(event, record.recorded)  # type: ignore[arg-type]
        self.counters[status] += 1
        return status

    # --- decisions -----------------------------------------------------------------------------

    def _decided(self, decision: Decision, record: Record) -> str:
        key, recorded = key_of(decision.id), record.recorded
        # What tells two decisions apart; a journal that stores digests has made it already.
        crc = int.from_bytes(record.digest[:4]) if record.digest else crc_of(decision)
        known = self._index.find_or_enter(key)
        if known >= 0:
            return self._decided_again(known, decision, crc)
        live = decision.activated
        number = self._table.append(
            key,
            recorded=recorded,
            position=record.position,
            at=held_time(decision.at_us),
            state=PENDING if live else DORMANT,
            flags=ACTIVATED | EXPECTED if live else 0,
            crc=crc,
        )
        self.counts[PENDING if live else DORMANT] += 1
        self.changes.enter(number, decision, live)
        self.expect(recorded)
        if self._window is not None and self.watermark >= recorded + self._window:
            self._review(number)
        if self._unmatched.ids and (facts := self._unmatched.take(key)) is not None:
            facts.recorded, facts.activated = recorded, live
            self._match(number, facts)
        return "decided"

    def expect(self, recorded: int) -> None:
        """Something will be due, for a decision was recorded."""
        self.soonest = min(self.soonest, recorded + self._patience)

    def _match(self, number: int, facts: Facts) -> None:
        """Events that came before their decision count now."""
        self._keep(number, facts)
        if facts.activation is not None and self._window is not None:
            self._wait(number, facts.activation + self._window)
        self._review(number)
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
        """The first decision under an id counts."""
        table, i = self._table, number - self._table.base
        if (held_time(decision.at_us), crc) == (table.at[i], table.crc[i]):
            return "duplicate"
        facts = self._facts_of(number)
        if not facts.rival:
            facts.rival = True
            self._review(number)
        return "conflict"

    # --- rewards, activations, voids -----------------------------------------------------------

    def _rewarded(self, reward: Reward, recorded: int) -> str:
        if not self._least <= reward.value <= self._most:
            return "invalid"
        return self._told(reward, recorded)

    def _told(self, event: Activation | Reward | Void, recorded: int) -> str:
        number = self._number_of(event.id)
        if number >= 0:
            if type(event) is Reward:
                return self._reward_heard(number, event, recorded)
            return self._mark_heard(number, event, recorded)  # type: ignore[arg-type]
        self.soonest = min(self.soonest, recorded)
        return self._unmatched.add(key_of(event.id), event, recorded)

    def _mark_heard(self, number: int, event: Activation | Void, recorded: int) -> str:
        facts = self._facts_of(number)
        status = take_mark(facts, event, recorded)
        if status == "activated" and self._window is not None:
            self._wait(number, recorded + self._window)
        if status != "duplicate":
            self._review(number)
        return status

    def _reward_heard(self, number: int, reward: Reward, recorded: int) -> str:
        table, i = self._table, number - self._table.base
        since = table.recorded[i]
        if self._retention is not None and recorded > since + self._retention:
            return "expired"
        told = table.told_recorded[i]
        if number not in self._facts and not reward.part and not reward.revision:
            if told == NONE and table.state[i] == PENDING:
                table.touch(i)
                table.state[i] = REWARDED
                table.value[i] = reward.value
                table.told_recorded[i], table.told_at[i] = recorded, held_time(reward.at_us)
                self.counts[PENDING] -= 1
                self.counts[REWARDED] += 1
                self.changes.learn(number, reward.value)
                if self._window is None or recorded <= since + self._window:
                    return "rewarded"
                table.flags[i] |= LATE
                return "late"
            if told != NONE and same_value(table.value[i], reward.value):
                return "duplicate"
        facts = self._facts_of(number)
        contradicted = table.flags[i] & CONFLICT
        status = take_reward(facts, reward, recorded)
        if status in ("rewarded", "revised") or (status == "conflict" and not contradicted):
            self._review(number)
        if status == "rewarded" and table.flags[i] & LATE:
            return "late"
        return status

    # --- settling and forgetting ---------------------------------------------------------------

    def _settled(self, settled: Settled, recorded: int) -> str:
        # No journal time is beyond the journal's own last stamp, whatever somebody wrote.
        self.watermark = max(self.watermark, min(settled.until, recorded))
        if self._window is not None:
            self._settle(self._window)
        if self._retention is not None:
            self._forget(self._retention)
        return "settled"

    def _wait(self, number: int, due: int) -> None:
        heappush(self._dues, (due, number))
        self.soonest = min(self.soonest, due)

    def _settle(self, window: int) -> None:
        table, watermark = self._table, self.watermark
        number, stop = max(self._due, table.base), table.base + len(table)
        while number < stop and table.recorded[number - table.base] + window <= watermark:
            if table.state[number - table.base] <= PENDING:
                self._review(number)
            number += 1
        self._due = number
        while self._dues and self._dues[0][0] <= watermark:
            number = heappop(self._dues)[1]
            if number >= table.base and not table.flags[number - table.base] & FORGOTTEN:
                self._review(number)

    def _forget(self, retention: int) -> None:
        table, horizon = self._table, self.watermark - retention
        for number in [n for n in self._stragglers if table.state[n - table.base] > PENDING]:
            self._stragglers.discard(number)
            self._forget_one(number)
        number, stop = max(self._forgotten, table.base), table.base + len(table)
        while number < stop and table.recorded[number - table.base] < horizon:
            if table.state[number - table.base] > PENDING:
                self._forget_one(number)
            else:
                self._stragglers.add(number)
            number += 1
        self._forgotten = number
        orphaned = self._unmatched.orphan(horizon)
        self.counters["unmatched"] -= orphaned
        self.counters["orphaned"] += orphaned
        gone = min(self._stragglers, default=self._forgotten) - table.base
        if gone >= self._dropped and 3 * gone >= len(table):
            table.drop(gone)

    def _forget_one(self, number: int) -> None:
        self._forgotten_digest += self._digest_of(number)
        self._index.remove(number)
        self._looked_up.clear()
        self._table.touch(number - self._table.base)
        self._table.flags[number - self._table.base] |= FORGOTTEN
        self._facts.pop(number, None)
        self.changes.forget(number)

    @property
    def unmatched(self) -> dict[str, int]:
        """Number of ids whose decision is not known, by the reporter of their first event."""
        return {name: count for name, count in self._unmatched.reporters.items() if count}

    # --- when something is due ------------------------------------------------------------------

    @property
    def due(self) -> int | None:
        """When the next decision comes due, at the earliest; None if none will."""
        due = self._next_due()
        return None if due == math.inf else int(due)

    def is_due(self, now: int) -> bool:
        """Whether anything is to be settled by now, or much is to be forgotten."""
        if now < self.soonest:
            return False
        return self._next_due() <= now or self._next_forgotten() <= now

    def next_due(self) -> float:
        """When something will be to settle or to forget, in microseconds since 1970."""
        return min(self._next_due(), self._next_forgotten())

    def _next_due(self) -> float:
        table, found = self._table, math.inf
        if self._window is not None:
            number, stop = max(self._due, table.base), table.base + len(table)
            while number < stop and table.state[number - table.base] > PENDING:
                number += 1
            self._due = number
            if number < stop:
                found = table.recorded[number - table.base] + self._window
            if self._dues:
                found = min(found, self._dues[0][0])
        self.soonest = min(found, self._next_forgotten())
        return found

    def _next_forgotten(self) -> float:
        """When to let go: not at every decision, but a sixteenth of the retention later."""
        if self._retention is None:
            return math.inf
        table, number = self._table, max(self._forgotten, self._table.base)
        oldest: float = self._unmatched.oldest
        if number < table.base + len(table):
            oldest = min(oldest, table.recorded[number - table.base])
        return oldest + self._retention + 1 + self._retention // 16
