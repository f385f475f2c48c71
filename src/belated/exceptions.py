"""Every error and warning of the library, in one tree.

::

    BelatedError
    ├── InvalidInput      (ValueError)    a value that is refused; carries it as ``value``
    │   ├── InvalidConfig                 a file of settings; carries its ``mistakes``
    │   └── CommitTooLarge                more bytes than the log takes at once; carries ``limit``
    ├── UnknownEvent      (ValueError)    from a newer version; carries ``version`` and ``kind``
    ├── CorruptEvent      (ValueError)    bytes that are no event at all
    ├── UnknownHandle     (LookupError)   no such observation, or it was removed
    ├── RewardConflict    (ValueError)    another value was reported under this part and revision
    ├── ReadOnly          (ValueError)    the bandit is closed, or a view of the past
    ├── BanditOff         (RuntimeError)  the bandit's mode is ``off``: it makes no decisions
    ├── ActionsPaused     (RuntimeError)  all offered actions are paused; carries ``actions``
    ├── PolicyFailure     (RuntimeError)  a policy could not choose; carries the ``reason``
    ├── AccessDenied      (PermissionError)
    │   ├── Unauthenticated               no credential that works
    │   ├── Forbidden                     a credential that does not allow this
    │   └── RateLimited                   too many requests; carries ``retry_after``
    ├── UnknownBandit     (LookupError)   the service has no bandit of this name
    ├── ServiceError      (RuntimeError)  a service refused or failed; carries its ``problem``
    │   └── ServiceUnavailable (OSError)  it could not be reached in time: try again
    ├── NotEvaluable      (ValueError)    a log cannot say what was asked of it
    ├── MissingExtra      (ImportError)   an optional dependency is needed; names the pip command
    └── JournalError                      a journal cannot do what was asked
        ├── JournalClosed      (ValueError)  it was used after ``close()``
        ├── JournalUnavailable (OSError)     locked, full, unreachable: try again
        │   ├── JournalReadUnavailable       it accepts events meanwhile, but cannot be read
        │   ├── SpoolInUse                   another process, or journal, has the spool open
        │   └── SpoolNotPermitted            the spool belongs to another user
        ├── JournalMismatch    (ValueError)  it was made with other settings than asked for
        ├── JournalReplaced                  its file was removed or replaced while it was open
        ├── NotAJournal        (ValueError)  the file is something else than a journal
        ├── UnsupportedFormat  (ValueError)  the file was made by a newer release
        ├── CorruptJournal     (ValueError)  the file is damaged, or records are missing
        ├── NotIndexed         (LookupError) the log finds nothing by id
        ├── HistoryChanged     (RuntimeError) records that were folded are gone, or others
        │   ├── HistoryTrimmed                records that were asked for have been dropped
        │   └── HistoryUndone                 a record undoes others that were folded
        ├── OwnerFenced        (RuntimeError) another owns the partition by now
        └── SnapshotConflict   (LookupError) kept pieces are gone; carries their ``names``

    BelatedWarning        (UserWarning)
    ├── AdviceWarning                     something may hurt you; says what to do
    │   ├── DelayWarning                  rewards may be missing for a reason, or for ever
    │   │   └── MissingRewardWarning      only one outcome is reported, or none
    │   ├── DuplicateWarning              many rewards are reported again and again
    │   ├── InterceptWarning              rewards have a level, and rows have no intercept
    │   ├── ScaleWarning                  rows are much too long or too short
    │   └── WindowWarning                 the window is much longer than rewards take
    ├── ClockWarning                      the clock has jumped ahead; stamps go on as if it had not
    ├── ConvergenceWarning                an estimate is finite, but not the optimum
    ├── FallbackWarning                   the policy failed, and the baseline decided
    ├── FitWarning                        a fit in the background failed; it is tried again
    ├── HistoryWarning                    the journal lost or changed records; it is read anew
    └── SnapshotWarning                   a damaged snapshot was discarded; the journal is read anew
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


class BelatedError(Exception):
    """The root of every error the library raises on purpose."""

    #: What its class is called with to make it anew; ``message`` is its text.
    _arguments: tuple[str, ...] = ("message",)
    #: The name under which ``Bandit.issues()`` counts it; empty if it does not.
    issue: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        values = {"message": str(self), **vars(self)}
        return type(self), tuple(values[name] for name in self._arguments)


class InvalidInput(BelatedError, ValueError):
    """A value was refused; nothing was changed.

    Attributes:
        value: the offending value itself.
    """

    _arguments: tuple[str, ...] = ("message", "value")

    def __init__(self, message: str, value: Any = None) -> None:
        super().__init__(message)
        self.value = value


class InvalidConfig(InvalidInput):
    """A file of settings was refused.

    Attributes:
        mistakes: what is wrong in it, each with its place.
    """

    _arguments = ("mistakes",)

    def __init__(self, mistakes: Iterable[str]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("; ".join(self.mistakes), self.mistakes)


class CommitTooLarge(InvalidInput):
    """Events that go out together are too large for the log; nothing was sent.

    Attributes:
        size: Bytes of the commit.
        limit: Bytes of the largest one.
    """

    _arguments = ("size", "limit")

    def __init__(self, size: int, limit: int) -> None:
        message = f"the commit of one partition has {size} bytes; at most {limit} fit"
        cure = "append fewer events in a call, or raise max.message.bytes of the topic"
        super().__init__(f"{message}: {cure}", size)
        self.size = size
        self.limit = limit


class UnknownEvent(BelatedError, ValueError):
    """The bytes hold an event of a version or kind this release does not know.

    The bytes are not damaged: upgrade the reader, or carry them on as they are.

    Attributes:
        version: the version of the codec that wrote them.
        kind: the number of the kind, or None where the version is already unknown.
        place: partition and position in a journal, where it was found in one.
    """

    _arguments = ("version", "kind", "place")

    def __init__(
        self, version: int, kind: object = None, place: tuple[int, int] | None = None
    ) -> None:
        what = f"codec version {version}" if kind is None else f"kind {kind!r}"
        where = "" if place is None else f" in partition {place[0]} at position {place[1]}"
        message = f"unknown event{where} ({what}): written by a newer release; upgrade this one"
        super().__init__(message)
        self.version = version
        self.kind = kind
        self.place = place


class CorruptEvent(BelatedError, ValueError):
    """The bytes are not an event: cut off, or changed after they were written."""


class UnknownHandle(BelatedError, LookupError):
    """No observation is counted under this handle.

    Attributes:
        handle: the handle that was asked for.
    """

    _arguments = ("handle",)

    def __init__(self, handle: int) -> None:
        super().__init__(f"no observation is counted under handle {handle}")
        self.handle = handle


class RewardConflict(BelatedError, ValueError):
    """Another value is known for the same part and revision; nothing was changed.

    Attributes:
        id: of the decision.
        value: that was refused.
        part: of the reward.
        revision: of the part.
    """

    _arguments = ("id", "value", "part", "revision")
    issue = "conflict"

    def __init__(self, id: str, value: float, part: str = "", revision: int = 0) -> None:
        of_part = f", part {part!r}," if part else ""
        super().__init__(
            f"reward {value} for {id!r}{of_part} differs from the stored value at revision"
            f" {revision}; to correct it, send a higher revision"
        )
        self.id = id
        self.value = value
        self.part = part
        self.revision = revision


class ReadOnly(BelatedError, ValueError):
    """The bandit takes no events: it was closed, or shows the past."""


class BanditOff(BelatedError, RuntimeError):
    """The bandit was switched off: it makes no decisions; rewards are accepted."""

    _arguments = ()

    def __init__(self) -> None:
        super().__init__("the bandit is switched off: it makes no decisions until its mode changes")


class ActionsPaused(BelatedError, RuntimeError):
    """Every action that a request offers is paused or retired: nothing was decided.

    Attributes:
        actions: their names.
    """

    _arguments = ("actions",)

    def __init__(self, actions: Iterable[str]) -> None:
        self.actions = tuple(actions)
        names = ", ".join(map(repr, self.actions))
        super().__init__(
            f"all offered actions are paused or retired: {names}; offer another action, "
            "or resume one of these"
        )


class PolicyFailure(BelatedError, RuntimeError):
    """A policy could not choose, or what it chose makes no sense.

    Attributes:
        reason: ``error`` or ``not finite``; short, for a metric.
    """

    _arguments = ("reason", "message")

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class AccessDenied(BelatedError, PermissionError):
    """A service refuses to do this for whoever asks."""


class Unauthenticated(AccessDenied):
    """No API key and no reward token, or none that works."""


class Forbidden(AccessDenied):
    """The API key or reward token works, and does not allow this."""


class RateLimited(AccessDenied):
    """The API key asks too often.

    Attributes:
        retry_after: seconds to wait.
    """

    _arguments = ("message", "retry_after")

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class UnknownBandit(BelatedError, LookupError):
    """The service has no bandit of this name."""


class ServiceError(BelatedError, RuntimeError):
    """A service did not do what was asked of it.

    Attributes:
        problem: what it said (RFC 9457), with its ``status``, ``title`` and ``detail``; None where
            it said nothing.
    """

    _arguments = ("message", "problem")

    def __init__(self, message: str, problem: Any = None) -> None:
        super().__init__(message)
        self.problem = problem


class ServiceUnavailable(ServiceError, OSError):
    """A service could not be reached in time, or could not answer; the call may be repeated.

    Whether the last try was taken is not known. To try the same call again is safe where it names
    its decision.
    """


class NotEvaluable(BelatedError, ValueError):
    """A log cannot say what was asked of it: what was never tried has no value that can be seen."""


class MissingExtra(BelatedError, ImportError):
    """An optional dependency is missing.

    Attributes:
        what: needs it.
        extra: the extra to install, as in ``pip install 'belated[fast]'``.
    """

    _arguments = ("what", "extra")

    def __init__(self, what: str, extra: str) -> None:
        installed = f"pip install 'belated[{extra}]', or in a clone pip install '.[{extra}]'"
        super().__init__(f"{what} needs an extra: {installed}")
        self.what = what
        self.extra = extra


@contextmanager
def extra(what: str, name: str) -> Iterator[None]:
    """Import what an extra installs.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        yield
    except ImportError:
        raise MissingExtra(what, name) from None


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


class BelatedWarning(UserWarning):
    """The root of every warning the library gives."""


class AdviceWarning(BelatedWarning):
    """Something may hurt you, though nothing was refused; the message says what to do."""


class ClockWarning(BelatedWarning):
    """The system's clock has jumped ahead, and records are stamped with the time it should be."""


class ConvergenceWarning(BelatedWarning):
    """The estimate is finite but has not converged; its ``converged`` is False."""


class InterceptWarning(AdviceWarning):
    """Rewards have a level, and the rows have no intercept to say so."""


class DelayWarning(AdviceWarning):
    """Delays depend on the reward, or most rewards do not come: what is learned may mislead."""


class MissingRewardWarning(DelayWarning):
    """Only one outcome is reported, or none: what a missing reward means may have to be said."""


class WindowWarning(AdviceWarning):
    """The window is much longer than rewards take, and delays what is learned of missing ones."""


class DuplicateWarning(AdviceWarning):
    """Many rewards are reported again and again."""


class FitWarning(BelatedWarning):
    """A fit in the background failed; the bandit learns by single steps, and tries again later."""


class FallbackWarning(BelatedWarning):
    """The baseline decided, because the policy failed; or a client took its fallback."""


class HistoryWarning(BelatedWarning):
    """The journal has lost or changed records that were learned from: it was read anew."""


class ScaleWarning(AdviceWarning):
    """Rows are so long or so short that the prior says nothing sensible about them."""


class SnapshotWarning(BelatedWarning):
    """A snapshot was damaged and has been discarded: the journal is read from its beginning."""
