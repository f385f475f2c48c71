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
    ├── HistoryWarning                    the journal lost or changed records; it is read anew
    └── SnapshotWarning                   a damaged snapshot was discarded; the journal is read anew
"""

from belated.exceptions.errors import (
    AccessDenied,
    BanditOff,
    BelatedError,
    CommitTooLarge,
    CorruptEvent,
    Forbidden,
    InvalidConfig,
    InvalidInput,
    MissingExtra,
    NotEvaluable,
    PolicyFailure,
    RateLimited,
    ReadOnly,
    RewardConflict,
    ServiceError,
    ServiceUnavailable,
    Unauthenticated,
    UnknownBandit,
    UnknownEvent,
    UnknownHandle,
)
from belated.exceptions.journal_errors import (
    CorruptJournal,
    HistoryChanged,
    HistoryTrimmed,
    HistoryUndone,
    JournalClosed,
    JournalError,
    JournalMismatch,
    JournalReadUnavailable,
    JournalReplaced,
    JournalUnavailable,
    NotAJournal,
    NotIndexed,
    OwnerFenced,
    SnapshotConflict,
    SpoolInUse,
    SpoolNotPermitted,
    UnsupportedFormat,
)
from belated.exceptions.warnings import (
    AdviceWarning,
    BelatedWarning,
    ClockWarning,
    ConvergenceWarning,
    DelayWarning,
    DuplicateWarning,
    FallbackWarning,
    HistoryWarning,
    InterceptWarning,
    MissingRewardWarning,
    ScaleWarning,
    SnapshotWarning,
    WindowWarning,
)

__all__ = [
    "AccessDenied",
    "AdviceWarning",
    "BanditOff",
    "BelatedError",
    "BelatedWarning",
    "ClockWarning",
    "CommitTooLarge",
    "ConvergenceWarning",
    "CorruptEvent",
    "CorruptJournal",
    "DelayWarning",
    "DuplicateWarning",
    "FallbackWarning",
    "Forbidden",
    "HistoryChanged",
    "HistoryTrimmed",
    "HistoryUndone",
    "HistoryWarning",
    "InterceptWarning",
    "InvalidConfig",
    "InvalidInput",
    "JournalClosed",
    "JournalError",
    "JournalMismatch",
    "JournalReadUnavailable",
    "JournalReplaced",
    "JournalUnavailable",
    "MissingExtra",
    "MissingRewardWarning",
    "NotAJournal",
    "NotEvaluable",
    "NotIndexed",
    "OwnerFenced",
    "PolicyFailure",
    "RateLimited",
    "ReadOnly",
    "RewardConflict",
    "ScaleWarning",
    "ServiceError",
    "ServiceUnavailable",
    "SnapshotConflict",
    "SnapshotWarning",
    "SpoolInUse",
    "SpoolNotPermitted",
    "Unauthenticated",
    "UnknownBandit",
    "UnknownEvent",
    "UnknownHandle",
    "UnsupportedFormat",
    "WindowWarning",
]

for _name in __all__:  # the names under which users catch them, also in a traceback
    globals()[_name].__module__ = __name__
