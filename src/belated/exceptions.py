"""All errors and warnings of the library.

::

    BelatedError
    ├── InvalidInput      (ValueError)    a value was rejected; carries the ``value``
    │   ├── InvalidConfig                 a configuration file was rejected; carries ``mistakes``
    │   └── CommitTooLarge                a commit is too large for the log; carries ``limit``
    ├── UnknownEvent      (ValueError)    from a newer release; carries ``version`` and ``kind``
    ├── CorruptEvent      (ValueError)    the bytes are not an event
    ├── UnknownHandle     (LookupError)   no such observation, or it was removed
    ├── RewardConflict    (ValueError)    a different value is recorded for this part and revision
    ├── ReadOnly          (ValueError)    the bandit is closed, or a historical view
    ├── BanditOff         (RuntimeError)  the bandit's mode is ``off``: it makes no decisions
    ├── ActionsPaused     (RuntimeError)  all offered actions are paused; carries ``actions``
    ├── PolicyFailure     (RuntimeError)  a policy failed to choose; carries the ``reason``
    ├── AccessDenied      (PermissionError)
    │   ├── Unauthenticated               the credential is missing or invalid
    │   ├── Forbidden                     the credential does not allow this request
    │   └── RateLimited                   too many requests; carries ``retry_after``
    ├── UnknownBandit     (LookupError)   the service has no bandit with this name
    ├── ServiceError      (RuntimeError)  a service refused or failed; carries the ``problem``
    │   └── ServiceUnavailable (OSError)  a service could not be reached in time: retry
    ├── NotEvaluable      (ValueError)    a log has too little data to answer the question
    ├── MissingExtra      (ImportError)   an optional dependency is missing; names the pip command
    └── JournalError                      a journal operation failed
        ├── JournalClosed      (ValueError)  the journal was used after ``close()``
        ├── JournalUnavailable (OSError)     the journal is locked, full or unreachable: retry
        │   ├── JournalReadUnavailable       the journal cannot be read, but accepts events
        │   ├── SpoolInUse                   another process or journal has the spool open
        │   └── SpoolNotPermitted            the spool belongs to another user
        ├── JournalMismatch    (ValueError)  the journal was created with different settings
        ├── JournalReplaced                  the open journal file was removed or replaced
        ├── NotAJournal        (ValueError)  the file is not a journal
        ├── UnsupportedFormat  (ValueError)  the file was written by a newer release
        ├── CorruptJournal     (ValueError)  the file is damaged, or records are missing
        ├── NotIndexed         (LookupError) the log has no index by id
        ├── HistoryChanged     (RuntimeError) records that were folded are missing or changed
        │   ├── HistoryTrimmed                the requested records have been trimmed
        │   └── HistoryUndone                 a record retracts records that were folded
        ├── OwnerFenced        (RuntimeError) another process now owns the partition
        └── SnapshotConflict   (LookupError) snapshot pieces are missing; carries their ``names``

    BelatedWarning        (UserWarning)
    ├── AdviceWarning                     a likely mistake; says what to do
    │   ├── DelayWarning                  missing rewards may bias what is learned
    │   │   └── MissingRewardWarning      only one kind of outcome is reported, or none
    │   ├── DuplicateWarning              many rewards are reported repeatedly
    │   ├── InterceptWarning              the mean reward is not zero, but rows have no intercept
    │   ├── ScaleWarning                  row norms are much too large or too small
    │   └── WindowWarning                 the window is much longer than the delays
    ├── ClockWarning                      the clock jumped ahead; timestamps ignore the jump
    ├── ConvergenceWarning                an estimate is finite, but did not converge
    ├── FallbackWarning                   the policy failed, and the baseline decided
    ├── FitWarning                        a background fit failed; it will be retried
    ├── HistoryWarning                    the journal lost or changed records; it is reread
    └── SnapshotWarning                   a damaged snapshot was discarded; the journal is reread
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


class BelatedError(Exception):
    """Base class of all errors that the library raises deliberately."""

    #: The constructor's arguments, for pickling; ``message`` is the text of the error.
    _arguments: tuple[str, ...] = ("message",)
    #: The name under which ``Bandit.issues()`` counts the error; empty if it is not counted.
    issue: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        values = {"message": str(self), **vars(self)}
        return type(self), tuple(values[name] for name in self._arguments)


class InvalidInput(BelatedError, ValueError):
    """A value was rejected; nothing was changed.

    Attributes:
        value: the offending value.
    """

    _arguments: tuple[str, ...] = ("message", "value")

    def __init__(self, message: str, value: Any = None) -> None:
        super().__init__(message)
        self.value = value


class InvalidConfig(InvalidInput):
    """A configuration file was rejected.

    Attributes:
        mistakes: the errors, each with its location in the file.
    """

    _arguments = ("mistakes",)

    def __init__(self, mistakes: Iterable[str]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("; ".join(self.mistakes), self.mistakes)


class CommitTooLarge(InvalidInput):
    """A commit is larger than the log accepts; nothing was sent.

    Attributes:
        size: size of the commit, in bytes.
        limit: maximum size, in bytes.
    """

    _arguments = ("size", "limit")

    def __init__(self, size: int, limit: int) -> None:
        message = f"the commit of one partition has {size} bytes, but at most {limit} are allowed"
        remedy = "append fewer events per call, or increase the topic's max.message.bytes"
        super().__init__(f"{message}: {remedy}", size)
        self.size = size
        self.limit = limit


class UnknownEvent(BelatedError, ValueError):
    """An event has a codec version or a kind that this release does not support.

    The event is not damaged. Upgrade the reader, or pass the bytes on unchanged.

    Attributes:
        version: version of the codec that wrote the event.
        kind: number of the event's kind, or None if the version is unknown.
        place: partition and position of the event, if it was read from a journal.
    """

    _arguments = ("version", "kind", "place")

    def __init__(
        self, version: int, kind: object = None, place: tuple[int, int] | None = None
    ) -> None:
        detail = f"codec version {version}" if kind is None else f"kind {kind!r}"
        where = "" if place is None else f" in partition {place[0]} at position {place[1]}"
        message = f"unknown event{where} ({detail}), written by a newer release"
        super().__init__(f"{message}: upgrade belated to read it")
        self.version = version
        self.kind = kind
        self.place = place


class CorruptEvent(BelatedError, ValueError):
    """The bytes are not an event: they were truncated, or changed after they were written."""


class UnknownHandle(BelatedError, LookupError):
    """There is no observation with this handle.

    Attributes:
        handle: the unknown handle.
    """

    _arguments = ("handle",)

    def __init__(self, handle: int) -> None:
        super().__init__(f"there is no observation with handle {handle}")
        self.handle = handle


class RewardConflict(BelatedError, ValueError):
    """A different value is recorded for the same part and revision; nothing was changed.

    Attributes:
        id: the decision id.
        value: the value that was rejected.
        part: the part of the reward.
        revision: the revision of the part.
    """

    _arguments = ("id", "value", "part", "revision")
    issue = "conflict"

    def __init__(self, id: str, value: float, part: str = "", revision: int = 0) -> None:
        of_part = f", part {part!r}," if part else ""
        super().__init__(
            f"reward {value} for {id!r}{of_part} differs from the stored value at revision"
            f" {revision}: to correct it, send a higher revision"
        )
        self.id = id
        self.value = value
        self.part = part
        self.revision = revision


class ReadOnly(BelatedError, ValueError):
    """The bandit accepts no events: it is closed, or a historical view."""


class BanditOff(BelatedError, RuntimeError):
    """The bandit is switched off: it makes no decisions, but accepts rewards."""

    _arguments = ()

    def __init__(self) -> None:
        super().__init__("the bandit is switched off: it makes no decisions until its mode changes")


class ActionsPaused(BelatedError, RuntimeError):
    """All actions offered by a request are paused or retired; no decision was made.

    Attributes:
        actions: the names of the actions.
    """

    _arguments = ("actions",)

    def __init__(self, actions: Iterable[str]) -> None:
        self.actions = tuple(actions)
        names = ", ".join(map(repr, self.actions))
        super().__init__(
            f"all offered actions are paused or retired ({names}): offer another action, "
            "or resume one of these"
        )


class PolicyFailure(BelatedError, RuntimeError):
    """A policy raised an error or returned an invalid choice.

    Attributes:
        reason: ``error`` or ``not finite``, for use as a metric label.
    """

    _arguments = ("reason", "message")

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class AccessDenied(BelatedError, PermissionError):
    """A service refused a request because of its credential."""


class Unauthenticated(AccessDenied):
    """The request has no valid API key or reward token."""


class Forbidden(AccessDenied):
    """The API key or reward token is valid, but does not allow this request."""


class RateLimited(AccessDenied):
    """Too many requests were sent with this API key.

    Attributes:
        retry_after: seconds to wait.
    """

    _arguments = ("message", "retry_after")

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class UnknownBandit(BelatedError, LookupError):
    """The service has no bandit with this name."""


class ServiceError(BelatedError, RuntimeError):
    """A service refused a request or failed.

    Attributes:
        problem: problem details from the response (RFC 9457): ``status``, ``title`` and ``detail``;
            None if the response has none.
    """

    _arguments = ("message", "problem")

    def __init__(self, message: str, problem: Any = None) -> None:
        super().__init__(message)
        self.problem = problem


class ServiceUnavailable(ServiceError, OSError):
    """A service could not be reached in time, or could not respond; retry the call.

    The last attempt may have taken effect. Retrying is safe if the call includes a decision id.
    """


class NotEvaluable(BelatedError, ValueError):
    """A log has too little data for an estimate, for example because an action was never chosen."""


class MissingExtra(BelatedError, ImportError):
    """An optional dependency is missing.

    Attributes:
        what: the feature that requires the dependency.
        extra: the extra to install, as in ``pip install 'belated[fast]'``.
    """

    _arguments = ("what", "extra")

    def __init__(self, what: str, extra: str) -> None:
        command = f"pip install 'belated[{extra}]', or in a clone pip install '.[{extra}]'"
        super().__init__(f"{what} needs an extra: {command}")
        self.what = what
        self.extra = extra


@contextmanager
def extra(what: str, name: str) -> Iterator[None]:
    """Raise MissingExtra if an import in the ``with`` block fails.

    Args:
        what: the feature that requires the extra.
        name: name of the extra.
    """
    try:
        yield
    except ImportError:
        raise MissingExtra(what, name) from None


class JournalError(BelatedError):
    """A journal operation failed."""


class JournalClosed(JournalError, ValueError):
    """The journal was used after it was closed."""


class JournalUnavailable(JournalError, OSError):
    """The journal is locked, full or unreachable.

    The call was not acknowledged. Retrying is safe, because an event that is in the journal twice
    counts only once.
    """


class JournalReadUnavailable(JournalUnavailable):
    """The journal is unreachable, but a spool in front of it accepts events."""


class SpoolInUse(JournalUnavailable):
    """Another process, or another journal in this process, has the spool open."""


class SpoolNotPermitted(JournalUnavailable):
    """This user has no permission to read and write the spool or its folder."""


class JournalMismatch(JournalError, ValueError):
    """The journal was created with settings that differ from those it is opened with."""


class JournalReplaced(JournalError):
    """A journal's file was removed or replaced while it was open; restart the process."""


class NotAJournal(JournalError, ValueError):
    """The file is not a journal; it was not changed."""


class UnsupportedFormat(JournalError, ValueError):
    """The file was written by a newer release; it was not changed."""


class CorruptJournal(JournalError, ValueError):
    """The file is damaged, or records are missing."""


class NotIndexed(JournalError, LookupError):
    """The log has no index by id; query the process that has folded the partition."""


class HistoryChanged(JournalError, RuntimeError):
    """Records that were read earlier have been removed from the journal or replaced.

    Attributes:
        partition: the partition.
        position: position of the missing or replaced record.
    """

    _arguments = ("partition", "position")

    _what = "is missing or was replaced: did a failover or a restore lose it?"

    def __init__(self, partition: int, position: int) -> None:
        where = f"the record at partition {partition}, position {position}"
        super().__init__(f"{where} {self._what} Read the journal again")
        self.partition = partition
        self.position = position


class HistoryTrimmed(HistoryChanged):
    """The requested records have been trimmed; start from the partition's base."""

    _what = "and all earlier records have been trimmed; the base contains their outcomes."


class HistoryUndone(HistoryChanged):
    """A record retracts records that were folded; fold the journal again without them."""

    _what = "retracts earlier records."


class OwnerFenced(JournalError, RuntimeError):
    """Another process now owns the partition or bandit; this process may not save or publish.

    Attributes:
        partition: the partition; None for the whole bandit.
    """

    _arguments = ("partition",)

    def __init__(self, partition: int | None) -> None:
        subject = "the bandit" if partition is None else f"partition {partition}"
        super().__init__(f"{subject} has a new owner: stop, or acquire it again and reload")
        self.partition = partition


class SnapshotConflict(JournalError, LookupError):
    """Pieces that a snapshot reuses have changed in the journal; save the whole snapshot.

    Attributes:
        names: names of the pieces.
    """

    _arguments = ("names",)

    def __init__(self, names: Iterable[str]) -> None:
        self.names = sorted(names)
        super().__init__(
            f"pieces {self.names} have changed since this journal last saved or loaded them "
            "(another process may have saved): save the snapshot again with all its pieces"
        )


class BelatedWarning(UserWarning):
    """Base class of all warnings that the library issues."""


class AdviceWarning(BelatedWarning):
    """The data suggests a mistake, although nothing was rejected; the message says what to do."""


class ClockWarning(BelatedWarning):
    """The system clock jumped ahead; timestamps of records ignore the jump."""


class ConvergenceWarning(BelatedWarning):
    """The estimate is finite but has not converged; its ``converged`` is False."""


class InterceptWarning(AdviceWarning):
    """The mean reward is not zero, but the rows have no intercept to represent it."""


class DelayWarning(AdviceWarning):
    """Delays depend on the reward, or most rewards never arrive, so estimates may be biased."""


class MissingRewardWarning(DelayWarning):
    """Only one kind of outcome is reported, or none; check the bandit's `rewards` setting."""


class WindowWarning(AdviceWarning):
    """The window is much longer than the delays, so learning from missing rewards is slow."""


class DuplicateWarning(AdviceWarning):
    """Many rewards are reported repeatedly."""


class FitWarning(BelatedWarning):
    """A background fit failed; each reward updates the model by one step until a retry succeeds."""


class FallbackWarning(BelatedWarning):
    """The baseline decided because the policy failed, or a client used its fallback."""


class HistoryWarning(BelatedWarning):
    """Learned records are missing or changed, so the state was rebuilt from the journal."""


class ScaleWarning(AdviceWarning):
    """Row norms are far too large or too small for the prior."""


class SnapshotWarning(BelatedWarning):
    """A damaged snapshot was discarded; the journal is read from the beginning."""
