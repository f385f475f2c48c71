"""Kill writers of one file at any moment: nothing acknowledged is lost, nothing counts twice."""

from __future__ import annotations

import random
import signal
import sqlite3
from pathlib import Path

import pytest

from tests.faults import harness


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")
def test_kills_lose_no_acknowledged_events(tmp_path: Path, full: bool) -> None:
    """Three writers under load, one killed after the other: all that was told is there, once."""
    for partitions, kills in ((1, 50), (4, 50)) if full else ((1, 8),):
        folder = tmp_path / f"{partitions} partitions"
        folder.mkdir()
        rng = random.Random(partitions)
        crowd = harness.Crowd(folder, str(folder / "offers.db"), partitions)
        try:
            for _ in range(3):
                crowd.start()
            for _ in range(kills - 3):
                crowd.replace("writer", rng)
            crowd.wait_for_all()
        finally:
            crowd.close()
        assert crowd.killed == {"writer": kills}
        print("\n" + harness.assert_nothing_lost(crowd))
        connection = sqlite3.connect(folder / "offers.db")
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()
