"""Sweeps that go on from a file of finished runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from belated import DelayedUCB, delays, environments, simulate_many
from belated.environments import Environment
from belated.policies import Policy

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
    first = swept(path, ucb(0.95), range(2))
    assert swept(path, ucb(0.95), range(3))[:2] == first
    assert len(path.read_text().splitlines()) == 3


def test_other_settings_under_an_old_name_are_run_anew(tmp_path: Path) -> None:
    """Also where only what a function makes has changed."""
    path = tmp_path / "runs.jsonl"
    first = swept(path, ucb(0.95), range(2))
    assert swept(path, ucb(0.1), range(2)) != first
    assert swept(path, ucb(0.95), range(2)) == first
    assert len(path.read_text().splitlines()) == 4
