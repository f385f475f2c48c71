"""What is said of an event that was appended."""

from __future__ import annotations

from typing import Any

import msgspec

from belated.core.results import Result


class Receipt(msgspec.Struct, Result, frozen=True, gc=False):
    """An event is durable; this is what was known of it then.

    Learned from:

    * ``rewarded``: the first reward of its decision;
    * ``late``: the same, after the window;
    * ``revised``: a further part of the reward, or a higher revision of a part;
    * ``credited``: a reward of a subject, to one of its decisions.

    Not learned from again:

    * ``duplicate``: the same was reported before;
    * ``superseded``: a higher revision of this part is known;
    * ``conflict``: another value was committed before for this part and revision. ``observe``
      raises instead if it sees that in time; ``observe_many`` does not append it.

    Never learned from:

    * ``voided``: the decision was never carried out, or this event says so;
    * ``expired``: it came after the retention;
    * ``over_limit``: the decision has 64 parts already;
    * ``erased``: the decision was erased, with all that comes under its id;
    * ``retracted``: what its reporter says at this time was retracted.

    Not known yet:

    * ``unmatched``: the decision is not known yet, or the subject has none to which the reward can
      be credited; the event counts when it comes;
    * ``accepted``: the journal is unavailable, or this is a client of the service: what it means is
      known when the event was folded.

    And ``activated``: the window of the decision starts.

    Attributes:
        id: Decision id; of a reward of a subject, the id of its event.
        status: One of the above.

    >>> Receipt("order-7", "rewarded").to_dict()
    {'id': 'order-7', 'status': 'rewarded'}
    """

    id: str
    status: str

    def to_dict(self) -> dict[str, Any]:
        """Return the receipt as plain data."""
        return {"id": self.id, "status": self.status}
