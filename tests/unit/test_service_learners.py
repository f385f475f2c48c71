"""Learners in threads: they go on whatever happens."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from belated.exceptions import JournalUnavailable, UnknownEvent
from belated.journals import Journal
from belated.service.learning import learners as module
from belated.service.learning.leader import JournalClock
from belated.service.learning.learners import Learners
from belated.service.learning.learning_service import LearningService
from belated.service.runtime import Runtime
from tests.waiting import eventually


class Scripted:
    """A learner that does what is written, then rests."""

    holder, epoch, coordination = "me", 1, SimpleNamespace(leader=lambda: None)

    def __init__(self, script: list[Exception | bool]) -> None:
        self.script = script
        self.closed = False
        self._leads = False

    def leads(self) -> bool:
        """As written."""
        return self._leads

    def step(self) -> int:
        """The next of the script."""
        if not self.script:
            return 0
        result = self.script.pop(0)
        if isinstance(result, Exception):
            raise result
        self._leads = result
        return 1

    def close(self, *, save: bool = True) -> None:
        """Noted."""
        self.closed = True


def made(learner: Scripted) -> Callable[[], LearningService]:
    """As one that makes learners."""
    return lambda: cast(LearningService, learner)


@pytest.fixture(autouse=True)
def said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """All is logged, and no one waits long."""
    caplog.set_level(logging.INFO, "belated.service")
    for name in ("STAND_BY", "UNAVAILABLE", "FAILED"):
        monkeypatch.setattr(module, name, 0.001)


def test_who_leads_is_told_once_for_each_change(caplog: pytest.LogCaptureFixture) -> None:
    """At the start, and when it changes."""
    learner = Scripted([False, False, True, True, False])
    learners = Learners({"offers": made(learner)})
    learners.start()
    eventually(lambda: not learner.script)
    learners.stop()
    assert learner.closed
    standby, leads = "this learner is on standby", "this learner leads"
    assert caplog.messages == [standby, leads, standby]
    assert vars(caplog.records[1])["bandit"] == "offers"


def test_an_outage_is_told_when_it_begins_and_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """And the learner keeps what it knows."""
    outage = JournalUnavailable("gone")
    learner = Scripted([True, outage, outage, outage, True])
    learners = Learners({"offers": made(learner)})
    learners.start()
    eventually(lambda: "the journal is available again" in caplog.messages)
    learners.stop()
    assert caplog.messages == [
        "this learner leads",
        "the journal is unavailable",
        "the journal is available again",
    ]


def test_failed_learner_is_restarted_without_affecting_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whatever it was: in the making, or at work."""
    first, second, unaffected = Scripted([UnknownEvent(9)]), Scripted([True]), Scripted([True])
    results: list[Scripted | Exception] = [JournalUnavailable("gone"), first, second]

    def make() -> LearningService:
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return cast(LearningService, result)

    learners = Learners({"offers": make, "other": made(unaffected)})
    learners.start()
    eventually(lambda: caplog.messages.count("this learner leads") == 2)
    assert [learner.closed for learner in (first, second, unaffected)] == [True, False, False]
    learners.stop()
    assert [learner.closed for learner in (first, second, unaffected)] == [True, True, True]
    messages = [record.message for record in caplog.records if vars(record)["bandit"] == "offers"]
    failed = "a learner failed and will be restarted"
    assert messages == ["the journal is unavailable", failed, "this learner leads"]


def test_stopping_what_was_not_started() -> None:
    """As where the service could not start."""
    Learners({"offers": made(Scripted([]))}).stop()


def test_records_that_come_one_by_one_gather() -> None:
    """The learner pauses between polls, unless it is far behind."""
    current, lagging = Scripted([True, True]), Scripted([True, True])
    lagging.step = lambda: module.MANY  # type: ignore[method-assign]
    assert Learners({"offers": made(current)})._turn() == module.PACE
    assert Learners({"offers": made(lagging)})._turn() == 0.0


def test_the_clock_of_a_journal_that_was_not_asked_yet() -> None:
    """Metrics may be read before the first look."""
    runtime = SimpleNamespace(clock=lambda: 5_000_000, monotonic=lambda: 1.0)
    clock = JournalClock(
        cast(Journal, SimpleNamespace(now=lambda: 7_000_000)), cast(Runtime, runtime)
    )
    assert (clock.now(), clock.ahead()) == (5_000_000, 0.0)
    clock.look()
    assert clock.now() == 7_000_000
