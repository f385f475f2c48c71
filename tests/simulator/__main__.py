"""Run seeds: ``python -m tests.simulator 17``, or ``--seeds 10000 --jobs 2``."""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulator.knobs import Knobs, shared_knobs
from tests.simulator.runs import run
from tests.simulator.sweep import Sweep, sweep


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; 1 if something failed."""
    parser = argparse.ArgumentParser("python -m tests.simulator", description=__doc__)
    parser.add_argument("seed", type=int, nargs="*", help="run these, and say all that happens")
    parser.add_argument("--brief", action="store_true", help="say only what each run came to")
    parser.add_argument("--seeds", type=int, default=0, help="run so many, and count the faults")
    parser.add_argument("--first", type=int, default=0, help="of these, the first (0)")
    parser.add_argument("--jobs", type=int, default=1, help="in so many processes (1)")
    parser.add_argument(
        "--shared", action="store_true", help="a service whose learners share the partitions"
    )
    options = parser.parse_args(arguments)
    for seed in options.seed:
        if not options.brief:
            print(shared_knobs(seed) if options.shared else Knobs.draw(seed))
        result = run(seed, None if options.brief else print, shared=options.shared)
        print(f"seed {seed}: trace {result.trace}, digest {result.digest}")
    if not options.seeds:
        return 0
    seeds = range(options.first, options.first + options.seeds)
    start = time.monotonic()

    said = start

    def progress(done: Sweep) -> None:
        nonlocal said
        now = time.monotonic()
        left = (now - start) * (options.seeds / done.seeds - 1)
        line = (
            f"{done.seeds} of {options.seeds} seeds, {len(done.failures)} failed, {left:.0f} s left"
        )
        if sys.stderr.isatty():
            print(f"\r{line:60}", end="", file=sys.stderr, flush=True)
        elif now >= said + 60:  # a log is no terminal: a line a minute
            said = now
            print(line, file=sys.stderr, flush=True)

    done = sweep(seeds, jobs=options.jobs, shared=options.shared, progress=progress)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    print(done)
    for name in done.never:
        print(f"never happened: {name}")
    return 1 if done.failures or done.never else 0


if __name__ == "__main__":
    sys.exit(main())
