"""The join: the records of one partition, folded into what each decision has come to.

A record is folded in about a microsecond where it is the first reward of a pending decision, or a
new decision. Whatever is less usual goes through :func:`~belated.ledger.entries.judge`, which knows
all the rules; the short ways are those rules for their case.

The ledger touches no numbers of a model: it tells :class:`Changes` what has changed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b
from heapq import heappop, heappush
from zlib import crc32

import msgspec

from belated.events import (
    Activation,
    Decision,
    Opaque,
    Record,
    Reward,
    Settled,
    Void,
    decode,
    encode,
)
from belated.exceptions import UnknownEvent
from belated.ids import key_of
from belated.ledger.changes import Changes
from belated.ledger.columns import ACTIVATED, CONFLICT, FORGOTTEN, LATE, NONE, Columns
from belated.ledger.entries import (
    Entry,
    Facts,
    State,
    Told,
    Verdict,
    due_of,
    judge,
    meaning_of,
    same_value,
    with_one_more,
)
from belated.ledger.index import Index
from belated.ledger.parked import Parked
from belated.rewards import Rewards

DORMANT, PENDING, REWARDED = State.DORMANT, State.PENDING, State.REWARDED
#: What a state is to the learner: nothing, pending, observed.
_NOTHING, _PENDING, _OBSERVED = 0, 1, 2
_ROLE = (_NOTHING, _PENDING, _OBSERVED, _OBSERVED, _NOTHING, _NOTHING)
#: Forgotten decisions at the front leave when there are this many, and a third of all.
_DROPPED = 1024


class Ledger:
    """The entries of one partition.

    Args:
        rewards: what silence means.
        changes: who is told.
        least: the least reward that is taken.
        most: the greatest.
        retention: for how long after its record a decision takes rewards, in microseconds.
    """

    def __init__(
        self,
        rewards: Rewards,
        changes: Changes,
        *,
        least: float,
        most: float,
        retention: int | None = None,
    ) -> None:
        self.rewards = rewards
        self.changes = changes
        self.watermark = 0
        #: Decisions by state, the forgotten ones too.
        self.counts = [0] * len(State)
        #: Events by status.
        self.counters: Counter[str] = Counter()
        self._least, self._most = least, most
        self._window, self._retention = rewards.window_us, retention
        self._index = Index()
        self._rows = Columns()
        self._facts: dict[int, Facts] = {}  # of decisions that need more than the columns
        self._parked = Parked()
        # Decisions come due in the order of their numbers, but for those in the heap.
        self._due = 0
        self._dues: list[tuple[int, int]] = []
        self._soonest: float = 0.0  # nothing is due before
        self._latest = 0
        self._forgotten = 0  # numbers below were forgotten, or are stragglers
        self._stragglers: set[int] = set()
        self._forgotten_digest = 0

    def fold(self, record: Record) -> str:
        """Take one record; returns what it meant, which is counted.

        Raises:
            UnknownEvent: written by a newer release; nothing was changed.
        """
        event = record.event
        kind = type(event)
        if kind is Decision:
            status = self._decided(event, record)  # type: ignore[arg-type]
        elif kind is Settled:
            status = self._settled(event, record.recorded)  # type: ignore[arg-type]
        elif kind is Opaque:
            raise _unknown(record)
        else:
            status = self._told(event, record.recorded)  # type: ignore[arg-type]
        self.counters[status] += 1
        return status

    # --- decisions -----------------------------------------------------------------------------

    def _decided(self, decision: Decision, record: Record) -> str:
        recorded = record.recorded
        key = key_of(decision.id)
        number = self._index.find(key)
        crc = crc32(encode(decision))
        if number >= 0:
            return self._decided_again(number, decision, record, crc)
        number = self._index.add(key)
        live = decision.activated
        state = PENDING if live else DORMANT
        self._rows.append(
            state, ACTIVATED if live else 0, recorded, record.position, decision.at, crc
        )
        self.counts[state] += 1
        self.changes.enter(number, decision)
        if live:
            self.changes.expect(number)
        if self._window is not None:
            self._comes_due(number, recorded, recorded + self._window)
        for since, event in self._parked.take(key):
            self.counters["parked"] -= 1
            self.counters[self._heard(number, event, since)] += 1
        return "decided"

    def _decided_again(self, number: int, decision: Decision, record: Record, crc: int) -> str:
        rows, i = self._rows, number - self._rows.base
        recorded = record.recorded
        same = (decision.at, crc) == (rows.at[i], rows.crc[i])
        if not same and (decision.at, crc) < (rows.at[i], rows.crc[i]):
            self._replace(number, decision, record.position, crc)
        if recorded < rows.recorded[i]:
            rows.recorded[i] = recorded
            self._facts_of(number).recorded = recorded
            self._review(number)
            if self._window is not None:
                self._wait(number, recorded + self._window)
        if same:
            return "duplicate"
        self._facts_of(number).rival = True
        self._review(number)
        return "conflict"

    def _replace(self, number: int, decision: Decision, position: int, crc: int) -> None:
        """Another decision under this id is the one that counts."""
        rows, i = self._rows, number - self._rows.base
        role = _ROLE[rows.state[i]]
        if role == _OBSERVED:
            self.changes.retract(number)
        elif role == _PENDING:
            self.changes.withdraw(number)
        rows.position[i], rows.at[i], rows.crc[i] = position, decision.at, crc
        rows.flags[i] = rows.flags[i] & ~ACTIVATED | ACTIVATED * decision.activated
        self.changes.enter(number, decision)
        if role != _NOTHING:
            self.changes.expect(number, again=True)
        if role == _OBSERVED:
            self.changes.learn(number, rows.value[i])
        self._facts_of(number).activated = decision.activated

    # --- rewards, activations, voids -----------------------------------------------------------

    def _told(self, event: Activation | Reward | Void, recorded: int) -> str:
        if type(event) is Reward and not self._least <= event.value <= self._most:
            return "invalid"
        key = key_of(event.id)
        number = self._index.find(key)
        if number >= 0:
            return self._heard(number, event, recorded)
        return "parked" if self._parked.add(key, event, recorded) else "duplicate"

    def _heard(self, number: int, event: Activation | Reward | Void, recorded: int) -> str:
        if type(event) is Reward:
            return self._rewarded(number, event, recorded)
        facts = self._facts_of(number)
        if type(event) is Void:
            again, facts.void = facts.void, True
        else:
            first = facts.activation
            again = first is not None
            facts.activation = recorded if first is None else min(first, recorded)
            if self._window is not None:
                self._wait(number, facts.activation + self._window)
        self._review(number)
        if again:
            return "duplicate"
        return "voided" if type(event) is Void else "activated"

    def _rewarded(self, number: int, reward: Reward, recorded: int) -> str:
        rows, i = self._rows, number - self._rows.base
        since = rows.recorded[i]
        if self._retention is not None and recorded > since + self._retention:
            return "expired"
        told = rows.told_recorded[i]
        if number not in self._facts and not reward.part and not reward.revision:
            if told == NONE and rows.state[i] == PENDING:
                rows.state[i] = REWARDED
                rows.value[i] = reward.value
                rows.told_recorded[i], rows.told_at[i] = recorded, reward.at
                self.counts[PENDING] -= 1
                self.counts[REWARDED] += 1
                self.changes.learn(number, reward.value)
                if self._window is None or recorded <= since + self._window:
                    return "rewarded"
                rows.flags[i] |= LATE
                return "late"
            if (
                told != NONE
                and told <= recorded
                and rows.told_at[i] <= reward.at
                and same_value(rows.value[i], reward.value)
            ):
                return "duplicate"
        facts = self._facts_of(number)
        status = meaning_of(facts, reward)
        one = Told(recorded, reward.at, reward.value, reward.part, reward.revision)
        facts.told = with_one_more(facts.told, one)
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

    def _comes_due(self, number: int, recorded: int, due: int) -> None:
        """A new decision: due after all before it, if stamps do not decrease, as in a journal."""
        if recorded < self._latest:
            self._wait(number, due)
        else:
            self._latest = recorded
            if due < self._soonest:
                self._soonest = due
        if self.watermark >= due:
            self._review(number)

    def _wait(self, number: int, due: int) -> None:
        heappush(self._dues, (due, number))
        self._soonest = min(self._soonest, due)

    def _settle(self, window: int) -> None:
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
        orphaned = self._parked.orphan(horizon)
        self.counters["parked"] -= orphaned
        self.counters["orphaned"] += orphaned
        gone = min(self._stragglers, default=self._forgotten) - rows.base
        if gone >= _DROPPED and 3 * gone >= len(rows):
            rows.drop(gone)
            self._index.drop(gone)
            self.changes.drop(gone)

    def _forget_one(self, number: int) -> None:
        self._forgotten_digest += self._digest_of(number)
        self._index.remove(number)
        self._rows.flags[number - self._rows.base] |= FORGOTTEN
        self._facts.pop(number, None)
        self.changes.forget(number)

    # --- what the rules say --------------------------------------------------------------------

    def _facts_of(self, number: int) -> Facts:
        """The facts; whoever changes them calls for a review."""
        facts = self._facts.get(number)
        if facts is None:
            facts = self._facts[number] = self._read(number)
        return facts

    def _read(self, number: int) -> Facts:
        rows, i = self._rows, number - self._rows.base
        told: list[Told] = []
        if rows.told_recorded[i] != NONE:
            told = [Told(rows.told_recorded[i], rows.told_at[i], rows.value[i])]
        return Facts(rows.recorded[i], bool(rows.flags[i] & ACTIVATED), told=told)

    def _review(self, number: int) -> None:
        """Judge anew, and tell what has changed."""
        facts = self._facts.get(number)
        verdict = judge(
            self._read(number) if facts is None else facts,
            self.watermark,
            self.rewards,
            self._retention,
        )
        self._apply(number, verdict)
        if facts is not None and facts.plain and (verdict.state == REWARDED or not facts.told):
            del self._facts[number]  # the columns hold it all
            rows, i = self._rows, number - self._rows.base
            for one in facts.told:
                rows.told_recorded[i], rows.told_at[i] = one.recorded, one.at

    def _apply(self, number: int, verdict: Verdict) -> None:
        rows, i = self._rows, number - self._rows.base
        old, new = rows.state[i], verdict.state
        before = rows.value[i]
        value = 0.0 if verdict.value is None else verdict.value
        rows.state[i] = new
        rows.value[i] = value
        self.counts[old] -= 1
        self.counts[new] += 1
        flags = rows.flags[i] & ~(LATE | CONFLICT)
        rows.flags[i] = flags | LATE * verdict.late | CONFLICT * verdict.conflict
        was, now = _ROLE[old], _ROLE[new]
        changes = self.changes
        if was == now:
            if now == _OBSERVED and before != value:
                changes.revise(number, value)
        elif was == _OBSERVED:
            changes.retract(number)
            if now == _PENDING:
                changes.expect(number, again=True)
        elif now == _NOTHING:
            changes.withdraw(number)
        else:
            if was == _NOTHING:
                changes.expect(number, again=old != DORMANT)
            if now == _OBSERVED:
                changes.learn(number, value)

    # --- what others may ask -------------------------------------------------------------------

    def find(self, id: str) -> int:
        """The number of a remembered decision, -1 if there is none."""
        return self._index.find(key_of(id))

    def entry(self, id: str) -> Entry | None:
        """What a remembered decision has come to."""
        number = self.find(id)
        if number < 0:
            return None
        rows, i = self._rows, number - self._rows.base
        facts = self._facts.get(number) or self._read(number)
        return Entry(
            state=State(rows.state[i]).name.lower(),
            value=rows.value[i] if _ROLE[rows.state[i]] == _OBSERVED else None,
            late=bool(rows.flags[i] & LATE),
            conflict=bool(rows.flags[i] & CONFLICT),
            recorded=rows.recorded[i],
            position=rows.position[i],
            due=due_of(facts, self.rewards),
            told=list(facts.told),
        )

    def meaning(self, reward: Reward) -> str:
        """What a reward would be to what is known, but for the time: that is the journal's."""
        number = self._index.find(key_of(reward.id))
        if number < 0:
            return "parked"
        if number not in self._facts and self._rows.told_recorded[number - self._rows.base] == NONE:
            return "rewarded"
        return meaning_of(self._facts.get(number) or self._read(number), reward)

    def numbers(self, state: State) -> list[int]:
        """The numbers of all remembered decisions in a state."""
        rows = self._rows
        return [
            rows.base + i
            for i, one in enumerate(rows.state)
            if one == state and not rows.flags[i] & FORGOTTEN
        ]

    def pending(self) -> Iterator[tuple[bytes, int]]:
        """Key and record time of every pending decision, the oldest first."""
        rows = self._rows
        for i, state in enumerate(rows.state):
            if state == PENDING:
                yield bytes(self._index.keys[16 * i : 16 * i + 16]), rows.recorded[i]

    @property
    def due(self) -> int | None:
        """When the next decision comes due, at the earliest; None if none will."""
        due = self._next_due()
        return None if due == math.inf else int(due)

    def is_due(self, now: int) -> bool:
        """Whether anything is to be settled by now."""
        return now >= self._soonest and self._next_due() <= now

    def _next_due(self) -> float:
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
        self._soonest = found
        return found

    @property
    def digest(self) -> int:
        """A number that two ledgers share if and only if they hold the same entries.

        It is a sum over decisions, the forgotten ones too: that of several partitions is the sum
        of theirs (modulo 2^128), whatever the partitions.
        """
        rows, total = self._rows, self._forgotten_digest
        for i in range(len(rows)):
            if not rows.flags[i] & FORGOTTEN:
                total += self._digest_of(rows.base + i)
        return total % (1 << 128)

    def _digest_of(self, number: int) -> int:
        rows, i = self._rows, number - self._rows.base
        key = self._index.keys[16 * i : 16 * i + 16]
        flags = rows.flags[i] & (LATE | CONFLICT)
        what = key + msgspec.msgpack.encode((rows.state[i], flags, rows.at[i], rows.value[i] + 0.0))
        return int.from_bytes(blake2b(what, digest_size=16).digest())


def _unknown(record: Record) -> UnknownEvent:
    try:
        decode(encode(record.event))
    except UnknownEvent as error:
        return UnknownEvent(error.version, error.kind, (record.partition, record.position))
    raise AssertionError("an event that can be read is not opaque")
