"""What may hurt users, though nothing is refused."""

from __future__ import annotations


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


class FallbackWarning(BelatedWarning):
    """The policy could not choose, and the baseline decided instead."""


class HistoryWarning(BelatedWarning):
    """The journal has lost or changed records that were learned from: it was read anew."""


class ScaleWarning(AdviceWarning):
    """Rows are so long or so short that the prior says nothing sensible about them."""


class SnapshotWarning(BelatedWarning):
    """A snapshot was damaged and has been discarded: the journal is read from its beginning."""
