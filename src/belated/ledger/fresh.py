"""The decisions of the last moments, as the objects they came as.

Columns are small but slow to fill one by one: a decision waits here, and many are put away at once.
Here is only what is plain: active, in order, due in the future, with one reward at most, in time.
"""

from __future__ import annotations

import msgspec

from belated.events import Decision
from belated.ledger.columns import NONE
from belated.ledger.entries import State

#: How many wait before they are put away.
MOST = 256


class Fresh(msgspec.Struct, gc=False):
    """One of them, as the columns will have it.

    >>> import numpy as np
    >>> x = np.array([0.5, 1.0], dtype=np.float32)
    >>> Fresh(0, bytes(16), Decision("a1", 5, "blue", 0, x, 0.2, 1.0, 7), 6, 1).state.name
    'PENDING'
    """

    number: int
    key: bytes
    decision: Decision
    recorded: int
    position: int
    state: State = State.PENDING
    value: float = 0.0
    told_recorded: int = NONE
    told_at: int = 0
