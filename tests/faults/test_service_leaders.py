"""Two learners who both believe that they lead: only the one that does can write."""

from __future__ import annotations

import signal
import time

import psycopg

from tests.faults.service_load import Load
from tests.faults.town import PARTITIONS, Cluster, assert_nothing_lost


def test_learner_suspended_beyond_its_lease(town: Cluster) -> None:
    """Another leads meanwhile. Awake, the first changes nothing, and stands by."""
    first = town.learner
    second = town.start("learn")
    second.heard("this learner is on standby")
    with Load(town.port) as load:
        time.sleep(1)
        first.send(signal.SIGSTOP)
        line = second.heard("this learner leads")
        versions = [town.state()["version"]]
        first.send(signal.SIGCONT)  # in the midst of whatever it did as the leader
        first.heard("this learner is on standby")
        for _ in range(20):
            time.sleep(0.05)
            versions.append(town.state()["version"])
    assert versions == sorted(versions)
    assert line["epoch"] == 2
    with psycopg.connect(town.server.dsn) as connection:
        query = "SELECT version FROM belated.cell WHERE name LIKE 'owner/%'"
        epochs = connection.execute(query).fetchall()
    assert epochs == [(2,)] * PARTITIONS
    town.learner = second
    assert_nothing_lost(town, load)
