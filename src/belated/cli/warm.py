"""``belated warm``: compile the kernels into numba's cache, so that other processes need not.

On a terminal, a progress line shows the current kernel and the remaining time. Otherwise, one line
is printed per kernel.
"""

from __future__ import annotations

import argparse
import sys
import time

from belated.cli.text import several
from belated.core.times import lasting
from belated.exceptions import InvalidInput
from belated.model.kernels.compiler import (
    NAMES,
    cache_folder,
    compile_kernel,
    compiling_alone,
    was_cached,
)

EXAMPLE = "NUMBA_CACHE_DIR=/var/cache/belated belated warm"

#: Percentage of the total time, by kernel. The first kernels also compile functions of others.
SHARES = {"argmax_ucb_all": 47, "count": 6, "learn": 6, "upper": 8, "sampled": 20}
#: Percentage of the total time for any other kernel.
SHARE = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    folder = cache_folder()
    if folder is None:
        message = "numba has no writable cache folder: set NUMBA_CACHE_DIR to a folder"
        raise InvalidInput(message)
    with compiling_alone():
        compiled = _compile()
    summary = f"{several(compiled, 'kernel')} compiled, {len(NAMES) - compiled} cached"
    print(f"{summary} in {folder}")


def _compile() -> int:
    """Compile the kernels that are not cached, and return the number of kernels compiled."""
    shows, start = sys.stderr.isatty(), time.monotonic()
    completed = compiled = 0
    for name in NAMES:
        began = time.monotonic()
        if shows:
            seconds = (began - start) * (100 - completed) / completed if completed else 0.0
            time_left = f", {lasting(seconds)} left" if seconds else ""
            print(f"\rcompiling {name}{time_left}\x1b[K", end="", file=sys.stderr, flush=True)
        compile_kernel(name)
        completed += SHARES.get(name, SHARE)
        compiled += not was_cached(name)
        if not shows:
            duration = lasting(time.monotonic() - began)
            print(
                f"{name}: {'cached' if was_cached(name) else f'compiled in {duration}'}", flush=True
            )
    if shows:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return compiled
