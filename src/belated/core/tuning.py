"""Internal sizes, which affect speed and memory. Only ``exact`` also affects estimates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from belated.core.ids import new_id


@dataclass(frozen=True)
class Tuning:
    """The library's internal constants; only tests need to change them.

    The fault simulator uses small values, so that a short run crosses every boundary.

    Attributes:
        page: number of records read at a time.
        follow: number of records folded per call while a bandit catches up with its journal.
        bulk: minimum number of new records to fold in bulk, with a single fit at the end.
        snapshot_every: number of records between two snapshots of a bandit.
        dropped: number of forgotten decisions that are removed from memory together.
        exact: maximum number of rewards stored as individual rows. Beyond it, the oldest are frozen
            as sums, which changes the estimate by about a hundredth of its standard deviation.
        block: number of rows that are frozen together.
        batch: number of changes that a learner collects before it adds them to its sums; None if
            it depends on the dimension.
        max_unapplied: maximum number of decisions that a decider stores individually until a model
            includes them. Beyond it, the oldest are combined into sums.
        unapplied_block: number of decisions per sum.
        link: number of positions per link of the chain; records are dropped in whole links.
        new_id: generates a decision id from the time in microseconds since 1970 and a slot, which
            is random if None.
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
