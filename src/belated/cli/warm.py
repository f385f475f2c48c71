"""``belated warm``: compile the kernels into numba's cache, so that no process has to.

On a terminal one line says which kernel is being compiled and how long the rest will take; anywhere
else there is a line for each kernel.
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

#: What a kernel adds to the whole, of 100: the first ones compile what the others use too.
SHARES = {"argmax_ucb_all": 47, "count": 6, "learn": 6, "upper": 8, "sampled": 20}
#: The same of any other.
SHARE = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    folder = cache_folder()
    if folder is None:
        message = "numba may write to no folder: set NUMBA_CACHE_DIR to one that you may write to"
        raise InvalidInput(message)
    with compiling_alone():
        compiled = _compile()
    done = f"{several(compiled, 'kernel')} compiled, {len(NAMES) - compiled} found"
    print(f"{done} in {folder}")


def _compile() -> int:
    """Compile what is not in the cache; returns how many kernels that were."""
    shows, start = sys.stderr.isatty(), time.monotonic()
    done = compiled = 0
    for name in NAMES:
        began = time.monotonic()
        if shows:
            left = (began - start) * (100 - done) / done if done else 0.0
            rest = f", {lasting(left)} left" if left else ""
            print(f"\rcompiling {name}{rest}\x1b[K", end="", file=sys.stderr, flush=True)
        compile_kernel(name)
        done += SHARES.get(name, SHARE)
        compiled += not was_cached(name)
        if not shows:
            took = lasting(time.monotonic() - began)
            print(f"{name}: {'found' if was_cached(name) else f'compiled in {took}'}", flush=True)
    if shows:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return compiled
