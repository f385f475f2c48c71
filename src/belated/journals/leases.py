"""Who gets a lease: the rule for stores that have no statement of their own for it."""

from __future__ import annotations


def granted_epoch(holder: str, last: str, epoch: int, until: int, now: int) -> int | None:
    """Return the epoch in which a holder leads from now on; None while another one does.

    Args:
        holder: who asks.
        last: who had the last lease.
        epoch: of that lease.
        until: when it ends, in microseconds since 1970; at that moment it is over.
        now: the time.

    >>> granted_epoch("b", "a", 3, until=10, now=9), granted_epoch("b", "a", 3, until=10, now=10)
    (None, 4)
    >>> granted_epoch("a", "a", 3, until=10, now=99)
    3
    """
    if holder == last:
        return epoch
    return None if now < until else epoch + 1
