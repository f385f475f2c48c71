"""``belated plan`` on a real machine: what it says is near what happens."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from belated import Bernoulli, DelayedUCB
from belated.journals import SQLiteStore
from belated.planning import Costs, Demand, measure, plan
from belated.planning.arithmetic import commit_size, decider_load, learner_load
from belated.planning.serving import MeasuredService, ask_all, decision_calls
from tests.command_line import Command
from tests.integration.postgres_server import PostgresServer

DIM = 5
SHARE = 0.25


@pytest.fixture(scope="module")
def costs() -> Costs:
    """Of this machine."""
    return measure(dim=DIM, reward_share=SHARE, actions=4)


def test_cores_of_a_service_are_near_the_plan(costs: Costs, tmp_path: Path, full: bool) -> None:
    """Within a factor of two, or of ten beside other tests; benchmarks/plan.py requires 30 %."""
    rate, seconds = 120.0, 3.0
    demand = Demand(rate, 1e-9, DIM, 60.0)
    log = costs.logs["sqlite"]
    planned = decider_load(log, demand, 1, commit_size(rate, log.service.wait))
    planned += learner_load(log, rate)
    address = SQLiteStore(tmp_path / "service.db").address
    with MeasuredService(DelayedUCB(DIM, Bernoulli()), address, learn=True) as service:
        ask_all(service, decision_calls(50, DIM, 4), 16)
        before = service.used()
        ask_all(service, decision_calls(round(rate * seconds), DIM, 4), 16, rate=rate)
        used = service.used().since(before)
    assert used.events == rate * seconds
    factor = 2 if full else 10
    assert planned / factor < used.cpu / seconds < planned * factor


def test_bytes_and_memory_are_those_of_what_is_stored(costs: Costs) -> None:
    """A row of float32 numbers is in every decision, and in the request for each action."""
    log = costs.logs["sqlite"]
    rows = 4 * DIM * (1 + 4)
    assert rows < log.decision_bytes < rows + 1_000
    assert 30 < log.reward_bytes < log.decision_bytes
    assert 4 * DIM < costs.pending_bytes < 4 * DIM + 400


def test_every_cost_was_found(costs: Costs) -> None:
    """None is nothing, and learners that share fold in columns: never slower than records."""
    log = costs.logs["sqlite"]
    assert min(costs.choose, costs.embedded_decision, costs.embedded_reward) > 0
    assert min(log.commit.fixed, log.wait.fixed, log.event, log.publish) > 0
    assert min(log.service.request, log.service.commit, log.service.idle) > 0
    assert log.shared_event < 2 * log.event
    assert plan(costs, Demand(1.0, SHARE, DIM, 60.0)).setup.log == "sqlite"


def test_postgresql_is_measured_with_its_server(
    capsys: pytest.CaptureFixture[str], dsn: str, postgres: PostgresServer
) -> None:
    """As the command tells programs."""
    pid = ["--server-pid", postgres.pid] if sys.platform == "linux" else []
    arguments = ["--rate", 300, "--dim", DIM, "--actions", 4, "--window", "1h", "--store", dsn]
    told = json.loads(Command("plan").said(capsys, *arguments, *pid, "--json"))
    log = told["costs"]["logs"]["postgresql"]
    assert log["decision_bytes"] > 100
    assert not pid or log["server"]["fixed"] > 0
    assert [one["demand"]["rate"] for one in told["plans"]] == [300, 1e3, 1e4, 1e5, 1e6]
    assert all(one["breaks_first"] in one["loads"] for one in told["plans"])
