"""Sweeps that go on from a file of finished runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from belated import (
    Bernoulli,
    ConversionsOnly,
    DelayedUCB,
    delays,
    environments,
    simulate,
    simulate_many,
)
from belated.model.priors import Prior
from belated.policies import Policy
from belated.simulation.environments import Environment

pytest.importorskip("joblib")


def ucb(alpha: float) -> Callable[[Environment], Policy]:
    """What makes a policy for an environment."""

    def make(world: Environment) -> Policy:
        return DelayedUCB(world.dim, world.family, alpha=alpha)

    return make


def swept(path: Path, policy: Callable[[Environment], Policy], seeds: range) -> list[float]:
    """The regrets of a small sweep."""
    table = simulate_many(
        {"ucb": policy},
        {"fixed": environments.fixed},
        {"none": delays.Constant(0)},
        seeds=seeds,
        horizon=30,
        resume=path,
        jobs=1,
        progress=False,
    )
    return [float(regret) for regret in table["regret"]]


def test_finished_runs_are_not_repeated(tmp_path: Path) -> None:
    """A longer sweep adds its own."""
    path = tmp_path / "runs.jsonl"
    traces = swept(path, ucb(0.95), range(2))
    assert swept(path, ucb(0.95), range(3))[:2] == traces
    assert len(path.read_text().splitlines()) == 3


def test_changed_settings_under_the_same_name_run_again(tmp_path: Path) -> None:
    """Also where only what a function makes has changed."""
    path = tmp_path / "runs.jsonl"
    traces = swept(path, ucb(0.95), range(2))
    assert swept(path, ucb(0.1), range(2)) != traces
    assert swept(path, ucb(0.95), range(2)) == traces
    assert len(path.read_text().splitlines()) == 4


def test_changed_number_in_a_large_prior_runs_again(tmp_path: Path) -> None:
    """Though it does not show in the policy's repr."""
    path = tmp_path / "runs.jsonl"
    texts = []
    for precision in (1.0, 100.0):
        prior = Prior(np.zeros(40), np.eye(40))
        prior.precision[20, 20] = precision
        policy = DelayedUCB(40, Bernoulli(), prior=prior)
        texts.append(repr(policy))
        simulate_many(
            {"ucb": policy},
            {"fixed": lambda seed: environments.fixed(seed, dim=40)},
            {"none": delays.Constant(0)},
            seeds=[0],
            horizon=30,
            resume=path,
            jobs=1,
            progress=False,
        )
    assert texts[0] == texts[1]
    assert len(path.read_text().splitlines()) == 2


def test_a_sweep_says_what_a_missing_reward_means(tmp_path: Path) -> None:
    """As one run does; and runs of another meaning are not taken for its own."""
    path, regrets = tmp_path / "runs.jsonl", []
    delay = delays.Geometric(mean=20)
    for rewards in (None, ConversionsOnly("60s")):
        table = simulate_many(
            {"ucb": ucb(0.95)}, {"fixed": environments.fixed}, {"late": delay},
            seeds=[0], horizon=60, rewards=rewards, resume=path, jobs=1, progress=False,
        )  # fmt: skip
        world = environments.fixed(0)
        trace = simulate(ucb(0.95)(world), world, delay, horizon=60, seed=0, rewards=rewards)
        assert float(table["regret"].iloc[0]) == trace.regret[-1]
        regrets.append(trace.regret[-1])
    assert regrets[0] != regrets[1]
    assert len(path.read_text().splitlines()) == 2


def test_a_trace_is_a_frame_and_a_picture() -> None:
    """A line a round; what never comes has no delay."""
    pytest.importorskip("matplotlib")
    world = environments.fixed(0)
    delay = delays.Mixture(never=0.5, base=delays.Constant(3))
    trace = simulate(ucb(0.95)(world), world, delay, horizon=40)
    frame = trace.frame()
    assert frame.index.name == "round"
    assert list(frame["regret"]) == trace.regret.tolist()
    assert frame["delay"].isna().sum() == (trace.delay == delays.NEVER).sum() > 0
    assert set(frame["delay"].dropna()) == {3}
    regret_axes, pending_axes = trace.plot().axes
    assert regret_axes.lines[0].get_ydata().tolist() == trace.regret.tolist()
    assert pending_axes.lines[0].get_ydata().tolist() == trace.pending.tolist()
