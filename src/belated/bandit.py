"""The object users hold: decide now, be told later."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self

import numpy as np

from belated.ahead import Ahead
from belated.estimators import Estimate
from belated.events import Activation, Decision, Event, Record, Reward, Settled, Void
from belated.exceptions import (
    InvalidInput,
    JournalAway,
    JournalError,
    JournalUnavailable,
    ReadOnly,
    RewardConflict,
    SnapshotConflict,
    SnapshotWarning,
)
from belated.features import Actions, Features, as_actions
from belated.fold import PAGE, Fold, retention_us
from belated.ids import check_id, key_of, new_id, partition_of
from belated.inputs import Row, as_reward, as_rows, outside
from belated.journals import Journal, MemoryJournal
from belated.journals.arrivals import route, system_clock
from belated.journals.identity import identify
from belated.kernels import Kernels
from belated.ledger import Entry
from belated.policies import Policy
from belated.receipts import Pending, Receipt, Story
from belated.rewards import ConversionsOnly, Rewards

#: Records folded in one call while the bandit is behind.
AT_ONCE = 500
#: Records folded after which a snapshot is saved.
SNAPSHOT_EVERY = 100_000


class Bandit:
    """Decides, is told rewards whenever they come, and learns; every fact is in its journal.

    Opening a journal that has records resumes where they end. Several processes may hold the same
    bandit on one SQLite file: each sees what the others wrote at its next call.

    Args:
        policy: how actions are chosen.
        rewards: what silence means. There is no default: only you can know.
        journal: where facts are kept; in memory if None.
        features: from a context and actions to rows; without them rows are given.
        retention: for how long after a decision its reward may come; None: for ever.
        seed: of the choices, or a generator.
        clock: gives microseconds since 1970; the system's if None.
        using: kernels to use instead of the best available.

    >>> from belated import Bernoulli, DelayedUCB, Explicit
    >>> bandit = Bandit(
    ...     policy=DelayedUCB(dim=2, family=Bernoulli()),
    ...     rewards=Explicit(window=timedelta(days=7)),
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
        journal: Journal | None = None,
        features: Features | None = None,
        retention: timedelta | None = None,
        seed: int | np.random.Generator | None = None,
        clock: Callable[[], int] | None = None,
        using: Kernels | None = None,
    ) -> None:
        check_semantics(rewards)
        assert rewards is not None
        if features is not None and features.dim != policy.dim:
            message = f"features of {features.dim} numbers and a policy for rows of {policy.dim}"
            raise InvalidInput(message, features)
        self.policy = policy
        self.rewards = rewards
        self.features = features
        self.retention = retention
        self._clock = clock or system_clock
        self.journal: Journal = MemoryJournal(clock=clock) if journal is None else journal
        self._using = using
        self._fold = Fold(
            policy,
            rewards,
            partitions=self.journal.partitions,
            retention=retention_us(retention, rewards),
            using=using,
        )
        self._fold.check_default()
        # Only now: whatever was refused above must leave no trace.
        identify(self.journal, family=repr(policy.family), dim=policy.dim, features=features)
        self._fold.load(self.journal)
        self._fold.catch_up(self.journal)
        self._snapshot_at = self._fold.version + SNAPSHOT_EVERY
        self._read_only = False
        self._behind = False  # whether the journal was away, and not all of it is folded since
        self._ahead = Ahead(self._fold.learner)
        if isinstance(seed, np.random.Generator):
            self._rng = seed
        else:  # neither a restart nor a second process repeats draws
            entropy = None if seed is None else [seed, *self._fold.positions]
            self._rng = np.random.default_rng(entropy)

    # --- deciding ------------------------------------------------------------------------------

    def decide(
        self,
        rows: Any,
        actions: Actions | None = None,
        *,
        id: str | None = None,
        activated: bool = True,
    ) -> Decision:
        """Choose an action, and write the choice down before it is told.

        Args:
            rows: one row per action; or the context, where the bandit has features.
            actions: the actions, in the order of the rows; needed where the bandit has features.
            id: your own name for the decision. The same id again gives the same decision back.
            activated: False if the outcome clock starts only with :meth:`activate`.
        """
        self._check_open()
        if id is not None:
            check_id(id)
            self._look()  # another process may have used it
            known = self._known(id)
            if known is not None:
                return self._again(known, rows, actions)
        event = self._choose(rows, actions, id, activated)
        if self._append_one(event) == "conflict":  # another process was faster
            known = self._known(event.id)
            assert known is not None
            return self._again(known, rows, actions)
        return event

    def decide_many(self, offers: Sequence[Any], *, activated: bool = True) -> list[Decision]:
        """Choose for many offers, each as if the ones before it were pending; one append for all.

        Args:
            offers: rows for each; or (context, actions) for each, where the bandit has features.
            activated: False if the outcome clock starts only with :meth:`activate`.
        """
        self._check_open()
        found: list[Decision] = []
        made = Ahead(self._fold.learner)  # until the journal has them
        try:
            for offer in offers:
                rows, actions = offer if self.features is not None else (offer, None)
                event = self._choose(rows, actions, None, activated)
                made.add(event)
                found.append(event)
        finally:  # also where an offer was refused
            made.clear()
        if found:
            self._append(found)
        return found

    def _choose(
        self, rows: Any, actions: Actions | None, id: str | None, activated: bool
    ) -> Decision:
        if type(activated) is not bool:
            raise InvalidInput(f"activated is {activated!r}: True or False was expected", activated)
        rows = self._rows(rows, actions)
        fold = self._fold
        choice = self.policy.choose(fold.model, rows, self._rng)
        index = choice.index
        action = index if actions is None else name_of(actions, index, len(rows))
        now = self._clock()
        return Decision(
            id or new_id(now),
            now,
            action,
            index,
            rows[index].copy(),
            choice.mean,
            choice.propensity,
            fold.version,
            activated,
        )

    def _rows(self, rows: Any, actions: Actions | None) -> Row:
        """The offer as a table of float32: a replay sees the same numbers."""
        if self.features is None:
            return as_rows(rows, self.policy.dim)
        if actions is None:
            raise InvalidInput("actions are missing: which ones are offered?", actions)
        return self.features.rows(rows, actions)

    def _look(self) -> None:
        """Fold all that is new, unless the journal is away and takes events all the same."""
        if not self._behind:
            with suppress(JournalAway):
                self._catch_up()
        elif self._follow() and self._behind:
            message = (
                "the bandit is catching up with its journal after an outage, and does not know yet "
                "whether this id was used: try again in a moment, or decide without an id"
            )
            raise JournalUnavailable(message)

    def _known(self, id: str) -> Decision | None:
        """The decision that was made under an id, here or elsewhere."""
        entry = self._entry(id)
        return self._ahead.get(id) if entry is None else self._decision(id, entry)

    def _again(self, known: Decision, rows: Any, actions: Actions | None) -> Decision:
        """A retry gets the decision that was made; another decision under its id is refused."""
        check_same(known, self._rows(rows, actions))
        return known

    # --- being told ----------------------------------------------------------------------------

    def observe(
        self,
        id: str,
        value: float,
        *,
        at: int | None = None,
        part: str = "",
        revision: int = 0,
    ) -> Receipt:
        """Report the reward of a decision, or one part of it.

        To report the same again is safe. A higher revision of a part replaces it.

        Args:
            id: of the decision.
            value: the reward.
            at: when it happened, in microseconds since 1970; now if None.
            part: of the reward, where it comes in several.
            revision: of this part.

        Raises:
            RewardConflict: another value is known for this part and revision.
        """
        self._check_open()
        check_id(id)
        value = as_reward(value)
        fold = self._fold
        if not fold.least <= value <= fold.most:
            raise outside(value, fold.least, fold.most)
        if part != "" or type(revision) is not int or revision:
            check_part(part, revision)
        event = Reward(id, self._time(at), value, part, revision)
        meaning = fold.ledgers[route(event, self.journal.partitions)].meaning(event)
        if meaning == "conflict":
            raise RewardConflict(id, value, part, revision)
        if meaning == "duplicate":  # the journal has it
            return Receipt(id, "duplicate")
        return Receipt(id, self._append_one(event))

    def activate(self, id: str, *, at: int | None = None) -> Receipt:
        """The decision took effect: its window starts."""
        return self._tell(Activation(check_id(id), self._time(at)))

    def void(self, id: str, *, at: int | None = None) -> Receipt:
        """The decision was never carried out: nothing is learned from it."""
        return self._tell(Void(check_id(id), self._time(at)))

    def _tell(self, event: Activation | Void) -> Receipt:
        self._check_open()
        return Receipt(event.id, self._append_one(event))

    def _time(self, at: int | None) -> int:
        return self._clock() if at is None else check_at(at)

    def settle(self) -> int:
        """Settle all that is due by now; returns how many decisions that were."""
        self._check_open()
        self._catch_up()
        before = self._fold.counts
        events = [event for p in range(self.journal.partitions) for event in self._due(p)]
        if events:
            self._append(events)
        after = self._fold.counts
        return sum(before[state] - after[state] for state in ("dormant", "pending"))

    def _due(self, partition: int) -> list[Event]:
        if self._behind:  # what is known of the partition is old, and one such event is enough
            return []
        now = self._clock()
        return [Settled(partition, now)] if self._fold.ledgers[partition].is_due(now) else []

    def _append(self, events: Sequence[Event]) -> None:
        """Append, then fold everything new, one's own events included."""
        if self._behind:
            self._follow()
        positions = self.journal.append(events)
        if self._behind or not all(positions):
            self._accept(events)
            return
        try:
            self._catch_up()
        except JournalUnavailable:  # but they are safe
            self._accept(events)
            return
        self._ahead.clear()
        self._save_in_passing()

    def _append_one(self, event: Event) -> str:
        """The same for one event, and with it whatever is due; returns what the event meant."""
        journal, fold = self.journal, self._fold
        partition = route(event, journal.partitions)
        if self._behind:
            self._follow()
        positions = journal.append([*self._due(partition), event])
        if self._behind or not positions[-1]:
            return self._accept([event])
        status = "duplicate"  # where the journal had the event already, and so had the fold
        try:
            if fold.is_much(max(positions) - fold.positions[partition]):  # others were busy
                with fold.learner.bulk():
                    status = self._fold_to(partition, positions) or status
            else:
                status = self._fold_to(partition, positions) or status
            if journal.partitions > 1:
                fold.catch_up(journal)
        except JournalUnavailable:  # but the event is safe
            return self._accept([event])
        if self._ahead:  # a position says that nothing waits any longer
            self._ahead.clear()
        self._save_in_passing()
        return status

    def _fold_to(self, partition: int, positions: Sequence[int]) -> str:
        """Fold a partition up to some events; returns what the last meant, if it was new."""
        fold, status = self._fold, ""
        while fold.positions[partition] < max(positions):
            for record in self.journal.read(partition, fold.positions[partition], PAGE):
                meaning = self._take(record)
                if record.position == positions[-1]:
                    status = meaning
        return status

    def _accept(self, events: Sequence[Event]) -> str:
        """Events are safe, and folded when the journal is back; live decisions count already."""
        for event in events:
            if isinstance(event, Decision) and self._entry(event.id) is None:
                self._ahead.add(event, counts=event.activated)
        self._behind = True
        return "accepted"

    def _follow(self) -> bool:
        """Fold a part of what is new: no caller shall wait for all that an outage held up.

        Returns whether the journal could be read.
        """
        try:
            self._behind = not self._fold_some()
        except JournalAway:
            return False
        self._save_in_passing()
        return True

    def _catch_up(self) -> None:
        """Fold everything new."""
        self._behind = True  # until it has answered
        if self._ahead:
            while not self._fold_some():
                pass
        else:
            self._fold.catch_up(self.journal)
        self._behind = False

    def _fold_some(self) -> bool:
        """Fold some of what is new; returns whether that was all."""
        left = AT_ONCE
        for partition, position in enumerate(self._fold.positions):
            page = self.journal.read(partition, position, left)
            for record in page:
                self._take(record)
            left -= len(page)
            if not left:
                return False
        return True

    def _take(self, record: Record) -> str:
        """Fold one record; if it was counted ahead, it is no longer."""
        if self._ahead and isinstance(record.event, Decision):
            self._ahead.drop(record.event.id)
        return self._fold.take(record)

    # --- what is known -------------------------------------------------------------------------

    @property
    def pending(self) -> Pending:
        """The decisions whose rewards are out."""
        return Pending(self._fold, self._fold.model.pending)

    @property
    def estimate(self) -> Estimate:
        """A converged fit of all that has arrived: a function of the set of rewards alone."""
        return self._fold.learner.estimate

    @property
    def counts(self) -> dict[str, int]:
        """Decisions by state; they add up to all decisions ever made."""
        return self._fold.counts

    @property
    def counters(self) -> dict[str, int]:
        """Events by what they meant; they add up to all events."""
        return self._fold.counters

    @property
    def digest(self) -> str:
        """Names the state of every decision: equal for equal journals, however they are split."""
        return self._fold.digest

    def entry(self, id: str) -> Story:
        """All that is known of one decision."""
        check_id(id)
        entry = self._entry(id)
        if entry is None:
            return Story(id, "unknown")
        return Story(
            id=id,
            state=entry.state,
            decision=self._decision(id, entry),
            value=entry.value,
            late=entry.late,
            conflict=entry.conflict,
            recorded=entry.recorded,
            due=entry.due,
            told=entry.told,
        )

    def _entry(self, id: str) -> Entry | None:
        return self._fold.ledgers[self._partition(id)].entry(id)

    def _decision(self, id: str, entry: Entry) -> Decision:
        """A decision that is remembered, as it was made."""
        record = self.journal.read(self._partition(id), entry.position - 1, 1)[0]
        assert isinstance(record.event, Decision)
        return record.event

    def _partition(self, id: str) -> int:
        return partition_of(key_of(id), self.journal.partitions)

    def as_of(self, when: datetime | int) -> Bandit:
        """The bandit as it was known at a moment: read-only, rebuilt from the journal.

        Args:
            when: a time with its zone, or microseconds since 1970.
        """
        self._check_journal()
        past = object.__new__(Bandit)
        past.__dict__.update(self.__dict__)
        past._fold = Fold(
            self.policy,
            self.rewards,
            partitions=self.journal.partitions,
            retention=self._fold.retention,
            until=as_moment(when),
            using=self._using,
        )
        past._fold.catch_up(self.journal)
        past._read_only = True
        return past

    # --- staying in step -----------------------------------------------------------------------

    def sync(self) -> int:
        """Fold what others wrote, and settle what is due; returns how many records that were."""
        self._check_open()
        before = self._fold.version
        self.settle()
        return self._fold.version - before

    def save(self) -> None:
        """Store a snapshot, so that the next opening is quick."""
        self._check_open()
        self._snapshot_at = self._fold.version + SNAPSHOT_EVERY
        try:
            self._fold.save(self.journal)
        except SnapshotConflict:  # another process saved since: what it left is not ours
            self._fold.save(self.journal, whole=True)

    def _save_in_passing(self) -> None:
        """A snapshot is a shortcut: that it failed is no reason to fail what is in the journal."""
        if self._fold.version >= self._snapshot_at:
            self._try_to_save()

    def _try_to_save(self) -> None:
        try:
            self.save()
        except JournalError as error:
            message = f"no snapshot was saved ({error}); the next opening reads more of the journal"
            warnings.warn(message, SnapshotWarning, stacklevel=4)

    def close(self) -> None:
        """Save a snapshot and close the journal."""
        if not self._read_only:
            self._try_to_save()
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

    def _check_journal(self) -> None:
        self.journal.end(0)  # raises if it is closed


def check_semantics(rewards: Any) -> None:
    """Refuse a bandit that was not told what silence means."""
    if rewards is None:
        raise InvalidInput(
            "rewards is missing: say what it means when no reward comes, as in"
            " rewards=Explicit(window=timedelta(days=7)) or DefaultAfter(timedelta(hours=1))",
            rewards,
        )
    if isinstance(rewards, ConversionsOnly):
        raise InvalidInput(
            "ConversionsOnly has no estimator in this release: use DefaultAfter(window), which"
            " takes a conversion whenever it comes",
            rewards,
        )
    if not isinstance(rewards, Rewards):
        message = f"rewards is {rewards!r}: Explicit(...) or DefaultAfter(...) was expected"
        raise InvalidInput(message, rewards)


def check_same(known: Decision, rows: Row) -> None:
    """Refuse what is not a retry: another decision under the id of a known one."""
    width = len(known.x)  # less than that of a row where features have grown since
    if known.index < len(rows):
        row = rows[known.index]
        if np.array_equal(row[:width], known.x) and not row[width:].any():
            return
    message = f"the id {known.id!r} was used for another decision: ids name one decision each"
    raise InvalidInput(message, known.id)


def check_part(part: Any, revision: Any) -> None:
    """Refuse what cannot name a part of a reward."""
    if not isinstance(part, str) or part:
        check_id(part, "the part")
    whole = isinstance(revision, int) and not isinstance(revision, bool)
    if not whole or not 0 <= revision < 1 << 63:
        message = f"revision is {revision!r}: a whole number of at least 0 was expected"
        raise InvalidInput(message, revision)


def check_at(at: Any) -> int:
    """Refuse what is no time in microseconds since 1970."""
    whole = isinstance(at, int | np.integer) and not isinstance(at, bool)
    if not whole or not -(1 << 63) <= at < 1 << 63:
        message = f"at is {at!r}: microseconds since 1970 were expected, as a whole number"
        raise InvalidInput(message, at)
    return int(at)


def name_of(actions: Actions, index: int, count: int) -> int | str:
    """The name of a chosen action."""
    ids = as_actions(actions)
    if len(ids) != count:
        message = f"{len(ids)} actions for {count} rows: one for each was expected"
        raise InvalidInput(message, actions)
    return ids[index]


def as_moment(when: datetime | int) -> int:
    """A moment in microseconds since 1970."""
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise InvalidInput(f"{when} has no time zone: use datetime(..., tzinfo=UTC)", when)
        return (when - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    if not isinstance(when, int | np.integer) or isinstance(when, bool):
        message = f"{when!r} is no moment: a datetime, or microseconds since 1970, was expected"
        raise InvalidInput(message, when)
    return int(when)
