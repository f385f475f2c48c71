"""CPU time of one round through ``models.py``, as a ratio to the same round in bare BLAS calls.

A round chooses one of K rows by upper confidence, counts it as pending, and learns its reward: two
rank-one root updates, logistic rewards, no refit, no ids. All variants run interleaved in slices
in one process, on one BLAS thread; the figure is the median of the slices' ratios.

Run: python benchmarks/kernels.py
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import itertools
import math
import time
from collections.abc import Callable

import numpy as np
from scipy.linalg.blas import daxpy, ddot, dgemm, dgemv, dger

from belated import Bernoulli
from belated.core.inputs import Matrix, Vector
from belated.model import kernels
from belated.model.model import Model
from belated.model.priors import Prior

WIDTH = 1.5
TARGETS = {(20, 10): (1.1, 0.45), (100, 100): (1.1, 0.8)}


class Bare:
    """The reference: SciPy's BLAS and nothing else, as an expert would write it by hand."""

    def __init__(self, dim: int) -> None:
        self.theta = np.zeros(dim)
        self.decided = np.eye(dim)
        self.observed = np.eye(dim)

    def round(self, rows: Matrix, y: float) -> None:
        theta, decided, observed = self.theta, self.decided.T, self.observed.T
        means = dgemv(1.0, rows.T, theta, trans=1)
        spread = dgemm(1.0, decided, rows.T)
        deviations = np.sqrt(np.vecdot(spread.T, spread.T))
        index = int((means + WIDTH * deviations).argmax())
        x = rows[index]
        p = 1.0 / (1.0 + math.exp(-means[index]))
        self._shift(decided, x, p * (1.0 - p))
        p = 1.0 / (1.0 + math.exp(-ddot(x, theta)))
        weight = p * (1.0 - p)
        u, q = self._shift(observed, x, weight)
        daxpy(u, theta, a=(y - p) / (1.0 + weight * q))

    @staticmethod
    def _shift(root: Matrix, x: Vector, weight: float) -> tuple[Vector, float]:
        v = dgemv(1.0, root, x)
        q = ddot(v, v)
        u = dgemv(1.0, root, v, trans=1)
        gain = (1.0 - 1.0 / math.sqrt(1.0 + weight * q)) / q
        dger(-gain, v, u, a=root, overwrite_a=1)
        return u, q


class Ours:
    """The same round through the model."""

    def __init__(self, dim: int, chosen: kernels.Kernels) -> None:
        self.model = Model(Prior.ridge(dim), Bernoulli(), kernels=chosen)

    def round(self, rows: Matrix, y: float) -> None:
        model = self.model
        index, _, _, weight = model.argmax_ucb(rows, WIDTH)
        x = rows[index]
        model.add_pending(x, weight)
        model.learn(x, y)


def slice_seconds(step: Callable[[Matrix, float], None], tables: Matrix, y: list[float]) -> float:
    start = time.process_time()
    for table, reward in zip(itertools.cycle(tables), y, strict=False):
        step(table, reward)
    return time.process_time() - start


def measure(dim: int, arms: int, slices: int, per_slice: int) -> dict[str, list[float]]:
    rng = np.random.default_rng(0)
    # Few enough tables to stay in the cache, like rows that were just computed.
    tables = rng.normal(size=(8, arms, dim))
    tables /= np.linalg.norm(tables, axis=2, keepdims=True)
    tables.flags.writeable = False  # as the rows of events are
    variants: dict[str, Callable[[Matrix, float], None]] = {"bare": Bare(dim).round}
    variants["plain"] = Ours(dim, kernels.plain()).round
    variants["compiled"] = Ours(dim, kernels.compiled()).round
    times: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(slices + 1):
        y = (rng.random(per_slice) < 0.3).astype(float).tolist()
        for name, step in variants.items():
            seconds = slice_seconds(step, tables, y)
            if number:  # the first slice compiles and warms
                times[name].append(seconds / per_slice * 1e6)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slices", type=int, default=60)
    arguments = parser.parse_args()
    print("d, K: CPU µs a round (median of slices), ratio to bare with quartiles, target")
    for (dim, arms), targets in TARGETS.items():
        times = measure(dim, arms, arguments.slices, per_slice=200)
        bare = np.array(times["bare"])
        print(f"{dim}, {arms}: bare {np.median(bare):.1f}")
        for name, target in zip(("plain", "compiled"), targets, strict=True):
            ratios = np.array(times[name]) / bare
            low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
            figures = f"{np.median(times[name]):.1f}, {middle:.2f} [{low:.2f}, {high:.2f}]"
            print(f"  {name:<9} {figures}, target {target}")


if __name__ == "__main__":
    main()
