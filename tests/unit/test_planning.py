"""The arithmetic of a plan, on costs that are made up: what grows, what does not, what breaks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from belated.planning import Costs, Demand, Linear, LogCosts, plan
from belated.planning.arithmetic import (
    HALF,
    MEMORY,
    SETUPS,
    commit_size,
    decider_load,
    learner_load,
    plan_for,
)
from belated.planning.costs import REFERENCE, ServiceCosts
from belated.planning.processes import ServerProcesses
from tests.command_line import Command

SQLITE, POSTGRES, SHARED, KAFKA = SETUPS
#: A day at 10 % rewards.
DAY = Demand(rate=100.0, reward_share=0.1, dim=20, window=86_400.0)
LOG = LogCosts(
    name="postgresql",
    measured=True,
    commit=Linear(2e-4, 1e-5),
    wait=Linear(2e-3, 1e-5),
    server=Linear(1e-3, 2e-5),
    decision_bytes=1_000.0,
    reward_bytes=100.0,
    event=3e-5,
    shared_event=6e-6,
    publish=5e-4,
    service=ServiceCosts(1e-4, 5e-5, 3e-4, 0.002, 5e-4, Linear(2e-3, 1e-5)),
)
COSTS = Costs(
    dim=20,
    actions=10,
    choose=3e-5,
    embedded_decision=1e-3,
    embedded_reward=1e-3,
    pending_bytes=200.0,
    logs={name: replace(LOG, name=name) for name in ("sqlite", "postgresql", "kafka")},
)


def test_the_simplest_set_up_that_does_it_is_chosen() -> None:
    """From a file to brokers, as the rate grows."""
    demands = [replace(DAY, rate=rate, window=60.0) for rate in (10.0, 3e3, 2e4, 1e6)]
    assert [plan(COSTS, one).setup for one in demands] == [SQLITE, POSTGRES, SHARED, KAFKA]


def test_a_plan_leaves_half_of_everything_free() -> None:
    """And says what has the least to spare."""
    made = plan(COSTS, DAY)
    assert made.fits
    name, rate = made.breaks_first
    assert made.loads[name] == max(made.loads.values()) <= HALF
    assert rate == pytest.approx(DAY.rate / made.loads[name])
    assert rate >= 2 * DAY.rate


def test_memory_is_that_of_all_decisions_in_the_window() -> None:
    """It grows with the window alone, and is shared by more learners once one cannot hold it."""
    short, long = (
        plan_for(COSTS, replace(DAY, rate=1e4, window=window), SHARED) for window in (60.0, 864e3)
    )
    assert short.memory == 1e4 * 60 * COSTS.pending_bytes
    assert long.memory == 14_400 * short.memory
    assert long.learners == -(-long.memory // (HALF * MEMORY)) > short.learners
    assert long.partitions >= 4 * long.learners
    assert long.partitions.bit_count() == 1
    one = plan_for(COSTS, replace(DAY, rate=1e4, window=864e3), POSTGRES)
    assert not one.fits
    assert one.breaks_first[0] == "memory"


def test_bytes_are_by_the_event_and_brokers_have_three_copies() -> None:
    """Of each record."""
    made = {setup.log: plan_for(COSTS, DAY, setup) for setup in SETUPS}
    assert made["postgresql"].bytes == pytest.approx(100 * 1_000 + 10 * 100)
    assert made["kafka"].bytes == pytest.approx(3 * made["postgresql"].bytes)
    assert (made["postgresql"].brokers, made["kafka"].brokers) == (0, 3)


def test_a_commit_holds_what_came_during_the_one_before() -> None:
    """At least one event, and never more than a commit may have."""
    wait = Linear(2e-3, 1e-5)
    assert 1.0 <= commit_size(10.0, wait) < 1.01
    size = commit_size(10_000.0, wait)
    assert size == pytest.approx(10_000 * wait.of(size), rel=1e-3)
    assert commit_size(1e6, wait) == 1_000.0


def test_brokers_work_by_the_record() -> None:
    """Rewards are a record for each partition and process, until there are fewer rewards."""
    rare, often = (
        plan_for(COSTS, replace(DAY, rate=1e5, reward_share=share), KAFKA) for share in (1e-4, 0.5)
    )
    assert rare.setup == often.setup == KAFKA
    more = often.server_cores - rare.server_cores
    assert LOG.server is not None
    events = LOG.server.each * (often.demand.events - rare.demand.events)
    assert more > 2 * events


def test_what_a_process_uses_grows_with_the_rate() -> None:
    """A learner that looks again and again never uses more than one core."""
    for rate, faster in ((10.0, 100.0), (100.0, 1_000.0)):
        slow, fast = (decider_load(LOG, replace(DAY, rate=one), 1, 1.0) for one in (rate, faster))
        assert LOG.service.idle < slow < fast
        assert learner_load(LOG, rate) < learner_load(LOG, faster) <= 1.0
    assert learner_load(LOG, 1e6) == 1.0


def test_a_store_that_was_not_measured_has_reference_figures() -> None:
    """And so has the server of one that was, but for its server."""
    alone = replace(COSTS, logs={"sqlite": COSTS.logs["sqlite"]})
    found = plan_for(alone, DAY, POSTGRES)
    assert found == plan_for(replace(COSTS, logs=REFERENCE.logs), DAY, POSTGRES)
    blind = replace(COSTS, logs={"kafka": replace(LOG, name="kafka", server=None)})
    served = replace(LOG, name="kafka", server=REFERENCE.logs["kafka"].server)
    assert plan_for(blind, DAY, KAFKA) == plan_for(
        replace(COSTS, logs={"kafka": served}), DAY, KAFKA
    )


def test_the_command_refuses_what_makes_no_sense(capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is measured."""
    command = Command("plan")
    assert "a number above 0" in command.complaint(capsys, "--rate", "-3")
    assert "--rate" in command.complaint(capsys, "--dim", "3")
    said = command.complaint(capsys, "--rate", "10", "--server-pid", 2**31 - 1)
    assert "there is no such process" in said


def test_cpu_of_a_server_counts_its_children() -> None:
    """As PostgreSQL's postmaster has one for each connection."""
    import os
    import subprocess
    import sys

    work = "sum(range(20_000_000))"
    before = ServerProcesses([os.getpid()]).cpu()
    subprocess.run([sys.executable, "-c", work], check=True)
    assert ServerProcesses([os.getpid()]).cpu() - before > 0.05
    assert ServerProcesses(()).cpu() == 0.0
