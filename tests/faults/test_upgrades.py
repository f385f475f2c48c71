"""A service that is restarted, upgraded and taken back while it serves: no caller notices.

Its deciders stand behind a balancer (:class:`~tests.faults.balancer.Balanced`). A request has
failed if the two deciders together gave it no 2xx, whatever the reason.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from belated import Bernoulli, DelayedUCB, Explicit
from belated.events import Decision, Opaque, Record, Reward
from belated.journals import PostgresJournal
from belated.learner.fold import Fold
from tests.faults.balancer import Balanced
from tests.faults.fleet import Fleet
from tests.faults.releases import NOTE, SAVED, Release, following, present
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


def test_a_rolling_upgrade_and_back(pair: str, dsn: str, tmp_path: Path, full: bool) -> None:
    """The tables, the learner, the deciders one by one, what is new; then all the way back.

    Both releases serve on the tables of the newer. One release alone is a rolling restart.
    """
    old = present()
    new = following(tmp_path / "following") if "following" in pair else present()
    old.migrate(dsn, 0)
    with closing(Fleet(dsn, tmp_path, old)) as fleet:
        with Balanced(*fleet.ports) as load:
            new.migrate(dsn, old.tables)
            for _ in range(2 if full else 1):
                fleet.replace_learner(new)
                fleet.replace_deciders(new)
                use_what_is_new(new, dsn, fleet)
                fleet.replace_deciders(old)
                fleet.replace_learner(old)
            time.sleep(1)
        later(lambda: knows_all(fleet, load, dsn))
        fleet.stop_learner()
    assert load.taken_out >= 4
    check(dsn, load, old)


def test_what_is_new_before_learners_know_it(full_size: None, dsn: str, tmp_path: Path) -> None:
    """The learner halts, and says where; deciders go on; a newer learner takes over from there."""
    old, new = present(), following(tmp_path / "following")
    old.migrate(dsn, 0)
    with closing(Fleet(dsn, tmp_path, old)) as fleet:
        with Balanced(*fleet.ports) as load:
            new.migrate(dsn, old.tables)
            use_what_is_new(new, dsn, fleet)
            said = fleet.learner.heard("a learner failed and is made anew")
            assert "(kind 40): written by a newer release" in said["error"]
            stopped = fleet.deciders[0].state()["version"]
            time.sleep(5)
            assert fleet.deciders[0].state()["version"] == stopped
            newer = fleet.start_learner(new)
            newer.heard("this learner leads")
            later(lambda: fleet.deciders[0].state()["version"] > stopped)
            fleet.stop_learner()
            fleet.learner = newer
        later(lambda: knows_all(fleet, load, dsn))
        fleet.stop_learner()
    check(dsn, load, new)


def use_what_is_new(release: Release, dsn: str, fleet: Fleet) -> None:
    """A table, or a kind of event, that the release before does not know."""
    name = f"made at {time.time_ns()}"
    if release == present():
        what = ("--bandit", "offers", "--scope", "read", "--config", str(fleet.file))
        release.run("-m", "belated", "keys", "create", name, *what)
    else:
        release.run("-c", NOTE, dsn, "offers", name)


def knows_all(fleet: Fleet, load: Balanced, dsn: str) -> bool:
    """Whether spools have handed over all that was acknowledged, and the learner has folded it."""
    records = read(dsn)
    if load.lost(one.event for known in records for one in known):
        return False
    return bool(fleet.deciders[0].state()["version"] == sum(map(len, records)))


def check(dsn: str, load: Balanced, last: Release) -> None:
    """No request failed, nothing is lost, and what was learned is what all records come to."""
    print(
        f"\n{len(load.answers)} requests, {len(load.failed)} failed, {load.taken_out} times a "
        f"decider was taken out, {load.refused} connections refused, "
        f"worst {max(one.seconds for one in load.answers):.3f} s"
    )
    assert load.failed == []
    records = read(dsn)
    events = [one.event for known in records for one in known]
    assert not load.lost(events)
    fold = Fold(DelayedUCB(2, Bernoulli()), Explicit(), partitions=len(records))
    for partition, known in enumerate(records):
        fold.take_all(partition, [one for one in known if not isinstance(one.event, Opaque)])
    saved = json.loads(last.run("-c", SAVED, dsn, "offers"))
    assert saved["positions"] == [known[-1].position for known in records]
    assert saved["digest"] == fold.digest
    # Each counts once, however often it was sent and folded.
    assert sum(fold.counts.values()) == len({e.id for e in events if isinstance(e, Decision)})
    rewarded = {e.id for e in events if isinstance(e, Reward)}
    assert saved["n"] == fold.model.n == fold.counts["rewarded"] == len(rewarded)


def read(dsn: str) -> list[list[Record]]:
    """All records, by partition."""
    with PostgresJournal(dsn, bandit="offers") as journal:
        return [journal.read(p, 0, 10_000_000) for p in range(journal.partitions)]
