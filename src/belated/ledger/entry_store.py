"""What is known of each decision, and what the rules say of it."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

import msgspec

from belated.events import Reward
from belated.ids import key_of
from belated.ledger.columns import (
    ACTIVATED,
    CONFLICT,
    EXPECTED,
    FORGOTTEN,
    LATE,
    NONE,
    Columns,
)
from belated.ledger.entries import (
    DecisionStatus,
    Facts,
    ReportedReward,
    State,
    Verdict,
    due_of,
    judge,
    meaning_of,
)
from belated.ledger.index import Index
from belated.ledger.listener import LedgerListener
from belated.ledger.recent import RecentEntry
from belated.rewards import Rewards

DORMANT, PENDING, REWARDED = State.DORMANT, State.PENDING, State.REWARDED
#: What a state is to the learner.
NOTHING, AWAITED, OBSERVED = 0, 1, 2
ROLE = (NOTHING, AWAITED, OBSERVED, OBSERVED, NOTHING, NOTHING)


class EntryStore:
    """The entries of one partition: judged when their facts change, and told to ``changes``."""

    def __init__(self, rewards: Rewards, changes: LedgerListener, retention: int | None) -> None:
        self.rewards = rewards
        self.changes = changes
        self.watermark = 0
        #: Decisions by state, the forgotten ones too.
        self.counts = [0] * len(State)
        self._retention = retention
        self._index = Index()
        self._rows = Columns()
        self._facts: dict[int, Facts] = {}  # of decisions that need more than the columns
        self._forgotten_digest = 0
        self._fresh: dict[bytes, RecentEntry] = {}  # by key; the columns end where these begin

    def _put_away(self) -> None:
        """Whatever is fresh goes into the columns: before anything looks at all of them."""
        if self._fresh:
            fresh = list(self._fresh.values())
            self._rows.extend(fresh)
            self._index.add_all(list(self._fresh))
            self._fresh.clear()

    def _facts_of(self, number: int) -> Facts:
        """The facts; whoever changes them calls for a review."""
        facts = self._facts.get(number)
        if facts is None:
            facts = self._facts[number] = self._read(number)
        return facts

    def _read(self, number: int) -> Facts:
        rows, i = self._rows, number - self._rows.base
        facts = Facts(rows.recorded[i], bool(rows.flags[i] & ACTIVATED))
        if rows.told_recorded[i] != NONE:
            facts.rewarded = rows.told_recorded[i]
            facts.parts[""] = ReportedReward(facts.rewarded, rows.told_at[i], rows.value[i])
        return facts

    def _review(self, number: int) -> None:
        """Judge anew, and tell what has changed."""
        facts = self._facts.get(number)
        verdict = judge(
            self._read(number) if facts is None else facts,
            self.watermark,
            self.rewards,
        )
        self._apply(number, verdict)
        if facts is not None and facts.plain:
            del self._facts[number]  # the columns hold it all
            rows, i = self._rows, number - self._rows.base
            for one in facts.parts.values():
                rows.told_recorded[i], rows.told_at[i] = one.recorded_us, one.at_us

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
        was, now = ROLE[old], ROLE[new]
        changes = self.changes
        if was == now:
            if now == OBSERVED and before != value:
                changes.revise(number, value)
        elif was == OBSERVED:
            changes.retract(number)
            if now == AWAITED:
                changes.add_pending(number, again=True)
        elif now == NOTHING:
            changes.remove_pending(number)
        else:
            if was == NOTHING:
                changes.add_pending(number, again=bool(rows.flags[i] & EXPECTED))
                rows.flags[i] |= EXPECTED
            if now == OBSERVED:
                changes.learn(number, value)

    def find(self, id: str) -> int:
        """The number of a remembered decision, in the columns from now on; -1 if there is none."""
        return self._find(key_of(id))

    def _find(self, key: bytes) -> int:
        if key in self._fresh:
            self._put_away()
        return self._index.find(key)

    def entry(self, id: str) -> DecisionStatus | None:
        """What a remembered decision has come to."""
        number = self.find(id)
        if number < 0:
            return None
        rows, i = self._rows, number - self._rows.base
        facts = self._facts.get(number) or self._read(number)
        return DecisionStatus(
            id=id,
            state=State(rows.state[i]).name.lower(),
            value=rows.value[i] if ROLE[rows.state[i]] == OBSERVED else None,
            late=bool(rows.flags[i] & LATE),
            conflict=bool(rows.flags[i] & CONFLICT),
            recorded_us=rows.recorded[i],
            position=rows.position[i],
            due_us=due_of(facts, self.rewards),
            reported=list(facts.parts.values()),
        )

    def meaning(self, reward: Reward) -> str:
        """What a reward would be to what is known, but for the time: that is the journal's."""
        key = key_of(reward.id)
        fresh = self._fresh.get(key)
        if fresh is not None and fresh.told_recorded == NONE:
            return "rewarded"
        number = self._find(key)
        if number < 0:
            return "unmatched"
        if number not in self._facts and self._rows.told_recorded[number - self._rows.base] == NONE:
            return "rewarded"
        return meaning_of(self._facts.get(number) or self._read(number), reward)

    def numbers(self, state: State) -> list[int]:
        """The numbers of all remembered decisions in a state."""
        self._put_away()
        rows = self._rows
        return [
            rows.base + i
            for i, one in enumerate(rows.state[: len(rows)])
            if one == state and not rows.flags[i] & FORGOTTEN
        ]

    def pending(self) -> Iterator[tuple[bytes, int]]:
        """Key and record time of every pending decision, the oldest first."""
        self._put_away()
        rows = self._rows
        for i, state in enumerate(rows.state[: len(rows)]):
            if state == PENDING:
                yield self._index.key(rows.base + i), rows.recorded[i]

    @property
    def oldest(self) -> int | None:
        """The record time of the oldest pending decision; None if there is none."""
        self._put_away()
        i = self._rows.first(PENDING)
        return None if i < 0 else self._rows.recorded[i]

    @property
    def digest(self) -> int:
        """A number that two ledgers share if and only if they hold the same entries.

        It is a sum over decisions, the forgotten ones too: that of several partitions is the sum
        of theirs (modulo 2^128), whatever the partitions.
        """
        self._put_away()
        rows, total = self._rows, self._forgotten_digest
        for i in range(len(rows)):
            if not rows.flags[i] & FORGOTTEN:
                total += self._digest_of(rows.base + i)
        return total % (1 << 128)

    def _digest_of(self, number: int) -> int:
        rows, i = self._rows, number - self._rows.base
        key = self._index.key(number)
        flags = rows.flags[i] & (LATE | CONFLICT)
        what = key + msgspec.msgpack.encode((rows.state[i], flags, rows.at[i], rows.value[i] + 0.0))
        return int.from_bytes(blake2b(what, digest_size=16).digest())
