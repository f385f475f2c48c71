"""The problems of the benchmark, as files that any library can play.

A file holds everything in a run that does not depend on the choices: ``offered`` (rounds × actions
× d if all actions share one θ, rounds × d if each has its own), the ``means`` of the rewards,
``uniform`` numbers (a reward is 1 if the number is below the mean) or, for numeric rewards, their
``noise``; and under ``delay: …`` the delay of each reward in rounds, by round, or by round and
action. Every entry plays the same file.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
from datasets import bananas, breast_cancer, image_segments, open_bandit, phishing, wine

from belated import environments
from belated.simulation.environments import GLM, Environment

HERE = Path(__file__).parent
Rng = np.random.Generator
#: What is offered, and the means of the rewards.
World = tuple[np.ndarray, np.ndarray]


def sigmoid(z: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-z))


def simulated(make: Callable[[int], Environment]) -> Callable[[int, int], World]:
    """Return a problem of `belated.environments`, for tuning."""

    def world(horizon: int, seed: int) -> World:
        environment = make(seed)
        rounds = list(environment.rounds(horizon, np.random.default_rng([seed, 100])))
        offered, means = (np.array(part) for part in zip(*rounds, strict=True))
        if not isinstance(environment, GLM):  # the first block of the first row is the context
            offered = offered[:, 0, : offered.shape[2] // offered.shape[1]]
        return offered, means

    return world


def normal(horizon: int, seed: int) -> World:
    """Linear rewards with normal noise of .5."""
    rng = np.random.default_rng([seed, 101])
    rows = rng.normal(size=(horizon, 10, 8)) / np.sqrt(8)
    return rows, rows @ rng.normal(size=8)


def correlated(horizon: int, seed: int) -> World:
    """Logistic rewards; features correlate by .9 with their neighbours, and half have no effect."""
    rng = np.random.default_rng([seed, 102])
    dim, arms = 12, 10
    distances = np.abs(np.subtract.outer(np.arange(dim), np.arange(dim)))
    root = np.linalg.cholesky(0.9**distances)
    rows = rng.normal(size=(horizon, arms, dim)) @ root.T / np.sqrt(dim)
    theta = 4.0 * rng.normal(size=dim) * (np.arange(dim) % 2)
    return rows, sigmoid(rows @ theta - 1.0)


def misspecified(horizon: int, seed: int) -> World:
    """Rewards follow a bump and a sine of the score, which no generalized linear model has."""
    rng = np.random.default_rng([seed, 103])
    rows = rng.normal(size=(horizon, 10, 6)) / np.sqrt(6)
    score = 2.0 * (rows @ rng.normal(size=6))
    return rows, np.clip(0.15 + 0.5 * sigmoid(2.0 * score) + 0.2 * np.sin(3.0 * score), 0.01, 0.99)


def many_actions(horizon: int, seed: int) -> World:
    """A catalogue of 200 items with fixed features, of which a user is offered 40."""
    rng = np.random.default_rng([seed, 104])
    catalogue = rng.normal(size=(200, 10)) / np.sqrt(10)
    offers = rng.random((horizon, 200)).argpartition(40, axis=1)[:, :40]
    rows = catalogue[offers]
    return rows, sigmoid(3.0 * (rows @ rng.normal(size=10)) - 3.0)


def heavy_rewards(horizon: int, seed: int) -> World:
    """Linear rewards; the noise, drawn in :func:`noise_of`, has a variance but no third moment."""
    rng = np.random.default_rng([seed, 105])
    rows = rng.normal(size=(horizon, 10, 8)) / np.sqrt(8)
    return rows, 5.0 + 2.0 * (rows @ rng.normal(size=8))


def noise_of(problem: str, horizon: int, rng: Rng) -> np.ndarray:
    if problem == "heavy rewards":
        return rng.standard_t(2.5, size=horizon)
    return 0.5 * rng.normal(size=horizon)


def classes(table: Callable[[], World]) -> Callable[[int, int], World]:
    """Return the problem to name the class of a drawn row: the reward is 1 if it is right.

    Tables give features and the mean of each action; features are standardized, and 1 is appended.
    """

    def world(horizon: int, seed: int) -> World:
        features, means = table()
        spread = features.std(axis=0)
        scaled = (features - features.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
        ones = np.ones((len(features), 1))
        rows = np.hstack([ones, scaled / np.sqrt(scaled.shape[1])]) / np.sqrt(2)
        sample = np.random.default_rng([seed, 106]).integers(len(rows), size=horizon)
        return rows[sample], means[sample]

    return world


WORLDS: dict[str, Callable[[int, int], World]] = {
    "fixed": simulated(environments.fixed),
    "users": simulated(environments.users),
    "ball": simulated(environments.ball),
    "arms": simulated(environments.arms),
    "digits": simulated(environments.digits),
    "normal": normal,
    "correlated": correlated,
    "misspecified": misspecified,
    "many actions": many_actions,
    "heavy rewards": heavy_rewards,
    "breast cancer": classes(breast_cancer),
    "wine": classes(wine),
    "image segments": classes(image_segments),
    "phishing": classes(phishing),
    "bananas": classes(bananas),
    "open bandit": classes(open_bandit),
}


def delays(horizon: int, arms: int, rng: Rng) -> dict[str, np.ndarray]:
    """Return the delays of all laws; ``by action`` has a column for each action."""
    rounds = np.arange(horizon)
    means = 20.0 * 4.0 ** (np.arange(arms) % 4)
    lomax = 100.0 * (rng.random(horizon) ** (-1 / 1.2) - 1.0)
    return {
        "none": np.zeros(horizon, int),
        "geometric": rng.geometric(1.0 / 201.0, size=horizon) - 1,
        "batches": 299 - rounds % 300,
        "heavy tail": np.minimum(lomax, horizon).astype(int),
        "by action": np.outer(rng.exponential(size=horizon), means).astype(int),
    }


def file_of(problem: str, numbers: bool, seed: int, horizon: int) -> Path:
    """Return the file of a problem; write it unless it is there."""
    path = HERE / ".problems" / f"{problem}-{seed}-{horizon}.npz"
    if path.exists():
        return path
    offered, means = WORLDS[problem](horizon, seed)
    rng = np.random.default_rng([seed, 107])
    luck = {"uniform": rng.random(horizon)}
    if numbers:
        luck["noise"] = noise_of(problem, horizon, rng)
    waits = {
        f"delay: {name}": delay for name, delay in delays(horizon, means.shape[1], rng).items()
    }
    path.parent.mkdir(exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}.npz")
    np.savez_compressed(
        unfinished, offered=offered.astype(np.float32), means=means, **luck, **waits
    )
    return unfinished.replace(path)  # at once: another process may be looking for it
