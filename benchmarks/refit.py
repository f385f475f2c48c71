"""CPU time and memory of a logistic refit, as a ratio to a bare BLAS Newton loop on float64 rows.

The bare loop holds the rows in float64 and scales a copy of them in every pass, as one would write
it by hand; it stops by the same rule. Ours reads float32 rows in chunks. Each runs alone in a
separate process (memory is the peak above what was in use before the rows were created, so the rows
count), in turn, on one BLAS thread.

Run: python benchmarks/refit.py [--rows 1000000] [--dim 50] [--repeats 3]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.blas import dgemv, dsyrk
from scipy.special import expit

from belated import Bernoulli
from belated.core.inputs import Vector
from belated.model.estimators import Laplace
from belated.model.priors import Prior
from belated.model.statistics import Observations

TIME_TARGET, MEMORY_TARGET = 1.3, 1.5


def pieces(rows: int, dim: int) -> Iterator[tuple[NDArray[np.float32], Vector]]:
    """Yield unit rows and logistic rewards in chunks."""
    rng = np.random.default_rng(0)
    theta = rng.normal(size=dim)
    theta *= 3.0 / np.linalg.norm(theta)
    for start in range(0, rows, 10_000):
        piece = rng.normal(size=(min(10_000, rows - start), dim))
        piece /= np.linalg.norm(piece, axis=1, keepdims=True)
        y = rng.random(len(piece)) < expit(piece @ theta)
        yield piece.astype(np.float32), y.astype(np.float64)


def bare(table: NDArray[np.float64], y: Vector) -> tuple[Vector, int]:
    theta = np.zeros(table.shape[1])
    for passes in range(1, 26):
        p = expit(dgemv(1.0, table.T, theta, trans=1))
        scaled = table * np.sqrt(p * (1.0 - p))[:, None]
        hessian = dsyrk(1.0, scaled.T, lower=1) + np.eye(len(theta))
        gradient = dgemv(1.0, table.T, y - p) - theta
        step = cho_solve(cho_factor(hessian, lower=True), gradient)
        theta += step
        if gradient @ step <= 1e-8:
            return theta, passes
    raise RuntimeError("no convergence")


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def child(which: str, rows: int, dim: int) -> None:
    before = peak()
    if which == "bare":
        table, y = np.empty((rows, dim)), np.empty(rows)
        filled = 0
        for piece, rewards in pieces(rows, dim):
            table[filled : filled + len(piece)] = piece
            y[filled : filled + len(piece)] = rewards
            filled += len(piece)
        start = time.process_time()
        theta, passes = bare(table, y)
    else:
        seen = Observations(dim)
        for piece, rewards in pieces(rows, dim):
            seen.extend(piece, rewards)
        start = time.process_time()
        estimate = Laplace().fit(seen, family=Bernoulli(), prior=Prior.ridge(dim))
        theta, passes = estimate.theta, estimate.iterations
    seconds = time.process_time() - start
    print(seconds, (peak() - before) / (4.0 * rows * dim), passes, float(theta[0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--child", choices=("bare", "ours"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child, arguments.rows, arguments.dim)
        return
    results: dict[str, list[list[float]]] = {"bare": [], "ours": []}
    for _ in range(arguments.repeats):
        for name, runs in results.items():
            command = [sys.executable, __file__, "--child", name]
            command += ["--rows", str(arguments.rows), "--dim", str(arguments.dim)]
            result = subprocess.run(command, check=True, capture_output=True, text=True)
            runs.append([float(word) for word in result.stdout.split()])
    print(f"{arguments.rows} x {arguments.dim} logistic rows, memory in float32 rows")
    for name, runs in results.items():
        seconds, memory, passes, theta = np.median(runs, axis=0)
        print(f"  {name}: {seconds:.2f} s CPU, {passes:.0f} passes, memory {memory:.2f},", end=" ")
        print(f"theta[0] {theta:.9f}")
    ratios = np.array(results["ours"])[:, 0] / np.array(results["bare"])[:, 0]
    print(
        f"  time ours/bare {np.median(ratios):.2f} [{ratios.min():.2f}, {ratios.max():.2f}],",
        end=" ",
    )
    print(f"target {TIME_TARGET}; memory target {MEMORY_TARGET}")


if __name__ == "__main__":
    main()
