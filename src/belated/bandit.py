"""Contextual bandit: decide now, observe rewards later."""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec
import numpy as np

from belated.advice.issues import Issue, issues_of, of_fields, total_of
from belated.core.events import (
    Activation,
    Decision,
    Mark,
    ModeChanged,
    ModelChosen,
    Reward,
    SubjectReward,
    Void,
)
from belated.core.ids import check_id, key_of, partition_of, slot_of_subject
from belated.core.inputs import Row, check_made, must_be
from belated.core.results import html_table
from belated.core.rewards import (
    Rewards,
    check_alone,
    check_default,
    check_semantics,
    reported_outcome,
    reported_reward,
    retention_us,
)
from belated.core.times import (
    Duration,
    Moment,
    as_datetime,
    as_duration,
    as_microseconds,
    check_reported,
    duration_us,
)
from belated.core.tuning import USUAL, Tuning
from belated.decider import (
    MODES,
    UNIFORM,
    Decider,
    Holdout,
    HoldoutDecider,
    Made,
    Mode,
    ParsedRequest,
)
from belated.decider.actions import ActionState, action_change, is_offered, states_at
from belated.decider.batches import BatchReward, named, naming, split_requests, split_rewards
from belated.decider.holdouts import check_holdout
from belated.decider.requests import (
    check_same,
    check_subject,
    declared,
    in_context,
    offered,
    parse_request,
    rows_of,
    takes_context,
    with_subjects,
)
from belated.decider.scores import Scores
from belated.exceptions import (
    FallbackWarning,
    InvalidInput,
    JournalError,
    JournalUnavailable,
    ReadOnly,
    RewardConflict,
)
from belated.features import Actions, Features, PerArm, Shared
from belated.fold.evidence import evidence_of
from belated.fold.fold import Fold
from belated.fold.follower import Follower, LiveModel, warn_changed, warn_unsaved
from belated.fold.receipts import Receipt
from belated.fold.requests import Keep, KeptRequest, check_keep
from belated.fold.rules import DecisionStatus
from belated.fold.weighting import check_learnable
from belated.journals import Journal, MemoryJournal, open_journal
from belated.journals.arrivals import route
from belated.journals.identity import configure, identify, settings_of
from belated.journals.steady_clock import system_clock
from belated.model.estimators import Estimate
from belated.model.families import Family
from belated.model.kernels import Kernels
from belated.policies import Policy
from belated.policies.delayed_ucb import default_policy

if TYPE_CHECKING:  # imported on first use: programs that only decide do not need them
    from belated.evaluation import DelayCurve, Dependence, Forecast, Lift, Value
    from belated.evaluation.journal import JournalLog
    from belated.evaluation.targets import Target
    from belated.report import Report

#: Number of coefficients that a notebook shows, starting with the largest ratio of mean to sd.
_TOP = 8
#: Maximum number of actions for which a bandit's ``repr`` includes the predictions.
_FEW = 5


class Bandit:
    """Makes decisions, learns from rewards whenever they arrive, and stores both in its journal.

    Opening a journal that contains records resumes after the last record. Several processes may
    open the same bandit in one SQLite file or database. A call reads the records of other processes
    when it appends. Therefore, a decision without an id is based on the records known at the end of
    the previous call, and a mode set by another process takes effect at the second call. Threads
    may share a bandit; their calls are serialized. After ``fork()``, the child draws its own random
    numbers. If an exception interrupts a call (``KeyboardInterrupt``, a timeout), the call may or
    may not have taken effect; retry it with the same id. The next call reads the journal again.

    Args:
        features: the names of the actions, or features, which also declare the context. None means
            that callers pass rows of numbers.
        rewards: what a missing reward means. There is no default, because it depends on what you
            report.
        policy: the policy that chooses actions; by default, :class:`~belated.DelayedUCB` with
            ``family`` and ``floor``.
        family: the distribution of the rewards; by default, :class:`~belated.Bernoulli`, for
            rewards from 0 to 1.
        floor: the share of decisions that choose uniformly at random; by default, 0.02 (2 %).
            :meth:`evaluate` needs these decisions to estimate what another policy would earn. 0
            disables them.
        journal: the journal or its address, such as ``"sqlite:///offers.db?bandit=offers"`` or
            ``"postgresql://user@host/name?bandit=offers"``. By default, events are only stored in
            memory.
        retention: how long after a decision its reward is accepted. None means forever.
        seed: a seed for the random choices, or a numpy Generator.
        clock: a function that returns microseconds since 1970; by default, the system clock.
        baseline: how to choose in mode ``baseline``, or if the policy fails: the name of an action,
            ``"first"`` or ``"uniform"``.
        keep_requests: the share of decisions whose request (the rows or the context) is stored in
            the journal. "auto" stores all requests of up to 4 KiB and a sample of larger requests
            that takes 4 KiB per decision on average; 0 stores none. Requests can contain personal
            data: see ``docs/howto/requests.md``.
        contexts: whether each decision is stored with its context, so that features can change
            (see ``docs/howto/change-features.md``). If False, only its rows are stored. Contexts
            can contain personal data.
        holdout: a share of decisions to leave to a baseline, so that :meth:`lift` can compare the
            policy with the baseline.
        background_fits: whether slow fits run in a background thread; meanwhile, each reward
            updates the model by one step. If False, a fit runs within the call in which it is due,
            so that the same calls lead to the same decisions.
        subject: the context field that identifies the subject, such as ``"user_id"``; None if
            subjects are passed only as arguments.
        clock_skew: maximum difference between clocks. A reward is rejected if it is dated further
            than this in the future or before its decision.
        kernels: the kernels to use instead of the best available.
        tuning: internal sizes, changed only in tests.

    >>> from belated import ConversionsOnly
    >>> bandit = Bandit(["blue", "red"], rewards=ConversionsOnly("7d"))  # only clicks are reported
    >>> decision = bandit.decide()
    >>> bandit.pending.count
    1
    >>> bandit.observe(decision, 1.0).status
    'rewarded'
    >>> bandit.pending.count
    0
    """

    def __init__(
        self,
        features: Features | Sequence[int | str] | None = None,
        rewards: Rewards | None = None,
        *,
        policy: Policy | None = None,
        family: Family | None = None,
        floor: float | None = None,
        journal: Journal | str | None = None,
        retention: Duration | None = None,
        seed: int | np.random.Generator | None = None,
        clock: Callable[[], int] | None = None,
        baseline: int | str = UNIFORM,
        keep_requests: Keep = "auto",
        contexts: bool = True,
        holdout: Holdout | None = None,
        background_fits: bool = True,
        subject: str | None = None,
        clock_skew: Duration = "5m",
        kernels: Kernels | None = None,
        tuning: Tuning = USUAL,
    ) -> None:
        features = as_features(features)
        policy = as_policy(policy, family, floor, features)
        rewards = check_rewards(rewards, policy)
        self.policy = policy
        self.rewards = rewards
        self.features = features
        self.retention = retention
        self._retention = retention_us(retention, rewards)
        self._keep = check_keep(keep_requests)
        if type(contexts) is not bool:
            raise must_be("contexts", "True or False", contexts)
        self._contexts = contexts
        self._holdout = check_holdout(holdout, features)
        self._subject = subject
        check_seed(seed)
        self._skew = duration_us(as_duration(clock_skew, "clock_skew"))
        if clock is not None:
            clock = check_clock(clock)
        self._clock = clock or system_clock
        self.journal = MemoryJournal(clock=clock) if journal is None else opened(journal)
        self._kernels = kernels
        self._tuning = tuning
        self._background_fits = background_fits
        fold = self._new_fold()
        # Do this last, so that invalid arguments leave the journal untouched.
        identify(
            self.journal,
            family=repr(policy.family),
            dim=policy.dim,
            features=features,
            contexts=contexts,
        )
        for error in fold.load(self.journal):
            warn_changed(error, stacklevel=3)
        fold.catch_up(self.journal)
        positions = list(fold.positions)
        holdout_baseline = None if holdout is None else holdout.baseline
        settings = settings_of(policy, rewards, self._retention, features, holdout_baseline)
        if configure(self.journal, settings, self._clock()):
            fold.catch_up(self.journal)
        self._lock = threading.RLock()
        self._read_only = False
        self._use(fold, baseline)
        self._rng = generator_of(seed, positions)
        _open_bandits.add(self)

    def _new_fold(self, until: int | None = None) -> Fold:
        return Fold(
            self.policy,
            self.rewards,
            features=self.features,
            partitions=self.journal.partitions,
            retention=self._retention,
            until=until,
            kernels=self._kernels,
            tuning=self._tuning,
            background=self._background_fits and until is None,
        )

    def _use(self, fold: Fold, baseline: int | str) -> None:
        """Use the model of `fold` for decisions."""
        self._fold, self._baseline = fold, baseline
        holdout = self._holdout
        kind = Decider if holdout is None else partial(HoldoutDecider, holdout=holdout)
        self._decider = kind(
            self.policy,
            LiveModel(fold, kernels=self._kernels),
            partitions=self.journal.partitions,
            baseline=baseline,
            keep_requests=self._keep,
            tuning=self._tuning,
        )
        self._follower = Follower(fold, self.journal, self._clock, self._decider)
        self._apply_mode()

    def __repr__(self) -> str:
        return f"<{in_a_line(self)}>"

    def _repr_html_(self) -> str:
        return as_html(self)

    # --- decisions ------------------------------------------------------------------------------

    @takes_context
    def decide(
        self,
        context: Any = None,
        actions: Actions | None = None,
        *,
        rows: Any = None,
        id: str | None = None,
        activated: bool = True,
        subject: str | None = None,
        sticky: Duration | None = None,
    ) -> Decision:
        """Choose an action; the decision is durable when this returns.

        Args:
            context: what is known about the request, as a mapping of fields or a list of numbers.
            actions: the offered actions; by default, all actions that the features declare.
            rows: one row of numbers per action, for a bandit without features.
            id: your decision id. Calling again with the same id returns the same decision.
            activated: False if the window starts only when you call :meth:`activate`.
            subject: whom the decision is for, such as a user, so that :meth:`observe` can report
                rewards by subject. The subject is stored unchanged: treat it as personal data, or
                pass a hash.
            sticky: return the subject's latest decision instead of making a new one, unless that
                decision is older than this or was voided, or its action is paused or not offered.

        Raises:
            BanditOff: the bandit's mode is ``off``.
            ActionsPaused: all offered actions are paused or retired.
        """
        with self._lock, self._follower:
            if self._read_only:
                self._check_open()
            if id is not None:
                id = check_id(id)
                self._follower.look()  # another process may have used this id
                stored = self._known(id)
                if stored is not None:
                    return self._retry(stored, context, actions, rows)
            now = self._clock()
            subject = self._subject_in(context, subject, id)
            if sticky is not None:
                current = self._current(subject, sticky, actions, now)
                if current is not None:
                    return current
            request, table = self._parse(context, actions, rows, id, activated, subject)
            (event,), packed = self._choose([request], table, now)
            events = with_subjects([event], [request])
            if id is None:
                self._follower.append_one(event, now, packed, *events[1:])
                return event
            _, standing = self._follower.settle_and_append(events, packed, only=(id,))
            earlier = standing.get(event.id)  # set if another process used the id first
            return event if earlier is None else self._retry(earlier, context, actions, rows)

    def decide_many(
        self,
        contexts: Any = None,
        actions: Actions | None = None,
        *,
        rows: Any = None,
        ids: Any = None,
        subjects: Any = None,
        activated: bool = True,
    ) -> list[Decision]:
        """Make decisions for many requests and append them all at once.

        Each decision is made as if the preceding decisions were pending. All requests are validated
        before the first decision.

        Args:
            contexts: a list of contexts, or of (context, actions) pairs; or a pandas or polars
                DataFrame with one context per row.
            actions: the offered actions in all requests, unless `contexts` are pairs.
            rows: a list of row tables, for a bandit without features.
            ids: your decision id for each request, as a list or the name of a DataFrame column.
                Calling again with the same id returns the same decision.
            subjects: the subject of each decision (None if it has no subject), as a list or the
                name of a DataFrame column.
            activated: False if the windows start only when you call :meth:`activate`.

        >>> from belated import ConversionsOnly, PerArm
        >>> features = PerArm(["mail", "call"], context=["visits"])
        >>> bandit = Bandit(features, rewards=ConversionsOnly("7d"))
        >>> customers = [{"visits": 0.1}, {"visits": 0.9}]
        >>> decisions = bandit.decide_many(customers, ["mail", "call"], ids=["c1", "c2"])
        >>> [decision.id for decision in decisions]
        ['c1', 'c2']
        """
        requests = split_requests(contexts, actions, rows=rows, ids=ids, subjects=subjects)
        name = "contexts" if rows is None else "rows"
        with self._lock, self._follower:
            self._check_open()
            decisions: dict[int, Decision] = {}
            parsed: list[ParsedRequest] = []
            tables: list[Row] = []
            indices = []
            if ids is not None:
                self._follower.look()  # another process may have used these ids
            for index, (context, offered, own_rows, id, own_subject) in enumerate(requests):
                try:
                    stored = None if id is None else self._known(id)
                    if stored is not None:
                        decisions[index] = self._retry(stored, context, offered, own_rows)
                        continue
                    subject = self._subject_in(context, own_subject, id)
                    request, table = self._parse(context, offered, own_rows, id, activated, subject)
                except InvalidInput as error:
                    raise naming(f"{name}[{index}]", error) from None
                parsed.append(request)
                tables.append(table)
                indices.append(index)
            if parsed:
                new_decisions, packed = self._choose(parsed, np.concatenate(tables), self._clock())
                own_ids = [request.id for request in parsed if request.id is not None]
                events = with_subjects(new_decisions, parsed)
                _, standing = self._follower.settle_and_append(events, packed, only=own_ids)
                for index, event in zip(indices, new_decisions, strict=True):
                    earlier = standing.get(event.id)  # set if another process used the id first
                    retried = requests[index][:3]
                    decisions[index] = event if earlier is None else self._retry(earlier, *retried)
            return [decisions[index] for index in range(len(requests))]

    def score(
        self, context: Any = None, actions: Actions | None = None, *, rows: Any = None
    ) -> Scores:
        """Return what the bandit would choose now and why, without making a decision.

        Args:
            context: as in :meth:`decide`.
            actions: as in :meth:`decide`.
            rows: as in :meth:`decide`.

        >>> from belated import ConversionsOnly
        >>> bandit = Bandit(["red", "blue"], rewards=ConversionsOnly("7d"))
        >>> red = bandit.score().actions[0]
        >>> red.action, red.mean, round(red.high, 2)
        ('red', 0.5, 0.88)
        >>> bandit.pending.count
        0
        """
        with self._lock, self._follower:
            self._read_new()
            self._apply_mode()
            request, table = self._parse(context, actions, rows, None, True, None)
            self._decider.actions = self._fold.actions
            return self._decider.score(request, table, now=self._now(), rng=np.random.default_rng())

    def _parse(
        self,
        context: Any,
        actions: Actions | None,
        rows: Any,
        id: str | None,
        activated: bool,
        subject: str | None,
    ) -> tuple[ParsedRequest, Row]:
        self._follower.intact = True  # errors in the caller's features do not affect the fold
        parsed = parse_request(
            context,
            actions,
            rows=rows,
            dim=self.policy.row_width,
            features=self.features,
            id=id,
            activated=activated,
            contexts=self._contexts,
            holdout=self._decider.holdout,
            subject=subject,
        )
        self._follower.intact = False
        return parsed

    def _subject_in(self, context: Any, subject: str | None, id: str | None) -> str | None:
        """Return the subject from the argument or the context; None if there is none."""
        if subject is None and self._subject is not None:
            subject = in_context(context, self._subject)
        return None if subject is None else check_subject(subject, id, self.journal.partitions)

    def _current(
        self, subject: str | None, sticky: Duration, actions: Actions | None, now: int
    ) -> Decision | None:
        """Return the subject's sticky decision, or None if a new decision must be made."""
        span = duration_us(as_duration(sticky, "sticky"))
        if subject is None:
            message = f"`sticky` is {sticky!r}, but the decision has no subject: pass `subject`,"
            raise InvalidInput(f"{message} or omit `sticky`", sticky)
        self._follower.look()  # another process may have decided
        home = slot_of_subject(subject) % self.journal.partitions
        decided, position = self._fold.ledgers[home].current(subject) or (0, 0)
        is_over = decided + span <= now or position <= self.journal.start(home).position
        if is_over or self._fold.mode == "off":
            return None
        decision = self.journal.read(home, position - 1, 1)[0].event
        assert isinstance(decision, Decision)
        names = offered(actions, self.features)
        is_available = is_offered(decision.action, names, self._fold.actions, now)
        return decision if is_available else None

    def _choose(self, requests: Sequence[ParsedRequest], table: Row, now: int) -> Made:
        decider = self._decider
        if decider.mode == "off":  # another process may have switched the bandit on
            self._read_new()
        if self._fold.mode != decider.mode or self._fold.chosen is not decider.chosen:
            self._apply_mode()
        decider.actions = self._fold.actions
        result = decider.choose(requests, table, now=now, rng=self._rng, hold=False)
        if decider.failure is not None:
            message = f"the policy failed ({decider.failure}), and the baseline decided"
            decider.failure = None
            warnings.warn(message, FallbackWarning, stacklevel=4)
        return result

    def _apply_mode(self) -> None:
        """Apply the journal's mode and chosen model; ignore modes unknown to this release."""
        for mode in MODES:
            if mode == self._fold.mode:
                self._decider.change_mode(mode)
        self._decider.use_model(self._fold.chosen)

    def _known(self, id: str) -> Decision | None:
        """Return the decision with this id, whether made by this process or another."""
        status = self._fold.entry(id)
        return self._decider.unapplied.find(id) if status is None else self._decision(status)

    def _retry(self, known: Decision, context: Any, actions: Actions | None, rows: Any) -> Decision:
        """Return `known` if the request is a retry of it, otherwise raise."""
        self._follower.intact = True  # features do not affect the fold, as in _parse
        table = rows_of(context, actions, rows, self.policy.row_width, self.features)
        check_same(known, table, self.features)
        self._follower.intact = False
        return known

    # --- rewards -------------------------------------------------------------------------------

    def observe(
        self,
        id: str | Decision | None = None,
        value: float | None = None,
        *,
        at: Moment | None = None,
        part: str = "",
        revision: int = 0,
        subject: str | None = None,
        event_id: str | None = None,
    ) -> Receipt:
        """Report the reward of a decision or a subject.

        Retries are safe. A higher revision of a part replaces a lower revision. A subject's reward
        is credited to the subject's latest decision made at or before ``at`` that was not voided,
        if the reward falls within its window. Several rewards credited to one decision count as
        parts of its reward.

        Args:
            id: a decision or its id; omit it if you pass a subject.
            value: the reward.
            at: when the outcome happened, as a timezone-aware datetime or ISO 8601 text; now by
                default. This time determines which part is the latest (``reduce="latest"``).
                Windows and delays use the time at which the journal recorded the reward.
            part: the name of the part, if the reward has several parts.
            revision: the revision of this part.
            subject: the subject whose reward this is, instead of a decision id.
            event_id: identifies the subject's outcome, such as an order number, so that it counts
                only once.

        Raises:
            RewardConflict: a different value is already recorded for this part and revision. If
                this process had not read that value yet, no error is raised, and the receipt's
                status is ``conflict``.
        """
        with self._lock, self._follower:
            if self._read_only:
                self._check_open()
            now, fold = self._clock(), self._fold
            if subject is not None:
                check_alone(subject, id, part, revision)
                outcome = self._outcome(now, subject, value, event_id, at)
                return Receipt(outcome.event_id, self._follower.append_one(outcome, now))
            event = reported_reward(
                id,
                value,
                now if at is None else self._reported_time(at, now, id),
                part,
                revision,
                min_reward=fold.min_reward,
                max_reward=fold.max_reward,
            )
            meaning = self._meaning(event)
            if meaning in ("conflict", "duplicate"):  # the journal already has a value
                self._follower.refused[meaning] += 1
                if meaning == "conflict":
                    raise RewardConflict(event.id, event.value, part, revision)
                return Receipt(event.id, meaning)
            return Receipt(event.id, self._follower.append_one(event, now))

    def observe_many(self, rewards: Any) -> list[Receipt]:
        """Report many rewards with one append, and return a receipt for each, in order.

        All rewards are validated before any is appended. A value that contradicts a value in the
        journal or earlier in the same call is not appended; its receipt has the status
        ``conflict``. The remaining rewards count.

        Args:
            rewards: (id, value) pairs; or mappings with the keys id and value, and optionally at,
                part and revision, as in :meth:`observe`; or a pandas or polars DataFrame with these
                columns.

        Raises:
            InvalidInput: a reward is not valid for this bandit; nothing was appended.

        >>> from belated import Explicit
        >>> bandit = Bandit(["blue", "red"], rewards=Explicit())
        >>> first, second = bandit.decide_many([None, None])
        >>> receipts = bandit.observe_many([(first.id, 1.0), (second.id, 0.0), (first.id, 0.0)])
        >>> [receipt.status for receipt in receipts]
        ['rewarded', 'rewarded', 'conflict']
        """
        reports = split_rewards(rewards)
        with self._lock, self._follower:
            self._check_open()
            events: list[Reward] = []
            now = self._clock()
            try:
                for report in reports:
                    events.append(self._reported(report, now))
            except InvalidInput as error:
                raise naming(f"rewards[{len(events)}]", error) from None
            seen: dict[tuple[str, str, int], float] = {}
            statuses, new = [], []
            for event in events:
                part = event.id, event.part, event.revision
                if part in seen:
                    status = "duplicate" if event.value == seen[part] else "conflict"
                else:
                    status = self._meaning(event)
                if status in ("conflict", "duplicate"):  # a value is already known
                    self._follower.refused[status] += 1
                    if status == "conflict":
                        self._follower.issues.note(status, event.id, now)
                else:
                    if status in ("rewarded", "revised"):
                        seen[part] = event.value
                    new.append(event)
                    status = ""  # the fold sets the status
                statuses.append(status)
            folded = iter(self._follower.settle_and_append(new)[0] if new else ())
            return [
                Receipt(event.id, status or next(folded))
                for event, status in zip(events, statuses, strict=True)
            ]

    def observe_subjects(self, rewards: Iterable[tuple[Any, ...]]) -> list[Receipt]:
        """Report many rewards by subject with one append, and return a receipt for each.

        Args:
            rewards: tuples (subject, value, event_id) or (subject, value, event_id, at).

        Raises:
            InvalidInput: a reward is not valid for this bandit; nothing was appended.

        >>> from belated import Explicit
        >>> bandit = Bandit(["gift", "mail"], rewards=Explicit("7d"))
        >>> decision = bandit.decide(subject="user-17")
        >>> rewards = [("user-17", 1.0, "order-1"), ("user-18", 1.0, "order-2")]
        >>> [receipt.status for receipt in bandit.observe_subjects(rewards)]
        ['credited', 'unmatched']
        """
        with self._lock, self._follower:
            self._check_open()
            now, outcomes = self._clock(), list[SubjectReward]()
            for n, reward in enumerate(rewards):
                with named(f"rewards[{n}]"):
                    outcomes.append(self._outcome(now, *reward))
            statuses = self._follower.settle_and_append(outcomes)[0] if outcomes else []
            return [
                Receipt(outcome.event_id, status)
                for outcome, status in zip(outcomes, statuses, strict=True)
            ]

    def _outcome(
        self, now: int, subject: Any, value: Any, event_id: Any, at: Moment | None = None
    ) -> SubjectReward:
        return reported_outcome(
            subject,
            value,
            now if at is None else self._reported_time(at, now),
            event_id,
            min_reward=self._fold.min_reward,
            max_reward=self._fold.max_reward,
        )

    def _reported(self, report: BatchReward, now: int) -> Reward:
        return reported_reward(
            report.id,
            report.value,
            now if report.at is None else self._reported_time(report.at, now, report.id),
            report.part,
            report.revision,
            min_reward=self._fold.min_reward,
            max_reward=self._fold.max_reward,
        )

    def _reported_time(self, at: Moment, now: int, id: Any = None) -> int:
        """Return `at` in microseconds; raise if it is in the future or before the decision."""
        moment = as_microseconds(at)
        decided = None if id is None else self._fold.decided_at(check_id(id))
        check_reported(moment, now, decided, self._skew)
        return moment

    def _meaning(self, event: Reward) -> str:
        """Return how the ledger would classify a reward, regardless of its time."""
        ledgers = self._fold.ledgers
        home = 0 if len(ledgers) == 1 else route(event, len(ledgers))
        return ledgers[home].meaning(event)

    def activate(self, id: str | Decision, *, at: Moment | None = None) -> Receipt:
        """Report that a decision took effect, which starts its window."""
        return self._mark(Activation, id, at)

    def void(self, id: str | Decision, *, at: Moment | None = None) -> Receipt:
        """Report that a decision was never carried out, so that nothing is learned from it."""
        return self._mark(Void, id, at)

    def _mark(self, kind: type[Mark], id: str | Decision, at: Moment | None) -> Receipt:
        with self._lock, self._follower:
            self._check_open()
            now = self._clock()
            moment = now if at is None else self._reported_time(at, now)
            event = kind(check_id(id), moment)
            return Receipt(event.id, self._follower.append_one(event, now))

    def change_mode(self, mode: Mode, reason: str = "") -> None:
        """Change how decisions are made, in every process that has this bandit open.

        Args:
            mode: ``learn``: decide with the newest model. ``freeze``: keep deciding with the
                current model. ``baseline``: decide without a model. ``off``: refuse decisions, but
                accept rewards.
            reason: the reason to record in the journal.
        """
        if mode not in MODES:
            raise must_be("mode", f"one of {', '.join(MODES)}", mode)
        with self._lock, self._follower:
            self._check_open()
            self._follower.append([ModeChanged(self._clock(), mode, reason)])

    def use_model(self, when: Moment | None, *, reason: str = "") -> None:
        """Decide with the model as of a given time, in every process that has this bandit open.

        Learning continues. The model is stored in the journal, and is used until this method is
        called again.

        Args:
            when: a timezone-aware datetime, or ISO 8601 text. None returns to the newest model.
            reason: the reason to record in the journal.

        >>> from belated import ConversionsOnly
        >>> bandit = Bandit(["blue", "red"], rewards=ConversionsOnly("7d"))
        >>> before = bandit.decide()
        >>> bandit.use_model(before.at, reason="prices were wrong since")
        >>> bandit.decide().model == bandit.decide().model
        True
        """
        with self._lock, self._follower:
            self._check_open()
            event = ModelChosen(self._clock(), 0, b"", reason)
            if when is not None:
                fold = self.as_of(when)._fold
                fold.learner.refresh()
                model = fold.export_model(as_microseconds(when, "when"))
                event = msgspec.structs.replace(event, version=model.version, model=model.write())
            self._follower.append([event])

    def pause(
        self,
        action: int | str,
        *,
        reason: str = "",
        start: Moment | None = None,
        until: Moment | None = None,
    ) -> None:
        """Stop choosing an action, in every process that has this bandit open.

        Rewards for earlier decisions with this action still count. A later :meth:`pause`,
        :meth:`resume` or :meth:`retire` of the same action replaces this pause.

        Args:
            action: the name of the action.
            reason: the reason to record in the journal.
            start: when the pause starts, as a timezone-aware datetime or ISO 8601 text; now by
                default.
            until: when the pause ends; by default, when the action is resumed.

        >>> from belated import ConversionsOnly
        >>> bandit = Bandit(["blue", "red"], rewards=ConversionsOnly("7d"))
        >>> bandit.pause("red", reason="sold out")
        >>> decision = bandit.decide()
        >>> decision.action, decision.propensity
        ('blue', 1.0)
        """
        self._change_action(change="pause", action=action, reason=reason, start=start, until=until)

    def resume(self, action: int | str, *, reason: str = "") -> None:
        """Allow a paused or retired action again.

        Args:
            action: the name of the action.
            reason: the reason to record in the journal.
        """
        self._change_action(change="resume", action=action, reason=reason)

    def retire(self, action: int | str, *, reason: str = "", start: Moment | None = None) -> None:
        """Pause an action permanently; only :meth:`resume` brings it back.

        Args:
            action: the name of the action.
            reason: the reason to record in the journal.
            start: when the action is retired; now by default.
        """
        self._change_action(change="retire", action=action, reason=reason, start=start)

    def _change_action(self, **change: Any) -> None:
        with self._lock, self._follower:
            self._check_open()
            self._follower.catch_up()
            declared_actions = declared(self.features)
            event = action_change(self._fold.actions, declared_actions, self._clock(), **change)
            self._follower.append([event])

    def as_of(self, when: Moment) -> Bandit:
        """Return a read-only view of the bandit at an earlier time, rebuilt from the journal.

        Args:
            when: a timezone-aware datetime, or ISO 8601 text.
        """
        self.journal.end(0)  # raises if the journal is closed
        view = object.__new__(Bandit)
        view.__dict__.update(self.__dict__)
        view._lock = threading.RLock()
        fold = self._new_fold(until=as_microseconds(when, "when"))
        fold.begin(self.journal)
        fold.catch_up(self.journal)
        view._use(fold, self._baseline)
        view._read_only = True
        return view

    # --- state ----------------------------------------------------------------------------------

    @property
    def mode(self) -> str:
        """How decisions are made: ``learn``, ``freeze``, ``baseline`` or ``off``."""
        with self._lock, self._follower:
            self._read_new()
            return self._fold.mode

    @property
    def actions(self) -> list[ActionState]:
        """The state of each action that the features declare or that was paused or retired."""
        with self._lock, self._follower:
            self._read_new()
            return states_at(self._fold.actions, self._now(), declared(self.features))

    def _now(self) -> int:
        """Return the current time, or in a historical view, the time of the view."""
        return self._clock() if self._fold.until is None else self._fold.until

    @property
    def pending(self) -> Pending:
        """The pending decisions."""
        with self._lock, self._follower:
            self._read_new()
            return Pending(self._follower, self._fold.model.pending, self._lock)

    @property
    def estimate(self) -> Estimate:
        """The estimate after a converged fit; it depends only on the set of rewards received."""
        with self._lock, self._follower:
            self._read_new()
            estimate = self._fold.learner.estimate
            names = None if self.features is None else self.features.names
            return estimate if names is None else replace(estimate, names=tuple(names))

    @property
    def mean_reward(self) -> float | None:
        """The mean of all rewards and defaults learned so far; None if there are none.

        Pending decisions are not included, so the mean is too high while only good outcomes have
        arrived.
        """
        with self._lock, self._follower:
            self._read_new()
            seen = self._fold.learner.observed
            return seen.total / seen.n if seen.n else None

    @property
    def decision_counts(self) -> dict[str, int]:
        """The number of decisions in each state; the sum is the number of decisions ever made."""
        with self._lock, self._follower:
            self._read_new()
            return self._fold.counts

    @property
    def event_counts(self) -> dict[str, int]:
        """The number of events with each status; the sum is the number of events in the journal."""
        with self._lock, self._follower:
            self._read_new()
            return self._fold.counters

    @property
    def refused_counts(self) -> dict[str, int]:
        """The number of rewards that this process did not append, by reason.

        ``duplicate``: the journal already contains the same reward. ``conflict``: the journal
        contains a different value for that part and revision, and :class:`RewardConflict` was
        raised. ``event_counts`` counts the events that were appended.
        """
        with self._lock:
            return {status: self._follower.refused[status] for status in ("duplicate", "conflict")}

    def issues(self) -> list[Issue]:
        """Return the problems found in rewards and field values, most frequent first.

        Each issue has a count, the time of the last occurrence, an example, and a remedy. Counts of
        journal events are complete; rejected events and field values are counted since this process
        started.

        >>> from belated import ConversionsOnly
        >>> bandit = Bandit(["blue", "red"], rewards=ConversionsOnly("7d"))
        >>> bandit.observe("order-17", 1.0).status
        'unmatched'
        >>> issue = bandit.issues()[0]
        >>> issue.name, issue.count, issue.example, issue.what
        ('unmatched', 1, 'order-17', 'rewards name an unknown decision')
        """
        with self._lock, self._follower:
            self._read_new()
            self._fold.count_early()
            refused, fields = self._follower.issues, of_fields(self.features)
            return issues_of(total_of(self._fold.noticed, refused, fields))

    @property
    def digest(self) -> str:
        """A checksum of the state of every decision, independent of how the journal was read."""
        with self._lock, self._follower:
            self._read_new()
            return self._fold.digest

    def _read_new(self) -> None:
        if not self._read_only:
            with suppress(JournalUnavailable):
                if self._follower.behind:
                    self._follower.follow()
                else:
                    self._follower.catch_up()

    def entry(self, id: str | Decision) -> DecisionStatus:
        """Return everything that is known about a decision.

        If the decision's record was trimmed, only the outcome is known.
        """
        id = check_id(id)
        with self._lock, self._follower:
            self._read_new()
            status = self._fold.entry(id)
            if status is None:
                return DecisionStatus(id, "unknown")
            decision = self._decision(status)
            request = self._request(status, decision)
            return msgspec.structs.replace(status, decision=decision, request=request)

    def _request(self, status: DecisionStatus, decision: Decision | None) -> KeptRequest | None:
        """Return the request of a decision, if it was stored."""
        partition = partition_of(key_of(status.id), self.journal.partitions)
        data = self.journal.requests(partition, [status.position]).get(status.position)
        return None if data is None else KeptRequest.read(data, decision)

    def _decision(self, status: DecisionStatus) -> Decision | None:
        """Return a decision from its record; None if the record was trimmed."""
        partition = partition_of(key_of(status.id), self.journal.partitions)
        if status.position <= self.journal.start(partition).position:
            return None
        record = self.journal.read(partition, status.position - 1, 1)[0]
        assert isinstance(record.event, Decision)
        return record.event

    # --- the journal ----------------------------------------------------------------------------

    def settle(self) -> int:
        """Settle the decisions whose window has ended, and return their number."""
        with self._lock, self._follower:
            return self._settle()

    def _settle(self) -> int:
        self._check_open()
        self._follower.catch_up()
        before = self._fold.counts
        due = [self._follower.due(p) for p in range(self.journal.partitions)]
        if any(due):
            self._follower.append([event for events in due for event in events])
        after = self._fold.counts
        return sum(before[state] - after[state] for state in ("dormant", "pending"))

    def sync(self) -> int:
        """Read new records and settle decisions whose window has ended; return the record count."""
        with self._lock, self._follower:
            before = self._fold.version
            self._settle()
            return self._fold.version - before

    def save(self) -> None:
        """Save a snapshot, so that the bandit opens faster next time."""
        with self._lock, self._follower:
            self._check_open()
            self._follower.save()

    def close(self) -> None:
        """Save a snapshot and close the journal."""
        with self._lock:
            if not self._read_only:
                try:
                    with self._follower:
                        self._follower.save()
                except JournalError as error:
                    warn_unsaved(error)
                self._read_only = True
            if self._fold.until is None:  # a historical view shares the journal
                self.journal.close()  # even if an earlier call was interrupted

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._read_only:
            raise ReadOnly("this bandit is closed, or a historical view: it accepts no events")

    # --- evaluation -----------------------------------------------------------------------------

    def frame(self, *, requests: bool = False) -> Any:
        """Return a pandas DataFrame with one row per decision and its outcome.

        Args:
            requests: whether to include the request of each decision, if it was stored.

        Raises:
            MissingExtra: pandas is not installed.
        """
        from belated.evaluation.files import frame_of_table

        return frame_of_table(self._log().table(), self.journal if requests else None)

    def evaluate(
        self,
        policy: Target,
        *,
        since: Moment | None = None,
        limit: Duration | None = None,
        level: float = 0.95,
    ) -> Value:
        """Estimate what another policy would have earned per decision.

        Only decisions made by this bandit's policy count, and only if their requests were stored. A
        belated policy is trained on the records up to ``since``, and evaluated on later decisions.

        Args:
            policy: ``"uniform"``, ``"first"``, the name of an action, a policy, a function, or a
                matrix. A function takes the context (or the rows, if the bandit has no features)
                and the names of the offered actions, and returns the probability of each action,
                or the name of a single action. A matrix or DataFrame has a row for each decision
                in :meth:`frame` and a column for each action.
            since: ignore decisions made before this time; required for a policy that learns.
            limit: count only rewards that arrive within this time.
            level: the confidence level of the intervals.

        Raises:
            NotEvaluable: the decisions contain too little information about the policy; the error
                says what to do.
        """
        return self._log().evaluate(policy, since=since, limit=limit, level=level)

    def lift(self, *, limit: Duration | None = None, level: float = 0.95) -> Lift:
        """Estimate how much more the policy earns than the holdout.

        Args:
            limit: count only rewards that arrive within this time.
            level: the confidence level of the intervals.

        Raises:
            NotEvaluable: there is no holdout, or it has received too few rewards.
        """
        return self._log().lift(limit=limit, level=level)

    def delay_curve(self, *, level: float = 0.95) -> DelayCurve:
        """Estimate the share of rewards that has arrived by each age of a decision.

        Args:
            level: the confidence level of the bands.
        """
        return self._log().delay_curve(level=level)

    def forecast(
        self, ahead: Duration | Sequence[Duration] | None = None, *, level: float = 0.95
    ) -> Forecast:
        """Forecast how many rewards are still to come.

        Args:
            ahead: the horizon or horizons, such as ``"3d"`` or ``["1d", "7d"]``. None means no
                limit.
            level: the confidence level of the intervals.

        Raises:
            NotEvaluable: the log is too short for one of the horizons.
        """
        return self._log().forecast(ahead, level=level)

    def delay_depends(self, on: Literal["action", "reward"] = "action") -> Dependence:
        """Test whether delays depend on the action, or on the reward.

        Args:
            on: ``"action"`` or ``"reward"``.
        """
        return self._log().delay_depends(on)

    def report(self) -> Report:
        """Return a one-page report. Notebooks display it; it can be saved as HTML or JSON.

        Raises:
            InvalidInput: there are no decisions yet.
        """
        from belated.report import Report

        with self._lock, self._follower:
            estimate = self._fold.learner.estimate
            evidence = evidence_of(self._fold, self._follower.refused["duplicate"])
        return Report.of(self._log(), estimate, evidence)

    def _log(self) -> JournalLog:
        from belated.evaluation.journal import JournalLog

        return JournalLog(
            self.journal,
            self.policy.family,
            self.rewards,
            self._retention,
            self.features,
            self._fold.until,
        )


class Pending:
    """The pending decisions of a bandit. Iterating yields their keys and recording times.

    >>> from threading import RLock
    >>> Pending(Follower.__new__(Follower), 0, RLock()).count
    0
    """

    def __init__(
        self, follower: Follower, count: int, lock: AbstractContextManager[object]
    ) -> None:
        self._follower = follower
        self._lock = lock
        #: The number of pending decisions, G_t.
        self.count = count

    def __len__(self) -> int:
        return self.count

    @property
    def oldest(self) -> datetime | None:
        """When the oldest pending decision was recorded; None if nothing is pending."""
        oldest = min((recorded for _, recorded in self._all()), default=None)
        return None if oldest is None else as_datetime(oldest)

    def __iter__(self) -> Iterator[tuple[str, datetime]]:
        """Yield the key and the recording time of each pending decision.

        Keys are 32 hex digits; the key of a generated id is the id itself.
        """
        for key, recorded in self._all():
            yield key.hex(), as_datetime(recorded)

    def _all(self) -> list[tuple[bytes, int]]:
        with self._lock, self._follower:
            ledgers = self._follower.fold.ledgers.values()
            return [decision for ledger in ledgers for decision in ledger.pending()]


def in_a_line(bandit: Bandit) -> str:
    """Return the bandit's name, its counts and, if there are few actions, the predictions."""
    counts = bandit.decision_counts
    total = sum(counts.values())
    decisions = f"{total:,} decision{'' if total == 1 else 's'}"
    states = ", ".join(f"{counts[state]:,} {state}" for state in ("pending", "rewarded"))
    means = "".join(f", {name} {mean:.4g}" for name, mean in predicted(bandit))
    predictions = f"; predicted{means[1:]}" if means else ""
    return f"Bandit {bandit.journal.bandit!r}: {decisions}, {states}{predictions}"


def predicted(bandit: Bandit) -> list[tuple[int | str, float]]:
    """Return the predicted mean of each action, if there are few actions and no context."""
    features = bandit.features
    if not isinstance(features, PerArm) or features.block > 1 or features.blocks > _FEW:
        return []
    with bandit._lock, bandit._follower:
        model = bandit._fold.model
        rows = features.rows(None, features.actions)
        means = [float(model.predict(row)[0]) for row in rows]
    return list(zip(features.actions, means, strict=True))


def as_html(bandit: Bandit) -> str:
    """Return the summary line and a table of the most significant coefficients."""
    coefficients = bandit.estimate.coefficients()
    coefficients.sort(key=lambda line: abs(line["mean"]) / line["sd"], reverse=True)
    rows: list[list[object]] = [list(line.values()) for line in coefficients[:_TOP]]
    return html_table(in_a_line(bandit), ["coefficient", "mean", "sd", "low", "high"], rows)


def as_features(features: Any) -> Features | None:
    """Return features, created from a list of actions if necessary; None if callers pass rows."""
    kind = features if isinstance(features, type) else type(features)
    if issubclass(kind, Policy):
        message = f"the first argument is a policy ({kind.__name__}): pass the actions or features"
        raise InvalidInput(f"{message} first, as in Bandit(['blue', 'red'], policy=...)", features)
    if features is None:
        return None
    if kind is features or hasattr(features, "rows"):
        check_made(features, "features", needs="rows", example="PerArm(['red', 'blue'])")
        result: Features = features
        # Copy the features, because they count values and may be shared with another bandit.
        return replace(result) if isinstance(result, PerArm | Shared) else result
    return PerArm(features)


def as_policy(policy: Any, family: Any, floor: Any, features: Features | None) -> Policy:
    """Return the policy, or the default policy, bound to the features if there are any."""
    if policy is None and features is None:
        message = "`features` is missing: pass the names of the actions, as in Bandit(['blue',"
        remedy = "'red'], ...), or, to pass rows yourself, policy=DelayedUCB(dim=3)"
        raise InvalidInput(f"{message} {remedy}", features)
    if policy is None:
        return default_policy(family, floor).bound_to(features)
    check_made(policy, "policy", needs="choose", example="DelayedUCB()")
    for name, value in (("family", family), ("floor", floor)):
        if value is not None:
            message = f"`{name}` and `policy` cannot both be passed: set `{name}` on the policy,"
            call = f"{type(policy).__name__}({name}={value!r}, ...)"
            raise InvalidInput(f"{message} as in {call}", value)
    bound: Policy = policy.bound_to(features)
    return bound


def check_rewards(rewards: Any, policy: Policy) -> Rewards:
    """Return `rewards`; raise unless it is valid and the policy can learn from it."""
    check_semantics(rewards)
    check_default(rewards, policy.family.support)
    check_learnable(policy, rewards)
    checked: Rewards = rewards
    return checked


def opened(journal: Any) -> Journal:
    """Return `journal`; open it if it is an address."""
    if isinstance(journal, str):
        return open_journal(journal)
    if isinstance(journal, Path):
        message = f"`journal` is {journal!r}: pass its address, such as"
        raise InvalidInput(f"{message} 'sqlite:///{journal}?bandit=offers'", journal)
    example = "'sqlite:///offers.db?bandit=offers', or SQLiteJournal('offers.db', bandit='offers')"
    check_made(journal, "journal", needs="append", example=example)
    checked: Journal = journal
    return checked


def check_clock(clock: Any) -> Callable[[], int]:
    """Wrap `clock` so that it raises InvalidInput if it does not return whole microseconds."""

    def read() -> int:
        now = clock() if callable(clock) else None
        if not isinstance(now, int) or isinstance(now, bool):
            problem = f"returned {now!r}" if callable(clock) else f"is {clock!r}"
            message = (
                f"`clock` {problem}: pass a function that returns whole microseconds since 1970,"
            )
            raise InvalidInput(f"{message} such as lambda: time.time_ns() // 1000", clock)
        return now

    read()
    return read


def check_seed(seed: Any) -> None:
    """Raise InvalidInput unless `seed` is a seed or a generator."""
    if seed is None or isinstance(seed, np.random.Generator):
        return
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0:
        raise must_be("seed", "a non-negative integer, or a numpy Generator", seed)


def generator_of(
    seed: int | np.random.Generator | None, positions: list[int]
) -> np.random.Generator:
    """Return `seed` if it is a generator, otherwise a new generator.

    A seed is combined with the journal's positions, so that neither a restart nor a second process
    repeats the same draws.
    """
    if isinstance(seed, np.random.Generator):
        return seed
    return np.random.default_rng(None if seed is None else [int(seed), *positions])


_open_bandits: weakref.WeakSet[Bandit] = weakref.WeakSet()


def _after_fork() -> None:
    """Give each bandit in the child its own random numbers and an unlocked lock."""
    for bandit in _open_bandits:
        bandit._rng = np.random.default_rng()
        bandit._lock = threading.RLock()
        if bandit._fold.learner.is_busy:  # the fitting thread does not exist in the child
            bandit._follower.intact = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
