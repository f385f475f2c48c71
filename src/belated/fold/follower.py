"""Keep the fold of an embedded bandit up to date with its journal."""

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
    """The model for decisions: the model of the fold, or a model that an operator chose or froze.

    Args:
        fold: the fold.
        kernels: kernels to use instead of the fastest available.
    """

    def __init__(self, fold: Fold, *, kernels: Kernels | None = None) -> None:
        self._fold = fold
        self._kernels = kernels
        self._frozen: PublishedModel | None = None
        self._chosen: PublishedModel | None = None
        self._fixed: tuple[Model, int] | None = None

    @property
    def model(self) -> Model:
        """The live model, or the chosen or frozen one."""
        return self._fold.learner.model if self._fixed is None else self._fixed[0]

    @property
    def version(self) -> int:
        """Number of records folded into the model."""
        return self._fold.version if self._fixed is None else self._fixed[1]

    def add_pending(self, x: Vector, weight: float) -> None:
        """Count a decision that has not been folded yet as pending."""
        self._fold.learner.hold(x, weight)

    def remove_pending(self, x: Vector, weight: float) -> None:
        """Stop counting a decision that is about to be folded."""
        self._fold.learner.release(x, weight)

    def change_mode(self, mode: str, unapplied: object = None) -> None:
        """Switch to the frozen model if ``mode`` is ``freeze``, otherwise to the live model."""
        self._frozen = self._fold.frozen if mode == "freeze" else None
        self._fix()

    def use_model(self, chosen: PublishedModel | None, unapplied: object = None) -> None:
        """Use the model that an operator chose; None for the newest."""
        self._chosen = chosen
        self._fix()

    def _fix(self) -> None:
        policy, self._fixed = self._fold.learner.policy, None
        for published in (self._chosen, self._frozen):
            if self._fixed is None and published is not None:
                # The model may belong to another policy.
                with suppress(JournalMismatch, CorruptJournal, ValueError):
                    self._fixed = published.model(policy, kernels=self._kernels), published.version
        if self._fixed is None and self._frozen is not None:  # freeze this policy's current model
            current = self._fold.export_model(self._frozen.at)
            self._fixed = current.model(policy, kernels=self._kernels), current.version

    def repair(self, unapplied: object = None) -> None:
        """Refit the live model to all rewards that have arrived."""
        self._fold.learner.fit()


class UnappliedCounter(Protocol):
    """Counts decisions that are durable but cannot be folded yet; see :class:`Decider`."""

    def hold(self, decision: Decision) -> None:
        """Count a decision as pending."""

    def release(self, id: str) -> None:
        """Stop counting a decision that has been folded."""

    def release_all(self) -> None:
        """Stop counting all decisions, because they have been folded."""

    def release_known(self, known: Callable[[str], bool]) -> None:
        """Stop counting decisions with known ids, because they have been folded."""

    def count_again(self) -> None:
        """Count all decisions again, after the fold was rebuilt."""

    @property
    def holds(self) -> bool:
        """Whether any decisions are counted."""


T = TypeVar("T")

#: Maximum number of times that a single call rebuilds the fold before it fails.
RESTARTS = 5


class Follower:
    """Appends events, and folds all new events, including those from other processes.

    Use the fold only within a ``with`` block. An exception from outside the library
    (``KeyboardInterrupt``, a timeout, ``MemoryError``) can end a block between any two
    instructions; the next block then begins by rebuilding the fold from the journal.

    After an outage of the journal during which a spool accepted events, the fold is *behind*. Each
    call then folds only some of the new events, so that no caller waits for the whole backlog.

    Args:
        fold: the fold.
        journal: the journal that is folded.
        clock: function that returns the time in microseconds since 1970.
        unapplied: counts the decisions that are durable but cannot be folded yet.
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
        #: False while the fold may be inconsistent: within a block, and after an interrupted block.
        self.intact = True
        self._partitions = journal.partitions
        self._followed: FollowedLog | None = None
        if journal.partitions == 1 and isinstance(journal, FollowedLog):
            self._followed = journal
        self._clock = clock
        self._unapplied = unapplied
        #: Number of this process's events that were not appended because the journal already had
        #: them, or a different value, by status.
        self.refused: Counter[str] = Counter()
        #: Issues with calls that were rejected before anything was appended.
        self.issues = IssueCounter()
        self.behind = False
        self._snapshot_at = fold.version + fold.tuning.snapshot_every
        self._adviser = Adviser()
        self._next_upkeep = 0  # the version from which a snapshot or a check may be due

    def __enter__(self) -> None:
        if not (self.intact and self.fold.begun):
            self.intact = False
            self._rebuild()
            self._retry(self._fold_all)
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
        """Whether the journal was unavailable and has not been completely folded since then."""
        return self._behind

    @behind.setter
    def behind(self, behind: bool) -> None:
        self._behind, self._is_current = behind, False

    def _check_current(self) -> bool:
        """Return whether all durable events are folded; the result is cached."""
        self._is_current = not self._behind and not self._unapplied.holds
        return self._is_current

    def append(
        self,
        events: Sequence[Event],
        requests: Requests | None = None,
        *,
        only: Collection[str] = (),
    ) -> dict[str, Decision]:
        """Append events, then fold all new events.

        Args:
            events: the events.
            requests: the requests of decisions, by the index of the decision among the events.
            only: ids for which no second decision may be made.

        Returns:
            Existing decisions with these ids, which the events did not replace.
        """
        if self.behind:
            self.follow()
        positions, existing = self._write(events, requests, only)
        if self.behind or not all(positions):
            self._accept(events)
            return existing
        try:
            self.catch_up()
        except JournalUnavailable:  # the events are durable nevertheless
            self._accept(events)
            return existing
        self._unapplied.release_all()  # all events have positions, so the spool is empty
        self._do_upkeep()
        return existing

    def append_one(
        self, event: Event, now: int, requests: Requests | None = None, *others: Event
    ) -> str:
        """Append one event and fold it; return its status.

        This is a fast path of :meth:`settle_and_append` for the common case that nothing is due and
        no other process has appended events.

        Args:
            event: an event of a decision.
            now: the time, in microseconds since 1970.
            requests: the request of the decision, with index 0.
            *others: events to append after ``event``.
        """
        fold, last = self.fold, self.fold.chains[0].last
        if (
            self._followed is None
            or last is None
            or not (self._is_current or self._check_current())
            or (now >= fold.ledgers[0].soonest and fold.ledgers[0].is_due(now))
        ):
            return self.settle_and_append([event, *others], requests)[0][0]
        appended = self._followed.append_after((event, *others), last, requests=requests)
        if not appended.records:
            partitions = [0] * len(appended.positions)
            return self._fold_appended([event, *others], partitions, appended.positions, [])[0]
        status, *_ = map(fold.take, appended.records)
        if fold.version >= self._next_upkeep:
            self._do_upkeep()
        return status

    def settle_and_append(
        self,
        events: Sequence[Event],
        requests: Requests | None = None,
        *,
        only: Collection[str] = (),
    ) -> tuple[list[str], dict[str, Decision]]:
        """Append and fold events, after a ``Settled`` event for each partition that is due.

        Args:
            events: the events.
            requests: the requests of decisions, by the index of the decision among the events.
            only: ids for which no second decision may be made.

        Returns:
            The status of each event, and existing decisions with these ids, which the events did
            not replace.
        """
        if self.behind:  # fold some records first, to know what is due
            self.follow()
        partitions = [route(event, self._partitions) for event in events]
        due = [event for partition in sorted({*partitions}) for event in self.due(partition)]
        if due and requests:
            requests = {len(due) + n: data for n, data in requests.items()}
        all_events = [*due, *events]
        last = self.fold.chains[0].last
        if self._followed is None or last is None or only:
            positions, existing = self._write(all_events, requests, only)
            records: Sequence[Record] = ()
        else:
            appended = self._followed.append_after(all_events, last, requests=requests)
            positions, records, existing = appended.positions, appended.records, {}
        return self._fold_appended(events, partitions, positions[len(due) :], records), existing

    def _fold_appended(
        self,
        events: Sequence[Event],
        partitions: Sequence[int],
        positions: Sequence[int],
        records: Sequence[Record],
    ) -> list[str]:
        """Fold appended events; return the status of each.

        Args:
            events: the events.
            partitions: the partition of each event.
            positions: the position of each event; 0 if the event is in a spool.
            records: the appended records, ending with those of the events; empty if the records
                must be read, because other processes have appended events too.
        """
        if self.behind or not all(positions):
            return [self._accept(events)] * len(events)
        try:
            if records:
                statuses = self._take_all(records)[-len(events) :]
            else:
                statuses = self._retry(lambda: self._fold_own(partitions, positions))
        except JournalUnavailable:  # the events are durable nevertheless
            return [self._accept(events)] * len(events)
        if self._unapplied.holds:
            self._unapplied.release_all()
        self._do_upkeep()
        return [self._status(status) for status in statuses]

    def _write(
        self, events: Sequence[Event], requests: Requests | None, only: Collection[str]
    ) -> tuple[Sequence[int], dict[str, Decision]]:
        """Append events; return their positions, and existing decisions with the same ids."""
        if only:
            return self.journal.append_unique(events, only, requests)
        return self.journal.append(events, requests=requests), {}

    def _status(self, status: str) -> str:
        """Return the status of an event; an event that was folded before is a duplicate."""
        if not status:
            self.refused["duplicate"] += 1
        return status or "duplicate"

    def due(self, partition: int) -> list[Event]:
        """Return a ``Settled`` event for a partition if anything is due."""
        if self.behind:  # another process may already have appended such an event
            return []
        now = self._clock()
        return [Settled(partition, now)] if self.fold.ledgers[partition].is_due(now) else []

    def catch_up(self) -> None:
        """Fold all new events."""
        self._retry(self._fold_all)

    def follow(self) -> bool:
        """Fold some of the new events; return whether the journal could be read."""
        try:
            # A fold that was rebuilt must be complete before it is used for decisions.
            self._retry(self._fold_part, self._fold_all)
        except JournalReadUnavailable:
            return False
        self._do_upkeep()
        return True

    def look(self) -> None:
        """Fold all new events, unless the journal is unavailable and a spool accepts events.

        Raises:
            JournalUnavailable: the fold is still behind, so it is unknown whether an id was used.
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
        self._retry(self._store, self._fold_and_store)

    def try_to_save(self) -> None:
        """Save a snapshot; if this fails, only warn, because the journal contains all data."""
        try:
            self.save()
        except JournalError as error:
            warn_unsaved(error)

    def _do_upkeep(self) -> None:
        """Save a snapshot and run the advice checks, if either is due."""
        version = self.fold.version
        if version >= self._snapshot_at:
            self.try_to_save()
        if self._adviser.is_due(version):
            for advice in self._adviser.look(evidence_of(self.fold, self.refused["duplicate"])):
                warn(advice)
        self._next_upkeep = min(self._snapshot_at, self._adviser.next)

    def _store(self) -> None:
        self.fold.save(self.journal)

    def _fold_and_store(self) -> None:
        self._fold_all()
        self._store()

    def _retry(self, work: Callable[[], T], again: Callable[[], T] | None = None) -> T:
        """Run ``work``; on ``HistoryChanged``, rebuild the fold and retry.

        Args:
            work: the function to run.
            again: the function to run after a rebuild; None means ``work``.
        """
        for _ in range(RESTARTS):  # there may be several erasures or retractions in a row
            try:
                return work()
            except HistoryChanged as error:
                self._restart(error)
                work = again or work
        return work()

    def _restart(self, error: HistoryChanged) -> None:
        """Warn that the history has changed, and rebuild the fold."""
        warn_changed(error, stacklevel=7)
        self._rebuild()

    def _rebuild(self) -> None:
        """Discard the state of the fold, and start again from the journal."""
        fold, unapplied = self.fold, self._unapplied
        fold.clear()
        # Unapplied decisions are released when their records are folded, so a snapshot must not
        # skip these records.
        if unapplied.holds or fold.until is not None:
            fold.begin(self.journal)
        else:
            fold.load(self.journal)
        unapplied.count_again()
        unapplied.release_known(lambda id: fold.entry(id) is not None)  # included in the base

    def _fold_all(self) -> None:
        self.behind = True  # until all records have been read
        self.fold.catch_up(self.journal, take=self._take if self._unapplied.holds else None)
        self.behind = False

    def _fold_part(self) -> None:
        """Fold some of the new events; the fold remains behind if there may be more."""
        remaining = self.fold.tuning.follow
        for partition in range(self._partitions):
            page = self.fold.follow(self.journal, partition, remaining, take=self._take)
            remaining -= len(page)
            if not remaining:
                break
        self.behind = not remaining

    def _fold_own(self, partitions: Sequence[int], positions: Sequence[int]) -> list[str]:
        """Fold all new events; return the statuses of the events at these positions.

        The status of an event that was folded before is empty.
        """
        statuses: dict[tuple[int, int], str] = {}

        def take(record: Record) -> str:
            status = statuses[record.partition, record.position] = self._take(record)
            return status

        self.fold.catch_up(self.journal, take=take)
        places = list(zip(partitions, positions, strict=True))
        for partition, position in places:
            if self.fold.positions[partition] < position:  # the journal has lost the event
                raise HistoryChanged(partition, position)
        return [statuses.get(place, "") for place in places]

    def _take_all(self, records: Sequence[Record]) -> list[str]:
        """Fold appended records; return the status of each."""
        # A single event, even after a Settled record, always updates the model directly.
        if len(records) > 2 and self.fold.is_much(len(records)):
            with self.fold.learner.bulk():
                return [self._take(record) for record in records]
        return [self._take(record) for record in records]

    def _take(self, record: Record) -> str:
        """Fold a record, and release unapplied decisions that the record contains or erases."""
        event = record.event
        if isinstance(event, Decision):
            self._unapplied.release(event.id)
        elif isinstance(event, Erased):  # the decision's record may have been overwritten
            self._unapplied.release_known(lambda id: erased_key_of(id) == event.key)
        return self.fold.take(record)

    def _accept(self, events: Sequence[Event]) -> str:
        """Count decisions that are durable but cannot be folded until the journal is available."""
        for event in events:
            # A decision may have been folded before a read failed.
            if isinstance(event, Decision) and self.fold.entry(event.id) is None:
                self._unapplied.hold(event)
        self.behind = True
        return "accepted"


def _is_ours(error: BaseException | None) -> bool:
    """Return whether an error was raised by the library, so that the fold is consistent.

    If the error was raised while another exception was being handled, that exception must also have
    been raised by the library.
    """
    while isinstance(error, BelatedError):
        error = None if error.__suppress_context__ else error.__context__
    return error is None


def warn_unsaved(error: JournalError) -> None:
    """Warn that no snapshot was saved."""
    message = f"no snapshot was saved ({error}); the bandit will take longer to open next time"
    warnings.warn(message, SnapshotWarning, stacklevel=6)


def warn_changed(error: HistoryChanged, stacklevel: int) -> None:
    """Warn that the journal no longer contains the records from which the bandit learned."""
    if not isinstance(error, HistoryTrimmed | HistoryUndone):
        message = f"{error}. The bandit discards its state and learns again from the journal"
        warnings.warn(message, HistoryWarning, stacklevel=stacklevel)
