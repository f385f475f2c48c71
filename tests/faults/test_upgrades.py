"""A service that is restarted, upgraded and taken back while it serves: no caller notices.

Its deciders stand behind a balancer (:class:`~tests.faults.balancer.Balanced`). A request has
failed if the two deciders together gave it no 2xx, whatever the reason.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults.balancer import Balanced
from tests.faults.fleet import Fleet
from tests.faults.releases import following, present
from tests.faults.rolling import check, go_back, knows_all, upgrade, use_what_is_new
from tests.integration.postgres_server import PostgresServer, require_programs
from tests.integration.processes import later


@pytest.fixture(params=["present and following", "present alone"])
def pair(request: pytest.FixtureRequest, full: bool) -> str:
    """Two releases, or one; at small size two."""
    if request.param != "present and following" and not full:
        pytest.skip("the first pair shows the same; --full runs all")
    return str(request.param)


@pytest.fixture
def full_size(full: bool) -> None:
    """Only there."""
    if not full:
        pytest.skip("test_learning.py has the learner's part of it; --full runs all")


@pytest.fixture
def dsn() -> Iterator[str]:
    """Of a database with nothing in it."""
    require_programs()
    server = PostgresServer()
    yield server.dsn
    server.stop()


def test_rolling_upgrade_and_rollback(pair: str, dsn: str, tmp_path: Path, full: bool) -> None:
    """The tables, the learner, the deciders one by one, what is new; then all the way back.

    Both releases serve on the tables of the newer. One release alone is a rolling restart.
    """
    old_release = present()
    new_release = following(tmp_path / "following") if "following" in pair else present()
    old_release.migrate(dsn, 0)
    with closing(Fleet(dsn, tmp_path, old_release)) as fleet:
        with Balanced(*fleet.ports) as load:
            new_release.migrate(dsn, old_release.tables)
            for _ in range(2 if full else 1):
                upgrade(fleet, dsn, new_release)
                go_back(fleet, old_release)
        later(lambda: knows_all(fleet, load, dsn))
        fleet.stop_learner()
    assert load.taken_out >= 4
    check(dsn, load, old_release)


def test_what_is_new_before_learners_know_it(full_size: None, dsn: str, tmp_path: Path) -> None:
    """The learner halts, and says where; deciders go on; a newer learner takes over from there."""
    old_release, new_release = present(), following(tmp_path / "following")
    old_release.migrate(dsn, 0)
    with closing(Fleet(dsn, tmp_path, old_release)) as fleet:
        with Balanced(*fleet.ports) as load:
            new_release.migrate(dsn, old_release.tables)
            use_what_is_new(new_release, dsn, fleet)
            line = fleet.learner.heard("a learner failed and is restarted")
            assert "(kind 40), written by a newer release" in line["error"]
            version = fleet.deciders[0].state()["version"]
            time.sleep(5)
            assert fleet.deciders[0].state()["version"] == version
            learner = fleet.start_learner(new_release)
            learner.heard("this learner leads")
            later(lambda: fleet.deciders[0].state()["version"] > version)
            fleet.stop_learner()
            fleet.learner = learner
        later(lambda: knows_all(fleet, load, dsn))
        fleet.stop_learner()
    check(dsn, load, new_release)
