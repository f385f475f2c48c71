"""How many events for unknown decisions are accepted, in all and of one reporter."""

from __future__ import annotations

import pytest

from belated.exceptions import RateLimited
from belated.service.serving.served_bandits import (
    MAX_OF_REPORTER,
    MAX_UNMATCHED,
    UnmatchedRoom,
)


def test_one_reporter_has_a_share() -> None:
    """The others have room while it has none, until all have used it up."""
    room = UnmatchedRoom()
    room.update({"flood": MAX_OF_REPORTER})
    with pytest.raises(RateLimited, match="from this key"):
        room.check("flood", ["x"])
    room.check("shop", ["x"])
    room.update({f"flood {n}": MAX_OF_REPORTER for n in range(MAX_UNMATCHED // MAX_OF_REPORTER)})
    with pytest.raises(RateLimited, match="100,000 events are already waiting"):
        room.check("shop", ["x"])
    room.update({})
    room.check("shop", ["x"])


def test_what_was_accepted_counts_until_two_models_have_come() -> None:
    """The first of them may have been made before."""
    room = UnmatchedRoom()
    room.add("shop", MAX_OF_REPORTER)
    assert not room.is_ample("shop", 1)
    room.update({})
    assert not room.is_ample("shop", 1)
    room.update({})
    assert room.is_ample("shop", 1)
