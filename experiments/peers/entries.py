"""The entries of the table: which library, which of its learners, and with what settings.

The settings of a peer are the best of those tried (tuning.py, ``tuning.csv``); ours are the
defaults everywhere. Vowpal Wabbit's bagging was tried too and left out: it lost to its other two.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Settings = dict[str, Any]

TUNING = Path(__file__).with_name("tuning.csv")
#: What settings are tuned on; `digits`, with a θ for each arm too, takes those of `arms`.
TUNED = ("ball", "arms")


@dataclass(frozen=True)
class Entry:
    """One row of the table.

    Attributes:
        peer: the library: its environment, and its file in ``adapters``.
        learner: the class in that file.
        fixed: settings that make the entry what it is.
        tried: the settings among which tuning.py looks.
    """

    peer: str
    learner: str
    fixed: Settings = field(default_factory=dict)
    tried: tuple[Settings, ...] = ()


def each(name: str, *values: Any) -> tuple[Settings, ...]:
    return tuple({name: value} for value in values)


ENTRIES = {
    "DelayedUCB": Entry("belated", "Delayed", {"policy": "DelayedUCB"}),
    "DelayedThompson": Entry("belated", "Delayed", {"policy": "DelayedThompson"}),
    "bayesianbandits GLM Thompson": Entry(
        "bayesianbandits", "Logistic", {"thompson": True}, each("alpha", 0.5, 1.0, 2.0)
    ),
    "bayesianbandits GLM greedy": Entry(
        "bayesianbandits", "Logistic", {"thompson": False}, each("alpha", 0.5, 1.0, 2.0)
    ),
    "coba LinUCB": Entry("coba", "LinUCB", {}, each("alpha", 0.25, 0.5, 1.0)),
    "contextualbandits LinUCB": Entry(
        "contextualbandits", "LinUCB", {}, each("alpha", 0.25, 0.5, 1.0)
    ),
    "mabwiser LinTS": Entry(
        "mabwiser", "Linear", {"policy": "LinTS"}, each("alpha", 0.05, 0.1, 0.25)
    ),
    "mabwiser LinUCB": Entry(
        "mabwiser", "Linear", {"policy": "LinUCB"}, each("alpha", 0.25, 0.5, 1.0)
    ),
    "river LinUCB": Entry("river", "LinUCB", {"alpha": 1.0}, each("beta", 0.25, 1.0, 4.0)),
    "VW coin": Entry(
        "vowpalwabbit",
        "Explorer",
        {},
        each(
            "options",
            "--coin --epsilon 0",
            "--coin --epsilon 0.005",
            "--coin --bag 5 --epsilon 0",
        ),
    ),
    "VW squarecb": Entry(
        "vowpalwabbit",
        "Explorer",
        {},
        each(
            "options",
            "--squarecb --gamma_scale 10 -l 2",
            "--squarecb --gamma_scale 100",
            "--squarecb --gamma_scale 1000",
            "--squarecb --gamma_scale 3000",
        ),
    ),
}


def settings(name: str, problem: str) -> Settings:
    """What an entry runs with: the best of what was tried, where anything was."""
    if not ENTRIES[name].tried:
        return ENTRIES[name].fixed
    like = (name, problem if problem in TUNED else "arms")
    with TUNING.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if (row["entry"], row["problem"]) == like]
    return json.loads(min(rows, key=lambda row: float(row["regret"]))["settings"])
