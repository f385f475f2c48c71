"""No id can be taken for another, whatever text a caller sends."""

from __future__ import annotations

from unittest import mock

import pytest

from belated.core import ids
from tests.laws import hostile_ids


def test_live_equals_snapshot_and_tail_equals_replay(full: bool) -> None:
    """With a snapshot after every event, and as the oracle says, which knows no keys."""
    if full:
        print("\n" + hostile_ids.check_all(1_000_000))
    else:  # as many as one process does in some seconds
        assert sum(hostile_ids.check_share((n, 500)) for n in range(0, 2_000, 500)) > 8_000


def test_the_proof_notices_ids_that_meet() -> None:
    """If every text of 32 hex digits were its own key, some id would share it with another."""

    def key_of(id: str) -> bytes:
        try:
            return bytes.fromhex(id) if len(id) == 32 else ids.key_of(id)
        except ValueError:
            return ids.key_of(id)

    with (
        mock.patch.object(hostile_ids, "key_of", key_of),
        pytest.raises(AssertionError, match="share a key"),
    ):
        hostile_ids.check_share((0, 200))
