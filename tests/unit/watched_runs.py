"""Runs of a small simulation, watched round by round."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from belated import (
    environments,
    simulate,
)
from belated.core.inputs import Matrix, Vector
from belated.delays import DelayProcess
from belated.model.families import Family
from belated.model.model import Model
from belated.policies import Choice, Policy
from belated.simulation import Trace


class Seen(NamedTuple):
    """The model as it was when a round's choice was made."""

    n: int
    pending: int
    theta: Vector
    observed: Matrix
    decided: Matrix
    x: Vector


def watched(policy: Policy) -> list[Seen]:
    """Keeps what this policy sees at each of its choices from now on."""
    seen: list[Seen] = []
    choose = policy.choose

    def watching(model: Model, rows: Any, rng: np.random.Generator) -> Choice:
        choice = choose(model, rows, rng)
        W, V = (np.asarray(np.linalg.inv(S @ S.T)) for S in (model.observed, model.decided))
        x = np.array(rows[choice.index])
        seen.append(Seen(model.n, model.pending, model.theta.copy(), W, V, x))
        return choice

    object.__setattr__(policy, "choose", watching)
    return seen


def world(family: Family | None = None) -> environments.GLM:
    """Fresh rows of three numbers, four a round."""
    return environments.fresh(1, dim=3, n_arms=4, norm=1.0, family=family)


def run(policy: Policy, law: DelayProcess, horizon: int, **more: Any) -> tuple[Trace, list[Seen]]:
    """A run, and what the policy saw."""
    seen = watched(policy)
    return simulate(policy, world(policy.family), law, horizon=horizon, **more), seen


def arrived_by(delay: NDArray[np.int64], t: int) -> NDArray[np.bool_]:
    """Which rounds s = 1, 2, … before t have s + D_s ≤ t - 1."""
    rounds = np.arange(1, t)
    return np.asarray(rounds + delay[: t - 1] <= t - 1)


def gram(rows: list[Vector], counted: NDArray[np.bool_]) -> Matrix:
    """Σ x xᵀ over the counted ones of the first rows."""
    table = np.array(rows)[: len(counted)].reshape(len(counted), 3)[counted]
    return np.asarray(table.T @ table)
