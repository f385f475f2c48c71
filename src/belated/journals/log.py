"""The log of a bandit, to which events are appended and from which records are read by position."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Protocol, Self, runtime_checkable

import msgspec

from belated.core.events import ActionChanged, Configured, Decision, Event, ModeChanged, Record

#: Stored requests of decisions (:mod:`belated.fold.requests`), by index in the events of a call.
Requests = Mapping[int, bytes]


class Tail(NamedTuple):
    """Position and timestamp of a partition's last record; no record has a greater timestamp."""

    position: int
    stamp: int


#: The tail of an empty partition.
EMPTY = Tail(0, 0)


@runtime_checkable
class Log(Protocol):
    """An append-only log of the events of one bandit, in independent partitions.

    Within a partition, positions increase and timestamps (``recorded``) never decrease: if the
    clock steps back, records get the greatest timestamp so far. Positions start at 1 and may have
    gaps, so a difference between positions is not a count. There is no order across partitions.

    Several processes may have the same log open, and append between two calls. A call that raises
    an error may have appended some of its events. Retrying is safe, because a duplicate event
    counts only once.

    :class:`belated.testing.LogContract` tests this contract for any log.
    """

    @property
    def bandit(self) -> str:
        """The name of the bandit."""

    @property
    def partitions(self) -> int:
        """The number of partitions: a power of two, fixed when the log was created."""

    def append(
        self,
        events: Sequence[Event],
        *,
        recorded: Sequence[int] | None = None,
        requests: Requests | None = None,
    ) -> list[int]:
        """Append events, each to the partition of its id (:func:`belated.core.ids.partition_of`).

        When this returns, the events are durable if the log has stable storage. Each partition
        receives all of its events or none.

        Args:
            events: Events, in order within each partition.
            recorded: Timestamps to use instead of the log's clock; adjusted so that none decreases.
            requests: Requests of decisions, by index in ``events``; stored in the same commit as
                the records, and returned only by :meth:`requests`.

        Returns:
            The position of each event in its partition; 0 if it is durable but has no position yet.

        Raises:
            InvalidInput: an item is not an event or belongs to no partition of this log, or a
                request does not belong to a decision.
            JournalUnavailable: nothing was acknowledged; retry.
        """

    def import_records(
        self, records: Iterable[Record], *, requests: Requests | None = None
    ) -> None:
        """Append records of another log with their timestamps.

        Positions and partitions are newly assigned. The partition is determined by the event, as in
        :meth:`append`; for an event that this release cannot read, it is the record's partition
        modulo the number of partitions here. Each call is atomic; import a large log in pages.

        Args:
            records: Records, ordered by timestamp.
            requests: Requests of decisions, by index in ``records``.

        Raises:
            InvalidInput: a timestamp is less than the timestamp of the preceding record; sort the
                records.
        """

    def read(self, partition: int, after: int, limit: int) -> list[Record]:
        """Return up to ``limit`` records after a position, in order; fewer only at the end.

        Every record appended before the call is visible, and no record will appear later at a
        position before the last one returned.

        Raises:
            CorruptEvent: a record was changed after it was written; the message names its position.
            HistoryTrimmed: records after the position were dropped.
        """

    def start(self, partition: int) -> Tail:
        """Return the position and timestamp of the last dropped record, or 0 and 0 if none was."""

    def drop(self, partition: int, limit: int) -> int:
        """Drop up to ``limit`` records up to :meth:`start`.

        Operator actions remain available from the shelf. Call this method repeatedly until it
        returns 0, so that no lock is held for long. See :meth:`CellShelf.rebase`.

        Returns:
            The number of records dropped.
        """

    def requests(self, partition: int, positions: Sequence[int]) -> dict[int, bytes]:
        """Return the stored requests of decisions, by position."""

    def end(self, partition: int) -> int:
        """Return the position of the last record; 0 if there is none."""

    def last_stamp(self, partition: int) -> int:
        """Return the timestamp of the last record, which is the greatest; 0 if there is none."""

    def now(self) -> int:
        """Return the time of the clock that timestamps records, in microseconds since 1970."""

    def close(self) -> None:
        """Close the log; any later call raises :class:`JournalClosed`."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


@runtime_checkable
class CountsDuplicates(Protocol):
    """A log that stores identical events once and counts the duplicates.

    Attributes:
        duplicates: Number of duplicates received since the log was opened.
    """

    duplicates: int


def finds_by_id(log: object) -> bool:
    """Return whether a log or store looks up records by id (``finds_by_id``, True by default)."""
    return bool(getattr(log, "finds_by_id", True))


class Appended(NamedTuple):
    """The result of :meth:`UniqueLog.append_unique`.

    Attributes:
        positions: Position of each event, or of the earlier decision with the same id.
        standing: The earlier decision of each id for which a second decision was rejected.
    """

    positions: list[int]
    standing: dict[str, Decision]


class AppendedAfter(msgspec.Struct, frozen=True, gc=False):
    """The result of :meth:`FollowedLog.append_after`.

    Attributes:
        positions: Positions of the events.
        records: Records of the events if they directly follow the given record; otherwise empty.
    """

    positions: list[int]
    records: list[Record]


@runtime_checkable
class FollowedLog(Protocol):
    """A log that returns appended records, so that a single writer need not read them back."""

    def append_after(
        self, events: Sequence[Event], last: Record, *, requests: Requests | None = None
    ) -> AppendedAfter:
        """Append events to one partition, like :meth:`Log.append`.

        Args:
            events: Events in the same partition as ``last``.
            last: The last record that the caller has read.
            requests: Requests of decisions, by index in ``events``.

        Returns:
            The positions, and the records if ``last`` was the last record of the partition.
            Otherwise, another writer has appended records or the log has lost some; continue to
            read after ``last``.
        """


@runtime_checkable
class WatchedLog(Protocol):
    """A log that finds the partitions with new records in one query."""

    def advanced(self, positions: Mapping[int, int]) -> set[int]:
        """Return the partitions that may have gained or lost records since the given positions.

        Args:
            positions: Position of the last record of a commit, by partition; 0 if there is none.
        """


@runtime_checkable
class UniqueLog(Log, Protocol):
    """A log that looks up records by id.

    Lookups use an index, so their cost does not grow with the log.
    :class:`belated.testing.JournalContract` tests implementations.
    """

    def append_unique(
        self, events: Sequence[Event], ids: Collection[str], requests: Requests | None = None
    ) -> Appended:
        """Append events, except decisions whose id is in ``ids`` and already has a decision.

        If concurrent calls use the same id, one decision is stored and returned to all callers.

        Args:
            events: As for :meth:`append`.
            ids: Ids chosen by callers; generated ids are unique and need no check.
            requests: As for :meth:`append`; the request of a rejected decision is dropped.

        Raises:
            JournalUnavailable: nothing was acknowledged; retry.
        """

    def decisions(self, ids: Sequence[str]) -> dict[str, Decision]:
        """Return the decisions with these ids, by id; unknown ids are omitted.

        If an id has several decisions, the one committed first counts. The cost does not grow with
        the number of other records with that id.
        """

    def records_of(self, ids: Sequence[str], limit: int | None = None) -> list[Record]:
        """Return the records of these ids, sorted by partition and position.

        Args:
            ids: Ids of decisions or subjects.
            limit: Return only the first ``limit`` records per id, in addition to decisions. None
                means all records.

        Raises:
            CorruptEvent: a record was changed after it was written.
        """

    def settlements(self, partition: int) -> list[Record]:
        """Return the most recent :class:`Settled` records of a partition, in order."""

    def undone(self, partition: int) -> list[Record]:
        """Return all :class:`Erased` and :class:`Retracted` records of a partition, in order.

        A fold needs these records before it reads the first record.
        """

    def overwrite(self, keys: Sequence[bytes]) -> int:
        """Overwrite the events of erased decisions, and delete their requests.

        Each event is replaced by an :class:`Overwritten`; position, timestamp and digest are
        unchanged. The operation is idempotent.

        Args:
            keys: Erased keys of the ids, as in :class:`Erased`.

        Returns:
            The number of events overwritten.

        Raises:
            InvalidInput: a key was not erased.
        """

    def mode(self) -> ModeChanged | None:
        """Return the last :class:`ModeChanged` event, or None."""

    def actions(self) -> dict[str, ActionChanged]:
        """Return the last :class:`ActionChanged` event of each changed action, by action."""

    def configured(self) -> Configured | None:
        """Return the last :class:`Configured` event, or None."""
