"""Sizes that change speed and memory; but for ``exact``, never what is decided or learned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from belated.core.ids import new_id


@dataclass(frozen=True)
class Tuning:
    """The library's own constants in one value: nobody needs to change them but tests.

    The fault simulator draws them small, so that every boundary is crossed in a short run.

    Attributes:
        page: records read at a time.
        follow: records folded in one call while a bandit is behind its journal.
        bulk: from so many new records on they are folded in bulk, with one fit at the end.
        snapshot_every: records folded after which a bandit saves a snapshot.
        dropped: forgotten decisions that leave memory together.
        exact: rewards that are learned row by row; beyond it the oldest are frozen as sums, and
            the estimate is off by about a hundredth of its standard deviation.
        block: rows that are frozen together.
        batch: changes that wait before a learner adds them to its sums; None: by the dimension.
        max_unapplied: durable decisions that a decider counts one by one.
        unapplied_block: decisions beyond those that are summed together.
        link: positions of a link of the chain; records are dropped by whole links.
        new_id: makes a decision id of the time in microseconds since 1970, and of a slot if it is
            not to be drawn.
    """

    page: int = 10_000
    follow: int = 500
    bulk: int = 1_000
    snapshot_every: int = 100_000
    dropped: int = 1_024
    exact: int = 100_000
    block: int = 8_192
    batch: int | None = None
    max_unapplied: int = 20_000
    unapplied_block: int = 1_000
    link: int = 1_024
    new_id: Callable[[int, int | None], str] = field(default_factory=lambda: new_id)


USUAL = Tuning()
