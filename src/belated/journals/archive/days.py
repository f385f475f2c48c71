"""What is archived of one day of one partition: plain rows in, Parquet out.

A day has the decisions that the journal took on it, in UTC, each with all its records, however
later they came; and the other records of that day, which belong to no archived decision. So every
record of a journal is in exactly one place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from belated.exceptions import extra

#: Of the files of a day; in the metadata of each, and in its manifest.
FORMAT = "belated-archive/1"
#: Microseconds.
DAY = 86_400_000_000

Times = NDArray[np.int64]


class StoredRecord(NamedTuple):
    """A record by its place, its stamp and the bytes of its event."""

    position: int
    recorded: int
    event: bytes


class ArchivedDecision(NamedTuple):
    """What there is of a decision beyond the columns that exports have too."""

    x: NDArray[np.float32]
    records: Sequence[StoredRecord]
    request: bytes | None
    offered: Sequence[str] | None
    propensities: Sequence[float] | None
    context: str | None


@dataclass(frozen=True, eq=False)
class ArchivedDay:
    """One day of one partition.

    Attributes:
        partition: of the journal.
        partitions: of the journal, in all.
        day: since 1970.
        columns: one line a decision, as Arrow arrays or numpy's by their names.
        decisions: what each has beyond them.
        others: records that belong to no archived decision.
    """

    partition: int
    partitions: int
    day: int
    columns: Mapping[str, Any]
    decisions: Sequence[ArchivedDecision]
    others: Sequence[StoredRecord]


class File(msgspec.Struct, frozen=True):
    """A file of a day, as its manifest names it."""

    name: str
    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What was archived of one day of one partition; written last, so that it proves the rest.

    Attributes:
        bandit: of the journal.
        partition: of the journal.
        partitions: of the journal, in all.
        day: in UTC, as in 2026-11-16.
        decisions: how many.
        records: how many, those of the decisions and all others.
        last: the greatest position among the records.
        files: of decisions, and of other records.
        format: of the files.
    """

    bandit: str
    partition: int
    partitions: int
    day: str
    decisions: int
    records: int
    last: int
    files: tuple[File, File]
    format: str = FORMAT

    @property
    def end(self) -> int:
        """The first moment after the day, in microseconds since 1970."""
        return (int(np.datetime64(self.day, "D").astype(np.int64)) + 1) * DAY


def name_of_day(day: int) -> str:
    """A day since 1970, as people write it.

    >>> name_of_day(20_773)
    '2026-11-16'
    """
    return str(np.datetime64(day, "D"))


def arrow() -> tuple[Any, Any]:
    """Return pyarrow and its Parquet; they are an extra."""
    with extra("an archive", "archive"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    return pa, pq


def write_decisions(day: ArchivedDay, path: Path) -> None:
    """Write the decisions of a day, one line each."""
    pa, pq = arrow()
    more = day.decisions
    columns = dict(day.columns) | {
        "x": pa.array([one.x for one in more], pa.list_(pa.float32())),
        "offered": pa.array([one.offered for one in more], pa.list_(pa.string())),
        "propensities": pa.array([one.propensities for one in more], pa.list_(pa.float64())),
        "context": pa.array([one.context for one in more], pa.string()),
        "request": pa.array([one.request for one in more], pa.binary()),
        "records": _nested(pa, [one.records for one in more]),
    }
    table = pa.table(columns).replace_schema_metadata({"belated.schema": FORMAT})
    pq.write_table(table, path, compression="zstd")


def _record_type(pa: Any) -> Any:
    return pa.struct(
        [
            ("position", pa.int64()),
            ("recorded", pa.timestamp("us", tz="UTC")),
            ("event", pa.binary()),
        ]
    )


def _nested(pa: Any, lists: Sequence[Sequence[StoredRecord]]) -> Any:
    """Records of many decisions as one column; whole columns at a time."""
    ends = np.cumsum([0, *map(len, lists)], dtype=np.int32)
    flat = [one for some in lists for one in some]
    return pa.ListArray.from_arrays(pa.array(ends), _records(pa, flat))


def _records(pa: Any, flat: Sequence[StoredRecord]) -> Any:
    recorded = np.array([one.recorded for one in flat], dtype=np.int64)
    return pa.StructArray.from_arrays(
        [
            pa.array([one.position for one in flat], pa.int64()),
            pa.array(recorded, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
            pa.array([one.event for one in flat], pa.binary()),
        ],
        fields=list(_record_type(pa)),
    )


def write_others(day: ArchivedDay, path: Path) -> None:
    """Write the records that belong to no archived decision."""
    pa, pq = arrow()
    columns = _records(pa, day.others).flatten()
    table = pa.table(dict(zip(("position", "recorded", "event"), columns, strict=True)))
    table = table.replace_schema_metadata({"belated.schema": FORMAT})
    pq.write_table(table, path, compression="zstd")
