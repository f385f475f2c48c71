"""Receipts of appended events."""

from __future__ import annotations

from typing import Any

import msgspec

from belated.core.results import Result


class Receipt(msgspec.Struct, Result, frozen=True, gc=False):
    """The receipt of a durable event, with its status as known when it was appended.

    The model learns from events with these statuses:

    * ``rewarded``: this is the first reward of the decision;
    * ``late``: this is the first reward of the decision, and it arrived after the window;
    * ``revised``: this is a further part of the reward, or a higher revision of a part;
    * ``credited``: this subject reward was credited to one of the subject's decisions.

    These events add nothing to earlier events:

    * ``duplicate``: the same event was reported before;
    * ``superseded``: a higher revision of this part has been reported;
    * ``conflict``: a different value was committed earlier for this part and revision. If this is
      detected before appending, ``observe`` raises an error instead, and ``observe_many`` does not
      append the event.

    The model never learns from these events:

    * ``voided``: the decision was never carried out, or this event reports that;
    * ``expired``: the event arrived after the retention period;
    * ``over_limit``: the decision already has 64 parts, or the subject 1,000 rewards;
    * ``erased``: the decision was erased, along with all events for its id;
    * ``retracted``: the reporter's rewards were retracted for this period.

    The effect of these events is not known yet:

    * ``unmatched``: the decision is unknown so far, or the subject has no decision to which the
      reward can be credited; the event counts once there is one;
    * ``accepted``: the journal is unavailable, or the receipt comes from a service client; the
      status is known once the event has been folded.

    An activation has the status ``activated``: the window of the decision starts.

    Attributes:
        id: the decision id; for a subject reward, the event id.
        status: one of the statuses above.

    >>> Receipt("order-7", "rewarded").to_dict()
    {'id': 'order-7', 'status': 'rewarded'}
    """

    id: str
    status: str

    def to_dict(self) -> dict[str, Any]:
        """Return the receipt as plain data."""
        return {"id": self.id, "status": self.status}
