"""What is known of each decision, and what the rules say of it."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

import msgspec
import numpy as np
from numpy.typing import NDArray

from belated.events import Reward
from belated.ids import key_of
from belated.kernels.pages import ACTIVATED, CONFLICT, EXPECTED, FORGOTTEN, LATE, MORE
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
from belated.ledger.table import NONE, key_from
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
        self._table = changes.table
        self._index = Index(self._table)
        self._looked_up: dict[str, int] = {}  # of rewards that are about to be folded
        self._facts: dict[int, Facts] = {}  # of decisions that need more than their line
        self._forgotten_digest = 0

    def _facts_of(self, number: int) -> Facts:
        """The facts; whoever changes them calls for a review."""
        facts = self._facts.get(number)
        if facts is None:
            facts = self._read(number)
            self._keep(number, facts)
        return facts

    def _keep(self, number: int, facts: Facts) -> None:
        self._facts[number] = facts
        self._table.touch(number - self._table.base)
        self._table.flags[number - self._table.base] |= MORE

    def _read(self, number: int) -> Facts:
        table, i = self._table, number - self._table.base
        facts = Facts(table.recorded[i], bool(table.flags[i] & ACTIVATED))
        if table.told_recorded[i] != NONE:
            facts.rewarded = table.told_recorded[i]
            facts.parts[""] = ReportedReward(facts.rewarded, table.told_at[i], table.value[i])
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
            del self._facts[number]  # its line holds it all
            table, i = self._table, number - self._table.base
            table.flags[i] &= ~MORE
            for one in facts.parts.values():
                table.told_recorded[i], table.told_at[i] = one.recorded_us, one.at_us

    def _apply(self, number: int, verdict: Verdict) -> None:
        table, i = self._table, number - self._table.base
        old, new = table.state[i], verdict.state
        before = table.value[i]
        value = 0.0 if verdict.value is None else verdict.value
        table.touch(i)
        table.state[i] = new
        table.value[i] = value
        self.counts[old] -= 1
        self.counts[new] += 1
        flags = table.flags[i] & ~(LATE | CONFLICT)
        table.flags[i] = flags | LATE * verdict.late | CONFLICT * verdict.conflict
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
                changes.add_pending(number, again=bool(table.flags[i] & EXPECTED))
                table.flags[i] |= EXPECTED
            if now == OBSERVED:
                changes.learn(number, value)

    def find(self, id: str) -> int:
        """The number of a remembered decision; -1 if there is none."""
        return self._index.find(key_of(id))

    def _number_of(self, id: str) -> int:
        """The same, for a record: what :meth:`meaning` found for it is not looked up again."""
        number = self._looked_up.pop(id, None)
        return self._index.find(key_of(id)) if number is None else number

    def entry(self, id: str) -> DecisionStatus | None:
        """What a remembered decision has come to."""
        number = self.find(id)
        if number < 0:
            return None
        table, i = self._table, number - self._table.base
        facts = self._facts.get(number) or self._read(number)
        return DecisionStatus(
            id=id,
            state=State(table.state[i]).name.lower(),
            value=table.value[i] if ROLE[table.state[i]] == OBSERVED else None,
            late=bool(table.flags[i] & LATE),
            conflict=bool(table.flags[i] & CONFLICT),
            recorded_us=table.recorded[i],
            position=table.position[i],
            due_us=due_of(facts, self.rewards),
            reported=list(facts.parts.values()),
        )

    def meaning(self, reward: Reward) -> str:
        """What a reward would be to what is known, but for the time: that is the journal's."""
        number = self._index.find(key_of(reward.id))
        if number < 0:
            return "unmatched"
        facts, table = self._facts.get(number), self._table
        if facts is None and table.told_recorded[number - table.base] == NONE:
            self._looked_up[reward.id] = number  # its record comes next
            return "rewarded"
        return meaning_of(facts or self._read(number), reward)

    def numbers(self, state: State) -> NDArray[np.int64]:
        """The numbers of all remembered decisions in a state."""
        table = self._table
        remembered = table.column("flags") & FORGOTTEN == 0
        return table.base + np.flatnonzero(remembered & (table.column("state") == state))

    def pending(self) -> Iterator[tuple[bytes, int]]:
        """Key and record time of every pending decision, the oldest first."""
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
        """A number that two ledgers share if and only if they hold the same entries.

        It is a sum over decisions, the forgotten ones too: that of several partitions is the sum
        of theirs (modulo 2^128), whatever the partitions.
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
        what = key_from(table.high[i], table.low[i]) + msgspec.msgpack.encode(entry)
        return int.from_bytes(blake2b(what, digest_size=16).digest())
