"""The errors of the library, but for those of a journal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class BelatedError(Exception):
    """The root of every error the library raises on purpose."""

    #: What its class is called with to make it anew; ``message`` is its text.
    _arguments: tuple[str, ...] = ("message",)

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
        super().__init__(f"{what} needs an extra: pip install 'belated[{extra}]'")
        self.what = what
        self.extra = extra
