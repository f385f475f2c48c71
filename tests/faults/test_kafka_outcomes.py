"""Learners that send outcomes are killed, paused and duplicated, and so are brokers."""

from __future__ import annotations

import time
from pathlib import Path

from tests.faults.kafka_town import KafkaTown
from tests.integration.kafka_server import require_jars
from tests.integration.postgres_server import require_programs


def test_the_topic_is_what_the_ledger_says(tmp_path: Path, full: bool) -> None:
    """Each fault in turn, twice at full size; compaction keeps the newest messages."""
    require_jars()
    require_programs()
    brokers, session = (3, 6.0) if full else (1, 2.0)
    town = KafkaTown(
        tmp_path, brokers=brokers, session=session, full=full, seed=11, learners=2,
        rewards="Explicit()", outcomes=True,
    )  # fmt: skip
    faults = [town.kill_worker, town.two_owners, town.kill_brokers, town.stop_worker]
    try:
        town.generate()
        for fault in faults * (2 if full else 1):
            time.sleep(1.0)
            town.recovery(fault())
        print(town.check())
        print(town.check_outcomes())
    finally:
        town.close()
