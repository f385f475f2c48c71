"""The log of a bandit: events are appended, and records read back by position."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Protocol, Self, runtime_checkable

import msgspec

from belated.core.events import ActionChanged, Configured, Decision, Event, ModeChanged, Record

#: What decisions were chosen from (:mod:`belated.fold.requests`), by their places in a call.
Requests = Mapping[int, bytes]


class Tail(NamedTuple):
    """A record by its position and its stamp: no record before it has a greater one."""

    position: int
    stamp: int


#: Before the first record.
EMPTY = Tail(0, 0)


@runtime_checkable
class Log(Protocol):
    """An append-only log of the events of one bandit, in partitions that are independent.

    Within a partition, positions increase and stamps (``recorded``) never decrease: a clock that
    steps back is held at the greatest stamp so far. Positions start at 1 and may have gaps, so a
    difference of positions is not a count. There is no order across partitions.

    Several processes may have the same log open: between two calls others may append. A call that
    raises has changed nothing, or nothing that a retry would not make right: the same event twice
    counts once.

    :class:`belated.testing.LogContract` holds these sentences as tests, for any log.
    """

    @property
    def bandit(self) -> str:
        """The name of the bandit."""

    @property
    def partitions(self) -> int:
        """The number of partitions: a power of two, fixed when the log was made."""

    def append(
        self,
        events: Sequence[Event],
        *,
        recorded: Sequence[int] | None = None,
        requests: Requests | None = None,
    ) -> list[int]:
        """Append events, each to the partition of its id (:func:`belated.core.ids.partition_of`).

        When this returns, they are durable, as far as the log has stable storage. What goes to one
        partition is taken whole or not at all.

        Args:
            events: in the order they are to have within their partitions.
            recorded: the stamp of each, instead of the log's clock; held like the clock is.
            requests: what some of the decisions were chosen from, by their index in ``events``;
                stored beside their records in the same commit, and read by :meth:`requests` alone.

        Returns:
            The position of each event in its partition; 0 if it is durable but has none yet.

        Raises:
            InvalidInput: something is not an event, or belongs to no partition here; or a request
                is not of a decision.
            JournalUnavailable: nothing was acknowledged; retry.
        """

    def import_records(
        self, records: Iterable[Record], *, requests: Requests | None = None
    ) -> None:
        """Append records of another log with their stamps.

        Positions are new, and partitions too: by the id; for a :class:`Settled` or a
        :class:`Retracted` as it says; for an event this release cannot read, its record's partition
        modulo the number here. One call is taken whole or not at all: import a large log in pages.

        Args:
            records: in the order of their stamps.
            requests: what some of the decisions were chosen from, by their index in ``records``.

        Raises:
            InvalidInput: a stamp is before the one it would follow; sort the records first.
        """

    def read(self, partition: int, after: int, limit: int) -> list[Record]:
        """Return the first records beyond a position, in order; fewer than ``limit`` at the end.

        A record appended before this call began is there, and no later call will find one at a
        position this one has passed.

        Raises:
            CorruptEvent: a record was changed after it was written; names its place.
            HistoryTrimmed: records beyond the position have been dropped; those of operators'
                acts stay, and may be returned before this is noticed.
        """

    def start(self, partition: int) -> Tail:
        """Return the last record that was dropped: its position and stamp, 0 if none was."""

    def drop(self, partition: int, limit: int) -> int:
        """Drop some of the records up to :meth:`start`; the acts of operators stay.

        It takes no lock for long: call it until it returns 0. See :meth:`Shelf.rebase`.

        Returns:
            How many were dropped.
        """

    def requests(self, partition: int, positions: Sequence[int]) -> dict[int, bytes]:
        """Return what decisions were chosen from, by position, where it was kept."""

    def end(self, partition: int) -> int:
        """Return the position of the last record, 0 if there is none."""

    def last_stamp(self, partition: int) -> int:
        """Return the stamp of the last record, which is the greatest; 0 if there is none."""

    def now(self) -> int:
        """Return the time of the clock that stamps records, in microseconds since 1970."""

    def close(self) -> None:
        """Release whatever is held; any later call raises :class:`JournalClosed`."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


@runtime_checkable
class CountsDuplicates(Protocol):
    """A log that writes the same bytes once, and counts how often they came again.

    Attributes:
        duplicates: events that were sent here again, since it was opened.
    """

    duplicates: int


def finds_by_id(log: object) -> bool:
    """Whether a log, or a store, can be asked by id: what cannot says ``finds_by_id = False``."""
    return bool(getattr(log, "finds_by_id", True))


class Appended(NamedTuple):
    """Where events are, and which decisions stand in place of some of them.

    Attributes:
        positions: of each event, or of the decision that stands in its place.
        standing: the decisions that stand, by the ids under which a further one was not taken.
    """

    positions: list[int]
    standing: dict[str, Decision]


class AppendedAfter(msgspec.Struct, frozen=True, gc=False):
    """What :meth:`FollowedLog.append_after` returns.

    Attributes:
        positions: of the events.
        records: of the events, if they directly follow the record that was given; else none.
    """

    positions: list[int]
    records: list[Record]


@runtime_checkable
class FollowedLog(Protocol):
    """A log that spares its only writer from reading back what it has just appended."""

    def append_after(
        self, events: Sequence[Event], last: Record, *, requests: Requests | None = None
    ) -> AppendedAfter:
        """Append events as :meth:`Log.append` does, all of the partition of a record.

        Args:
            events: in the order they are to have.
            last: the last record that the caller knows.
            requests: what some of the decisions were chosen from.

        Returns:
            Positions; and the records, if ``last`` was the log's last until then. Otherwise others
            have appended too, or the log has lost records: then read on from ``last``.
        """


@runtime_checkable
class WatchedLog(Protocol):
    """A log that is asked about many partitions at once, where a question for each is dear."""

    def grown(self, positions: Mapping[int, int]) -> set[int]:
        """Return the partitions that may hold other records than those up to a position.

        Args:
            positions: by partition, that of the last record of a commit; 0 if there is none.
        """


@runtime_checkable
class UniqueLog(Log, Protocol):
    """A log that also answers by id: which decision stands under it, and what was told of it.

    Look-ups use an index: their cost does not grow with the log.
    :class:`belated.testing.JournalContract` tests it.
    """

    def append_unique(
        self,
        events: Sequence[Event],
        ids: Collection[str],
        requests: Requests | None = None,
    ) -> Appended:
        """Append events, but under each of these ids no second decision.

        Whoever asks at the same time, one decision is taken, and all are told that one.

        Args:
            events: as for :meth:`append`.
            ids: those that callers chose; an id that was made here is not used twice.
            requests: as for :meth:`append`; that of a decision which is not taken is dropped.

        Raises:
            JournalUnavailable: nothing was acknowledged; retry.
        """

    def decisions(self, ids: Sequence[str]) -> dict[str, Decision]:
        """Return the decision that stands under each of these ids, where there is one.

        Of several under one id, it is the first (rule 1). The cost does not grow with what else was
        recorded under the id.
        """

    def records_of(self, ids: Sequence[str], limit: int | None = None) -> list[Record]:
        """Return all records of these ids, by partition and position.

        Args:
            ids: Any ids.
            limit: Of each id, its decisions and at most so many other records, the first ones; all
                if None.

        Raises:
            CorruptEvent: one of them was changed after it was written.
        """

    def settlements(self, partition: int) -> list[Record]:
        """Return the last :class:`Settled` records of a partition, in order.

        Only the last ones: later ones reach further.
        """

    def undone(self, partition: int) -> list[Record]:
        """Return all records of a partition that undo others, in order.

        They are :class:`Erased` and :class:`Retracted`: a fold knows them before it begins.
        """

    def overwrite(self, keys: Sequence[bytes]) -> int:
        """Overwrite the events of erased decisions, and drop the requests of these decisions.

        An :class:`Overwritten` stands in place of each; position, stamp and digest stay. Again
        does nothing.

        Args:
            keys: the erased keys of their ids, as in :class:`Erased`.

        Returns:
            How many events were overwritten.

        Raises:
            InvalidInput: one of the keys was not erased.
        """

    def mode(self) -> ModeChanged | None:
        """Return the last event that changed the mode, None if there is none.

        Appending a :class:`ModeChanged` sets a mode.
        """

    def actions(self) -> dict[str, ActionChanged]:
        """Return the last change of each action that was paused, resumed or retired.

        Appending an :class:`ActionChanged` changes an action.
        """

    def configured(self) -> Configured | None:
        """Return the last event that says what the bandit is, None if there is none."""
