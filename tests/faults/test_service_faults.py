"""The service as it runs, while its database, or one of its processes, goes away under load."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from belated import Bernoulli, DelayedUCB, Explicit
from belated.fold import Fold
from belated.journals import PostgresJournal
from tests.faults.gates import Between, between
from tests.faults.service_load import Load
from tests.faults.test_postgres_outage import cut_off, hung, swallowed
from tests.integration.postgres_server import PostgresServer
from tests.integration.processes import Process, later
from tests.integration.serving import free_port


@pytest.fixture
def way(doomed: PostgresServer, tmp_path: Path, full: bool) -> Iterator[Between]:
    """To the database."""
    found = between(doomed.port, tmp_path, full)
    yield found
    found.close()


class Town:
    """A decider and a learner, with their files."""

    def __init__(self, server: PostgresServer, way: Between, folder: Path) -> None:
        self.server, self.way = server, way
        self.port = free_port()
        self._folder = folder
        self._started: list[Process] = []
        self._file = folder / "belated.toml"
        self._file.write_text(
            f"""
            [database]
            dsn = "{server.dsn.replace(str(server.port), str(way.port))}"
            [server]
            port = {self.port}
            learn = false
            lease = "3s"
            spool = "{folder}/spool"
            [bandits.offers]
            policy = "DelayedUCB(dim=2, family=Bernoulli())"
            rewards = "Explicit()"
            partitions = 2
            """,
            encoding="utf-8",
        )
        self.decider = self.start("serve")
        self.learner = self.start("learn")

    def start(self, command: str) -> Process:
        """Another process."""
        log = self._folder / f"log {len(self._started)}"
        process = Process(log, command, str(self._file))
        self._started.append(process)
        return process

    def start_decider(self) -> None:
        """Again and again, as a supervisor does, until it serves."""
        while True:
            self.decider = process = self.start("serve")
            later(lambda: process.said("serving") is not None or not process.runs())  # noqa: B023
            if process.runs():
                return

    def wait(self) -> None:
        """Until it decides with a model."""
        self.decider.heard("serving")
        self.learner.heard("this learner leads")
        later(lambda: self.decider.ask("GET", "/readyz")[0] == 200)

    def close(self) -> None:
        """End all that still runs."""
        for process in self._started:
            process.kill()


@pytest.fixture
def town(doomed: PostgresServer, way: Between, tmp_path: Path) -> Iterator[Town]:
    """It serves, and has learned a little."""
    found = Town(doomed, way, tmp_path)
    try:
        found.wait()
        found.decider.reward(found.decider.decide())
        yield found
    finally:
        found.close()


@contextmanager
def stopped(server: PostgresServer) -> Iterator[None]:
    """While there is no database."""
    server.kill()
    try:
        yield
    finally:
        server.start()


def outages(town: Town) -> dict[str, AbstractContextManager[None]]:
    """Each of the ways to be away."""
    return {
        "stopped": stopped(town.server),
        "hung": hung(town.server.dsn),
        "cut off": cut_off(town.way),
        "swallowed": swallowed(town.way),
    }


@pytest.mark.parametrize("kind", ["stopped", "hung", "cut off", "swallowed"])
def test_callers_do_not_notice_that_the_database_is_away(town: Town, kind: str, full: bool) -> None:
    """They are answered within a second; afterwards all is in the journal, without a restart."""
    seconds = 60.0 if full else 10.0
    with Load(town.port) as load:
        time.sleep(2)
        with outages(town)[kind]:
            time.sleep(seconds)
        time.sleep(3)
    later(lambda: not load.lost(town.server.dsn), "something was lost")
    check_learned(town)
    worst = max(one.seconds for one in load.answers)
    taken, quick = load.share(60.0), load.share(1.0)
    print(
        f"\n{kind} for {seconds:g} s: {len(load.answers)} requests, {taken:.4%} taken, "
        f"{quick:.4%} within 1 s, worst {worst:.3f} s, 0 lost"
    )
    assert taken >= 0.999
    assert quick >= (0.999 if full else 0.99)  # other things may keep a small machine busy


def test_a_decider_that_is_killed_while_the_database_is_away(town: Town, full: bool) -> None:
    """What it has left is handed over by the next, which starts when the database is back."""
    with Load(town.port) as load:
        time.sleep(1)
        with cut_off(town.way):
            time.sleep(2)
            town.decider.kill()
            time.sleep(1)
        assert load.lost(town.server.dsn)  # it is on the disk of the decider
        town.start_decider()
        time.sleep(2)
    later(lambda: not load.lost(town.server.dsn), "something was lost")
    assert load.share(1.0) > 0.3
    check_learned(town)


def test_told_to_stop_while_the_database_is_away(town: Town) -> None:
    """It ends with 0, in time, and leaves what waits to the next."""
    with Load(town.port) as load:
        time.sleep(1)
        with swallowed(town.way):
            time.sleep(1.5)
            start = time.monotonic()
            town.decider.send(signal.SIGTERM)
            assert town.decider.ended() == 0
            took = time.monotonic() - start
    assert took < 20
    assert load.lost(town.server.dsn)
    town.start_decider()
    later(lambda: not load.lost(town.server.dsn), "something was lost")


@pytest.mark.parametrize("victim", ["decider", "learner", "database"])
def test_kills(town: Town, victim: str, full: bool) -> None:
    """SIGKILL under load, again and again: nothing acknowledged is lost, and all is learned."""
    rng = random.Random(1)
    with Load(town.port) as load:
        for _ in range(20 if full else 2):
            time.sleep(rng.uniform(0.5, 2.0))
            if victim == "database":
                town.server.kill()
                town.server.start()
            elif victim == "learner":
                town.learner.kill()
                town.learner = town.start("learn")
                town.learner.heard("this learner leads")
            else:
                town.decider.kill()
                town.start_decider()
        time.sleep(1)
    later(lambda: not load.lost(town.server.dsn), "something was lost")
    check_learned(town)
    if victim != "decider":
        assert load.share(60.0) >= 0.999
    print(f"\n{victim}: {len(load.answers)} requests, {load.share(60.0):.4%} taken, 0 lost")


def check_learned(town: Town) -> None:
    """The decider has a model of all that is in the journal, counted once."""

    def folded() -> dict[str, Any]:
        fold = Fold(DelayedUCB(2, Bernoulli()), Explicit(), partitions=2)
        with PostgresJournal(town.server.dsn, bandit="offers") as journal:
            fold.catch_up(journal)
        return {"n": fold.model.n, "pending": fold.model.pending, "version": fold.version}

    def told() -> dict[str, Any]:
        with suppress(OSError):
            return town.decider.state()
        return {}

    later(lambda: folded().items() <= told().items(), "the model does not know all")
