"""Decisions as columns of Arrow, of one schema: for Parquet files and for the archive."""

from __future__ import annotations

from typing import Any

import numpy as np

from belated.evaluation.frames import STATES, as_times
from belated.evaluation.sources import JournalTable
from belated.evaluation.table import SOURCES

#: Of the columns; in the metadata of a Parquet file.
SCHEMA = "belated-decisions/1"


def arrow_schema(*, requests: bool = False) -> Any:
    """Return the schema of an export; ``requests`` adds what each decision was chosen from."""
    import pyarrow as pa

    time, text = pa.timestamp("us", tz="UTC"), pa.string()
    columns = [
        ("id", text),
        ("at", time),
        ("recorded", time),
        ("effective", time),
        ("action", text),
        ("index", pa.int32()),
        ("propensity", pa.float64()),
        ("overall", pa.float64()),
        ("mean", pa.float64()),
        ("model", pa.int64()),
        ("source", text),
        ("group", text),
        ("state", text),
        ("value", pa.float64()),
        ("rewarded", time),
        ("late", pa.bool_()),
        ("conflict", pa.bool_()),
        ("partition", pa.int32()),
        ("position", pa.int64()),
        ("as_of", time),
    ]
    columns += [("request", text)] if requests else []
    return pa.schema(columns, metadata={"belated.schema": SCHEMA})


def arrow_columns(table: JournalTable) -> dict[str, Any]:
    """Return the columns of a table, by the names and types of the schema."""
    import pyarrow as pa

    def named(codes: Any, names: tuple[Any, ...]) -> Any:
        return pa.array(list(map(str, names)), pa.string()).take(pa.array(codes))

    plain = {name: getattr(table, name) for name in ("index", "model", "partition", "position")}
    columns: dict[str, Any] = plain | {
        "id": table.ids,
        "at": as_times(table.at),
        "recorded": as_times(table.recorded),
        "effective": as_times(table.made),
        "action": named(table.action, table.actions),
        "propensity": table.propensity,
        "overall": table.overall,
        "mean": table.mean,
        "source": named(table.source, SOURCES),
        "group": named(table.group, table.groups),
        "state": named(table.state, STATES),
        "value": table.value,
        "rewarded": as_times(table.rewarded),
        "late": table.late,
        "conflict": table.conflict,
        "as_of": as_times(np.full(len(table), table.as_of)),
    }
    found = {}
    for field in arrow_schema():
        column = columns[field.name]
        known = column if isinstance(column, pa.Array) else pa.array(column, from_pandas=True)
        found[field.name] = known.cast(field.type)
    return found
