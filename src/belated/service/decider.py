"""A decider: it holds the latest model, chooses, and counts what it has chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from belated.events import Decision
from belated.ids import key_of, new_id, partition_of
from belated.inputs import Row, Vector
from belated.kernels import Kernels
from belated.models import Model
from belated.policies import Policy
from belated.published import PublishedModel

#: Decisions of one's own that are counted until a model knows them. If no learner runs for long,
#: the oldest are let go: each takes a step, on the event loop, whenever a model comes.
MOST_AHEAD = 20_000


class _Own(NamedTuple):
    partition: int
    position: int  # 0 while it is not known
    row: Vector
    weight: float
    activated: bool


class Decider:
    """Chooses with a model that others learn.

    A decision counts as pending at once, and goes on counting in every model that comes until one
    has read it from the journal: so a burst does not ask the same question again and again while
    the learner is behind.

    Args:
        policy: how actions are chosen; the learner must have the same.
        partitions: of the journal.
        seed: of the choices.
        clock: gives microseconds since 1970.
        using: kernels to use instead of the best available.

    >>> from belated import Bernoulli, DelayedUCB
    >>> decider = Decider(DelayedUCB(2, Bernoulli()), partitions=1, seed=7, clock=lambda: 5)
    >>> decision = decider.choose(np.eye(2, dtype=np.float32), ["red", "blue"])
    >>> decider.model.pending
    1
    """

    def __init__(
        self,
        policy: Policy,
        *,
        partitions: int,
        clock: Callable[[], int],
        seed: int | None = None,
        using: Kernels | None = None,
    ) -> None:
        self.policy = policy
        self._partitions = partitions
        self._clock = clock
        self._using = using
        self._rng = np.random.default_rng(seed)
        self._own: dict[str, _Own] = {}
        self.model = Model(policy.start, policy.family, using=using)
        #: Records that the learner had folded when it made the model.
        self.version = 0

    def choose(
        self,
        rows: Row,
        actions: Sequence[int | str] | None = None,
        *,
        id: str | None = None,
        activated: bool = True,
    ) -> Decision:
        """Choose one of the rows, and count it as pending."""
        choice = self.policy.choose(self.model, rows, self._rng)
        index = choice.index
        now = self._clock()
        decision = Decision(
            id or new_id(now),
            now,
            index if actions is None else actions[index],
            index,
            rows[index].copy(),
            choice.mean,
            choice.propensity,
            self.version,
            activated,
        )
        weight = self.model.weight_at(choice.mean)
        partition = partition_of(key_of(decision.id), self._partitions)
        own = _Own(partition, 0, decision.x.astype(np.float64), weight, activated)
        self._own[decision.id] = own
        if len(self._own) > MOST_AHEAD:
            del self._own[next(iter(self._own))]
        self._expect(own)
        return decision

    def warm_up(self) -> None:
        """Have the kernels compiled now, so that no caller waits for it."""
        model = Model(self.policy.start, self.policy.family, using=self._using)
        row = np.zeros((2, self.policy.dim), dtype=np.float32)
        self.policy.choose(model, row, np.random.default_rng(0))
        model.expect(row[0], 0.25)
        model.withdraw(row[0], 0.25)

    def written(self, id: str, position: int) -> None:
        """The journal has taken a decision; 0 if its position is not known yet."""
        if (own := self._own.get(id)) is not None:
            self._own[id] = own._replace(position=position)

    def dropped(self, id: str) -> None:
        """A decision never came to be: the journal has refused it."""
        own = self._own.pop(id, None)
        if own is not None and own.activated:
            self.model.decisions -= 1
            if self.policy.pending_weight == 0.0:
                self.model.pending -= 1
            else:
                self.model.withdraw(own.row, self._share(own))

    def take(self, published: PublishedModel) -> None:
        """Go on with a newer model, which may not know the last decisions yet."""
        self.model = published.model(self.policy, using=self._using)
        self.version = published.version
        known = published.positions
        self._own = {
            id: own for id, own in self._own.items() if not 0 < own.position <= known[own.partition]
        }
        for own in self._own.values():
            self._expect(own)

    @property
    def ahead(self) -> int:
        """How many decisions the model does not know yet."""
        return len(self._own)

    def _expect(self, own: _Own) -> None:
        if not own.activated:
            return
        if self.policy.pending_weight == 0.0:
            self.model.note(own.row)
        else:
            self.model.expect(own.row, self._share(own))

    def _share(self, own: _Own) -> float:
        """As :meth:`belated.learner.Learner.expect` has it."""
        return self.policy.pending_weight * (1.0 if self.policy.metric == "gram" else own.weight)
