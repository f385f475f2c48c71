"""Whether two ledgers of the same records hold the same: in columns, so that it takes no time."""

from __future__ import annotations

import numpy as np

from belated.fold.ledger import Ledger
from belated.model.kernels.pages import CONFLICT, FORGOTTEN, LATE


def same_entries(one: Ledger, other: Ledger) -> bool:
    """Whether every decision has the same state, time, flags and value in both.

    Both have folded the same records, so that decisions have the same numbers. This is what their
    digests say, some hundred times sooner; that the same were forgotten is compared, keys are not.
    """
    if one.counts != other.counts or (one._forgotten_digest - other._forgotten_digest) % (1 << 128):
        return False
    base = max(one._table.base, other._table.base)  # what is before was forgotten
    if one._table.next != other._table.next:
        return False
    for column in ("state", "position", "at", "value", "flags"):
        mine, theirs = (
            ledger._table.column(column)[base - ledger._table.base :] for ledger in (one, other)
        )
        if column == "flags":
            seen = LATE | CONFLICT | FORGOTTEN
            mine, theirs = mine & seen, theirs & seen
        if not np.array_equal(mine, theirs, equal_nan=column == "value"):
            return False
    return True
