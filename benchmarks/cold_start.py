"""Start-up times of a new process without compiled kernels.

Each is measured in separate processes, with an empty numba cache:

* CPU time of ``import belated`` beyond that of ``import numpy``;
* wall time of the first decision, and p99 of decisions while the kernels are compiled;
* wall time of ``belated compare --figure``.

The machine may be busy: each figure is given as minimum, median and maximum of all repetitions.

Run: python benchmarks/cold_start.py
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

DECIDE = """
import time
from datetime import timedelta
import numpy as np
from belated import Bandit, Bernoulli, DelayedUCB, Explicit
from belated.model import kernels

rows = np.random.default_rng(0).normal(size=(10, 20)).astype(np.float32)
start = time.perf_counter()
bandit = Bandit(policy=DelayedUCB(20, Bernoulli()), rewards=Explicit(timedelta(days=1)))
bandit.decide(rows=rows)
first = time.perf_counter() - start
taken = []
while kernels.complete() is kernels.plain():
    before = time.perf_counter()
    made = bandit.decide(rows=rows)
    taken.append(time.perf_counter() - before)
    bandit.observe(made.id, 1.0)
    time.sleep(0.002)
print(first, np.percentile(taken, 99), time.perf_counter() - start)
"""
REPETITIONS = 3
COMPARE = ["-m", "belated", "compare", "--delay", "Batched(500)", "Constant(0)", "--figure"]


def main() -> None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # installed packages have bytecode
    cpu("import belated")
    numpy = repeated(3 * REPETITIONS, lambda: cpu("import numpy"))
    belated = repeated(3 * REPETITIONS, lambda: cpu("import numpy, belated"))
    say("import numpy, CPU", numpy, 1e3, "ms")
    say(
        "import belated beyond it, CPU",
        [seconds - min(numpy) for seconds in belated],
        1e3,
        "ms",
        150,
    )
    cold = repeated(REPETITIONS, decisions)
    say("first decision, cold", [first for first, _, _ in cold], 1e3, "ms", 300)
    say("p99 of decide while compiling", [p99 for _, p99, _ in cold], 1e3, "ms", 20)
    say("until all kernels are compiled", [whole for _, _, whole in cold], 1.0, "s")
    say("belated compare to its picture, cold", repeated(REPETITIONS, picture), 1.0, "s", 60)


def repeated(times: int, measure: Callable[[], T]) -> list[T]:
    return [measure() for _ in range(times)]


def cpu(code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def decisions() -> list[float]:
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"NUMBA_CACHE_DIR": cache}
        command = [sys.executable, "-c", DECIDE]
        ran = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return [float(word) for word in ran.stdout.split()]


def picture() -> float:
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"NUMBA_CACHE_DIR": cache}
        command = [sys.executable, *COMPARE, str(Path(cache) / "regret.png")]
        start = time.monotonic()
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        return time.monotonic() - start


def say(what: str, found: list[float], scale: float, unit: str, most: float | None = None) -> None:
    least, middle, greatest = (
        scale * value for value in (min(found), statistics.median(found), max(found))
    )
    goal = "" if most is None else f", at most {most:g} wanted"
    print(f"{what:38} {least:.1f} {middle:.1f} {greatest:.1f} {unit}{goal}", flush=True)


if __name__ == "__main__":
    main()
