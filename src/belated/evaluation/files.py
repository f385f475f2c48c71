"""Decisions as data frames, and as files that other tools read: Parquet, CSV, JSON lines, DSJSON.

One line a decision, in the order in which the journal took them, a batch at a time: requests, the
large part, are read from the journal as they are written.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

from belated.core.times import as_datetime
from belated.evaluation.requests import read_requests
from belated.evaluation.sources import JournalTable
from belated.evaluation.table import SOURCES
from belated.exceptions import MissingExtra
from belated.fold.rules import State
from belated.fold.requests import KeptRequest
from belated.journals import Journal

#: Lines of a batch.
BATCH = 50_000

#: Writes decisions to a file; is told how many were written.
Writer = Callable[[JournalTable, Journal | None, BinaryIO, Callable[[int], None]], None]

_TIMES = ("at", "recorded", "effective", "rewarded")
#: First characters of a spreadsheet formula; the last four are the full-width forms of = + - @.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_encode = msgspec.json.Encoder().encode


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
    for name in _TIMES:
        frame[name] = frame[name].dt.tz_localize("UTC")
    if journal is not None:
        kept = _requests(table, journal)
        requests = [None if request is None else request.to_dict() for request in kept]
        frame["request"] = pd.Series(requests, dtype=object)
    return frame.set_index("id")


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

    columns = named_columns(table) | {"as_of": as_times(np.full(len(table), table.as_of))}
    found = {}
    for field in arrow_schema():
        column: Any = columns[field.name]
        if field.type == pa.string():
            column = list(map(str, column))
        found[field.name] = pa.array(column, from_pandas=True).cast(field.type)
    return found


def batches(table: JournalTable) -> Iterator[JournalTable]:
    """The lines of a table, so many at a time; at least one batch."""
    for start in range(0, max(len(table), 1), BATCH):
        yield table.select(slice(start, start + BATCH))


def _requests(table: JournalTable, journal: Journal) -> list[KeptRequest | None]:
    found: list[KeptRequest | None] = [None] * len(table)
    for line, data in read_requests(journal, table):
        found[line] = KeptRequest.read(data)
    return found


def write_parquet(
    table: JournalTable, journal: Journal | None, file: BinaryIO, step: Callable[[int], None]
) -> None:
    """Write Parquet; requests as JSON in a column of their own, if a journal is given."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtra("Parquet", "archive") from None
    schema = arrow_schema(requests=journal is not None)
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in batches(table):
            columns = arrow_columns(batch)
            if journal is not None:
                kept = _requests(batch, journal)
                texts = [None if one is None else _encode(one.to_dict()).decode() for one in kept]
                columns["request"] = pa.array(texts, pa.string())
            writer.write_batch(pa.record_batch(columns, schema=schema))
            step(len(batch))


def _lines(table: JournalTable, journal: Journal | None) -> Iterator[dict[str, Any]]:
    """Each decision as plain data."""
    columns: dict[str, list[Any]] = {
        name: column.tolist() for name, column in named_columns(table).items()
    }
    for name in _TIMES:
        columns[name] = [
            None if one is None else f"{one.isoformat(timespec='microseconds')}Z"
            for one in columns[name]
        ]
    columns["value"] = [None if one != one else one for one in columns["value"]]
    columns["as_of"] = [as_datetime(table.as_of).isoformat().replace("+00:00", "Z")] * len(table)
    if journal is not None:
        kept = _requests(table, journal)
        columns["request"] = [None if one is None else one.to_dict() for one in kept]
    names = list(columns)
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(names, values, strict=True))


def write_csv(
    table: JournalTable, journal: Journal | None, file: BinaryIO, step: Callable[[int], None]
) -> None:
    """Write CSV: what is not known is empty, a request is JSON, and no text is a formula."""
    for number, batch in enumerate(batches(table)):
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        for line in _lines(batch, journal):
            if not number and not text.tell():
                writer.writerow(line)
            if "request" in line:
                kept = line["request"]
                line["request"] = None if kept is None else _encode(kept).decode()
            writer.writerow(map(_plain_text, line.values()))
        file.write(text.getvalue().encode())
        step(len(batch))


def _plain_text(value: Any) -> Any:
    """Put an apostrophe before text that a spreadsheet would run as a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def write_jsonl(
    table: JournalTable, journal: Journal | None, file: BinaryIO, step: Callable[[int], None]
) -> None:
    """Write JSON lines."""
    encoder = msgspec.json.Encoder()
    for batch in batches(table):
        file.write(encoder.encode_lines(list(_lines(batch, journal))))
        step(len(batch))


def write_dsjson(
    table: JournalTable,
    journal: Journal | None,
    file: BinaryIO,
    step: Callable[[int], None],
) -> None:
    """Write DSJSON, as Vowpal Wabbit reads it: decisions whose outcome and request are known."""
    assert journal is not None  # there is nothing to write without requests
    encoder = msgspec.json.Encoder()
    for batch in batches(table):
        kept, lines = _requests(batch, journal), []
        for n in np.flatnonzero(~np.isnan(batch.value)).tolist():
            request = kept[n]
            if request is not None and (line := _dsjson(batch, n, request)) is not None:
                lines.append(line)
        file.write(encoder.encode_lines(lines))
        step(len(batch))


def _dsjson(table: JournalTable, n: int, request: KeptRequest) -> dict[str, Any] | None:
    """One line; None if the probabilities of the other actions are not known."""
    chosen, propensity = int(table.index[n]), float(table.propensity[n])
    shares = request.propensities
    names = request.actions
    count = len(request.rows) if request.rows is not None else len(names or [])
    if shares is None:
        if propensity < 1.0:
            return None
        shares = [float(place == chosen) for place in range(count)]
    order = [chosen, *(place for place in range(count) if place != chosen)]
    multi: list[dict[str, Any]] = []
    for place in range(count):
        one: dict[str, Any] = {} if names is None else {"action": str(names[place])}
        if request.rows is not None:
            one["x"] = request.rows[place].tolist()
        elif request.records is not None:
            one |= request.records[place] or {}
        multi.append({"a": one})
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


#: By the name of the format.
WRITERS: dict[str, Writer] = {
    "parquet": write_parquet,
    "csv": write_csv,
    "jsonl": write_jsonl,
    "dsjson": write_dsjson,
}
