"""The decider: chooses with a model that others keep, and knows what it has chosen."""

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

#: Positions of decisions that have none: not durable yet, or durable in a spool.
NOT_DURABLE, SPOOLED = -1, 0


class Unapplied(msgspec.Struct, gc=False):
    """A decision that the current model has not read yet.

    Attributes:
        decision: as it was made.
        weight: what it counts for as pending.
        partition: of the journal.
        counted: whether the current model counts it as pending.
        position: in its partition, or one of the two constants above.
    """

    decision: Decision
    weight: float
    partition: int
    counted: bool
    position: int = NOT_DURABLE


class _Block(msgspec.Struct):
    """Decisions of one partition as a sum; they leave together, when a model has read the last."""

    position: int
    information: Information


class UnappliedDecisions:
    """Decisions made here that the model has not read yet; they count as pending until it has.

    Nothing is ever dropped. If no learner runs for long, the oldest durable decisions become sums:
    they count as before, but are no longer found by their id (the journal has them).

    Args:
        shape: of θ.
        share: what a pending decision of some weight counts for.
        tuning: how many are kept one by one, and how many are summed together.
    """

    def __init__(self, shape: Shape, share: Callable[[float], float], tuning: Tuning) -> None:
        self._shape = shape
        self._share = share
        self._most, self._block = tuning.max_unapplied, tuning.unapplied_block
        # A plain dict would look for its first key from the place of all that were removed.
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

    def add(self, one: Unapplied) -> bool:
        """Add one decision; False if there is one under its id: the first stays."""
        return self._recent.setdefault(one.decision.id, one) is one

    def get(self, id: str) -> Unapplied | None:
        """Return one; None if it is not here."""
        return self._recent.get(id)

    def remove(self, id: str) -> Unapplied | None:
        """Remove and return one; None if it is not here."""
        return self._recent.pop(id, None)

    def find(self, id: str, *, spooled: bool = False) -> Decision | None:
        """Return a durable decision.

        Args:
            id: decision id.
            spooled: only if it waits in a spool.
        """
        one = self._recent.get(id)
        if one is None or one.position == NOT_DURABLE or (spooled and one.position != SPOOLED):
            return None
        return one.decision

    def mark_durable(self, id: str, position: int) -> None:
        """Note the position of a decision; a spooled one has none until it is delivered."""
        one = self._recent.get(id)
        # The two may come in either order; and of two decisions under one id the first stands.
        if one is not None and one.position <= SPOOLED and one.position < position:
            one.position = position
            # The journal has the context, which may be large: a retry needs the features' name.
            if len(one.decision.context) > NAME:
                one.decision = replace(one.decision, context=one.decision.context[:NAME])

    def forget_read(self, positions: Sequence[int]) -> None:
        """Remove what a model has read: all up to its position in each partition."""
        self._recent = OrderedDict(
            (id, one)
            for id, one in self._recent.items()
            if not 0 < one.position <= positions[one.partition]
        )
        for partition, blocks in self._blocks.items():
            left = [block for block in blocks if block.position > positions[partition]]
            self._blocks[partition] = left

    def compact(self) -> None:
        """Sum the oldest durable decisions, if there are too many to count one by one."""
        if len(self._recent) < self._compact_at:
            return
        oldest: dict[int, list[Unapplied]] = {}
        excess = len(self._recent) - self._most
        for one in list(islice(self._recent.values(), excess)):
            if one.position > 0:
                oldest.setdefault(one.partition, []).append(one)
                del self._recent[one.decision.id]
        for partition, ones in oldest.items():
            information = Information.of(*self._live(ones), self._shape)
            last = max(one.position for one in ones)
            self._blocks.setdefault(partition, []).append(_Block(last, information))
        # What waits in a spool stays: look again only after a further block.
        self._compact_at = max(len(self._recent), self._most) + self._block

    def pending(self) -> tuple[Matrix, Vector, Information]:
        """Return the pending ones: rows and shares of the recent ones, the sum of the others."""
        rows, shares = self._live(self._recent.values())
        summed = Information.zero(self._shape)
        for blocks in self._blocks.values():
            for block in blocks:
                summed = summed + block.information
        return rows, shares, summed

    def _live(self, ones: Iterable[Unapplied]) -> tuple[Matrix, Vector]:
        """Rows and shares of those that count."""
        live = [one for one in ones if one.decision.activated]
        rows = np.empty((len(live), width_of(self._shape)))
        if live:
            np.concatenate([one.decision.x for one in live], out=rows.reshape(-1))
        return rows, np.array([self._share(one.weight) for one in live], dtype=np.float64)


class ModelSource(Protocol):
    """A live learner, or one that was loaded."""

    @property
    def model(self) -> Model:
        """What chooses now."""

    @property
    def version(self) -> int:
        """Records that were folded into it."""

    def add_pending(self, x: Vector, weight: float) -> None:
        """Count a decision that the model has not read as pending."""

    def remove_pending(self, x: Vector, weight: float) -> None:
        """Count it no longer."""

    def change_mode(self, mode: Mode, unapplied: UnappliedDecisions) -> None:
        """Choose as the mode says from now on."""

    def use_model(self, chosen: PublishedModel | None, unapplied: UnappliedDecisions) -> None:
        """Choose with this model from now on; None: with the newest."""

    def repair(self, unapplied: UnappliedDecisions) -> None:
        """The model could not choose: make it anew."""


#: Numbers in the rows of a run, at most, unless it is of one request: a quarter of a megabyte.
AT_ONCE = 1 << 15


def runs_of(
    requests: Sequence[ParsedRequest], dim: int
) -> Iterator[tuple[slice, slice, list[int]]]:
    """Yield runs of requests: these, their lines in the table of all, and where each ends in it.

    Args:
        requests: in the order of their lines.
        dim: width of a row.

    >>> [run for run in runs_of([ParsedRequest(2), ParsedRequest(3)], dim=4)]
    [(slice(0, 2, None), slice(0, 5, None), [2, 5])]
    >>> [some for some, _, _ in runs_of([ParsedRequest(2), ParsedRequest(3)], dim=AT_ONCE)]
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
    """What was decided.

    Attributes:
        decisions: in the order of their requests.
        requests: what some of them were chosen from, by their place, to be stored with them.
    """

    decisions: list[Decision]
    requests: dict[int, bytes]


class Decider:
    """Chooses, and counts its decisions as pending until a model has read them.

    So a burst does not repeat one choice while the learner is behind.

    Args:
        policy: how actions are chosen.
        source: of the model.
        partitions: of the journal.
        baseline: how to choose without the model: the name of an action, ``first`` or ``uniform``.
        keep_requests: share of the requests that is kept; "auto": all, and some of the large ones.
        tuning: sizes, and how ids are made.

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
        #: The model that an operator chose; None: the newest one decides.
        self.chosen: PublishedModel | None = None
        #: Changes of actions by operators: paused and retired ones are never chosen.
        self.actions: Changes = {}
        self.unapplied = UnappliedDecisions(policy.shape, policy.share, tuning)
        #: Decisions by the baseline because the policy failed, by the reason.
        self.fallbacks: Counter[str] = Counter()
        #: What the policy failed with last.
        self.failure: PolicyFailure | None = None
        self._source = source
        self._partitions = partitions
        self._baseline = baseline
        self._new_id = tuning.new_id
        self._features = name_of(policy.features)
        #: Of the ids that are made; None to draw one for each.
        self.slot: int | None = None
        self._repaired = False  # once, until the policy chooses again

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
        """Choose for one request after the other, each as if the choices before it were pending.

        If the policy fails, the baseline decides.

        Args:
            requests: in the order of their rows.
            table: checked rows of all requests, one after the other.
            now: the time, in microseconds since 1970.
            rng: source of randomness.
            hold: count the decisions as pending from now on; False if they are about to be folded.

        Raises:
            BanditOff: the bandit is switched off.
            ActionsPaused: all actions of a request are paused.
        """
        if self.mode == "off":
            raise BanditOff()
        if self.actions:
            requests, table = only_open(requests, table, self.actions, now)
        # A model that is frozen or chosen is not changed by what is decided with it.
        learns = self.mode == "learn" and self.chosen is None
        counts = learns and (hold or len(requests) > 1)
        source: Source = "policy"
        if self.mode == "baseline":  # what it decides is counted once a model is used again
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
        made = self._decide(requests, table, choices, source, now, counts and hold, hold)
        return Made(made, self._keep(requests, table, choices, made))

    def record(self, request: ParsedRequest, table: Row) -> Made:
        """Return a decision that its caller made because the service was unavailable.

        It counts as pending, as others do.

        Args:
            request: says what was chosen, and when.
            table: its checked rows.
        """
        assert request.fallback is not None
        index, at = request.fallback
        choices = [Choice(index, 1.0, *self._predict(table[index].astype(np.float64)))]
        counts = self.mode == "learn" and self.chosen is None and request.activated
        counts = counts and self._count(choices[0], table)
        made = self._decide([request], table, choices, "fallback", at, counts, hold=True)
        return Made(made, self._keep([request], table, choices, made))

    def score(
        self, request: ParsedRequest, table: Row, *, now: int, rng: np.random.Generator
    ) -> Scores:
        """Return what would be chosen now, and why; nothing is decided, and no state changes.

        Args:
            request: of one decision.
            table: its checked rows.
            now: the time, in microseconds since 1970.
            rng: of its own: a draw that is used here is not used for a decision.

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
        """Count a decision that waits in a spool as pending until a model has read it."""
        weight = self.model.weight_at(decision.mean)
        counted = decision.activated and self.mode != "freeze" and self.chosen is None
        if counted:
            self._source.add_pending(decision.x.astype(np.float64), weight)
        self._hold(decision, weight, counted, SPOOLED)

    def release(self, id: str) -> None:
        """A decision was folded, or never came to be; nothing happens if it is not held."""
        one = self.unapplied.remove(id)
        if one is not None and one.counted:
            self._source.remove_pending(one.decision.x.astype(np.float64), one.weight)

    def discard(self, decision: Decision) -> None:
        """A decision never came to be; another one under its id stays."""
        one = self.unapplied.get(decision.id)
        if one is not None and one.decision is decision:
            self.release(decision.id)

    def release_all(self) -> None:
        """All decisions that were held are folded."""
        self.release_known(lambda id: True)

    def release_known(self, known: Callable[[str], bool]) -> None:
        """Those that are known by their ids are folded."""
        for one in list(self.unapplied):
            if known(one.decision.id):
                self.release(one.decision.id)

    def count_again(self) -> None:
        """Count all that are held in a model that has begun anew, in the mode ``learn``."""
        for one in self.unapplied:
            if one.counted:
                self._source.add_pending(one.decision.x.astype(np.float64), one.weight)
        self._source.change_mode("learn", self.unapplied)
        self.mode = "learn"

    @property
    def holds(self) -> bool:
        """Whether any decision is held."""
        return bool(self.unapplied)

    def change_mode(self, mode: Mode) -> None:
        """Decide in another way from now on."""
        if mode != self.mode:
            self._source.change_mode(mode, self.unapplied)
            self.mode = mode

    def use_model(self, chosen: PublishedModel | None) -> None:
        """Decide with a model that an operator chose; None: with the newest.

        Raises:
            JournalMismatch: it was made for another policy, or for other features.
        """
        if chosen is not self.chosen:
            self._source.use_model(chosen, self.unapplied)
            self.chosen = chosen

    # --- the parts -------------------------------------------------------------------------------

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
        if several:  # all are chosen, or none; and if they are not held, the model stays as it is
            before = model.decided.copy(), model.pending, model.decisions
        try:
            if len(requests) == 1:
                choices = [_checked(self.policy.choose(model, table, rng))]
                if counts and requests[0].activated:
                    self.policy.add_pending(model, table[choices[0].index], choices[0].weight)
            else:
                choices = []
                counted = [counts and request.activated for request in requests]
                for some, lines, ends in runs_of(requests, self.policy.row_width):
                    found = self.policy.choose_all(model, table[lines], ends, counted[some], rng)
                    choices += map(_checked, found)
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
        """Count what the baseline chose, if the model can still count."""
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
        """Some may still be chosen by the policy."""
        made, start = Made([], {}), 0
        for n, request in enumerate(requests):
            end = start + request.n_rows
            one = self.choose([request], table[start:end], now=now, rng=rng, hold=hold)
            made.decisions.extend(one.decisions)
            if one.requests:
                made.requests[n] = one.requests[0]
            start = end
        return made

    def _marks(self, request: ParsedRequest, choice: Choice, source: Source) -> Marks:
        return "", None  # there are no groups without a holdout

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
        """Mean and weight by the model; by the prior if the model is of no use."""
        try:
            mean, weight = self.model.predict(row)
            if math.isfinite(mean + weight):
                return mean, weight
        except Exception:
            pass  # it was reported when the policy failed
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
        start, made, version = 0, [], self._source.version
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
                table[start + index].copy(),  # so that the other rows need not be kept
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
            made.append(decision)
            start += request.n_rows
        if hold:
            self.unapplied.compact()
        return made

    def _id_for(self, request: ParsedRequest, now: int) -> str:
        """Return a new id: all decisions for a subject are in one partition."""
        subject = request.subject
        return self._new_id(now, self.slot if subject is None else slot_of_subject(subject))

    def _keep(
        self,
        requests: Sequence[ParsedRequest],
        table: Row,
        choices: Sequence[Choice],
        made: Sequence[Decision],
    ) -> dict[int, bytes]:
        """What they were chosen from, as far as it is kept."""
        kept: dict[int, bytes] = {}
        if self.keep_requests == 0.0:
            return kept
        start = 0
        for n, (request, choice) in enumerate(zip(requests, choices, strict=True)):
            end = start + request.n_rows
            data = keep_request(
                made[n].id, self.keep_requests, request.n_rows, request.actions,
                table[start:end], request.context, choice.shares, choice.index,
            )  # fmt: skip
            if data is not None:
                kept[n] = data
            start = end
        return kept

    def _hold(self, decision: Decision, weight: float, counted: bool, position: int) -> None:
        partition = partition_of(key_of(decision.id), self._partitions)
        one = Unapplied(decision, weight, partition, counted, position)
        if not self.unapplied.add(one) and counted:  # it was asked for twice at once: one counts
            self._source.remove_pending(decision.x.astype(np.float64), weight)

    def _repair(self) -> None:
        if not self._repaired:  # it takes a while
            self._repaired = True
            self._source.repair(self.unapplied)


#: A floor that changes no probability; with it a policy says those of all actions.
_NONE = 1e-300


class HoldoutDecider(Decider):
    """A decider of which a share of decisions is made by a baseline.

    In the modes ``baseline`` and ``off`` there are no groups.

    Args:
        holdout: which share, and how it is decided.
        settings: of a :class:`Decider`.
    """

    holdout: Holdout

    def __init__(self, *settings: Any, holdout: Holdout, **others: Any) -> None:
        super().__init__(*settings, **others)
        self.holdout = holdout
        # What the policy would have done for those of the holdout, by their ids.
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
        """As :meth:`Decider.choose`, each request by its group."""
        if self.mode in ("baseline", "off"):
            return super().choose(requests, table, now=now, rng=rng, hold=hold)
        requests, table = only_open(requests, table, self.actions, now)
        named = [
            one if one.id is not None else replace(one, id=self._id_for(one, now))
            for one in requests
        ]
        held = np.array([self.holdout.holds(one.unit or one.id or "") for one in named])
        if not held.any():
            return super().choose(named, table, now=now, rng=rng, hold=hold)
        line = np.repeat(held, [one.n_rows for one in named])
        decisions: dict[int, Decision] = {}
        kept: dict[int, bytes] = {}
        for is_held in (False, True):
            places = np.flatnonzero(held == is_held).tolist()
            if not places:
                continue
            some, rows = [named[n] for n in places], table[line == is_held]
            if is_held:
                made = self._choose_held(some, rows, now, rng, hold)
            else:
                made = super().choose(some, rows, now=now, rng=rng, hold=hold)
            decisions |= dict(zip(places, made.decisions, strict=True))
            kept |= {places[n]: data for n, data in made.requests.items()}
        return Made([decisions[n] for n in range(len(named))], kept)

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
        made = self._decide(requests, table, choices, "holdout", now, counts, hold)
        self._by_policy.clear()
        return Made(made, self._keep(requests, table, choices, made))

    def _policy_share(self, rows: Row, index: int, rng: np.random.Generator) -> float | None:
        """The probability with which the policy would take a row; None if it does not say it."""
        policy = self.policy
        if not policy.floor:
            with suppress(ValueError):  # the floor of Uniform cannot be set: it says all anyway
                policy = dataclasses.replace(policy, floor=_NONE)
        try:
            choice = policy.choose(self.model, rows.astype(np.float64), rng)
        except Exception:  # the baseline decides, whatever the policy says
            return None
        if choice.shares is not None:
            return choice.shares[index]
        if choice.index == index:
            return choice.propensity
        return 0.0 if choice.propensity == 1.0 else None

    def _marks(self, request: ParsedRequest, choice: Choice, source: Source) -> Marks:
        if source == "baseline" or request.fallback is not None:
            return "", None
        held = source == "holdout"
        by_policy = self._by_policy.get(request.id) if held else choice.propensity
        if by_policy is None:
            return HELD, None
        share = self.holdout.baseline_share(choice.index, request.actions, request.n_rows)
        return HELD if held else BANDIT, self.holdout.overall(share, by_policy)
