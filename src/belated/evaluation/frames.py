"""Decisions as named columns: for pandas, and for files that other tools read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from belated.evaluation.requests import read_requests
from belated.evaluation.sources import JournalTable
from belated.evaluation.table import SOURCES
from belated.exceptions import MissingExtra
from belated.fold.requests import KeptRequest
from belated.fold.rules import State
from belated.journals import Journal

#: Names of the states, by their codes.
STATES = tuple(state.name.lower() for state in State)


def named_columns(table: JournalTable) -> dict[str, NDArray[Any]]:
    """The columns of a table: times as datetimes in UTC, codes as the names they stand for."""
    return {
        "id": table.ids,
        "at": as_times(table.at),
        "recorded": as_times(table.recorded),
        "effective": as_times(table.made),
        "action": _names(table.actions)[table.action],
        "index": table.index,
        "propensity": table.propensity,
        "overall": table.overall,
        "mean": table.mean,
        "model": table.model,
        "source": _names(SOURCES)[table.source],
        "group": _names(table.groups)[table.group],
        "state": _names(STATES)[table.state],
        "value": table.value,
        "rewarded": as_times(table.rewarded),
        "late": table.late,
        "conflict": table.conflict,
        "partition": table.partition,
        "position": table.position,
    }


def as_times(column: NDArray[np.int64]) -> NDArray[np.datetime64]:
    """Microseconds since 1970 as datetimes."""
    return column.view("datetime64[us]")


def _names(names: tuple[Any, ...]) -> NDArray[Any]:
    found = np.empty(len(names), dtype=object)
    found[:] = names
    return found


def frame_of_table(table: JournalTable, journal: Journal | None = None) -> Any:
    """Return a DataFrame of pandas, one line a decision.

    Args:
        table: of the decisions.
        journal: from which what they chose from is read; None: without it.

    Raises:
        MissingExtra: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError:
        raise MissingExtra("a data frame", "experiments") from None
    frame = pd.DataFrame(named_columns(table))
    for name in ("at", "recorded", "effective", "rewarded"):
        frame[name] = frame[name].dt.tz_localize("UTC")
    if journal is not None:
        kept: list[Any] = [None] * len(table)
        for line, data in read_requests(journal, table):
            kept[line] = KeptRequest.read(data).to_dict()
        frame["request"] = pd.Series(kept, dtype=object)
    return frame.set_index("id")
