"""Contextual bandit: decide now, observe rewards later."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

import numpy as np

from belated.bandit.arguments import (
    check_clock,
    check_policy,
    check_seed,
    generator_of,
    opened,
)
from belated.bandit.evaluating import Evaluating
from belated.bandit.summary import as_html, in_a_line
from belated.decider import MODES, UNIFORM, Decider, Holdout, HoldoutDecider, Mode
from belated.decider.batches import OneReward, naming, split_rewards
from belated.decider.holdouts import check_holdout
from belated.events import Activation, Decision, ModeChanged, Reward, Void
from belated.exceptions import InvalidInput, RewardConflict
from belated.families import Family
from belated.features import Features, PerArm
from belated.ids import check_id
from belated.journals import Journal, MemoryJournal
from belated.journals.arrivals import route
from belated.journals.configuration import configure, settings_of
from belated.journals.identity import identify
from belated.journals.steady_clock import system_clock
from belated.kernels import Kernels
from belated.learner import Fold, Follower, LiveModel
from belated.learner.follower import warn_changed
from belated.ledger.receipts import Receipt
from belated.ledger.requests import Keep, check_keep
from belated.policies import Policy, usual_policy
from belated.rewards import Rewards, reported_reward, retention_us
from belated.times import Duration, Moment, as_microseconds
from belated.tuning import USUAL, Tuning


class Bandit(Evaluating):
    """Decides, learns from rewards whenever they come, and keeps every fact in its journal.

    Opening a journal that has records resumes where they end. Several processes may hold the same
    bandit on one SQLite file or database: each sees what the others wrote at its next call. Threads
    may share a bandit: calls take turns. After ``fork()`` the child draws its own randomness. A
    mode that another process sets is obeyed once this one has read it: at its second call. If an
    exception interrupts a call (``KeyboardInterrupt``, a time-out), the call may or may not have
    taken effect: retry it with the same id. The next call reads the journal again.

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
        holdout: a share of decisions that a baseline makes, so that :meth:`lift` can say what the
            policy earns beyond it.
        kernels: to use instead of the best available.
        tuning: sizes that only tests change.

    >>> from belated import Bernoulli, ConversionsOnly, DelayedUCB
    >>> bandit = Bandit(
    ...     policy=DelayedUCB(dim=2, family=Bernoulli()),
    ...     rewards=ConversionsOnly("7d"),  # only clicks are reported
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
        policy: Policy,
        *,
        rewards: Rewards | None = None,
        journal: Journal | str | None = None,
        features: Features | None = None,
        retention: Duration | None = None,
        seed: int | np.random.Generator | None = None,
        clock: Callable[[], int] | None = None,
        baseline: int | str = UNIFORM,
        keep_requests: Keep = "auto",
        holdout: Holdout | None = None,
        kernels: Kernels | None = None,
        tuning: Tuning = USUAL,
    ) -> None:
        policy, rewards = check_policy(policy, rewards, features)
        self.policy = policy
        self.rewards = rewards
        self.features = features
        self.retention = retention
        self._retention = retention_us(retention, rewards)
        self._keep = check_keep(keep_requests)
        self._holdout = check_holdout(holdout, features)
        check_seed(seed)
        self._clock = system_clock if clock is None else check_clock(clock)
        self.journal = MemoryJournal(clock=clock) if journal is None else opened(journal)
        self._kernels = kernels
        self._tuning = tuning
        fold = self._new_fold()
        # Only now: whatever was refused above must leave no trace.
        identify(self.journal, family=repr(policy.family), dim=policy.dim, features=features)
        for error in fold.load(self.journal):
            warn_changed(error, stacklevel=3)
        fold.catch_up(self.journal)
        found = list(fold.positions)
        settings = settings_of(policy, rewards, self._retention, features)
        if configure(self.journal, settings, self._clock()):
            fold.catch_up(self.journal)
        self._lock = threading.RLock()
        self._read_only = False
        self._use(fold, baseline)
        self._rng = generator_of(seed, found)
        self._survive_forks()

    @classmethod
    def of(
        cls,
        actions: Sequence[int | str] | Features,
        *,
        rewards: Rewards | None = None,
        family: Family | None = None,
        **settings: Any,
    ) -> Self:
        """A bandit with the usual policy, :class:`~belated.DelayedUCB`.

        Args:
            actions: the actions, if there is no context; or features.
            rewards: what a missing reward means.
            family: of the rewards; :class:`~belated.Bernoulli` if None: from 0 to 1.
            **settings: the other arguments of :class:`Bandit`.

        >>> from belated import ConversionsOnly
        >>> bandit = Bandit.of(["blue", "red"], rewards=ConversionsOnly("7d"))
        >>> decision = bandit.decide()
        >>> bandit.observe(decision.id, 1.0).status
        'rewarded'
        """
        features = actions if isinstance(actions, Features) else PerArm(actions)
        policy = usual_policy(features.dim, family)
        return cls(policy=policy, rewards=rewards, features=features, **settings)

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
        self._obey()

    def __repr__(self) -> str:
        return f"<{in_a_line(self)}>"

    def _repr_html_(self) -> str:
        return as_html(self)

    # --- rewards -------------------------------------------------------------------------------

    def observe(
        self,
        id: str | Decision,
        value: float,
        *,
        at: Moment | None = None,
        part: str = "",
        revision: int = 0,
    ) -> Receipt:
        """Report the reward of a decision, or one part of it.

        Retries are safe. A higher revision of a part replaces it.

        Args:
            id: decision id, or the decision itself.
            value: the reward.
            at: when it happened: a datetime with its zone, or ISO 8601; now if None.
            part: of the reward, if it comes in several.
            revision: of this part.

        Raises:
            RewardConflict: another value is known for this part and revision.
        """
        with self._lock, self._follower:
            if self._read_only:
                self._check_open()
            now, fold = self._clock(), self._fold
            event = reported_reward(
                id,
                value,
                now if at is None else as_microseconds(at),
                part,
                revision,
                min_reward=fold.min_reward,
                max_reward=fold.max_reward,
            )
            meaning = self._meaning(event)
            if meaning in ("conflict", "duplicate"):  # the journal has another, or the same
                self._follower.refused[meaning] += 1
                if meaning == "conflict":
                    raise RewardConflict(event.id, event.value, part, revision)
                return Receipt(event.id, meaning)
            return Receipt(event.id, self._follower.append_one(event, now))

    def observe_many(self, rewards: Any) -> list[Receipt]:
        """Report many rewards with one append; returns a receipt for each, in their order.

        All are checked before any is appended. A value that differs from one that is known, in the
        journal or before it in the same call, is not appended: its receipt says ``conflict``, and
        the others count.

        Args:
            rewards: (id, value) pairs; or mappings with the keys id and value, and if need be at,
                part and revision, as in :meth:`observe`; or a frame of pandas or polars with such
                columns.

        Raises:
            InvalidInput: one of them cannot be a reward of this bandit; nothing was appended.

        >>> from belated import Bernoulli, DelayedUCB, Explicit
        >>> bandit = Bandit(policy=DelayedUCB(dim=2, family=Bernoulli()), rewards=Explicit())
        >>> first, second = bandit.decide_many([[[1.0, 0.0], [0.0, 1.0]]] * 2)
        >>> receipts = bandit.observe_many([(first.id, 1.0), (second.id, 0.0), (first.id, 0.0)])
        >>> [receipt.status for receipt in receipts]
        ['rewarded', 'rewarded', 'conflict']
        """
        given = split_rewards(rewards)
        with self._lock, self._follower:
            self._check_open()
            events: list[Reward] = []
            now = self._clock()
            try:
                for one in given:
                    events.append(self._reported(one, now))
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
                if status in ("conflict", "duplicate"):  # the journal has another, or the same
                    self._follower.refused[status] += 1
                else:
                    if status in ("rewarded", "revised"):
                        seen[part] = event.value
                    new.append(event)
                    status = ""  # the fold says
                statuses.append(status)
            meant = iter(self._follower.append_told(new)[0] if new else ())
            return [
                Receipt(event.id, status or next(meant))
                for event, status in zip(events, statuses, strict=True)
            ]

    def _reported(self, one: OneReward, now: int) -> Reward:
        return reported_reward(
            one.id,
            one.value,
            now if one.at is None else as_microseconds(one.at),
            one.part,
            one.revision,
            min_reward=self._fold.min_reward,
            max_reward=self._fold.max_reward,
        )

    def _meaning(self, event: Reward) -> str:
        """What a reward would be to what is known, but for its time."""
        ledgers = self._fold.ledgers
        home = 0 if len(ledgers) == 1 else route(event, len(ledgers))
        return ledgers[home].meaning(event)

    def activate(self, id: str | Decision, *, at: Moment | None = None) -> Receipt:
        """Report that a decision took effect: its window starts."""
        return self._mark(Activation, id, at)

    def void(self, id: str | Decision, *, at: Moment | None = None) -> Receipt:
        """Report that a decision was never carried out: nothing is learned from it."""
        return self._mark(Void, id, at)

    def _mark(
        self, kind: type[Activation | Void], id: str | Decision, at: Moment | None
    ) -> Receipt:
        with self._lock, self._follower:
            self._check_open()
            now = self._clock()
            event = kind(check_id(id), now if at is None else as_microseconds(at))
            return Receipt(event.id, self._follower.append_one(event, now))

    def change_mode(self, mode: Mode, reason: str = "") -> None:
        """Decide in another way from now on, in every process that holds this bandit.

        Args:
            mode: ``learn``: with the newest model. ``freeze``: with the model of now.
                ``baseline``: without a model. ``off``: not at all; rewards are accepted.
            reason: why, for whoever asks later.
        """
        if mode not in MODES:
            raise InvalidInput(f"mode is {mode!r}: one of {', '.join(MODES)} was expected", mode)
        with self._lock, self._follower:
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
