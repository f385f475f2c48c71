"""Contextual bandit: decide now, observe rewards later."""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

import numpy as np

from belated.decider import MODES, UNIFORM, Decider, Made, Mode, ParsedRequest
from belated.decider.requests import check_same, parse_request, rows_of
from belated.events import Activation, Decision, ModeChanged, Void
from belated.exceptions import FallbackWarning, InvalidInput, ReadOnly, RewardConflict
from belated.features import Actions, Features
from belated.ids import check_id
from belated.inputs import Row
from belated.journals import Journal, MemoryJournal, open_journal
from belated.journals.arrivals import route
from belated.journals.configuration import configure, settings_of
from belated.journals.identity import identify
from belated.journals.steady_clock import system_clock
from belated.kernels import Kernels
from belated.learner import Fold, FoldView, Follower, LiveModel
from belated.ledger.receipts import Receipt
from belated.ledger.requests import Keep, check_keep
from belated.policies import Policy
from belated.rewards import Rewards, check_default, check_semantics, reported_reward, retention_us
from belated.times import Duration, Moment, as_microseconds
from belated.tuning import USUAL, Tuning


class Bandit(FoldView):
    """Decides, learns from rewards whenever they come, and keeps every fact in its journal.

    Opening a journal that has records resumes where they end. Several processes may hold the same
    bandit on one SQLite file or database: each sees what the others wrote at its next call. Threads
    may share a bandit: calls take turns. After ``fork()`` the child draws its own randomness. A
    mode that another process sets is obeyed once this one has read it: at its second call.

    Args:
        policy: how actions are chosen.
        rewards: what a missing reward means. There is no default: only you can know.
        journal: where facts are kept, or its address: ``"sqlite:///offers.db?bandit=offers"``,
            ``"postgresql://user@host/name?bandit=offers"``; in memory if None.
        features: from a context and actions to rows; without them you pass rows.
        retention: how long after a decision its reward is accepted; None: for ever.
        seed: of the choices, or a generator.
        clock: gives microseconds since 1970; the system's if None.
        baseline: how to choose if the mode says so, or the policy fails: the name of an action,
            ``"first"`` or ``"uniform"``.
        keep_requests: share of the decisions whose request is kept in the journal: what they were
            chosen from. "auto": all, but of those above 4 KiB as many as take 4 KiB on average; 0:
            none. A context or a row can be personal data: see ``docs/howto/requests.md``.
        kernels: to use instead of the best available.
        tuning: sizes that only tests change.

    >>> from belated import Bernoulli, DefaultAfter, DelayedUCB
    >>> bandit = Bandit(
    ...     policy=DelayedUCB(dim=2, family=Bernoulli()),
    ...     rewards=DefaultAfter("7d"),  # no click within a week: 0
    ...     seed=7,
    ... )
    >>> decision = bandit.decide([[1.0, 0.0], [0.0, 1.0]])
    >>> bandit.pending.count
    1
    >>> bandit.observe(decision.id, 1.0).status
    'rewarded'
    >>> bandit.pending.count
    0
    """

    def __init__(
        self,
        *,
        policy: Policy,
        rewards: Rewards | None = None,
        journal: Journal | str | None = None,
        features: Features | None = None,
        retention: Duration | None = None,
        seed: int | np.random.Generator | None = None,
        clock: Callable[[], int] | None = None,
        baseline: int | str = UNIFORM,
        keep_requests: Keep = "auto",
        kernels: Kernels | None = None,
        tuning: Tuning = USUAL,
    ) -> None:
        check_semantics(rewards)
        assert rewards is not None
        if features is not None and features.dim != policy.dim:
            message = f"features of {features.dim} numbers and a policy for rows of {policy.dim}"
            raise InvalidInput(message, features)
        check_default(rewards, policy.family.support)
        self.policy = policy
        self.rewards = rewards
        self.features = features
        self.retention = retention
        self._retention = retention_us(retention, rewards)
        self._keep = check_keep(keep_requests)
        self._parse = partial(
            parse_request, dim=policy.dim, features=features, keeps=self._keep != 0.0
        )
        self._clock = clock or system_clock
        if journal is None:
            journal = MemoryJournal(clock=clock)
        self.journal: Journal = open_journal(journal) if isinstance(journal, str) else journal
        self._kernels = kernels
        self._tuning = tuning
        fold = self._new_fold()
        # Only now: whatever was refused above must leave no trace.
        identify(self.journal, family=repr(policy.family), dim=policy.dim, features=features)
        fold.load(self.journal)
        fold.catch_up(self.journal)
        found = list(fold.positions)
        settings = settings_of(policy, rewards, self._retention, features)
        if configure(self.journal, settings, self._clock()):
            fold.catch_up(self.journal)
        self._lock = threading.RLock()
        self._read_only = False
        self._use(fold, baseline)
        if isinstance(seed, np.random.Generator):
            self._rng = seed
        else:  # neither a restart nor a second process repeats draws
            entropy = None if seed is None else [seed, *found]
            self._rng = np.random.default_rng(entropy)
        _open_bandits.add(self)

    def _new_fold(self, until: int | None = None) -> Fold:
        return Fold(
            self.policy,
            self.rewards,
            partitions=self.journal.partitions,
            retention=self._retention,
            until=until,
            kernels=self._kernels,
            tuning=self._tuning,
        )

    def _use(self, fold: Fold, baseline: int | str) -> None:
        """Decide with what a fold has learned."""
        self._fold, self._baseline = fold, baseline
        self._decider = Decider(
            self.policy,
            LiveModel(fold, kernels=self._kernels),
            partitions=self.journal.partitions,
            baseline=baseline,
            keep_requests=self._keep,
            tuning=self._tuning,
        )
        self._follower = Follower(fold, self.journal, self._clock, self._decider)
        self._obey()

    # --- deciding ------------------------------------------------------------------------------

    def decide(
        self,
        rows: Any,
        actions: Actions | None = None,
        *,
        id: str | None = None,
        activated: bool = True,
    ) -> Decision:
        """Choose an action; the choice is durable before this returns.

        Args:
            rows: one row per action; or the context, if the bandit has features.
            actions: the actions, in the order of the rows; needed if the bandit has features.
            id: your own decision id. The same id again returns the same decision.
            activated: False if the window starts only with :meth:`activate`.

        Raises:
            BanditOff: the bandit's mode is ``off``.
        """
        with self._lock:
            self._check_open()
            if id is not None:
                check_id(id)
                self._follower.look()  # another process may have used it
                known = self._known(id)
                if known is not None:
                    return self._again(known, rows, actions)
            request, table = self._parse(rows, actions, id=id, activated=activated)
            (event,), kept = self._choose([request], table)
            status = self._follower.append_one(event, only=id, request=kept.get(0))
            if status == "conflict":  # another process was faster
                return self._again(self.journal.decisions([event.id])[event.id], rows, actions)
            return event

    def decide_many(self, requests: Sequence[Any], *, activated: bool = True) -> list[Decision]:
        """Choose for many requests, each as if those before it were pending; one append for all.

        Args:
            requests: rows for each; or (context, actions) for each, if the bandit has features.
            activated: False if the window starts only with :meth:`activate`.
        """
        with self._lock:
            self._check_open()
            parsed, tables = [], []
            for request in requests:
                rows, actions = request if self.features is not None else (request, None)
                one, table = self._parse(rows, actions, activated=activated)
                parsed.append(one)
                tables.append(table)
            if not parsed:
                return []
            made, kept = self._choose(parsed, np.concatenate(tables))
            self._follower.append(made, kept)
            return made

    def _choose(self, requests: Sequence[ParsedRequest], table: Row) -> Made:
        decider = self._decider
        if decider.mode == "off":  # it may have been switched on elsewhere
            self._read_new()
        if self._fold.mode != decider.mode:
            self._obey()
        made = decider.choose(requests, table, now=self._clock(), rng=self._rng, hold=False)
        if decider.failure is not None:
            message = f"the policy could not choose ({decider.failure}): the baseline decided"
            decider.failure = None
            warnings.warn(message, FallbackWarning, stacklevel=4)
        return made

    def _obey(self) -> None:
        """Decide as the journal says; a mode of a newer release changes nothing."""
        for mode in MODES:
            if mode == self._fold.mode:
                self._decider.change_mode(mode)

    def _known(self, id: str) -> Decision | None:
        """The decision that was made under an id, here or elsewhere."""
        status = self._fold.entry(id)
        return self._decider.unapplied.find(id) if status is None else self._decision(status)

    def _again(self, known: Decision, rows: Any, actions: Actions | None) -> Decision:
        """A retry gets the decision that was made; another decision under its id is refused."""
        check_same(known, rows_of(rows, actions, self.policy.dim, self.features))
        return known

    # --- rewards -------------------------------------------------------------------------------

    def observe(
        self,
        id: str,
        value: float,
        *,
        at: Moment | None = None,
        part: str = "",
        revision: int = 0,
    ) -> Receipt:
        """Report the reward of a decision, or one part of it.

        Retries are safe. A higher revision of a part replaces it.

        Args:
            id: decision id.
            value: the reward.
            at: when it happened: a datetime with its zone, or ISO 8601; now if None.
            part: of the reward, if it comes in several.
            revision: of this part.

        Raises:
            RewardConflict: another value is known for this part and revision.
        """
        with self._lock:
            self._check_open()
            fold = self._fold
            low, high = fold.min_reward, fold.max_reward
            event = reported_reward(
                id, value, self._time(at), part, revision, min_reward=low, max_reward=high
            )
            meaning = fold.ledgers[route(event, self.journal.partitions)].meaning(event)
            if meaning in ("conflict", "duplicate"):  # the journal has another, or the same
                self._follower.refused[meaning] += 1
                if meaning == "conflict":
                    raise RewardConflict(id, event.value, part, revision)
                return Receipt(id, meaning)
            return Receipt(id, self._follower.append_one(event))

    def activate(self, id: str, *, at: Moment | None = None) -> Receipt:
        """Report that a decision took effect: its window starts."""
        return self._append(Activation(check_id(id), self._time(at)))

    def void(self, id: str, *, at: Moment | None = None) -> Receipt:
        """Report that a decision was never carried out: nothing is learned from it."""
        return self._append(Void(check_id(id), self._time(at)))

    def _append(self, event: Activation | Void) -> Receipt:
        with self._lock:
            self._check_open()
            return Receipt(event.id, self._follower.append_one(event))

    def _time(self, at: Moment | None) -> int:
        return self._clock() if at is None else as_microseconds(at)

    def settle(self) -> int:
        """Settle all that is due by now; returns how many decisions that were."""
        with self._lock:
            self._check_open()
            self._follower.catch_up()
            before = self._fold.counts
            due = [self._follower.due(p) for p in range(self.journal.partitions)]
            if any(due):
                self._follower.append([event for events in due for event in events])
            after = self._fold.counts
            return sum(before[state] - after[state] for state in ("dormant", "pending"))

    def change_mode(self, mode: Mode, reason: str = "") -> None:
        """Decide in another way from now on, in every process that holds this bandit.

        Args:
            mode: ``learn``: with the newest model. ``freeze``: with the model of now.
                ``baseline``: without a model. ``off``: not at all; rewards are accepted.
            reason: why, for whoever asks later.
        """
        if mode not in MODES:
            raise InvalidInput(f"mode is {mode!r}: one of {', '.join(MODES)} was expected", mode)
        with self._lock:
            self._check_open()
            self._follower.append([ModeChanged(self._clock(), mode, reason)])

    def as_of(self, when: Moment) -> Bandit:
        """The bandit as it was known at a moment: read-only, rebuilt from the journal.

        Args:
            when: a datetime with its zone, or ISO 8601.
        """
        self.journal.end(0)  # raises if it is closed
        past = object.__new__(Bandit)
        past.__dict__.update(self.__dict__)
        past._lock = threading.RLock()
        fold = self._new_fold(until=as_microseconds(when, "when"))
        fold.begin(self.journal)
        fold.catch_up(self.journal)
        past._use(fold, self._baseline)
        past._read_only = True
        return past

    # --- staying in step -----------------------------------------------------------------------

    def sync(self) -> int:
        """Fold what others wrote, and settle what is due; returns how many records that were."""
        with self._lock:
            self._check_open()
            before = self._fold.version
            self.settle()
            return self._fold.version - before

    def save(self) -> None:
        """Store a snapshot, so that the next opening is quick."""
        with self._lock:
            self._check_open()
            self._follower.save()

    def close(self) -> None:
        """Save a snapshot and close the journal."""
        with self._lock:
            if not self._read_only:
                self._follower.try_to_save()
                self._read_only = True
                self.journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._read_only:
            raise ReadOnly("this bandit is closed, or a view of the past: it takes no events")


_open_bandits: weakref.WeakSet[Bandit] = weakref.WeakSet()


def _after_fork() -> None:
    """In the child: draw other numbers than the parent, and wait for none of its threads."""
    for bandit in _open_bandits:
        bandit._rng = np.random.default_rng()
        bandit._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
