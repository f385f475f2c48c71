"""Measures what things cost here: some seconds for each store, mostly in CPU time."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from belated.bandit import Bandit
from belated.families import Bernoulli
from belated.journals import SQLiteStore, open_store
from belated.planning.costs import Costs
from belated.planning.journal_costs import JournalBench
from belated.planning.processes import ServerProcesses, remembered_bytes, wait_for_kernels
from belated.planning.traffic import Traffic
from belated.policies import DelayedUCB, Policy
from belated.rewards import Explicit

#: Decisions and rewards of an embedded bandit.
EMBEDDED = 150


def measure(
    *,
    dim: int,
    reward_share: float,
    actions: int = 10,
    stores: Sequence[str] = (),
    server_pids: Sequence[int] = (),
    progress: Callable[[str], None] = lambda what: None,
) -> Costs:
    """Measure on this machine: SQLite in a temporary folder, and other stores if they are given.

    In a store that is given, the journals of two bandits named ``belated-plan-…`` are left behind:
    use one for tests.

    Args:
        dim: Features of a row.
        reward_share: Rewards for each decision.
        actions: Rows of a request.
        stores: Addresses of stores whose tables exist.
        server_pids: Processes of their servers on this machine, whose CPU is measured, too.
        progress: Is told what is being measured.
    """
    policy = DelayedUCB(dim, Bernoulli())
    servers = ServerProcesses(server_pids)
    wait_for_kernels()
    traffic = Traffic(policy, actions)
    with tempfile.TemporaryDirectory(prefix="belated-plan-") as folder:
        progress("decisions")
        embedded = _embedded(policy, actions, Path(folder, "embedded.db"))
        progress("memory")
        pending = remembered_bytes(policy)
        logs = {}
        for address in (SQLiteStore(Path(folder, "plan.db")).address, *stores):
            store = open_store(address)
            progress(store.name)
            of_it = servers if store.name != "sqlite" else ServerProcesses(())
            bench = JournalBench(store, address, traffic, reward_share, of_it)
            logs[store.name] = bench.costs()
    return Costs(dim, actions, traffic.choose_cost(), *embedded, pending, logs)


def _embedded(policy: Policy, actions: int, path: Path) -> tuple[float, float]:
    """Seconds by the clock of a decision and of a reward: a disk is waited for."""
    rows = np.random.default_rng(0).uniform(-1, 1, (actions, policy.dim))
    with Bandit(policy=policy, rewards=Explicit(), journal=SQLiteStore(path).journal()) as bandit:
        bandit.decide(rows)
        start = time.perf_counter()
        ids = [bandit.decide(rows).id for _ in range(EMBEDDED)]
        decided = time.perf_counter()
        for n, id in enumerate(ids):
            bandit.observe(id, float(n % 2))
        ended = time.perf_counter()
    return (decided - start) / EMBEDDED, (ended - decided) / EMBEDDED
