"""What a journal cannot do."""

from __future__ import annotations

from collections.abc import Iterable

from belated.exceptions.errors import BelatedError


class JournalError(BelatedError):
    """A journal cannot do what was asked of it."""


class JournalClosed(JournalError, ValueError):
    """The journal was used after it was closed."""


class JournalUnavailable(JournalError, OSError):
    """The journal could not be reached in time: locked, full, or not to be opened.

    Nothing of the call was acknowledged. To try the same call again is safe: an event that is in
    the journal twice counts once.
    """


class JournalReadUnavailable(JournalUnavailable):
    """The journal cannot be reached, but a spool in front of it takes events."""


class SpoolInUse(JournalUnavailable):
    """Another process, or another journal of this one, has the spool open."""


class SpoolNotPermitted(JournalUnavailable):
    """The spool, or its folder, may not be read and written by this user."""


class JournalMismatch(JournalError, ValueError):
    """The journal was made with other settings than those it is opened with."""


class JournalReplaced(JournalError):
    """The file of a journal was removed or replaced while it was open: restart to open it again."""


class NotAJournal(JournalError, ValueError):
    """The file is no journal; it was left as it is."""


class UnsupportedFormat(JournalError, ValueError):
    """The file was written by a newer release; it was left as it is."""


class CorruptJournal(JournalError, ValueError):
    """The file is damaged, or records that were there are missing."""


class NotIndexed(JournalError, LookupError):
    """The log finds nothing by id: ask the owner of the partition, who has folded it."""


class HistoryChanged(JournalError, RuntimeError):
    """Records that were read before are gone from the journal, or others stand in their place.

    Attributes:
        partition: where it was noticed.
        position: of the record that is gone, or another one.
    """

    _arguments = ("partition", "position")

    _what = "is gone from the journal, or another is there: did a failover or a restore lose it?"

    def __init__(self, partition: int, position: int) -> None:
        where = f"the record at partition {partition}, position {position}"
        super().__init__(f"{where} {self._what} Read the journal anew")
        self.partition = partition
        self.position = position


class HistoryTrimmed(HistoryChanged):
    """Records that were asked for have been dropped: begin with the base of the partition."""

    _what = "and all before it have been trimmed, and what they came to is in the base."


class HistoryUndone(HistoryChanged):
    """A record undoes others that were folded: the journal has to be folded anew, without them."""

    _what = "undoes earlier ones."


class OwnerFenced(JournalError, RuntimeError):
    """Another has become the owner since: its snapshots and models count, not these.

    Attributes:
        partition: the partition in question; None for the whole bandit.
    """

    _arguments = ("partition",)

    def __init__(self, partition: int | None) -> None:
        what = "the bandit" if partition is None else f"partition {partition}"
        super().__init__(f"{what} has a new owner; stop, or acquire it again and reload")
        self.partition = partition


class SnapshotConflict(JournalError, LookupError):
    """Pieces to be kept are not in the journal as they were: save the snapshot whole.

    Attributes:
        names: the pieces in question.
    """

    _arguments = ("names",)

    def __init__(self, names: Iterable[str]) -> None:
        self.names = sorted(names)
        super().__init__(
            f"pieces {self.names} are not as this journal last saved or loaded them (another "
            "process may have saved since): save the snapshot again with all its pieces"
        )
