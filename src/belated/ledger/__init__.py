"""The join: from the records of a partition to what each decision has come to.

``entries`` are the rules, ``ledger`` applies them to one record at a time; ``columns``, ``index``
and ``parked`` are what it remembers.
"""

from belated.ledger.changes import Changes
from belated.ledger.entries import Entry, Facts, State, Told, Verdict, judge
from belated.ledger.ledger import Ledger

__all__ = ["Changes", "Entry", "Facts", "Ledger", "State", "Told", "Verdict", "judge"]
