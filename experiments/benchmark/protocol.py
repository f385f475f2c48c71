"""The contents of ``protocol.toml``: problems, seeds, delays, and entries with their settings."""

from __future__ import annotations

import itertools
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Settings = dict[str, Any]

PROTOCOL = tomllib.loads(Path(__file__).with_name("protocol.toml").read_text(encoding="utf-8"))
HORIZON: int = PROTOCOL["horizon"]
DELAYS: list[str] = list(PROTOCOL["delays"])


@dataclass(frozen=True)
class Entry:
    """A row of the table.

    Attributes:
        learner: module in ``adapters`` and class in it; the module names the environment, too.
        settings: settings to try; a single one if there is no grid.
    """

    learner: str
    settings: tuple[Settings, ...]

    @property
    def library(self) -> str:
        return self.learner.split(":")[0]


def _entry(learner: str, fixed: Settings | None = None, grid: Settings | None = None) -> Entry:
    values = itertools.product(*(grid or {}).values())
    return Entry(
        learner,
        tuple(
            (fixed or {}) | dict(zip(grid or {}, combination, strict=True))
            for combination in values
        ),
    )


ENTRIES = {name: _entry(**entry) for name, entry in PROTOCOL["entries"].items()}


def problems_of(part: str) -> dict[str, str]:
    """Return the kind of each problem of ``tuning`` or ``reporting``."""
    kinds = PROTOCOL[part]["problems"]
    return {problem: kind for kind, problems in kinds.items() for problem in problems}
