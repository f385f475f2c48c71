"""Between a ledger and the learner: which row a decision has, and where its reward was learned."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from belated.events import Decision
from belated.inputs import Vector
from belated.learner.learner import Learner
from belated.learner.rows import Rows

#: In ``_place`` and ``_handle``.
NOWHERE = -1


class Account:
    """Hears of the changes in one partition (:class:`~belated.ledger.Changes`) and passes them on.

    A decision has its row here while it may still be learned, and in the observations of its lane
    once it was. The weight it is expected with is the slope at the mean that was predicted for it:
    a function of the decision alone.

    Args:
        learner: to be told.
        lane: of its observations.
    """

    def __init__(self, learner: Learner, lane: int = 0) -> None:
        self.learner = learner
        self.lane = lane
        self.base = 0
        self._slope = learner.policy.family.slope_at
        self._rows = Rows(learner.policy.dim)
        self._place = array("q")
        self._handle = array("q")
        self._weight = array("d")
        self._last: tuple[int, Vector] = (NOWHERE, np.empty(0))  # just entered, as float64

    def enter(self, number: int, decision: Decision) -> None:
        """Keep its row."""
        x = decision.x
        place = self._rows.put(x)
        weight = self._slope(decision.mean)
        if number - self.base == len(self._place):
            self._place.append(place)
            self._handle.append(NOWHERE)
            self._weight.append(weight)
        else:
            i = number - self.base
            if self._place[i] != NOWHERE:
                self._rows.free(self._place[i])
            self._place[i], self._weight[i] = place, weight
        self._last = number, x.astype(np.float64)

    def expect(self, number: int, again: bool = False) -> None:
        """Its reward is out."""
        last, x = self._last
        if last != number:
            x = self._row(number)
        weight = self._weight[number - self.base] / self.learner.model.dispersion
        if again:
            self.learner.recall(x, weight)
        else:
            self.learner.expect(x, weight)

    def withdraw(self, number: int) -> None:
        """Its reward is waited for no longer."""
        weight = self._weight[number - self.base] / self.learner.model.dispersion
        self.learner.withdraw(self._row(number), weight)

    def learn(self, number: int, value: float) -> None:
        """Its reward is known; its row is among the observations from now on."""
        i = number - self.base
        learner = self.learner
        x = self._row(number)
        weight = self._weight[i] / learner.model.dispersion
        self._handle[i] = learner.learn(x, value, weight, self.lane)
        self._rows.free(self._place[i])
        self._place[i] = NOWHERE

    def revise(self, number: int, value: float) -> None:
        """Its reward is another one."""
        self.learner.revise(self._handle[number - self.base], value, self.lane)

    def retract(self, number: int) -> None:
        """Its reward does not count any longer; its row is kept here again."""
        i = number - self.base
        x = self.learner.retract(self._handle[i], self.lane)
        self._handle[i] = NOWHERE
        self._place[i] = self._rows.put(x.astype(np.float32))

    def forget(self, number: int) -> None:
        """Its row is needed no longer, if it is still here."""
        i = number - self.base
        if self._place[i] != NOWHERE:
            self._rows.free(self._place[i])
            self._place[i] = NOWHERE

    def drop(self, count: int) -> None:
        """The first ``count`` are gone."""
        for column in (self._place, self._handle, self._weight):
            del column[:count]
        self.base += count

    def pack(self) -> dict[str, bytes]:
        """The columns, the rows that are kept here, and the observations, as bytes."""
        places = [place for place in self._place if place != NOWHERE]
        rows = b"".join(self._rows.get(place).tobytes() for place in places)
        return {
            "account base": self.base.to_bytes(8),
            "account place": bytes(self._place),
            "account handle": bytes(self._handle),
            "account weight": bytes(self._weight),
            "account rows": rows,
            **self.learner.pack(self.lane),
        }

    def unpack(self, pieces: dict[str, bytes]) -> None:
        """Take what :meth:`pack` gave, in an empty account; the learner is told nothing."""
        self.base = int.from_bytes(pieces["account base"])
        self._handle.frombytes(pieces["account handle"])
        self._weight.frombytes(pieces["account weight"])
        dim = self.learner.policy.dim
        rows = iter(np.frombuffer(pieces["account rows"], dtype=np.float32).reshape(-1, dim))
        places = array("q")
        places.frombytes(pieces["account place"])
        self._place.extend(
            NOWHERE if place == NOWHERE else self._rows.put(next(rows)) for place in places
        )
        self.learner.unpack(self.lane, pieces)

    def expect_all(self, numbers: Sequence[int]) -> None:
        """All these are pending: after :meth:`unpack`, before anything else."""
        if numbers:
            at = [number - self.base for number in numbers]
            rows = np.array([self._rows.get(self._place[i]) for i in at], dtype=np.float64)
            weights = np.array([self._weight[i] for i in at]) / self.learner.model.dispersion
            self.learner.expect_all(rows, weights)

    def _row(self, number: int) -> Vector:
        # A copy, in the type of the kernels: the learner keeps it, and the place may be used again.
        return self._rows.get(self._place[number - self.base]).astype(np.float64)
