"""One plain record, folded in one step through the layers.

Nearly all records of a bandit at work are one of two: a new decision that is active, and the first
reward of a decision that is pending. The rules take them too, by way of the ledger, its table and
index, the adapter, the learner and the model; a caller waits for each of these. Here is what the
rules come to for the two, in one place. Whatever else a record is, it is left to them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from belated.events import Decision, Record, Reward
from belated.ids import key_of
from belated.inputs import Row
from belated.kernels import MAX_WEIGHT
from belated.kernels.pages import ACTIVATED, BLOCK, EXPECTED
from belated.learner.adapter import LearnerAdapter
from belated.learner.learner import Learner
from belated.ledger import Ledger
from belated.ledger.entries import LONG, State, crc_of
from belated.ledger.table import NONE, handle_at

_DOUBLE = np.dtype(np.float64)
_PENDING, _REWARDED = int(State.PENDING), int(State.REWARDED)
_NEW = ACTIVATED | EXPECTED


class PlainFolder:
    """Folds the plain records of one partition.

    Args:
        ledger: of the partition.
        adapter: between it and the learner.
    """

    def __init__(self, ledger: Ledger, adapter: LearnerAdapter) -> None:
        self.ledger, self.adapter, self.learner = ledger, adapter, adapter.learner
        self._dim = adapter.learner.policy.dim
        self._slope_at = adapter.learner.policy.family.slope_at

    @staticmethod
    def of(ledger: Ledger, adapter: LearnerAdapter) -> PlainFolder | None:
        """Return one, if the learner learns each reward when it comes, in full and for ever."""
        learner = adapter.learner
        usual = (
            type(ledger) is Ledger
            and type(adapter) is LearnerAdapter
            and type(learner) is Learner
            and adapter._window is None
            and learner._share == 1.0
            and not learner._gram
        )
        return PlainFolder(ledger, adapter) if usual else None

    def decided(self, record: Record) -> str:
        """Fold a decision; returns what it meant, nothing if it is not plain."""
        weight = self._entered(record)
        if weight is None:
            return ""
        self.learner.add_pending(record.event.x.astype(_DOUBLE), weight)  # type: ignore[union-attr]
        return "decided"

    def decided_all(self, records: Sequence[Record], first: int) -> int:
        """Fold decisions up to a record that is not a plain one; returns how many there were.

        Args:
            records: of the partition.
            first: the place of the first to be folded.
        """
        learner = self.learner
        asked = learner._waiting.asked
        rows: list[Row] = []
        weights: list[float] = []
        for n in range(first, min(len(records), first + learner._limit - len(asked[0]))):
            decision = records[n].event
            weight = self._entered(records[n]) if type(decision) is Decision else None
            if weight is None:
                break
            rows.append(decision.x)  # type: ignore[union-attr]
            weights.append(weight)
        if rows:
            exact = np.array(rows, dtype=_DOUBLE)
            learner.model.add_all_pending(exact, np.array(weights))
            asked[0].extend(exact)
            asked[1].extend([1.0] * len(weights) if learner._unscaled else weights)
            if len(asked[0]) == learner._limit:
                learner._renew()
        return len(rows)

    def _entered(self, record: Record) -> float | None:
        """Enter a decision in the ledger; returns what it is pending with, None if not plain."""
        ledger, learner, decision = self.ledger, self.learner, record.event
        assert type(decision) is Decision
        recorded, x, at = record.recorded, decision.x, decision.at_us
        due = recorded + ledger._patience
        if (
            not decision.activated
            or learner._bulk
            or len(x) != self._dim
            or not 0 <= at < LONG
            or ledger.undone is not None
            or ledger._unmatched.ids
            or ledger.watermark >= due
        ):
            return None
        key = key_of(decision.id)
        crc = int.from_bytes(record.digest[:4]) if record.digest else crc_of(decision)
        if ledger._index.find_or_enter(key) >= 0:
            return None
        weight = self._slope_at(decision.mean) / learner.model.dispersion
        weight = MAX_WEIGHT if weight > MAX_WEIGHT else weight
        kept = self.adapter._rows
        if kept.n_free:  # as Rows.put
            kept.n_free -= 1
            where = int(kept.places[kept.n_free])
            kept.data[where] = x
        else:
            where = kept.put(x)
        ledger._table.append(key, recorded, record.position, at, _PENDING, _NEW, crc, weight, where)
        ledger.counts[_PENDING] += 1
        ledger.counters["decided"] += 1
        if due < ledger.soonest:
            ledger.soonest = due
        self.adapter.decisions += 1
        return weight

    def rewarded(self, record: Record) -> str:
        """Fold a reward; returns what it meant, nothing if it is not plain."""
        ledger, learner, reward = self.ledger, self.learner, record.event
        assert type(reward) is Reward
        recorded = record.recorded
        y, at, table = reward.value, reward.at_us, ledger._table
        number = ledger._looked_up.pop(reward.id, -1)
        if number < 0:
            number = ledger.find(reward.id)
        i = number - table.base
        if (
            number < 0
            or reward.part
            or reward.revision
            or learner._bulk
            or not 0 <= at < LONG
            or not ledger._least <= y <= ledger._most
            or ledger.undone is not None
            or table.state[i] != _PENDING
            or table.told_recorded[i] != NONE
            or recorded > table.recorded[i] + ledger._patience
            or number in ledger._facts
        ):
            return ""
        adapter, where = self.adapter, table.where[i]
        rows = adapter._rows
        x, weight = rows.data[where].astype(_DOUBLE), table.weight[i]
        if number >> BLOCK not in table.changed:
            table.touch(i)
        table.state[i] = _REWARDED
        table.value[i] = y
        table.told_recorded[i], table.told_at[i] = recorded, at
        ledger.counts[_PENDING] -= 1
        ledger.counts[_REWARDED] += 1
        ledger.counters["rewarded"] += 1
        table.where[i] = handle_at(learner.learn(x, y, weight, adapter.partition))
        rows.free(where)
        return "rewarded"
