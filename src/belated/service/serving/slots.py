"""The slot of new ids: one for all decisions of a while, so that a commit fills one partition."""

from __future__ import annotations

from collections.abc import Callable

from belated.core.ids import key_of, slot_of

#: Microseconds for which a slot is used: for many commits, and soon all partitions have a share.
WHILE = 1_000_000


class Slots:
    """Draws a slot now and then.

    Args:
        new_id: Makes an id of the time in microseconds since 1970, with a slot at random.

    >>> from belated.core.ids import new_id
    >>> slots = Slots(new_id)
    >>> first = slots.at(1_700_000_000_000_000)
    >>> first == slots.at(1_700_000_000_999_999)
    True
    """

    def __init__(self, new_id: Callable[[int, None], str]) -> None:
        self._new_id = new_id
        self._since = 0
        self._slot: int | None = None

    def at(self, now_us: int) -> int:
        """Return the slot of ids that are made at a time."""
        # A clock may step back.
        if self._slot is None or not 0 <= now_us - self._since < WHILE:
            self._slot, self._since = slot_of(key_of(self._new_id(now_us, None))), now_us
        return self._slot
