"""Conversions that come in batches: up to when all that had happened is known.

A nightly job reports the conversions of a day at once. Before it has run, a decision of noon shows
none, however old it is: its age counts up to the last delivery. And what a delivery brings has
happened at some time since the one before.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from belated.fold.times import SILENT

Delivery = Literal["auto", "batches", "single"]

#: Shares of the window. A longer pause divides two deliveries; after a shorter one a delivery is
#: complete.
PAUSE, QUIET = 1 / 50, 1 / 500
#: Deliveries come in batches if there are at least so many of at least so many conversions in the
#: mean, and take no more than this share of the time.
LEAST, SIZE, SHARE = 2, 10, 0.05
#: After the first delivery the next is waited for, for so many times as long as it took to make the
#: decisions of the first.
PATIENCE = 2.0


class Deliveries(NamedTuple):
    """The deliveries in a list of conversions, in order.

    Attributes:
        starts: the time of the first conversion of each.
        ends: that of the last.
        sizes: conversions in each.
        made_in: the time in which the decisions of the first delivery were made.
    """

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    sizes: NDArray[np.int64]
    made_in: int

    @property
    def are_batches(self) -> bool:
        """Whether conversions come in batches.

        Where they come one by one, groups of many that leave pauses take much of the time.
        """
        if len(self.sizes) < LEAST or self.sizes.mean() < SIZE:
            return False
        return self._taken <= SHARE * int(self.ends[-1] - self.starts[0])

    def is_first_batch(self, now: int) -> bool:
        """Whether there is one delivery, and it looks like a batch that others will follow.

        Where conversions come one by one, the first take about as long as their decisions did.
        """
        if len(self.sizes) != 1 or self.sizes[0] < SIZE or not self.made_in:
            return False
        is_awaited = now - int(self.ends[0]) <= PATIENCE * self.made_in
        return is_awaited and self._taken <= SHARE * self.made_in

    @property
    def _taken(self) -> int:
        return int((self.ends - self.starts).sum())


def deliveries(
    told: NDArray[np.int64], window: int, began: NDArray[np.int64] | None = None
) -> Deliveries:
    """Return the deliveries among conversions.

    Args:
        told: when each was reported, in order.
        window: in the same unit.
        began: when the decision of each took effect, if one delivery is to be enough.

    >>> day = np.repeat([100, 200, 300], 20)
    >>> found = deliveries(day, 1_000)
    >>> found.ends, found.are_batches
    (array([100, 200, 300]), True)
    >>> deliveries(np.arange(0, 1_000, 7), 1_000).are_batches
    False
    >>> first = deliveries(day[:20], 1_000, began=np.arange(0, 100, 5))
    >>> first.is_first_batch(now=120), first.is_first_batch(now=400)  # there was no second one
    (True, False)
    """
    if not len(told):
        return Deliveries(told, told, told, 0)
    cuts = np.flatnonzero(np.diff(told) > PAUSE * window) + 1
    first, stop = np.append(0, cuts), np.append(cuts, len(told))
    made_in = 0 if began is None else int(np.ptp(began[: stop[0]]))
    return Deliveries(told[first], told[stop - 1], stop - first, made_in)


class AgeClock:
    """Up to when ages are measured: up to now, or to the last complete delivery of a batch.

    Args:
        window: in microseconds.
        delivery: whether conversions come in batches; "auto" finds out.

    Attributes:
        now: the stamp of the latest record.
        in_batches: whether conversions come in batches, as far as is known.

    >>> clock = AgeClock(1_000, "batches")
    >>> clock.now = 250
    >>> found = clock.look(np.repeat([100, 200], 20), np.arange(40))
    >>> clock.until
    200
    """

    def __init__(self, window: int, delivery: Delivery) -> None:
        self.now = 0
        self.in_batches = delivery == "batches"
        self._window, self._delivery = window, delivery
        self._delivered = 0
        self._last_told = SILENT

    @property
    def until(self) -> int:
        """Ages are measured up to here."""
        return self._delivered if self.in_batches else self.now

    @property
    def has_delivered(self) -> bool:
        """Whether a delivery is complete that does not count yet."""
        return self.in_batches and self._last_told > self._delivered and self._is_quiet

    @property
    def _is_quiet(self) -> bool:
        return self.now - self._last_told > QUIET * self._window

    def told(self, at: int) -> None:
        """A conversion was reported."""
        self._last_told = max(self._last_told, at)

    def look(self, told: NDArray[np.int64], began: NDArray[np.int64]) -> Deliveries | None:
        """Find out when conversions are delivered; returns the deliveries if in batches.

        Args:
            told: when each conversion was reported, in order.
            began: when its decision took effect.
        """
        found = deliveries(told, self._window, began)
        if self._delivery == "auto":
            self.in_batches = found.are_batches or found.is_first_batch(self.now)
        if not self.in_batches:
            return None
        ends = found.ends.tolist()
        self._last_told = ends[-1] if ends else SILENT
        complete = ends if self._is_quiet else ends[:-1]
        self._delivered = complete[-1] if complete else 0
        return found
