"""What the rest of the library needs of a journal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from belated.events import Event, Record
from belated.journals.snapshots import Snapshot


@runtime_checkable
class Journal(Protocol):
    """An append-only store of the facts of one bandit, in partitions that know nothing of others.

    Within a partition records have positions that increase, and stamps (``recorded``) that never
    decrease: a clock that steps back is held at the greatest stamp so far. Positions start at 1 and
    may have gaps. There is no order across partitions.

    Several processes may have the same journal open: between two calls others may append, save or
    identify. A call that raises has changed nothing, or nothing that a second try would not make
    right: the same event twice counts once.

    :class:`belated.testing.JournalContract` holds these sentences as tests, for any journal.
    """

    @property
    def bandit(self) -> str:
        """The name of the bandit whose facts are kept."""

    @property
    def partitions(self) -> int:
        """How many partitions there are: a power of two, fixed when the journal was made."""

    def append(
        self, events: Sequence[Event], *, recorded: Sequence[int] | None = None
    ) -> list[int]:
        """Keep events, each in the partition of its id (:func:`belated.ids.partition_of`).

        When this returns, they are on stable storage, as far as the journal has any. What goes to
        one partition is taken whole or not at all.

        Args:
            events: in the order they are to have within their partitions.
            recorded: the time of each, instead of the journal's clock; held like the clock is.

        Returns:
            The position of each event in its partition; 0 where it is safe but has none yet.

        Raises:
            InvalidInput: something is no event, or of no partition here.
            JournalUnavailable: nothing was acknowledged; try again.
        """

    def carry(self, records: Iterable[Record]) -> None:
        """Take over records of another journal with their stamps.

        Positions are given anew, and partitions too: by the id; for a :class:`Settled` as it says;
        for an event that cannot be read, its record's partition modulo the number here. One call
        is taken whole or not at all: bring a large journal in pages.

        Raises:
            InvalidInput: a stamp is before the one it would follow; sort the records first.
        """

    def read(self, partition: int, after: int, limit: int) -> list[Record]:
        """The first records beyond a position, in order; fewer than ``limit`` only at the end.

        A record that was appended before this call began is there, and no later call will find
        one at a position this one has passed.

        Raises:
            CorruptEvent: a record was changed after it was written; names its place.
        """

    def end(self, partition: int) -> int:
        """The position of the last record, 0 if there is none."""

    def last_stamp(self, partition: int) -> int:
        """The stamp of the last record, which is the greatest; 0 if there is none."""

    def identify(self, identity: dict[str, str]) -> dict[str, str]:
        """Store what the bandit is, if nothing is stored yet.

        Returns:
            What is stored now: of several processes at once, all get that of the first.
        """

    def reidentify(self, identity: dict[str, str]) -> None:
        """Store what the bandit is, instead of what was stored."""

    def save(self, snapshot: Snapshot) -> None:
        """Store a snapshot in place of the last one of its partition, in one step.

        One that is behind the stored one is ignored: another process was further.

        Raises:
            SnapshotConflict: a piece to be kept is not stored as it was; save them all.
            InvalidInput: its position is beyond the end of the partition.
        """

    def load(self, partition: int) -> Snapshot | None:
        """The stored snapshot with all its pieces, None if there is none.

        One that is damaged is removed, with a :class:`SnapshotWarning`: the fold then starts from
        the beginning.
        """

    def close(self) -> None:
        """Let go of whatever is held; any later call raises :class:`JournalClosed`."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
