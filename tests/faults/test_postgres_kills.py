"""Kill writers, learners and the server itself: nothing acknowledged is lost or counts twice."""

from __future__ import annotations

import os
import random
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults import harness
from tests.integration.postgres_server import PostgresServer


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")
def test_kills_lose_no_acknowledged_events(
    doomed: PostgresServer, tmp_path: Path, full: bool
) -> None:
    """Three writers and two learners under load; all that was told is there, once."""
    writers, learners, servers = (50, 50, 10) if full else (4, 4, 1)
    rng = random.Random(0)
    crowd = harness.Crowd(tmp_path, doomed.dsn, partitions=4)
    try:
        crew = ["writer"] * 3 + ["learner"] * 2
        for role in crew:
            crowd.start(role)
        # Those that run at the end are killed too.
        victims = ["writer"] * (writers - 3) + ["learner"] * (learners - 2) + ["server"] * servers
        rng.shuffle(victims)
        for victim in victims:
            if victim == "server":
                crowd.wait_for_all()
                processes = harness.processes_of(doomed.dsn)
                doomed.kill()
                for process in processes[1:]:  # most of them have followed by now
                    with suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)
                doomed.start()
            else:
                crowd.replace(victim, rng)
        crowd.wait_for_all()
    finally:
        crowd.close()
    assert crowd.killed == {"writer": writers, "learner": learners}
    print(f"\n{servers} kills of the server; {harness.assert_nothing_lost(crowd)}")
