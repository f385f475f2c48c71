"""What is said of an event that was appended, and of a decision."""

from __future__ import annotations

import msgspec

from belated.events import Decision
from belated.ledger.entries import ReportedReward


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """An event is durable; this is what was known of it then.

    Attributes:
        id: of the decision.
        status: ``rewarded``; ``duplicate``: the same was told before; ``revised``: a further part
            or revision; ``late``: after the window, and learned; ``unmatched``: the decision is not
            known yet; ``voided``; ``expired``: after the retention, and not learned; ``activated``;
            ``conflict``: another process reported another value at the same time, and one of
            the two counts; ``accepted``: it is durable, but the journal is unavailable, and what it
            means will be known when that is back.
    """

    id: str
    status: str


class DecisionStatus(msgspec.Struct, frozen=True):
    """All that is known of one decision.

    Attributes:
        id: its id.
        state: dormant, pending, rewarded, defaulted, censored or voided; or unknown.
        decision: as it was made, None if it is not known, or no longer remembered.
        value: what it is learned with, None if it is not.
        late: whether its reward came after the window.
        conflict: whether two rewards or two decisions contradict each other.
        recorded: when the journal took it, in microseconds since 1970.
        due: when its window ends, None if it has none.
        reported: its rewards.
    """

    id: str
    state: str
    decision: Decision | None = None
    value: float | None = None
    late: bool = False
    conflict: bool = False
    recorded: int | None = None
    due: int | None = None
    reported: list[ReportedReward] = []
