"""Receipts of appended events."""

from __future__ import annotations

from typing import Any

import msgspec

from belated.core.results import Result


class Receipt(msgspec.Struct, Result, frozen=True, gc=False):
    """The receipt of a durable event, with its status as known when it was appended.

    The event is learned from:

    * ``rewarded``: it is the first reward of its decision;
    * ``late``: it is the first reward of its decision and arrived after the window;
    * ``revised``: it is a further part of the reward, or a higher revision of a part;
    * ``credited``: it is a reward of a subject, credited to one of its decisions.

    The event adds nothing to earlier ones:

    * ``duplicate``: the same event was reported before;
    * ``superseded``: a higher revision of this part has been reported;
    * ``conflict``: another value was committed earlier for this part and revision. If it can tell
      before appending, ``observe`` raises instead, and ``observe_many`` does not append the event.

    The event is never learned from:

    * ``voided``: the decision was never carried out, or this event states that;
    * ``expired``: it arrived after the retention;
    * ``over_limit``: the decision already has 64 parts;
    * ``erased``: the decision was erased, with all events under its id;
    * ``retracted``: the rewards of its reporter were retracted for this period.

    The effect is not known yet:

    * ``unmatched``: the decision is unknown so far, or the subject has no decision to which the
      reward can be credited; the event counts once there is one;
    * ``accepted``: the journal is unavailable, or this is a client of the service; the status is
      known once the event has been folded.

    An activation has the status ``activated``: the window of its decision starts.

    Attributes:
        id: The decision id; for a reward of a subject, the event id.
        status: One of the above.

    >>> Receipt("order-7", "rewarded").to_dict()
    {'id': 'order-7', 'status': 'rewarded'}
    """

    id: str
    status: str

    def to_dict(self) -> dict[str, Any]:
        """Return the receipt as plain data."""
        return {"id": self.id, "status": self.status}
