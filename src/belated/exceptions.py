"""Every error and warning of the library, in one tree.

::

    BelatedError
    ├── InvalidInput      (ValueError)    a value that is refused; carries it as ``value``
    ├── UnknownEvent      (ValueError)    from a newer version; carries ``version`` and ``kind``
    ├── CorruptEvent      (ValueError)    bytes that are no event at all
    ├── UnknownHandle     (LookupError)   no such observation, or it was removed
    └── MissingExtra      (ImportError)   an optional dependency is needed; names the pip command

    BelatedWarning        (UserWarning)
    ├── ConvergenceWarning                an estimate is finite, but not the optimum
    ├── DelayWarning                      rewards may be missing for a reason, or for ever
    ├── InterceptWarning                  0/1 rewards are learned as Gaussian without an intercept
    └── ScaleWarning                      the prior says nothing sensible about rows of this size
"""

from __future__ import annotations

from typing import Any


class BelatedError(Exception):
    """The root of every error the library raises on purpose."""


class InvalidInput(BelatedError, ValueError):
    """A value was refused; nothing was changed.

    Attributes:
        value: the offending value itself.
    """

    def __init__(self, message: str, value: Any = None) -> None:
        super().__init__(message)
        self.value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.value)


class UnknownEvent(BelatedError, ValueError):
    """The bytes hold an event of a version or kind this release does not know.

    The bytes are not damaged: upgrade the reader, or carry them on as they are.

    Attributes:
        version: the version of the codec that wrote them.
        kind: the number of the kind, or None where the version is already unknown.
    """

    def __init__(self, version: int, kind: object = None) -> None:
        what = f"codec version {version}" if kind is None else f"kind {kind!r}"
        super().__init__(f"unknown event ({what}): written by a newer release; upgrade this one")
        self.version = version
        self.kind = kind

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.version, self.kind)


class CorruptEvent(BelatedError, ValueError):
    """The bytes are not an event: cut off, or changed after they were written."""


class UnknownHandle(BelatedError, LookupError):
    """No observation is counted under this handle.

    Attributes:
        handle: the handle that was asked for.
    """

    def __init__(self, handle: int) -> None:
        super().__init__(f"no observation is counted under handle {handle}")
        self.handle = handle

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.handle,)


class MissingExtra(BelatedError, ImportError):
    """An optional dependency is missing.

    Attributes:
        what: needs it.
        extra: the extra to install, as in ``pip install 'belated[fast]'``.
    """

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an extra: pip install 'belated[{extra}]'")
        self.what = what
        self.extra = extra

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.what, self.extra)


class BelatedWarning(UserWarning):
    """The root of every warning the library gives."""


class ConvergenceWarning(BelatedWarning):
    """The estimate is finite but has not converged; its ``converged`` is False."""


class InterceptWarning(BelatedWarning):
    """Rewards of 0 and 1 are learned as Gaussian from rows that have no intercept."""


class DelayWarning(BelatedWarning):
    """Delays depend on the reward, or most rewards do not come: what is learned may mislead."""


class ScaleWarning(BelatedWarning):
    """Rows are so long or so short that the prior says nothing sensible about them."""
