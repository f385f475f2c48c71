"""Simulate many policies, environments, delays and seeds in parallel; return one tidy table."""

from __future__ import annotations

import itertools
import json
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from belated.core.rewards import Rewards
from belated.delays import DelayProcess
from belated.exceptions import DelayWarning, extra
from belated.policies import Policy
from belated.policies.fingerprint import fingerprint
from belated.simulation.environments import Environment
from belated.simulation.rounds import simulate

if TYPE_CHECKING:
    import pandas as pd

PolicyFor = Policy | Callable[[Environment], Policy]
Run = dict[str, Any]


def simulate_many(
    policies: Mapping[str, PolicyFor],
    environments: Mapping[str, Callable[[int], Environment]],
    delays: Mapping[str, DelayProcess],
    *,
    seeds: Iterable[int],
    horizon: int,
    rewards: Rewards | None = None,
    checkpoints: Sequence[int] = (),
    resume: str | Path | None = None,
    jobs: int = -1,
    progress: bool = True,
) -> pd.DataFrame:
    """Run every policy in every environment with every delay, once per seed.

    For a given seed, all policies are run on the same problem with the same contexts, random
    numbers and delays, which allows paired comparisons.

    Args:
        policies: by name, a policy, or a function that returns a policy for an environment.
        environments: functions by name that return an environment for a seed, such as
            ``environments.fixed``.
        delays: delay processes by name.
        seeds: seeds of problems and runs.
        horizon: number of rounds T.
        rewards: what a missing reward means, as in :func:`~belated.simulate`; the window is in
            seconds, and a round is one second. None means that every reward is reported.
        checkpoints: rounds at which regret is recorded, in addition to the last round.
        resume: a file with one JSON line per finished run; these runs are not repeated.
        jobs: number of processes; -1 uses all cores.
        progress: whether to show a progress bar with the remaining time.

    Returns:
        One row per run and checkpoint: policy, environment, delay, seed, round, regret, pending,
        seconds (CPU time of the whole run).

    >>> from belated import Bernoulli, DelayedUCB, delays, environments
    >>> table = simulate_many(
    ...     {"ucb": lambda world: DelayedUCB(world.dim, world.family)},
    ...     {"fixed": environments.fixed},
    ...     {"none": delays.Constant(0)},
    ...     seeds=range(2), horizon=50, jobs=1, progress=False,
    ... )
    >>> list(table.columns[:5]), len(table)
    (['policy', 'environment', 'delay', 'seed', 'round'], 2)
    """
    with extra("simulate_many", "experiments"):
        import joblib
        import pandas as pd
        from tqdm import tqdm
    rounds = sorted({*checkpoints, horizon})
    seeds = list(seeds)
    finished = _read(resume)
    settings = {
        (world, name): _chosen(policy, example)
        for world, make in environments.items()
        for example in map(make, seeds[:1])
        for name, policy in policies.items()
    }
    todo = []
    runs: list[Run] = []
    cells = itertools.product(seeds, environments.items(), delays.items(), policies.items())
    for seed, (world, make), (delay_name, delay), (name, policy) in cells:
        cell: Run = {"policy": name, "environment": world, "delay": delay_name, "seed": seed}
        # The fingerprint detects a policy or delay that has changed under the same name, even if
        # only a default value has changed.
        meaning = () if rewards is None else (rewards,)
        mark = fingerprint(settings[world, name], delay, *meaning)
        cell |= {"rounds": rounds, "fingerprint": mark}
        if (finished_run := finished.get(_key(cell))) is not None:
            runs.append(finished_run)
        else:
            todo.append(joblib.delayed(_run)(cell, policy, make, delay, rewards))
    with joblib.parallel_config("loky", n_jobs=jobs, inner_max_num_threads=1):
        results: Iterator[Run] = joblib.Parallel(return_as="generator_unordered")(todo)
        for run in tqdm(results, total=len(todo), unit="run", disable=not progress):
            _append(resume, run)
            runs.append(run)
    table = pd.DataFrame([row for run in runs for row in _rows(run)])
    return table.sort_values(["environment", "delay", "policy", "seed", "round"], ignore_index=True)


def _run(
    cell: Run,
    policy: PolicyFor,
    make: Callable[[int], Environment],
    delay: DelayProcess,
    rewards: Rewards | None,
) -> Run:
    world = make(cell["seed"])
    chosen = _chosen(policy, world)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DelayWarning)  # long delays are intentional in a sweep
        trace = simulate(
            chosen, world, delay, horizon=cell["rounds"][-1], seed=cell["seed"], rewards=rewards
        )
    return cell | {
        "regret": [float(trace.regret[t - 1]) for t in cell["rounds"]],
        "pending": [int(trace.pending[t - 1]) for t in cell["rounds"]],
        "seconds": time.process_time() - start,
    }


def _rows(run: Run) -> Iterator[Run]:
    for t, regret, pending in zip(run["rounds"], run["regret"], run["pending"], strict=True):
        cell = {name: run[name] for name in ("policy", "environment", "delay", "seed")}
        results = {"round": t, "regret": regret, "pending": pending, "seconds": run["seconds"]}
        yield cell | results


def _chosen(policy: PolicyFor, world: Environment) -> Policy:
    return policy if isinstance(policy, Policy) else policy(world)


def _key(run: Run) -> str:
    names = ("policy", "environment", "delay", "seed", "rounds", "fingerprint")
    return json.dumps([run[name] for name in names])


def _read(path: str | Path | None) -> dict[str, Run]:
    if path is None or not Path(path).exists():
        return {}
    runs = {}
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        try:
            run = json.loads(line)
        except json.JSONDecodeError:  # the last line of an interrupted sweep may be incomplete
            continue
        runs[_key(run)] = run
    return runs


def _append(path: str | Path | None, run: Run) -> None:
    if path is not None:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(run) + "\n")
