"""A clock that jumps ahead is held; one that steps back, drifts or sleeps is believed."""

from __future__ import annotations

import time
import warnings
from datetime import timedelta

import numpy as np
import pytest

from belated import Bandit, Bernoulli, DefaultAfter, DelayedUCB
from belated.core.events import Void
from belated.exceptions import ClockWarning
from belated.journals import Journal, MemoryJournal, open_journal, steady_clock as module
from belated.journals.steady_clock import MAX_JUMP, SteadyClock, system_clock

START, DAY = 1_700_000_000_000_000, 86_400_000_000


class World:
    """Its time of day, and the time that has passed."""

    def __init__(self) -> None:
        self.day, self.gone = START, 0
        self.clock = SteadyClock(lambda: 1000 * self.day, lambda: 1000 * self.gone)

    def wait(self, microseconds: int, *, jump: int = 0) -> int:
        """Time goes by, and the time of day jumps besides; returns what the clock says."""
        self.gone += microseconds
        self.day += microseconds + jump
        return self.clock()


@pytest.fixture
def world() -> World:
    """At its beginning."""
    return World()


def test_what_passes_is_told(world: World) -> None:
    """An hour at once too, and as the machine sleeps."""
    assert [world.wait(3_600_000_000), world.wait(DAY)] == [
        START + DAY // 24,
        START + DAY // 24 * 25,
    ]


def test_a_jump_is_held_and_told_once(world: World) -> None:
    """Time goes on from where it was; when the clock has come back, it is believed again."""
    with pytest.warns(ClockWarning, match="30 days, 0:00:00 ahead"):
        assert world.wait(5, jump=30 * DAY) == START + 5
    assert world.wait(5) == START + 10  # a warning would be an error here
    assert world.wait(5, jump=-30 * DAY) == START + 15
    with pytest.warns(ClockWarning):
        assert world.wait(5, jump=DAY) == START + 20


def test_small_steps_are_believed(world: World) -> None:
    """As NTP makes them, up to the bound."""
    largest_step = MAX_JUMP // 1000
    assert world.wait(0, jump=largest_step) == START + largest_step
    with pytest.warns(ClockWarning):
        assert world.wait(7, jump=largest_step + 1) == START + largest_step + 7


def test_back_and_forth_is_no_jump_ahead(world: World) -> None:
    """What was believed before may be believed again, however far back the clock was meanwhile."""
    assert world.wait(1, jump=-30 * DAY) == START + 1 - 30 * DAY
    assert world.wait(1, jump=30 * DAY) == START + 2


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: pytest.FixtureRequest, tmp_path: object) -> Journal:
    """One that stamps by the system's clock."""
    if request.param == "memory":
        return MemoryJournal()
    return open_journal(f"sqlite:///{tmp_path}/offers.db?bandit=offers")


def test_momentary_clock_jump_delays_nothing(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows end when they should: what is decided afterwards is not stamped a month ahead."""
    offset, time_ns = 0, time.time_ns
    monkeypatch.setattr(system_clock, "_time_of_day", lambda: time_ns() + 1000 * offset)
    window = timedelta(milliseconds=50)
    with Bandit(
        policy=DelayedUCB(2, Bernoulli()), rewards=DefaultAfter(window), journal=journal
    ) as bandit:
        bandit.decide(rows=np.eye(2))
        offset = 30 * DAY
        with pytest.warns(ClockWarning, match="30 days"):
            bandit.decide(rows=np.eye(2))
        offset = 0
        bandit.decide(rows=np.eye(2))
        assert journal.last_stamp(0) <= time_ns() // 1000
        time.sleep(0.06)
        assert bandit.settle() >= 1
        assert bandit.decision_counts["defaulted"] == 3


def test_no_event_is_lost_though_warnings_are_errors(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the first call is refused as a whole, and the next one is taken."""
    time_ns = time.time_ns
    monkeypatch.setattr(system_clock, "_time_of_day", lambda: time_ns() + 1000 * DAY)
    with journal, warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ClockWarning):
            journal.append([Void("a", 1)])
        assert journal.append([Void("a", 1)]) == [1]
        assert len(journal.read(0, 0, 9)) == 1
    monkeypatch.undo()
    system_clock()  # it has come back, so that the next jump is told


def test_the_time_that_passes_counts_sleep() -> None:
    """Else a laptop that wakes up seems to have jumped."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        assert module._COUNTS_SLEEP == time.CLOCK_BOOTTIME
    first = system_clock._passed()
    time.sleep(0.01)
    assert 9_000_000 <= system_clock._passed() - first < 10_000_000_000
