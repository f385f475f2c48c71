"""The decisions of the last moments, each an object of its own.

Columns are small but slow to fill one by one: a decision waits here, and many are put away at once.
Here is only what is plain: active, in order, due in the future, with one reward at most, in time.
"""

from __future__ import annotations

import msgspec

from belated.ledger.columns import NONE
from belated.ledger.entries import State


class RecentEntry(msgspec.Struct, gc=False):
    """One of them, as the columns will have it.

    >>> RecentEntry(number=0, recorded=6, position=1, at=5, crc=99).state.name
    'PENDING'
    """

    number: int
    recorded: int
    position: int
    at: int
    crc: int
    state: State = State.PENDING
    value: float = 0.0
    told_recorded: int = NONE
    told_at: int = 0
