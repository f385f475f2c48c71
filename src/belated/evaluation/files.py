"""Export decisions as data frames and as Parquet, CSV, JSON Lines and DSJSON files.

Files have one row per decision, in the order in which the journal recorded them. They are written
in batches, so that requests, which are most of the data, are never all in memory at once.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from operator import itemgetter
from typing import Any, BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

from belated.core.times import as_datetime
from belated.evaluation.requests import read_requests
from belated.evaluation.sources import JournalTable
from belated.evaluation.table import SOURCES
from belated.exceptions import extra
from belated.fold.requests import KeptRequest
from belated.fold.rules import State
from belated.journals import Journal

#: Number of rows in a batch.
BATCH = 50_000

#: Decision tables, one per batch.
Batches = Iterable[JournalTable]
#: Writes decisions to a file, with their requests if a journal is given.
Writer = Callable[[Batches, Journal | None, BinaryIO], None]

_TIMES = ("at", "recorded", "effective", "rewarded")
#: First characters of a spreadsheet formula; the last four are the full-width forms of = + - @.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_ENCODER = msgspec.json.Encoder()


#: Names of the states, in the order of their codes.
STATES = tuple(state.name.lower() for state in State)


def named_columns(table: JournalTable) -> dict[str, NDArray[Any]]:
    """Return the columns of a table, with times as datetimes in UTC and codes as names."""
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
    """Return microseconds since 1970 as datetimes."""
    return column.view("datetime64[us]")


def _names(names: tuple[Any, ...]) -> NDArray[Any]:
    column = np.empty(len(names), dtype=object)
    column[:] = names
    return column


def frame_of_table(table: JournalTable, journal: Journal | None = None) -> Any:
    """Return a pandas DataFrame with one row per decision.

    Args:
        table: the decisions.
        journal: the journal from which requests are read; None means to leave requests out.

    Raises:
        MissingExtra: pandas is not installed.
    """
    with extra("a data frame", "experiments"):
        import pandas as pd
    frame = pd.DataFrame(named_columns(table))
    for name in _TIMES:
        frame[name] = frame[name].dt.tz_localize("UTC")
    if journal is not None:
        frame["request"] = pd.Series(_requests(table, journal), dtype=object)
    return frame.set_index("id")


#: Version of the columns, stored in the metadata of a Parquet file.
SCHEMA = "belated-decisions/1"


def arrow_columns(table: JournalTable) -> dict[str, Any]:
    """Return the columns of a table as Arrow arrays."""
    import pyarrow as pa

    columns = named_columns(table) | {"as_of": as_times(np.full(len(table), table.as_of))}
    kinds = {"M": pa.timestamp("us", tz="UTC"), "O": pa.string()}
    arrays = {}
    for name, column in columns.items():
        values: Any = list(map(str, column)) if column.dtype.kind == "O" else column
        kind = kinds.get(column.dtype.kind) or pa.from_numpy_dtype(column.dtype)
        arrays[name] = pa.array(values, from_pandas=True).cast(kind)
    return arrays


def batches(table: JournalTable, step: Callable[[int], None]) -> Iterator[JournalTable]:
    """Yield the rows of a table in batches; call ``step`` with the size of each batch.

    An empty table yields one empty batch.
    """
    for start in range(0, max(len(table), 1), BATCH):
        batch = table.select(slice(start, start + BATCH))
        yield batch
        step(len(batch))


def _requests(table: JournalTable, journal: Journal) -> list[dict[str, Any] | None]:
    requests: list[dict[str, Any] | None] = [None] * len(table)
    for line, request in read_requests(journal, table):
        requests[line] = request.to_dict()
    return requests


def write_parquet(batches: Batches, journal: Journal | None, file: BinaryIO) -> None:
    """Write Parquet; if a journal is given, requests are stored as JSON in a separate column."""
    with extra("Parquet", "archive"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    with ExitStack() as stack:
        writer: Any = None
        for batch in batches:
            columns = arrow_columns(batch)
            if journal is not None:
                requests = _requests(batch, journal)
                texts = [request and _ENCODER.encode(request).decode() for request in requests]
                columns["request"] = pa.array(texts, pa.string())
            records = pa.record_batch(columns).replace_schema_metadata({"belated.schema": SCHEMA})
            if writer is None:
                writer = pq.ParquetWriter(file, records.schema, compression="zstd")
                stack.enter_context(writer)
            writer.write_batch(records)


def _lines(table: JournalTable, journal: Journal | None) -> Iterator[dict[str, Any]]:
    """Yield each decision as plain data."""
    columns: dict[str, list[Any]] = {
        name: column.tolist() for name, column in named_columns(table).items()
    }
    for name in _TIMES:
        columns[name] = [
            None if time is None else f"{time.isoformat(timespec='microseconds')}Z"
            for time in columns[name]
        ]
    columns["value"] = [None if value != value else value for value in columns["value"]]
    columns["as_of"] = [as_datetime(table.as_of).isoformat().replace("+00:00", "Z")] * len(table)
    if journal is not None:
        columns["request"] = _requests(table, journal)
    names = list(columns)
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(names, values, strict=True))


def write_csv(batches: Batches, journal: Journal | None, file: BinaryIO) -> None:
    """Write CSV: unknown values are empty, requests are JSON, and formulas are escaped."""
    for number, batch in enumerate(batches):
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        for line in _lines(batch, journal):
            if not number and not text.tell():
                writer.writerow(line)
            if "request" in line:
                line["request"] = line["request"] and _ENCODER.encode(line["request"]).decode()
            writer.writerow(map(_plain_text, line.values()))
        file.write(text.getvalue().encode())


def _plain_text(value: Any) -> Any:
    """Prefix text that a spreadsheet would run as a formula with an apostrophe."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def write_jsonl(batches: Batches, journal: Journal | None, file: BinaryIO) -> None:
    """Write JSON Lines."""
    for batch in batches:
        file.write(_ENCODER.encode_lines(list(_lines(batch, journal))))


def write_dsjson(batches: Batches, journal: Journal | None, file: BinaryIO) -> None:
    """Write the decisions with a known outcome and a stored request as DSJSON for Vowpal Wabbit."""
    assert journal is not None  # DSJSON requires requests
    for batch in batches:
        lines = [
            _dsjson(batch, n, request)
            for n, request in sorted(read_requests(journal, batch), key=itemgetter(0))
            if not np.isnan(batch.value[n])
        ]
        file.write(_ENCODER.encode_lines([line for line in lines if line is not None]))


def _dsjson(table: JournalTable, n: int, request: KeptRequest) -> dict[str, Any] | None:
    """Return one decision as DSJSON; None if the propensities of other actions are unknown."""
    chosen = request.place(int(table.index[n]), table.actions[table.action[n]])
    propensity = float(table.propensity[n])
    shares = request.propensities
    names = request.actions
    count = len(request.rows) if request.rows is not None else len(names or [])
    if shares is None:
        if propensity < 1.0:
            return None
        shares = [float(place == chosen) for place in range(count)]
    if any(share != share for share in shares):
        return None
    order = [chosen, *(place for place in range(count) if place != chosen)]
    multi: list[dict[str, Any]] = []
    for place in range(count):
        action: dict[str, Any] = {} if names is None else {"action": str(names[place])}
        if request.rows is not None:
            action["x"] = request.rows[place].tolist()
        elif request.records is not None:
            action |= request.records[place] or {}
        multi.append({"a": action})
    context: dict[str, Any] = {"_multi": multi}
    if isinstance(request.context, dict):
        context["shared"] = request.context
    return {
        "_label_cost": -float(table.value[n]),
        "_label_probability": propensity,
        "_label_Action": chosen + 1,
        "_labelIndex": chosen,
        "Timestamp": as_datetime(int(table.recorded[n])).isoformat().replace("+00:00", "Z"),
        "Version": "1",
        "EventId": table.ids[n],
        "a": [place + 1 for place in order],
        "c": context,
        "p": [shares[place] for place in order],
    }


#: The writer of each format.
WRITERS: dict[str, Writer] = {
    "parquet": write_parquet,
    "csv": write_csv,
    "jsonl": write_jsonl,
    "dsjson": write_dsjson,
}
