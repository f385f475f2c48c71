"""A decider: it holds the latest model, chooses, and counts what it has chosen."""

from __future__ import annotations

import logging
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, get_args

import msgspec
import numpy as np

from belated.events import Decision
from belated.ids import key_of, new_id, partition_of
from belated.inputs import Row, Vector, as_rows
from belated.kernels import Kernels
from belated.models import Model
from belated.policies import Policy
from belated.policies.policy import Choice
from belated.published import PublishedModel
from belated.service.baselines import UNIFORM, choose_plainly

#: Decisions of one's own that are counted until a model knows them. If no learner runs for long,
#: the oldest are let go: each takes a step, on the event loop, whenever a model comes.
MOST_AHEAD = 20_000

#: In microseconds.
MINUTE = 60_000_000

#: How a bandit decides: as it learns; with the model of the moment, which does not change any more;
#: without a model; not at all.
Mode = Literal["learn", "freeze", "baseline", "off"]
MODES: tuple[Mode, ...] = get_args(Mode)

log = logging.getLogger("belated.service")


class NoChoice(Exception):
    """The model, or the policy, cannot choose; why is short, for a metric."""

    def __init__(self, why: str, detail: str) -> None:
        super().__init__(detail)
        self.why = why


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
    counted: bool  # whether the model counts it as pending
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
        baseline: how to choose where the model is not to be used, or of no use.
        bandit: its name, for the log.
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
        baseline: int | str = UNIFORM,
        bandit: str = "",
        using: Kernels | None = None,
    ) -> None:
        self.policy = policy
        self._baseline = baseline
        self._bandit = bandit
        self._partitions = partitions
        self._clock = clock
        self._using = using
        self._rng = np.random.default_rng(seed)
        # A plain dict would look for its first key from the place of all that were taken out.
        self._own: OrderedDict[str, _Own] = OrderedDict()
        self._published: PublishedModel | None = None
        self.model = self._base()
        #: Records that the learner had folded when it made the model.
        self.version = 0
        self.mode: Mode = "learn"
        #: Decisions without the model although it was to be used, by the reason; for metrics.
        self.fallbacks: Counter[str] = Counter()
        self._told: dict[str, int] = {}  # when each reason was last told
        self._mended = False  # whether the model was made anew since it came

    def choose_all(self, offers: Sequence[Asked]) -> list[Decision]:
        """Choose for one offer after the other; each decision is pending for the next.

        Raises:
            InvalidInput: one of the offers is wrong.
            NoChoice: the model is of no use; nothing was chosen.
        """
        table = table_of([offer.rows for offer in offers], self.policy.dim)
        ends = self._ends(offers)
        if self.mode == "baseline":
            return self._made(offers, table, ends, self._plain_choices(offers, table, ends))
        # A model that is frozen is not changed by what is decided with it either.
        counted = [offer.activated and self.mode != "freeze" for offer in offers]
        model = self.model
        before = model.decided.copy(), model.pending, model.decisions  # all are chosen, or none
        try:
            choices = self.policy.choose_all(
                model, table.astype(np.float64), ends, counted, self._rng
            )
            for choice in choices:
                if not (0.0 < choice.propensity <= 1.0 and math.isfinite(choice.mean)):
                    raise NoChoice("not finite", f"the model gives {choice}")
        except Exception as error:
            model.decided, model.pending, model.decisions = before
            self._mend()
            if isinstance(error, NoChoice):
                raise
            raise NoChoice("error", f"{type(error).__name__}: {error}") from error
        return self._made(offers, table, ends, choices, counted)

    def fall_back(self, offers: Sequence[Asked], why: NoChoice) -> list[Decision]:
        """Choose without the model, which cannot; it is counted, and told once a minute."""
        self.fallbacks[why.why] += len(offers)
        now = self._clock()
        if now > self._told.get(why.why, -MINUTE) + MINUTE:
            self._told[why.why] = now
            extra = {"bandit": self._bandit, "why": str(why)}
            log.error("decisions fall back to the baseline", extra=extra)
        table = table_of([offer.rows for offer in offers], self.policy.dim)
        ends = self._ends(offers)
        return self._made(offers, table, ends, self._plain_choices(offers, table, ends))

    def switch(self, mode: Mode) -> None:
        """Decide in another way from now on."""
        if mode != self.mode:
            self.mode = mode
            self._rebuild()

    def _ends(self, offers: Sequence[Asked]) -> list[int]:
        """Where the rows of each offer end in the table of all."""
        width, end, ends = 4 * self.policy.dim, 0, []
        for offer in offers:
            end += len(offer.rows) // width
            ends.append(end)
        return ends

    def _plain_choices(
        self, offers: Sequence[Asked], table: Row, ends: Sequence[int]
    ) -> list[Choice]:
        """By the baseline."""
        found, start = [], 0
        for offer, end in zip(offers, ends, strict=True):
            index, share = choose_plainly(self._baseline, offer.actions, end - start, self._rng)
            mean, weight = self._predicted(table[start + index].astype(np.float64))
            found.append(Choice(index, share, mean, weight))
            start = end
        return found

    def _predicted(self, row: Vector) -> tuple[float, float]:
        """Mean and weight by the model; by the prior where the model is of no use."""
        try:
            mean, weight = self.model.predict(row)
            if math.isfinite(mean + weight):
                return mean, weight
        except Exception:
            pass  # whatever is wrong with it was told before
        return Model(self.policy.start, self.policy.family, using=self._using).predict(row)

    def _made(
        self,
        offers: Sequence[Asked],
        table: Row,
        ends: Sequence[int],
        choices: Sequence[Choice],
        counted: Sequence[bool] | None = None,
    ) -> list[Decision]:
        """The decisions, which are one's own until a model knows them."""
        counted = [False] * len(offers) if counted is None else counted
        now, start, made = self._clock(), 0, []
        for offer, choice, end, pending in zip(offers, choices, ends, counted, strict=True):
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
            self._own[id] = _Own(decision, choice.weight, partition, pending)
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
        if own is not None and own.counted:
            self.model.decisions -= 1
            if self.policy.pending_weight == 0.0:
                self.model.pending -= 1
            else:
                self.model.withdraw(own.decision.x, self.policy.share(own.weight))

    def take(self, published: PublishedModel) -> None:
        """Go on with a newer model, which may not know the last decisions yet.

        Raises:
            JournalMismatch: it is of another policy.
            CorruptJournal: it holds numbers that are not finite.
        """
        self.model = published.model(self.policy, using=self._using)
        self._published, self.version, self._mended = published, published.version, False
        known = published.positions
        self._own = OrderedDict(
            (id, own)
            for id, own in self._own.items()
            if not 0 < own.position <= known[own.partition]
        )
        self._count_own()

    def _base(self) -> Model:
        """The model as it came, without one's own decisions."""
        if self._published is None:
            return Model(self.policy.start, self.policy.family, using=self._using)
        return self._published.model(self.policy, using=self._using)

    def _mend(self) -> None:
        """See whether the model as it came is of use; once, for it takes a while."""
        if not self._mended:
            self._mended = True
            self._rebuild()

    def _rebuild(self) -> None:
        self.model = self._base()
        self._count_own()

    def _count_own(self) -> None:
        """Have a model that has just come count what it does not know."""
        for own in self._own.values():
            own.counted = own.decision.activated and self.mode != "freeze"
        ahead = [own for own in self._own.values() if own.counted]
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
