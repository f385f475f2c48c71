"""Decisions that count before they are folded."""

from __future__ import annotations

import numpy as np

from belated.events import Decision
from belated.inputs import Vector
from belated.learner import Learner


class Ahead:
    """Decisions that were made, and whose records are not folded yet: they count as pending.

    They are those of a call that is under way, and those that wait while the journal is away.

    Args:
        learner: to be told.

    >>> from belated import Bernoulli, DelayedUCB
    >>> learner = Learner(DelayedUCB(2, Bernoulli()))
    >>> ahead = Ahead(learner)
    >>> x = np.array([0.5, 1.0], dtype=np.float32)
    >>> ahead.add(Decision("a1", 5, "blue", 0, x, 0.2, 1.0, 7))
    >>> learner.model.pending, ahead.get("a1").action
    (1, 'blue')
    >>> ahead.drop("a1")
    >>> learner.model.pending, ahead.get("a1")
    (0, None)
    """

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self._made: dict[str, tuple[Decision, tuple[Vector, float] | None]] = {}

    def __len__(self) -> int:
        return len(self._made)

    def get(self, id: str) -> Decision | None:
        """The one of this id."""
        made = self._made.get(id)
        return None if made is None else made[0]

    def add(self, decision: Decision, *, counts: bool = True) -> None:
        """One more; ``counts`` is False for one that is not to count, but to be found."""
        expected = None
        if counts:
            weight = self._learner.model.weight_at(decision.mean)
            expected = decision.x.astype(np.float64), weight
            self._learner.expect(*expected)
        self._made[decision.id] = decision, expected

    def drop(self, id: str) -> None:
        """One was folded, or never came to be; nothing happens if it is not here."""
        _, expected = self._made.pop(id, (None, None))
        if expected is not None:
            self._learner.withdraw(*expected)
            self._learner.model.decisions -= 1

    def clear(self) -> None:
        """All were folded, or never came to be."""
        for id in list(self._made):
            self.drop(id)
