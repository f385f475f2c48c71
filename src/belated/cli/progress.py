"""How far a long command is: one line on a terminal, nothing anywhere else."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from belated.cli.text import span


class Progress:
    """Shows how many records, or rounds, are done, and how long the rest will take.

    Args:
        verb: what is done to them.
        total: how many there are, None if nobody knows.
    """

    def __init__(self, verb: str, total: int | None = None) -> None:
        self._verb = verb
        self._total = total
        self._done = 0
        self._shows = sys.stderr.isatty()
        self._start = time.monotonic()
        self._next = self._start + 1.0  # what takes less needs no word
        self._shown = False

    def step(self, count: int) -> None:
        """So many more are done."""
        self._done += count
        if self._shows and (now := time.monotonic()) >= self._next:
            self._next = now + 0.2
            self._shown = True
            share = ""
            if self._total:
                share = f" of {self._total:,} ({self._done / self._total:.0%})"
                left = (now - self._start) * (self._total - self._done) / max(self._done, 1)
                share += f", {span(round(1e6 * left))} left"
            line = f"\r{self._verb} {self._done:,}{share}\x1b[K"  # nothing of a longer one is left
            print(line, end="", file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
