"""Numbers that change: in place on a terminal, and a few times only anywhere else."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

#: Seconds between two looks, on a terminal and elsewhere.
OFTEN, SELDOM = 0.25, 15.0


class Screen:
    """Shows lines over those it showed before; the last ones stay."""

    def __init__(self) -> None:
        self._in_place = sys.stdout.isatty()
        self._next = 0.0
        self._last = ""
        self._shown = ""

    def show(self, text: str) -> None:
        """Show some lines, if it is time."""
        self._last = text
        if (now := time.monotonic()) >= self._next:
            self._next = now + (OFTEN if self._in_place else SELDOM)
            self._write()

    def _write(self) -> None:
        if self._shown == self._last:
            return
        if self._in_place and self._shown:
            up = self._shown.count("\n") + 1
            print(f"\x1b[{up}A\x1b[J", end="")
        print(self._last, flush=True)
        self._shown = self._last

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._last:
            self._write()
