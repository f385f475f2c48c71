"""A decider: it holds the latest model, chooses, and counts what it has chosen."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from belated.events import Decision
from belated.ids import key_of, new_id, partition_of
from belated.inputs import Row, as_rows
from belated.kernels import Kernels
from belated.models import Model
from belated.policies import Policy
from belated.published import PublishedModel

#: Decisions of one's own that are counted until a model knows them. If no learner runs for long,
#: the oldest are let go: each takes a step, on the event loop, whenever a model comes.
MOST_AHEAD = 20_000


class Asked(NamedTuple):
    """An offer as it was read.

    Attributes:
        rows: float32 numbers, row after row.
        actions: the names of the actions, None where they have none.
        id: the caller's name for the decision.
        fresh: whether the id is used for the first time.
        activated: whether the outcome clock starts at once.
    """

    rows: bytes
    actions: Sequence[int | str] | None = None
    id: str | None = None
    fresh: bool = False
    activated: bool = True


class _Own(msgspec.Struct, gc=False):
    """A decision of one's own: at most so many, and no collector need ever look at them."""

    decision: Decision
    weight: float
    partition: int
    position: int = -1  # until it is safe; 0 while it waits in a spool, and has none yet


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
    >>> rows = np.eye(2, dtype=np.float32).tobytes()
    >>> (decision,) = decider.choose_all([Asked(rows, ["red", "blue"])])
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
        # A plain dict would look for its first key from the place of all that were taken out.
        self._own: OrderedDict[str, _Own] = OrderedDict()
        self.model = Model(policy.start, policy.family, using=using)
        #: Records that the learner had folded when it made the model.
        self.version = 0

    def choose_all(self, offers: Sequence[Asked]) -> list[Decision]:
        """Choose for one offer after the other; each decision is pending for the next."""
        table = table_of([offer.rows for offer in offers], self.policy.dim)
        width, end, ends = 4 * self.policy.dim, 0, []
        for offer in offers:
            end += len(offer.rows) // width
            ends.append(end)
        choices = self.policy.choose_all(
            self.model,
            table.astype(np.float64),
            ends,
            [offer.activated for offer in offers],
            self._rng,
        )
        now, start, made = self._clock(), 0, []
        for offer, choice, end in zip(offers, choices, ends, strict=True):
            index, id = choice.index, offer.id
            if id is None:
                id = new_id(now)
            row = table[start + index].copy()  # so that the others need not be kept
            partition = partition_of(key_of(id), self._partitions)
            action = index if offer.actions is None else offer.actions[index]
            mean, propensity = choice.mean, choice.propensity
            decision = Decision(
                id, now, action, index, row, mean, propensity, self.version, offer.activated
            )
            self._own[id] = _Own(decision, choice.weight, partition)
            made.append(decision)
            start = end
        while len(self._own) > MOST_AHEAD:
            self._own.popitem(last=False)
        return made

    def warm_up(self) -> None:
        """Have the kernels compiled now, so that no caller waits for it."""
        model = Model(self.policy.start, self.policy.family, using=self._using)
        rows = np.zeros((2, self.policy.dim))
        self.policy.choose_all(model, rows, [2], [True], np.random.default_rng(0))
        model.expect_all(rows, np.array([0.25, 0.25]))
        model.expect(rows[0], 0.25)
        model.withdraw(rows[0], 0.25)

    def written(self, id: str, position: int) -> None:
        """A decision is safe; at 0 it waits in a spool, and its position is told later."""
        own = self._own.get(id)
        if own is not None and own.position < position:  # the two may be told in either order
            own.position = position

    def written_all(self, found: Sequence[tuple[str, int]]) -> None:
        """The same for several, each with its position."""
        for id, position in found:
            self.written(id, position)

    def kept(self, id: str, *, waiting: bool = False) -> Decision | None:
        """A decision of one's own that is safe, as long as no model knows it.

        Args:
            id: of the decision.
            waiting: only if it waits in a spool.
        """
        own = self._own.get(id)
        if own is None or own.position < 0 or (waiting and own.position):
            return None
        return own.decision

    def dropped(self, id: str) -> None:
        """A decision never came to be: the journal has refused it."""
        own = self._own.pop(id, None)
        if own is not None and own.decision.activated:
            self.model.decisions -= 1
            if self.policy.pending_weight == 0.0:
                self.model.pending -= 1
            else:
                self.model.withdraw(own.decision.x, self.policy.share(own.weight))

    def take(self, published: PublishedModel) -> None:
        """Go on with a newer model, which may not know the last decisions yet."""
        self.model = published.model(self.policy, using=self._using)
        self.version = published.version
        known = published.positions
        self._own = OrderedDict(
            (id, own)
            for id, own in self._own.items()
            if not 0 < own.position <= known[own.partition]
        )
        ahead = [own for own in self._own.values() if own.decision.activated]
        if self.policy.pending_weight == 0.0:
            self.model.pending += len(ahead)
            self.model.decisions += len(ahead)
        elif ahead:
            weights = np.array([self.policy.share(own.weight) for own in ahead])
            rows = np.array([own.decision.x for own in ahead], dtype=np.float64)
            self.model.expect_all(rows, weights)

    @property
    def ahead(self) -> int:
        """How many decisions the model does not know yet."""
        return len(self._own)


def table_of(rows: Sequence[bytes], dim: int) -> Row:
    """Rows as one table, checked."""
    return as_rows(np.frombuffer(b"".join(rows), np.float32).reshape(-1, dim), dim)
