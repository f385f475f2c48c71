"""CPU time of one round through the public policies, as a ratio to the same round in bare BLAS.

A round chooses one of K rows with its exact propensity, counts it as pending, and learns its
reward: no refit, no ids. The references are bare: upper confidence as in benchmarks/kernels.py;
Thompson sampling with a draw θ + S z per round and the same two rank-one updates. Then ``simulate``
at d = 10, K = 20, T = 10,000 with fixed rows and geometric delays, compared with a hand-written
loop of bare BLAS calls that simulates the same and never refits.

Run: python benchmarks/policies.py
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import math
import time
from collections.abc import Callable

import numpy as np
from kernels import Bare, slice_seconds
from scipy.linalg.blas import daxpy, ddot, dgemv

from belated import Bernoulli, DelayedThompson, DelayedUCB, delays, environments, simulate
from belated.core.inputs import Matrix
from belated.model import kernels
from belated.model.model import Model
from belated.policies import Policy

TARGETS = {
    ("ucb", 20, 10): (1.2, 0.5),
    ("ucb", 100, 100): (1.15, 0.85),
    ("thompson", 20, 10): (1.6, 1.0),
    ("thompson", 100, 100): (2.0, 1.25),
}
SIMULATE = (1.6, 1.0)


class BareThompson(Bare):
    """Thompson sampling with a new draw per round."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.rng = np.random.default_rng(0)

    def round(self, rows: Matrix, y: float) -> None:
        theta, decided, observed = self.theta, self.decided.T, self.observed.T
        noise = dgemv(0.7, decided, self.rng.standard_normal(len(theta)), trans=1)
        daxpy(theta, noise)
        index = int(dgemv(1.0, rows.T, noise, trans=1).argmax())
        x = rows[index]
        p = 1.0 / (1.0 + math.exp(-ddot(x, theta)))
        self._shift(decided, x, p * (1.0 - p))
        u, q = self._shift(observed, x, p * (1.0 - p))
        daxpy(u, theta, a=(y - p) / (1.0 + p * (1.0 - p) * q))


class Ours:
    """The same round through a policy and its model."""

    def __init__(self, policy: Policy, chosen: kernels.Kernels) -> None:
        self.policy = policy
        self.model = Model(policy.start, policy.family, kernels=chosen)
        self.rng = np.random.default_rng(0)

    def round(self, rows: Matrix, y: float) -> None:
        model = self.model
        choice = self.policy.choose(model, rows, self.rng)
        x = rows[choice.index]
        model.add_pending(x, choice.weight)
        model.learn(x, y)


def rounds(name: str, dim: int, arms: int, slices: int) -> dict[str, list[float]]:
    rng = np.random.default_rng(0)
    tables = rng.normal(size=(8, arms, dim))
    tables /= np.linalg.norm(tables, axis=2, keepdims=True)
    tables.flags.writeable = False
    policy: Policy
    if name == "ucb":
        policy, bare = DelayedUCB(dim, Bernoulli()), Bare(dim)
    else:
        policy, bare = DelayedThompson(dim, Bernoulli()), BareThompson(dim)
    variants: dict[str, Callable[[Matrix, float], None]] = {"bare": bare.round}
    variants["plain"] = Ours(policy, kernels.plain()).round
    variants["compiled"] = Ours(policy, kernels.compiled()).round
    times: dict[str, list[float]] = {key: [] for key in variants}
    for number in range(slices + 1):
        y = (rng.random(200) < 0.3).astype(float).tolist()
        for key, step in variants.items():
            seconds = slice_seconds(step, tables, y)
            if number:  # the first slice compiles and warms
                times[key].append(seconds / 200 * 1e6)
    return times


def bare_simulation(horizon: int, seed: int) -> float:
    """Run a hand-written loop: contexts, random numbers, a calendar of arrivals, regret."""
    world = environments.fixed(seed)
    rng = np.random.default_rng(seed)
    rows, means = next(world.rounds(1, rng))
    theta, decided, observed = np.zeros(10), np.eye(10), np.eye(10)
    bare = Bare(10)
    luck = rng.random(horizon)
    calendar: dict[int, list[int]] = {}
    for s, wait in enumerate(delays.Geometric(mean=100).sample(horizon, rng).tolist()):
        calendar.setdefault(s + wait + 1, []).append(s)
    chosen = np.empty(horizon, dtype=np.int64)
    y = np.empty(horizon)
    regret = np.empty(horizon)
    pending = np.empty(horizon, dtype=np.int64)
    n = 0
    for t in range(horizon):
        for s in calendar.pop(t, ()):
            x = rows[chosen[s]]
            p = 1.0 / (1.0 + math.exp(-ddot(x, theta)))
            u, q = bare._shift(observed.T, x, p * (1.0 - p))
            daxpy(u, theta, a=(y[s] - p) / (1.0 + p * (1.0 - p) * q))
            n += 1
        pending[t] = t - n
        linear = dgemv(1.0, rows.T, theta, trans=1)
        spread = rows.dot(decided)
        width = 0.75 * math.sqrt(math.log(2.0 + n))
        index = int((linear + width * np.sqrt(np.vecdot(spread, spread))).argmax())
        p = 1.0 / (1.0 + math.exp(-linear[index]))
        bare._shift(decided.T, rows[index], p * (1.0 - p))
        chosen[t] = index
        y[t] = luck[t] < means[index]
        regret[t] = means.max() - means[index]
    return float(regret.sum())


def simulations(repeats: int) -> dict[str, list[float]]:
    policy, delay = DelayedUCB(10, Bernoulli()), delays.Geometric(mean=100)
    times: dict[str, list[float]] = {"bare": [], "plain": [], "compiled": []}
    for seed in range(repeats + 1):
        world = environments.fixed(seed)
        for name, durations in times.items():
            start = time.process_time()
            if name == "bare":
                bare_simulation(10_000, seed)
            else:
                chosen = getattr(kernels, name)()
                simulate(policy, world, delay, horizon=10_000, seed=seed, kernels=chosen)
            if seed:
                durations.append((time.process_time() - start) / 10_000 * 1e6)
    return times


def report(title: str, times: dict[str, list[float]], targets: tuple[float, float]) -> None:
    bare = np.array(times["bare"])
    print(f"{title}: bare {np.median(bare):.1f}")
    for name, target in zip(("plain", "compiled"), targets, strict=True):
        low, middle, high = np.quantile(np.array(times[name]) / bare, [0.25, 0.5, 0.75])
        figures = f"{np.median(times[name]):.1f}, {middle:.2f} [{low:.2f}, {high:.2f}]"
        print(f"  {name:<9} {figures}, target {target}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slices", type=int, default=40)
    arguments = parser.parse_args()
    print("CPU µs a round (median), ratio to bare with quartiles, target")
    for (name, dim, arms), targets in TARGETS.items():
        report(f"{name}, d={dim}, K={arms}", rounds(name, dim, arms, arguments.slices), targets)
    report("simulate, d=10, K=20", simulations(max(3, arguments.slices // 4)), SIMULATE)


if __name__ == "__main__":
    main()
