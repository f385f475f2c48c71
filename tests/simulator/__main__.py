"""The fault simulator: the real library under a simulated clock, store and network.

One seed draws the settings of a run, its faults, and everything that happens. First anything may
fail; then everything heals, and all bandits must agree: with each other, with a replay of the
journal, and with the rules as the oracle states them.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulator.runs import Sweep, run, sweep
from tests.simulator.settings import Settings


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds of the command line; return 1 if something failed."""
    parser = argparse.ArgumentParser("python -m tests.simulator", description=__doc__)
    parser.add_argument(
        "seed", type=int, nargs="*", help="run these seeds and print all that happens"
    )
    parser.add_argument("--brief", action="store_true", help="print only the result of each run")
    parser.add_argument(
        "--seeds", type=int, default=0, help="run so many seeds and count the faults"
    )
    parser.add_argument("--first", type=int, default=0, help="the first of these seeds (0)")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes (1)")
    parser.add_argument(
        "--shared", action="store_true", help="run a service whose learners share the partitions"
    )
    options = parser.parse_args(arguments)
    for seed in options.seed:
        if not options.brief:
            print(Settings.draw(seed, shared=options.shared))
        result = run(seed, None if options.brief else print, shared=options.shared)
        print(f"seed {seed}: trace {result.trace}, digest {result.digest}")
    if not options.seeds:
        return 0
    seeds = range(options.first, options.first + options.seeds)
    start = logged = time.monotonic()

    def progress(done: Sweep) -> None:
        nonlocal logged
        now = time.monotonic()
        eta = (now - start) * (options.seeds / done.seeds - 1)
        line = (
            f"{done.seeds} of {options.seeds} seeds, {len(done.failures)} failed, {eta:.0f} s left"
            f" {sorted(done.failures) or ''}"
        )
        if sys.stderr.isatty():
            print(f"\r{line:60}", end="", file=sys.stderr, flush=True)
        elif now >= logged + 60:  # one line per minute in a log
            logged = now
            print(line, file=sys.stderr, flush=True)

    totals = sweep(seeds, jobs=options.jobs, shared=options.shared, progress=progress)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    print(totals)
    for name in totals.never:
        print(f"never happened: {name}")
    return 1 if totals.failures or totals.never else 0


if __name__ == "__main__":
    sys.exit(main())
