"""The decider chooses with a learner's model, and tracks decisions the model has not yet read."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from itertools import islice
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
from msgspec.structs import replace

from belated.core.events import Decision, Source
from belated.core.ids import key_of, partition_of, slot_of_subject
from belated.core.inputs import Matrix, Row, Vector
from belated.core.tuning import USUAL, Tuning
from belated.decider.actions import Changes, only_open
from belated.decider.baselines import UNIFORM, choose_baseline
from belated.decider.holdouts import BANDIT, HELD, Holdout, Marks
from belated.decider.modes import Mode
from belated.decider.requests import ParsedRequest
from belated.decider.scores import Scores, scores_of
from belated.exceptions import BanditOff, PolicyFailure
from belated.fold.contexts import NAME, name_of
from belated.fold.published import PublishedModel
from belated.fold.requests import Keep, keep_request
from belated.model.blocks import Shape, width_of
from belated.model.model import Model
from belated.model.statistics import Information
from belated.policies import Policy
from belated.policies.policy import Choice

#: Positions that mark decisions outside the journal: not durable yet, or durable in a spool.
NOT_DURABLE, SPOOLED = -1, 0


class Unapplied(msgspec.Struct, gc=False):
    """A decision that the current model has not read yet.

    Attributes:
        decision: the decision.
        weight: its weight as a pending decision.
        partition: its partition in the journal.
        counted: whether the current model counts it as pending.
        position: its position in the partition, :data:`NOT_DURABLE` or :data:`SPOOLED`.
    """

    decision: Decision
    weight: float
    partition: int
    counted: bool
    position: int = NOT_DURABLE


class _Block(msgspec.Struct):
    """The sum of several decisions of a partition, removed once a model has read the last one."""

    position: int
    information: Information


class UnappliedDecisions:
    """Decisions made by this process that the model has not read yet; they count as pending.

    Decisions are never dropped. If no learner runs for a long time, the oldest durable decisions
    are replaced by their sum. They still count as pending, but can be found by id only in the
    journal.

    Args:
        shape: shape of θ.
        share: function that returns a pending decision's contribution, given its weight.
        tuning: internal sizes, including the number of decisions to keep individually.
    """

    def __init__(self, shape: Shape, share: Callable[[float], float], tuning: Tuning) -> None:
        self._shape = shape
        self._share = share
        self._most, self._block = tuning.max_unapplied, tuning.unapplied_block
        # Not a dict: finding its first key is slow after many removals at the front.
        self._recent: OrderedDict[str, Unapplied] = OrderedDict()
        self._blocks: dict[int, list[_Block]] = {}
        self._compact_at = self._most + self._block

    def __len__(self) -> int:
        return len(self._recent) + sum(
            block.information.count for blocks in self._blocks.values() for block in blocks
        )

    def __bool__(self) -> bool:
        return bool(self._recent) or any(self._blocks.values())

    def __iter__(self) -> Iterator[Unapplied]:
        return iter(self._recent.values())

    def add(self, entry: Unapplied) -> bool:
        """Add a decision; return False, and change nothing, if its id is already present."""
        return self._recent.setdefault(entry.decision.id, entry) is entry

    def get(self, id: str) -> Unapplied | None:
        """Return a decision by id; None if it is absent."""
        return self._recent.get(id)

    def remove(self, id: str) -> Unapplied | None:
        """Remove and return a decision by id; None if it is absent."""
        return self._recent.pop(id, None)

    def find(self, id: str, *, spooled: bool = False) -> Decision | None:
        """Return a durable decision by id; None if there is none.

        Args:
            id: the decision id.
            spooled: whether to return the decision only if it is in a spool.
        """
        entry = self._recent.get(id)
        if entry is None or entry.position == NOT_DURABLE:
            return None
        return None if spooled and entry.position != SPOOLED else entry.decision

    def mark_durable(self, id: str, position: int) -> None:
        """Record the position of a decision, or that it is in a spool and has no position yet."""
        entry = self._recent.get(id)
        # A decision can be marked as spooled and as delivered in either order. If two decisions
        # have the same id, the first one counts.
        if entry is not None and entry.position <= SPOOLED and entry.position < position:
            entry.position = position
            # Drop the context, which may be large. A retry needs only the name of the features.
            if len(entry.decision.context) > NAME:
                entry.decision = replace(entry.decision, context=entry.decision.context[:NAME])

    def forget_read(self, positions: Sequence[int]) -> None:
        """Remove the decisions that a model has read, up to its position in each partition."""
        self._recent = OrderedDict(
            (id, entry)
            for id, entry in self._recent.items()
            if not 0 < entry.position <= positions[entry.partition]
        )
        for partition, blocks in self._blocks.items():
            unread = [block for block in blocks if block.position > positions[partition]]
            self._blocks[partition] = unread

    def compact(self) -> None:
        """Sum the oldest durable decisions if there are too many to keep individually."""
        if len(self._recent) < self._compact_at:
            return
        oldest: dict[int, list[Unapplied]] = {}
        excess = len(self._recent) - self._most
        for entry in list(islice(self._recent.values(), excess)):
            if entry.position > 0:
                oldest.setdefault(entry.partition, []).append(entry)
                del self._recent[entry.decision.id]
        for partition, entries in oldest.items():
            information = Information.of(*self._live(entries), self._shape)
            last = max(entry.position for entry in entries)
            self._blocks.setdefault(partition, []).append(_Block(last, information))
        # Spooled decisions cannot be summed, so try again only after another block of decisions.
        self._compact_at = max(len(self._recent), self._most) + self._block

    def pending(self) -> tuple[Matrix, Vector, Information]:
        """Return the rows and shares of recent pending decisions, and the sum of the older ones."""
        rows, shares = self._live(self._recent.values())
        summed = Information.zero(self._shape)
        for blocks in self._blocks.values():
            for block in blocks:
                summed = summed + block.information
        return rows, shares, summed

    def _live(self, entries: Iterable[Unapplied]) -> tuple[Matrix, Vector]:
        """Return the rows and shares of activated decisions."""
        live = [entry for entry in entries if entry.decision.activated]
        rows = np.empty((len(live), width_of(self._shape)))
        if live:
            np.concatenate([entry.decision.x for entry in live], out=rows.reshape(-1))
        return rows, np.array([self._share(entry.weight) for entry in live], dtype=np.float64)


class ModelSource(Protocol):
    """Provides the model of a decider: a live learner, or a loaded model."""

    @property
    def model(self) -> Model:
        """The model that chooses."""

    @property
    def version(self) -> int:
        """Number of records folded into the model."""

    def add_pending(self, x: Vector, weight: float) -> None:
        """Count a decision that the model has not read as pending."""

    def remove_pending(self, x: Vector, weight: float) -> None:
        """Stop counting a decision as pending."""

    def change_mode(self, mode: Mode, unapplied: UnappliedDecisions) -> None:
        """Change the mode of the model."""

    def use_model(self, chosen: PublishedModel | None, unapplied: UnappliedDecisions) -> None:
        """Use the given model from now on; None means the newest."""

    def repair(self, unapplied: UnappliedDecisions) -> None:
        """Rebuild the model after it failed to choose."""


#: Maximum number of row values in a run (256 KB), unless the run is a single request.
AT_ONCE = 1 << 15


def runs_of(
    requests: Sequence[ParsedRequest], dim: int
) -> Iterator[tuple[slice, slice, list[int]]]:
    """Split requests into runs; yield each run's slice of requests, slice of rows, and row ends.

    The end of each request's rows is relative to the first row of the run.

    Args:
        requests: the requests, in the order of their rows in the table.
        dim: number of columns of a row.

    >>> [run for run in runs_of([ParsedRequest(2), ParsedRequest(3)], dim=4)]
    [(slice(0, 2, None), slice(0, 5, None), [2, 5])]
    >>> [run for run, _, _ in runs_of([ParsedRequest(2), ParsedRequest(3)], dim=AT_ONCE)]
    [slice(0, 1, None), slice(1, 2, None)]
    """
    first = start = end = 0
    ends: list[int] = []
    for n, request in enumerate(requests):
        if ends and (end + request.n_rows) * dim > AT_ONCE:
            yield slice(first, n), slice(start, start + end), ends
            first, start, end, ends = n, start + end, 0, []
        end += request.n_rows
        ends.append(end)
    if ends:
        yield slice(first, len(requests)), slice(start, start + end), ends


def _checked(choice: Choice) -> Choice:
    if not (0.0 < choice.propensity <= 1.0 and abs(choice.mean) < math.inf):
        raise PolicyFailure("not finite", f"the policy returned {choice}")
    return choice


class Made(NamedTuple):
    """The decisions for several requests.

    Attributes:
        decisions: the decisions, in the order of the requests.
        requests: encoded requests to store with the decisions, by index.
    """

    decisions: list[Decision]
    requests: dict[int, bytes]


class Decider:
    """Makes decisions, and counts them as pending until a model has read them.

    A burst of decisions therefore does not repeat the same choice while the learner lags behind.

    Args:
        policy: the policy that chooses actions.
        source: provides the model.
        partitions: number of partitions of the journal.
        baseline: how to choose without the model: the name of an action, ``first`` or ``uniform``.
        keep_requests: share of the requests to store; "auto" stores all small requests and a sample
            of large ones.
        tuning: internal sizes, and the id generator.

    >>> from belated import Bernoulli, DelayedUCB
    >>> from belated.decider import LoadedModel
    >>> policy = DelayedUCB(2, Bernoulli())
    >>> decider = Decider(policy, LoadedModel(policy), partitions=1)
    >>> rows, rng = np.eye(2, dtype=np.float32), np.random.default_rng(7)
    >>> request = ParsedRequest(2, ["red", "blue"])
    >>> made = decider.choose([request], rows, now=5, rng=rng, hold=True)
    >>> len(made.decisions), len(made.requests), decider.model.pending
    (1, 1, 1)
    """

    def __init__(
        self,
        policy: Policy,
        source: ModelSource,
        *,
        partitions: int,
        baseline: int | str = UNIFORM,
        keep_requests: Keep = "auto",
        tuning: Tuning = USUAL,
    ) -> None:
        self.policy = policy
        self.holdout: Holdout | None = None
        self.keep_requests = keep_requests
        self.mode: Mode = "learn"
        #: The model that an operator chose; None means the newest.
        self.chosen: PublishedModel | None = None
        #: Changes of actions by operators. Paused and retired actions are never chosen.
        self.actions: Changes = {}
        self.unapplied = UnappliedDecisions(policy.shape, policy.share, tuning)
        #: Number of decisions made by the baseline because the policy failed, by reason.
        self.fallbacks: Counter[str] = Counter()
        #: The policy's last failure.
        self.failure: PolicyFailure | None = None
        self._source = source
        self._partitions = partitions
        self._baseline = baseline
        self._new_id = tuning.new_id
        self._features = name_of(policy.features)
        #: Slot of generated ids; None means a random slot for each id.
        self.slot: int | None = None
        self._repaired = False  # whether the model was repaired since the policy last succeeded

    @property
    def model(self) -> Model:
        """The model that chooses."""
        return self._source.model

    def choose(
        self,
        requests: Sequence[ParsedRequest],
        table: Row,
        *,
        now: int,
        rng: np.random.Generator,
        hold: bool,
    ) -> Made:
        """Choose for several requests in turn, counting earlier choices as pending.

        If the policy fails, the baseline decides.

        Args:
            requests: the requests, in the order of their rows.
            table: validated rows of all requests, concatenated.
            now: the current time, in microseconds since 1970.
            rng: random generator.
            hold: whether to keep counting the decisions as pending; False if they will be folded
                immediately.

        Raises:
            BanditOff: the bandit is switched off.
            ActionsPaused: all actions of a request are paused.
        """
        if self.mode == "off":
            raise BanditOff()
        if self.actions:
            requests, table = only_open(requests, table, self.actions, now)
        # Decisions do not change a model that is frozen or was chosen by an operator.
        learns = self.mode == "learn" and self.chosen is None
        counts = learns and (hold or len(requests) > 1)
        source: Source = "policy"
        if self.mode == "baseline":  # decisions are counted once a model is used again
            source = "baseline"
            choices = self._choose_baseline(self._baseline, requests, table, rng)
        else:
            try:
                choices = self._choose_policy(requests, table, rng, counts, hold)
                self._repaired = False
            except PolicyFailure as failure:
                self._repair()
                if len(requests) > 1:
                    return self._one_by_one(requests, table, now, rng, hold)
                self.failure = failure
                self.fallbacks[failure.reason] += 1
                source = "fallback"
                choices = self._choose_baseline(self._baseline, requests, table, rng)
                counts = counts and requests[0].activated and self._count(choices[0], table)
        decisions = self._decide(requests, table, choices, source, now, counts and hold, hold)
        return Made(decisions, self._keep(requests, table, choices, decisions))

    def record(self, request: ParsedRequest, table: Row) -> Made:
        """Record a decision that the caller made because the service was unavailable.

        The decision counts as pending, like any other.

        Args:
            request: the request, with the action that was chosen and the time.
            table: validated rows of the request.
        """
        assert request.fallback is not None
        index, at = request.fallback
        choices = [Choice(index, 1.0, *self._predict(table[index].astype(np.float64)))]
        counts = self.mode == "learn" and self.chosen is None and request.activated
        counts = counts and self._count(choices[0], table)
        decisions = self._decide([request], table, choices, "fallback", at, counts, hold=True)
        return Made(decisions, self._keep([request], table, choices, decisions))

    def score(
        self, request: ParsedRequest, table: Row, *, now: int, rng: np.random.Generator
    ) -> Scores:
        """Return the choice and the actions' scores, without deciding or changing any state.

        Args:
            request: the decision request.
            table: validated rows of the request.
            now: the current time, in microseconds since 1970.
            rng: a separate random generator, so that decisions are not affected.

        Raises:
            BanditOff: the bandit is switched off.
            ActionsPaused: all actions of the request are paused.
        """
        if self.mode == "off":
            raise BanditOff()
        (request,), table = only_open([request], table, self.actions, now)
        model, rows = copy(self.model), table.astype(np.float64)
        model.derived = dict(model.derived)
        if self.mode == "baseline":
            [choice] = self._choose_baseline(self._baseline, [request], table, rng)
        else:
            choice = self.policy.choose(model, rows, rng)
        return scores_of(model, rows, request.actions, choice)

    def hold(self, decision: Decision) -> None:
        """Count a spooled decision as pending until a model has read it."""
        weight = self.model.weight_at(decision.mean)
        counted = decision.activated and self.mode != "freeze" and self.chosen is None
        if counted:
            self._source.add_pending(decision.x.astype(np.float64), weight)
        self._hold(decision, weight, counted, SPOOLED)

    def release(self, id: str) -> None:
        """Remove an unapplied decision that was folded or not recorded; ignore unknown ids."""
        entry = self.unapplied.remove(id)
        if entry is not None and entry.counted:
            self._source.remove_pending(entry.decision.x.astype(np.float64), entry.weight)

    def discard(self, decision: Decision) -> None:
        """Discard a decision that was not recorded, unless its id belongs to another decision."""
        entry = self.unapplied.get(decision.id)
        if entry is not None and entry.decision is decision:
            self.release(decision.id)

    def release_all(self) -> None:
        """Remove all unapplied decisions, because they were folded."""
        self.release_known(lambda id: True)

    def release_known(self, known: Callable[[str], bool]) -> None:
        """Remove the unapplied decisions for whose ids ``known`` is true: they were folded."""
        for entry in list(self.unapplied):
            if known(entry.decision.id):
                self.release(entry.decision.id)

    def count_again(self) -> None:
        """Count the unapplied decisions in a rebuilt model, and switch to ``learn`` mode."""
        for entry in self.unapplied:
            if entry.counted:
                self._source.add_pending(entry.decision.x.astype(np.float64), entry.weight)
        self._source.change_mode("learn", self.unapplied)
        self.mode = "learn"

    @property
    def holds(self) -> bool:
        """Whether there are unapplied decisions."""
        return bool(self.unapplied)

    def change_mode(self, mode: Mode) -> None:
        """Switch to another mode."""
        if mode != self.mode:
            self._source.change_mode(mode, self.unapplied)
            self.mode = mode

    def use_model(self, chosen: PublishedModel | None) -> None:
        """Use a model that an operator chose; None means the newest.

        Raises:
            JournalMismatch: the model is for a different policy or different features.
        """
        if chosen is not self.chosen:
            self._source.use_model(chosen, self.unapplied)
            self.chosen = chosen

    # --- implementation --------------------------------------------------------------------------

    def _choose_policy(
        self,
        requests: Sequence[ParsedRequest],
        table: Row,
        rng: np.random.Generator,
        counts: bool,
        hold: bool,
    ) -> list[Choice]:
        model = self._source.model
        several = counts and len(requests) > 1
        if several:  # undo the choices if one fails, or if the decisions are not held
            before = model.decided.copy(), model.pending, model.decisions
        try:
            if len(requests) == 1:
                choices = [_checked(self.policy.choose(model, table, rng))]
                if counts and requests[0].activated:
                    self.policy.add_pending(model, table[choices[0].index], choices[0].weight)
            else:
                choices = []
                counted = [counts and request.activated for request in requests]
                for run, lines, ends in runs_of(requests, self.policy.row_width):
                    chosen = self.policy.choose_all(model, table[lines], ends, counted[run], rng)
                    choices += map(_checked, chosen)
        except Exception as error:
            if several:
                model.decided, model.pending, model.decisions = before
            if isinstance(error, PolicyFailure):
                raise
            raise PolicyFailure("error", f"{type(error).__name__}: {error}") from error
        if several and not hold:
            model.decided, model.pending, model.decisions = before
        return choices

    def _count(self, choice: Choice, table: Row) -> bool:
        """Count a baseline choice as pending; return False if the model fails."""
        try:
            self._source.add_pending(table[choice.index].astype(np.float64), choice.weight)
        except Exception:
            return False
        return True

    def _one_by_one(
        self,
        requests: Sequence[ParsedRequest],
        table: Row,
        now: int,
        rng: np.random.Generator,
        hold: bool,
    ) -> Made:
        """Choose for each request separately, so that the policy decides wherever it can."""
        result, start = Made([], {}), 0
        for n, request in enumerate(requests):
            end = start + request.n_rows
            single = self.choose([request], table[start:end], now=now, rng=rng, hold=hold)
            result.decisions.extend(single.decisions)
            if single.requests:
                result.requests[n] = single.requests[0]
            start = end
        return result

    def _marks(self, request: ParsedRequest, choice: Choice, source: Source) -> Marks:
        return "", None  # without a holdout there are no groups

    def _choose_baseline(
        self, how: int | str, requests: Sequence[ParsedRequest], rows: Row, rng: np.random.Generator
    ) -> list[Choice]:
        choices, start = [], 0
        for request in requests:
            index, share = choose_baseline(how, request.actions, request.n_rows, rng)
            mean, weight = self._predict(rows[start + index].astype(np.float64))
            shares = None if share == 1.0 else (share,) * request.n_rows
            choices.append(Choice(index, share, mean, weight, shares))
            start += request.n_rows
        return choices

    def _predict(self, row: Vector) -> tuple[float, float]:
        """Return the mean and the weight from the model, or from the prior if the model fails."""
        try:
            mean, weight = self.model.predict(row)
            if math.isfinite(mean + weight):
                return mean, weight
        except Exception:
            pass  # already reported as a failure of the policy
        return Model(self.policy.start, self.policy.family).predict(row)

    def _decide(
        self,
        requests: Sequence[ParsedRequest],
        table: Row,
        choices: Sequence[Choice],
        source: Source,
        now: int,
        counted: bool,
        hold: bool,
    ) -> list[Decision]:
        start, decisions, version = 0, [], self._source.version
        rivals = self._source.model.rivals
        for request, choice in zip(requests, choices, strict=True):
            index, id = choice.index, request.id
            if id is None:
                id = self._id_for(request, now)
            decision = Decision(
                id,
                now,
                index if request.actions is None else request.actions[index],
                index if request.places is None else request.places[index],
                table[start + index].copy(),  # so that the other rows can be freed
                choice.mean,
                choice.propensity,
                version,
                request.activated,
                source,
                *self._marks(request, choice, source),
                context=self._features
                if request.context is None
                else self._features + request.context.of_decision(index),
            )
            if rivals is not None:
                decision = replace(decision, means=self.model.means_of(decision.x, choice.mean))
            if hold:
                self._hold(decision, choice.weight, counted and request.activated, NOT_DURABLE)
            decisions.append(decision)
            start += request.n_rows
        if hold:
            self.unapplied.compact()
        return decisions

    def _id_for(self, request: ParsedRequest, now: int) -> str:
        """Return a new id; if there is a subject, the id is in the subject's partition."""
        subject = request.subject
        return self._new_id(now, self.slot if subject is None else slot_of_subject(subject))

    def _keep(
        self,
        requests: Sequence[ParsedRequest],
        table: Row,
        choices: Sequence[Choice],
        made: Sequence[Decision],
    ) -> dict[int, bytes]:
        """Return the encoded requests to store, by index."""
        stored: dict[int, bytes] = {}
        if self.keep_requests == 0.0:
            return stored
        start = 0
        for n, (request, choice) in enumerate(zip(requests, choices, strict=True)):
            end = start + request.n_rows
            data = keep_request(
                made[n].id, self.keep_requests, request.n_rows, request.actions,
                table[start:end], request.context, choice.shares, choice.index,
            )  # fmt: skip
            if data is not None:
                stored[n] = data
            start = end
        return stored

    def _hold(self, decision: Decision, weight: float, counted: bool, position: int) -> None:
        partition = partition_of(key_of(decision.id), self._partitions)
        entry = Unapplied(decision, weight, partition, counted, position)
        # If concurrent requests have the same id, only the first one counts.
        if not self.unapplied.add(entry) and counted:
            self._source.remove_pending(decision.x.astype(np.float64), weight)

    def _repair(self) -> None:
        if not self._repaired:  # repair only once, because it is slow
            self._repaired = True
            self._source.repair(self.unapplied)


#: A floor too small to change any probability. With a floor, a policy reports the probabilities of
#: all actions.
_NONE = 1e-300


class HoldoutDecider(Decider):
    """A decider with a holdout: a baseline makes a share of the decisions.

    There are no groups in the modes ``baseline`` and ``off``.

    Args:
        settings: positional arguments of :class:`Decider`.
        holdout: the holdout.
        others: keyword arguments of :class:`Decider`.
    """

    holdout: Holdout

    def __init__(self, *settings: Any, holdout: Holdout, **others: Any) -> None:
        super().__init__(*settings, **others)
        self.holdout = holdout
        # Probabilities of the holdout's actions under the policy, by decision id.
        self._by_policy: dict[str | None, float | None] = {}

    def choose(
        self,
        requests: Sequence[ParsedRequest],
        table: Row,
        *,
        now: int,
        rng: np.random.Generator,
        hold: bool,
    ) -> Made:
        """Choose like :meth:`Decider.choose`, using the baseline for requests in the holdout."""
        if self.mode in ("baseline", "off"):
            return super().choose(requests, table, now=now, rng=rng, hold=hold)
        requests, table = only_open(requests, table, self.actions, now)
        named = [
            request if request.id is not None else replace(request, id=self._id_for(request, now))
            for request in requests
        ]
        units = [request.unit or request.id or "" for request in named]
        in_holdout = np.array([self.holdout.contains(unit) for unit in units])
        if not in_holdout.any():
            return super().choose(named, table, now=now, rng=rng, hold=hold)
        line = np.repeat(in_holdout, [request.n_rows for request in named])
        decisions: dict[int, Decision] = {}
        stored: dict[int, bytes] = {}
        for is_held in (False, True):
            places = np.flatnonzero(in_holdout == is_held).tolist()
            if not places:
                continue
            group, rows = [named[n] for n in places], table[line == is_held]
            if is_held:
                result = self._choose_held(group, rows, now, rng, hold)
            else:
                result = super().choose(group, rows, now=now, rng=rng, hold=hold)
            decisions |= dict(zip(places, result.decisions, strict=True))
            stored |= {places[n]: data for n, data in result.requests.items()}
        return Made([decisions[n] for n in range(len(named))], stored)

    def _choose_held(
        self,
        requests: Sequence[ParsedRequest],
        table: Row,
        now: int,
        rng: np.random.Generator,
        hold: bool,
    ) -> Made:
        choices = self._choose_baseline(self.holdout.baseline, requests, table, rng)
        counts, start = self.mode == "learn" and self.chosen is None and hold, 0
        for request, choice in zip(requests, choices, strict=True):
            rows = table[start : start + request.n_rows]
            self._by_policy[request.id] = self._policy_share(rows, choice.index, rng)
            if counts and request.activated:
                counts = self._count(choice, rows)
            start += request.n_rows
        decisions = self._decide(requests, table, choices, "holdout", now, counts, hold)
        self._by_policy.clear()
        return Made(decisions, self._keep(requests, table, choices, decisions))

    def _policy_share(self, rows: Row, index: int, rng: np.random.Generator) -> float | None:
        """Return the probability with which the policy would choose a row; None if unknown."""
        policy = self.policy
        if not policy.floor:
            # Uniform has no configurable floor, but reports all probabilities anyway.
            with suppress(ValueError):
                policy = dataclasses.replace(policy, floor=_NONE)
        try:
            choice = policy.choose(self.model, rows.astype(np.float64), rng)
        except Exception:  # the baseline decides even if the policy fails
            return None
        if choice.shares is not None:
            return choice.shares[index]
        if choice.index == index:
            return choice.propensity
        return 0.0 if choice.propensity == 1.0 else None

    def _marks(self, request: ParsedRequest, choice: Choice, source: Source) -> Marks:
        if source == "baseline" or request.fallback is not None:
            return "", None
        is_holdout = source == "holdout"
        by_policy = self._by_policy.get(request.id) if is_holdout else choice.propensity
        if by_policy is None:
            return HELD, None
        share = self.holdout.baseline_share(choice.index, request.actions, request.n_rows)
        return HELD if is_holdout else BANDIT, self.holdout.overall(share, by_policy)
