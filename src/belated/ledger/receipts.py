"""What is said of an event that was appended."""

from __future__ import annotations

import msgspec


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
