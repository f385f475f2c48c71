"""The join: the records of one partition, folded into what each decision has come to.

A record is folded in about a microsecond where it is the first reward of a pending decision, or a
new decision. Whatever is less usual goes through :func:`~belated.ledger.entries.judge`, which knows
all the rules; the short ways are those rules for their case.

The ledger touches no numbers of a model: it tells :class:`LedgerListener` what has changed.
"""

from __future__ import annotations

import math
from collections import Counter
from heapq import heappop, heappush
from zlib import crc32

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
    encode,
)
from belated.exceptions import HistoryUndone
from belated.ids import key_of, time_of
from belated.ledger.columns import (
    ACTIVATED,
    CONFLICT,
    EXPECTED,
    FORGOTTEN,
    LATE,
    NONE,
)
from belated.ledger.entries import (
    LONG,
    Facts,
    State,
    held_time,
    same_value,
    take_mark,
    take_reward,
    unknown_event,
)
from belated.ledger.entry_store import EntryStore
from belated.ledger.listener import LedgerListener
from belated.ledger.recent import RecentEntry
from belated.ledger.undone import Undone
from belated.ledger.unmatched import MAX_UNMATCHED_IDS, UnmatchedEvents
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
        max_unmatched_ids: ids without a decision whose events are kept.
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
        max_unmatched_ids: int = MAX_UNMATCHED_IDS,
        tuning: Tuning = USUAL,
    ) -> None:
        super().__init__(rewards, changes, retention)
        self._recent = tuning.recent
        self._dropped = tuning.dropped
        #: What counts no longer; to be known before anything is folded.
        self.undone: Undone | None = None
        #: Events by status.
        self.counters: Counter[str] = Counter()
        self._least, self._most = min_reward, max_reward
        self._window = rewards.window_us
        # For how long a reward is nothing but a reward.
        self._patience = math.inf if self._window is None else self._window
        if retention is not None:
            self._patience = min(self._patience, retention)
        self._unmatched = UnmatchedEvents(max_unmatched_ids)
        # Decisions come due in the order of their numbers, but for those in the heap.
        self._due = 0
        self._dues: list[tuple[int, int]] = []
        self._soonest: float = 0.0  # nothing is due before
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
            status = self._told(event, record.recorded, key_of(event.id))  # type: ignore[arg-type,union-attr]
        self.counters[status] += 1
        return status

    # --- decisions -----------------------------------------------------------------------------

    def _decided(self, decision: Decision, record: Record) -> str:
        id, at, recorded = decision.id, decision.at_us, record.recorded
        fresh = self._fresh
        key, crc = key_of(id), crc32(encode(decision))
        if key in fresh or self._index.find(key) >= 0:
            return self._decided_again(self._find(key), decision, crc)
        due = math.inf if self._window is None else recorded + self._window
        if (
            decision.activated
            and self.watermark < due
            and 0 <= at < LONG
            and key not in self._unmatched.ids
        ):
            number = self._rows.base + len(self._rows) + len(fresh)
            fresh[key] = RecentEntry(number, recorded, record.position, at, crc)
            self.counts[PENDING] += 1
            self.changes.enter(number, decision, True)
            if due < self._soonest:
                self._soonest = due
            elif self._soonest == math.inf:  # nothing was to come; see again
                self._soonest = recorded
            if len(fresh) == self._recent:
                self._put_away()
        else:
            self._put_away()
            self._decided_oddly(key, decision, record, crc)
        return "decided"

    def _decided_oddly(self, key: bytes, decision: Decision, record: Record, crc: int) -> None:
        """A new decision that is dormant, due already, or whose reward is here."""
        recorded = record.recorded
        number = self._index.add(key)
        live = decision.activated
        state = PENDING if live else DORMANT
        flags = ACTIVATED | EXPECTED if live else 0
        self._rows.append(state, flags, recorded, record.position, held_time(decision.at_us), crc)
        self.counts[state] += 1
        self.changes.enter(number, decision, live)
        if self._soonest == math.inf:  # nothing was to come; see again
            self._soonest = recorded
        if self._window is not None:
            due = recorded + self._window
            self._soonest = min(self._soonest, due)
            if self.watermark >= due:
                self._review(number)
        facts = self._unmatched.take(key)
        if facts is not None:
            facts.recorded, facts.activated = recorded, live
            self._match(number, facts)

    def _match(self, number: int, facts: Facts) -> None:
        """Events that came before their decision count now."""
        self._facts[number] = facts
        if facts.activation is not None and self._window is not None:
            self._wait(number, facts.activation + self._window)
        self._review(number)
        self.counters["unmatched"] -= facts.events
        self.counters["voided"] += facts.void
        self.counters["activated"] += facts.activation is not None
        if facts.void:
            self.counters["voided"] += len(facts.parts)
        elif facts.parts:
            late = self._rows.flags[number - self._rows.base] & LATE
            self.counters["late" if late else "rewarded"] += 1
            self.counters["revised"] += len(facts.parts) - 1

    def _decided_again(self, number: int, decision: Decision, crc: int) -> str:
        """The first decision under an id counts."""
        rows, i = self._rows, number - self._rows.base
        if (held_time(decision.at_us), crc) == (rows.at[i], rows.crc[i]):
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
        key = key_of(reward.id)
        fresh = self._fresh.get(key)
        if (
            fresh is None
            or fresh.told_recorded != NONE
            or reward.part
            or reward.revision
            or not 0 <= reward.at_us < LONG
            or recorded > fresh.recorded + self._patience
        ):
            return self._told(reward, recorded, key)
        fresh.state, fresh.value = REWARDED, reward.value
        fresh.told_recorded, fresh.told_at = recorded, reward.at_us
        self.counts[PENDING] -= 1
        self.counts[REWARDED] += 1
        self.changes.learn(fresh.number, reward.value)
        return "rewarded"

    def _told(self, event: Activation | Reward | Void, recorded: int, key: bytes) -> str:
        number = self._find(key)
        if number >= 0:
            return self._heard(number, event, recorded)
        if self._retention is not None:
            made = time_of(event.id)
            if made is not None and recorded > made + self._retention:
                return "expired"  # its decision was forgotten
        self._soonest = min(self._soonest, recorded)
        return self._unmatched.add(key, event, recorded)

    def _heard(self, number: int, event: Activation | Reward | Void, recorded: int) -> str:
        if type(event) is Reward:
            return self._reward_heard(number, event, recorded)
        facts = self._facts_of(number)
        status = take_mark(facts, event, recorded)  # type: ignore[arg-type]
        if status == "activated" and self._window is not None:
            self._wait(number, recorded + self._window)
        if status != "duplicate":
            self._review(number)
        return status

    def _reward_heard(self, number: int, reward: Reward, recorded: int) -> str:
        rows, i = self._rows, number - self._rows.base
        since = rows.recorded[i]
        if self._retention is not None and recorded > since + self._retention:
            return "expired"
        told = rows.told_recorded[i]
        if number not in self._facts and not reward.part and not reward.revision:
            if told == NONE and rows.state[i] == PENDING:
                rows.state[i] = REWARDED
                rows.value[i] = reward.value
                rows.told_recorded[i], rows.told_at[i] = recorded, held_time(reward.at_us)
                self.counts[PENDING] -= 1
                self.counts[REWARDED] += 1
                self.changes.learn(number, reward.value)
                if self._window is None or recorded <= since + self._window:
                    return "rewarded"
                rows.flags[i] |= LATE
                return "late"
            if told != NONE and same_value(rows.value[i], reward.value):
                return "duplicate"
        facts = self._facts_of(number)
        contradicted = rows.flags[i] & CONFLICT
        status = take_reward(facts, reward, recorded)
        if status in ("rewarded", "revised") or (status == "conflict" and not contradicted):
            self._review(number)
        if status == "rewarded" and rows.flags[i] & LATE:
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
        self._soonest = min(self._soonest, due)

    def _settle(self, window: int) -> None:
        self._put_away()
        rows, watermark = self._rows, self.watermark
        number, stop = max(self._due, rows.base), rows.base + len(rows)
        while number < stop and rows.recorded[number - rows.base] + window <= watermark:
            if rows.state[number - rows.base] <= PENDING:
                self._review(number)
            number += 1
        self._due = number
        while self._dues and self._dues[0][0] <= watermark:
            number = heappop(self._dues)[1]
            if number >= rows.base and not rows.flags[number - rows.base] & FORGOTTEN:
                self._review(number)

    def _forget(self, retention: int) -> None:
        self._put_away()
        rows, horizon = self._rows, self.watermark - retention
        for number in [n for n in self._stragglers if rows.state[n - rows.base] > PENDING]:
            self._stragglers.discard(number)
            self._forget_one(number)
        number, stop = max(self._forgotten, rows.base), rows.base + len(rows)
        while number < stop and rows.recorded[number - rows.base] < horizon:
            if rows.state[number - rows.base] > PENDING:
                self._forget_one(number)
            else:
                self._stragglers.add(number)
            number += 1
        self._forgotten = number
        orphaned = self._unmatched.orphan(horizon)
        self.counters["unmatched"] -= orphaned
        self.counters["orphaned"] += orphaned
        gone = min(self._stragglers, default=self._forgotten) - rows.base
        if gone >= self._dropped and 3 * gone >= len(rows):
            rows.drop(gone)
            self._index.drop(gone)
            self.changes.drop(gone)

    def _forget_one(self, number: int) -> None:
        self._forgotten_digest += self._digest_of(number)
        self._index.remove(number)
        self._rows.flags[number - self._rows.base] |= FORGOTTEN
        self._facts.pop(number, None)
        self.changes.forget(number)

    # --- when something is due ------------------------------------------------------------------

    @property
    def due(self) -> int | None:
        """When the next decision comes due, at the earliest; None if none will."""
        due = self._next_due()
        return None if due == math.inf else int(due)

    def is_due(self, now: int) -> bool:
        """Whether anything is to be settled by now, or much is to be forgotten."""
        if now < self._soonest:
            return False
        return self._next_due() <= now or self._next_forgotten() <= now

    def _next_due(self) -> float:
        self._put_away()
        rows, found = self._rows, math.inf
        if self._window is not None:
            number, stop = max(self._due, rows.base), rows.base + len(rows)
            while number < stop and rows.state[number - rows.base] > PENDING:
                number += 1
            self._due = number
            if number < stop:
                found = rows.recorded[number - rows.base] + self._window
            if self._dues:
                found = min(found, self._dues[0][0])
        self._soonest = min(found, self._next_forgotten())
        return found

    def _next_forgotten(self) -> float:
        """When to let go: not at every decision, but a sixteenth of the retention later."""
        if self._retention is None:
            return math.inf
        self._put_away()
        rows, number = self._rows, max(self._forgotten, self._rows.base)
        oldest: float = self._unmatched.oldest
        if number < rows.base + len(rows):
            oldest = min(oldest, rows.recorded[number - rows.base])
        return oldest + self._retention + 1 + self._retention // 16
