"""Internal sizes. They affect speed and memory; only ``exact`` affects what is learned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from belated.core.ids import new_id


@dataclass(frozen=True)
class Tuning:
    """The library's internal constants; only tests need to change them.

    The fault simulator uses small values, so that a short run crosses every boundary.

    Attributes:
        page: records read at a time.
        follow: records folded in one call while a bandit is behind its journal.
        bulk: number of new records from which they are folded in bulk, with one fit at the end.
        snapshot_every: records between two snapshots of a bandit.
        dropped: number of forgotten decisions that are removed from memory together.
        exact: rewards that are learned row by row; beyond it the oldest are frozen as sums, and
            the estimate is off by about a hundredth of its standard deviation.
        block: rows that are frozen together.
        batch: changes that a learner collects before it adds them to its sums; None: chosen by
            the dimension.
        max_unapplied: durable decisions that a decider counts one by one.
        unapplied_block: size of the blocks in which it sums decisions beyond those.
        link: positions per link of the chain; records are dropped by whole links.
        new_id: generates a decision id from the time in microseconds since 1970 and a slot; a slot
            of None means a random one.
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
