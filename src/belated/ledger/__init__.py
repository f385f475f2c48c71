"""The join: from the records of a partition to what each decision has come to.

``entries`` are the rules. The ``ledger`` reads records, keeps what is known of each decision and
judges it by them; ``table``, ``index`` and ``unmatched`` are its memory. It tells a ``listener``
what has changed. ``decision_history`` is a ledger for one decision only,
``receipts`` is what is said of an event, and ``requests`` what lies beside a decision's record:
what it was chosen from.
"""

from belated.ledger.decision_history import DecisionHistory
from belated.ledger.entries import DecisionStatus, Facts, ReportedReward, State, Verdict, judge
from belated.ledger.ledger import Ledger
from belated.ledger.listener import LedgerListener, NullListener
from belated.ledger.requests import KeptRequest

__all__ = [
    "DecisionHistory",
    "DecisionStatus",
    "Facts",
    "KeptRequest",
    "Ledger",
    "LedgerListener",
    "NullListener",
    "ReportedReward",
    "State",
    "Verdict",
    "judge",
]
