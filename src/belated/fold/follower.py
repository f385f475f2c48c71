"""A fold that keeps up with its journal: append, read back, settle, save."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Protocol, TypeVar

from belated.advice import Adviser, warn
from belated.advice.issues import IssueCounter
from belated.core.events import Decision, Erased, Event, Record, Settled
from belated.core.ids import erased_key_of
from belated.core.inputs import Vector
from belated.exceptions import (
    BelatedError,
    CorruptJournal,
    HistoryChanged,
    HistoryTrimmed,
    HistoryUndone,
    HistoryWarning,
    JournalError,
    JournalMismatch,
    JournalReadUnavailable,
    JournalUnavailable,
    SnapshotWarning,
)
from belated.fold.evidence import evidence_of
from belated.fold.fold import Fold
from belated.fold.published import PublishedModel
from belated.journals import Journal
from belated.journals.arrivals import route
from belated.journals.log import FollowedLog, Requests
from belated.model.kernels import Kernels
from belated.model.model import Model


class LiveModel:
    """Chooses with whatever is folded, unless an operator chose a model or froze the bandit.

    Args:
        fold: the state.
        kernels: to use instead of the best available.
    """

    def __init__(self, fold: Fold, *, kernels: Kernels | None = None) -> None:
        self._fold = fold
        self._kernels = kernels
        self._frozen: PublishedModel | None = None
        self._chosen: PublishedModel | None = None
        self._fixed: tuple[Model, int] | None = None

    @property
    def model(self) -> Model:
        """The live model, or the one that is fixed."""
        return self._fold.learner.model if self._fixed is None else self._fixed[0]

    @property
    def version(self) -> int:
        """Records that were folded into it."""
        return self._fold.version if self._fixed is None else self._fixed[1]

    def add_pending(self, x: Vector, weight: float) -> None:
        """Count a decision that is not folded yet."""
        self._fold.learner.hold(x, weight)

    def remove_pending(self, x: Vector, weight: float) -> None:
        """It is about to be folded, and then counts by itself."""
        self._fold.learner.release(x, weight)

    def change_mode(self, mode: str, unapplied: object = None) -> None:
        """Use the model of the moment the bandit was frozen, or the live one."""
        self._frozen = self._fold.frozen if mode == "freeze" else None
        self._fix()

    def use_model(self, chosen: PublishedModel | None, unapplied: object = None) -> None:
        """Use the model that an operator chose; None: the newest."""
        self._chosen = chosen
        self._fix()

    def _fix(self) -> None:
        policy, self._fixed = self._fold.learner.policy, None
        for published in (self._chosen, self._frozen):
            if self._fixed is None and published is not None:
                with suppress(JournalMismatch, CorruptJournal, ValueError):  # of another policy
                    self._fixed = published.model(policy, kernels=self._kernels), published.version
        if self._fixed is None and self._frozen is not None:  # this policy freezes what it finds
            now = self._fold.export_model(self._frozen.at)
            self._fixed = now.model(policy, kernels=self._kernels), now.version

    def repair(self, unapplied: object = None) -> None:
        """Make the live model anew from all that has arrived."""
        self._fold.learner.fit()


class UnappliedCounter(Protocol):
    """Counts decisions that are durable and cannot be folded yet: see :class:`Decider`."""

    def hold(self, decision: Decision) -> None:
        """Count it as pending."""

    def release(self, id: str) -> None:
        """It is folded now."""

    def release_all(self) -> None:
        """All of them are."""

    def release_known(self, known: Callable[[str], bool]) -> None:
        """Those that are known by their ids are folded."""

    def count_again(self) -> None:
        """Count them in a fold that has begun anew."""

    @property
    def holds(self) -> bool:
        """Whether there are any."""


T = TypeVar("T")

#: How often a fold starts anew in one call before it gives up.
RESTARTS = 5


class Follower:
    """Appends events, and folds everything new, one's own events included.

    Every use of the fold is a ``with`` block. An exception that comes from outside the library
    (``KeyboardInterrupt``, a time-out, ``MemoryError``) can end a block between any two
    instructions: then the next block begins by rebuilding the fold from the journal.

    While the journal is away and a spool accepts events, the fold is *behind*: each call then
    folds a part of what is new, so that no caller waits for all that an outage held up.

    Args:
        fold: the state.
        journal: what it is a fold of.
        clock: gives microseconds since 1970.
        unapplied: counts the decisions that are durable, and cannot be folded yet.
    """

    def __init__(
        self,
        fold: Fold,
        journal: Journal,
        clock: Callable[[], int],
        unapplied: UnappliedCounter,
    ) -> None:
        self.fold = fold
        self.journal = journal
        #: False while the fold may be half changed: within a block, and after one was interrupted.
        self.intact = True
        self._partitions = journal.partitions
        self._followed: FollowedLog | None = None
        if journal.partitions == 1 and isinstance(journal, FollowedLog):
            self._followed = journal
        self._clock = clock
        self._unapplied = unapplied
        #: Events of this process that the journal has not taken, for it had them, or another value.
        self.refused: Counter[str] = Counter()
        #: What this process refused before it was appended.
        self.issues = IssueCounter()
        self.behind = False
        self._snapshot_at = fold.version + fold.tuning.snapshot_every
        self._adviser = Adviser()
        self._look_at = 0  # the version at which there may be something to do in passing

    def __enter__(self) -> None:
        if not (self.intact and self.fold.begun):
            self.intact = False
            self._rebuild()
            self._or_anew(self._fold_all)
        self.intact = False

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None or _is_ours(error):
            self.intact = True
        if error is not None:
            self.issues.note_error(error, self._clock)

    @property
    def behind(self) -> bool:
        """Whether the journal was away, and not all of it is folded since."""
        return self._behind

    @behind.setter
    def behind(self, behind: bool) -> None:
        self._behind, self._is_level = behind, False

    def _find_level(self) -> bool:
        """Whether all that is durable is folded; it is, until the fold is behind again."""
        self._is_level = not self._behind and not self._unapplied.holds
        return self._is_level

    def append(
        self,
        events: Sequence[Event],
        requests: Requests | None = None,
        *,
        only: Collection[str] = (),
    ) -> dict[str, Decision]:
        """Append, then fold everything new.

        Args:
            events: to append.
            requests: what decisions among them were chosen from, by their places.
            only: ids under which no second decision is to be made.

        Returns:
            The decisions that stand under some of these ids in place of those given.
        """
        if self.behind:
            self.follow()
        positions, standing = self._write(events, requests, only)
        if self.behind or not all(positions):
            self._accept(events)
            return standing
        try:
            self.catch_up()
        except JournalUnavailable:  # but they are durable
            self._accept(events)
            return standing
        self._unapplied.release_all()  # positions say that nothing waits in a spool any longer
        self._do_in_passing()
        return standing

    def append_one(
        self, event: Event, now: int, requests: Requests | None = None, *others: Event
    ) -> str:
        """Append one event and fold it; returns what it meant.

        A shorter :meth:`settle_and_append` for the usual case: nothing is due, and no other process
        has appended.

        Args:
            event: of a decision.
            now: the time, in microseconds since 1970.
            requests: what it was chosen from, under the index 0.
            *others: appended behind it.
        """
        fold, last = self.fold, self.fold.chains[0].last
        if (
            self._followed is None
            or last is None
            or not (self._is_level or self._find_level())
            or (now >= fold.ledgers[0].soonest and fold.ledgers[0].is_due(now))
        ):
            return self.settle_and_append([event, *others], requests)[0][0]
        found = self._followed.append_after((event, *others), last, requests=requests)
        if not found.records:
            homes = [0] * len(found.positions)
            return self._fold_appended([event, *others], homes, found.positions, [])[0]
        status, *_ = map(fold.take, found.records)
        if fold.version >= self._look_at:
            self._do_in_passing()
        return status

    def settle_and_append(
        self,
        events: Sequence[Event],
        requests: Requests | None = None,
        *,
        only: Collection[str] = (),
    ) -> tuple[list[str], dict[str, Decision]]:
        """Append ``Settled`` events for partitions that are due, then these; fold up to them.

        Args:
            events: to append.
            requests: what decisions among them were chosen from, by their places.
            only: ids under which no second decision is to be made.

        Returns:
            What each event meant; and the decisions that stand under some of these ids in place of
            those given.
        """
        if self.behind:  # or nothing is known of what is due
            self.follow()
        partitions = [route(event, self._partitions) for event in events]
        due = [event for one in sorted({*partitions}) for event in self.due(one)]
        if due and requests:
            requests = {len(due) + n: data for n, data in requests.items()}
        all_events = [*due, *events]
        last = self.fold.chains[0].last
        if self._followed is None or last is None or only:
            positions, standing = self._write(all_events, requests, only)
            records: Sequence[Record] = ()
        else:
            found = self._followed.append_after(all_events, last, requests=requests)
            positions, records, standing = found.positions, found.records, {}
        return self._fold_appended(events, partitions, positions[len(due) :], records), standing

    def _fold_appended(
        self,
        events: Sequence[Event],
        partitions: Sequence[int],
        positions: Sequence[int],
        records: Sequence[Record],
    ) -> list[str]:
        """Fold events that were appended; returns what each meant.

        Args:
            events: that were appended.
            partitions: of each.
            positions: of each; 0 where a spool has it.
            records: those that were appended, the events' the last of them; none if they are to be
                read, for others have appended too.
        """
        if self.behind or not all(positions):
            return [self._accept(events)] * len(events)
        try:
            if records:
                meant = self._take_all(records)[-len(events) :]
            else:
                meant = self._or_anew(lambda: self._fold_own(partitions, positions))
        except JournalUnavailable:  # but the events are durable
            return [self._accept(events)] * len(events)
        if self._unapplied.holds:
            self._unapplied.release_all()
        self._do_in_passing()
        return [self._status(one) for one in meant]

    def _write(
        self, events: Sequence[Event], requests: Requests | None, only: Collection[str]
    ) -> tuple[Sequence[int], dict[str, Decision]]:
        """Append to the journal; returns the positions, and the decisions that stand instead."""
        if only:
            return self.journal.append_unique(events, only, requests)
        return self.journal.append(events, requests=requests), {}

    def _status(self, meant: str) -> str:
        """What an event meant that was appended; the journal may have had it, and so the fold."""
        if not meant:
            self.refused["duplicate"] += 1
        return meant or "duplicate"

    def due(self, partition: int) -> list[Event]:
        """Return what settles a partition, if anything is due."""
        if self.behind:  # what is known of the partition is old, and one such event is enough
            return []
        now = self._clock()
        return [Settled(partition, now)] if self.fold.ledgers[partition].is_due(now) else []

    def catch_up(self) -> None:
        """Fold everything new."""
        self._or_anew(self._fold_all)

    def follow(self) -> bool:
        """Fold a part of what is new; returns whether the journal could be read."""
        try:
            # Of a new beginning all is folded: nothing is decided by a part of it.
            self._or_anew(self._fold_part, self._fold_all)
        except JournalReadUnavailable:
            return False
        self._do_in_passing()
        return True

    def look(self) -> None:
        """Fold all that is new, unless the journal is away and accepts events all the same.

        Raises:
            JournalUnavailable: there is more than one call may fold: whether an id was used is not
                known yet.
        """
        if not self.behind:
            with suppress(JournalReadUnavailable):
                self.catch_up()
        elif self.follow() and self.behind:
            message = (
                "the bandit is catching up with its journal after an outage, and does not know yet "
                "whether this id was used: try again in a moment, or decide without an id"
            )
            raise JournalUnavailable(message)

    def save(self) -> None:
        """Save a snapshot of every partition."""
        self._snapshot_at = self.fold.version + self.fold.tuning.snapshot_every
        self._or_anew(self._store, self._fold_and_store)

    def try_to_save(self) -> None:
        """A snapshot is a shortcut: that it failed is no reason to fail what is in the journal."""
        try:
            self.save()
        except JournalError as error:
            warn_unsaved(error)

    def _do_in_passing(self) -> None:
        """Save a snapshot and warn the caller, each now and then."""
        version = self.fold.version
        if version >= self._snapshot_at:
            self.try_to_save()
        if self._adviser.is_due(version):
            for advice in self._adviser.look(evidence_of(self.fold, self.refused["duplicate"])):
                warn(advice)
        self._look_at = min(self._snapshot_at, self._adviser.next)

    def _store(self) -> None:
        self.fold.save(self.journal)

    def _fold_and_store(self) -> None:
        self._fold_all()
        self._store()

    def _or_anew(self, work: Callable[[], T], again: Callable[[], T] | None = None) -> T:
        """Do what stands on the fold; if the history has changed, start anew and do it again.

        Args:
            work: what to do.
            again: what to do after the new start, if that is not the same.
        """
        for _ in range(RESTARTS):  # an operator may undo one thing after the other
            try:
                return work()
            except HistoryChanged as error:
                self._start_anew(error)
                work = again or work
        return work()

    def _start_anew(self, error: HistoryChanged) -> None:
        """What was folded is no longer what the journal holds: begin with what it holds now."""
        warn_changed(error, stacklevel=7)
        self._rebuild()

    def _rebuild(self) -> None:
        """Discard what was folded, and begin with what the journal holds."""
        fold, unapplied = self.fold, self._unapplied
        fold.clear()
        # Decisions that are held must be met again to be let go: no snapshot may pass them.
        if unapplied.holds or fold.until is not None:
            fold.begin(self.journal)
        else:
            fold.load(self.journal)
        unapplied.count_again()
        unapplied.release_known(lambda id: fold.entry(id) is not None)  # in a base

    def _fold_all(self) -> None:
        self.behind = True  # until the journal has answered
        self.fold.catch_up(self.journal, take=self._take if self._unapplied.holds else None)
        self.behind = False

    def _fold_part(self) -> None:
        """Fold some of what is new; the fold is behind if that was not all."""
        left = self.fold.tuning.follow
        for partition in range(self._partitions):
            left -= len(self.fold.follow(self.journal, partition, left, take=self._take))
            if not left:
                break
        self.behind = not left

    def _fold_own(self, partitions: Sequence[int], positions: Sequence[int]) -> list[str]:
        """Fold all that is new; returns what one's own events meant, nothing if it was known."""
        meant: dict[tuple[int, int], str] = {}

        def take(record: Record) -> str:
            meaning = meant[record.partition, record.position] = self._take(record)
            return meaning

        self.fold.catch_up(self.journal, take=take)
        places = list(zip(partitions, positions, strict=True))
        for partition, position in places:
            if self.fold.positions[partition] < position:  # what was appended is gone again
                raise HistoryChanged(partition, position)
        return [meant.get(place, "") for place in places]

    def _take_all(self, records: Sequence[Record]) -> list[str]:
        """Fold records that were appended; returns what each meant."""
        # One event, and what is due before it, is a step of its own.
        if len(records) > 2 and self.fold.is_much(len(records)):
            with self.fold.learner.bulk():
                return [self._take(record) for record in records]
        return [self._take(record) for record in records]

    def _take(self, record: Record) -> str:
        """Fold a record; a decision that was held counts by itself from now on, or never will."""
        event = record.event
        if isinstance(event, Decision):
            self._unapplied.release(event.id)
        elif isinstance(event, Erased):  # its record may be overwritten: it is never met again
            self._unapplied.release_known(lambda id: erased_key_of(id) == event.key)
        return self.fold.take(record)

    def _accept(self, events: Sequence[Event]) -> str:
        """Events are durable, and folded when the journal is back."""
        for event in events:
            # One that was folded before a read failed counts by itself.
            if isinstance(event, Decision) and self.fold.entry(event.id) is None:
                self._unapplied.hold(event)
        self.behind = True
        return "accepted"


def _is_ours(error: BaseException | None) -> bool:
    """Whether the library raised an error: it does so between two changes of a fold.

    Not while another exception was handled: that one may have come at any point.
    """
    while isinstance(error, BelatedError):
        error = None if error.__suppress_context__ else error.__context__
    return error is None


def warn_unsaved(error: JournalError) -> None:
    """Tell the caller that no snapshot was saved."""
    message = f"no snapshot was saved ({error}); the next opening reads more of the journal"
    warnings.warn(message, SnapshotWarning, stacklevel=6)


def warn_changed(error: HistoryChanged, stacklevel: int) -> None:
    """Tell the caller that what was learned stood on records that are gone, or others."""
    if not isinstance(error, HistoryTrimmed | HistoryUndone):
        message = f"{error}. What this bandit has learned is discarded, and learned anew"
        warnings.warn(message, HistoryWarning, stacklevel=stacklevel)
