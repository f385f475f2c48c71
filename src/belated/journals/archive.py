"""The archive: old days of a journal as Parquet files, in a folder or an object store.

An archived day (UTC) contains the decisions recorded on that day, each with all of its records
regardless of when they arrived, and the day's other records that belong to no archived decision.
Every record is archived exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec
import numpy as np
from numpy.typing import NDArray

from belated.core.events import Event, Record, digest_of, read_event
from belated.core.times import as_datetime
from belated.exceptions import CorruptJournal, InvalidInput, ReadOnly, UnsupportedFormat, extra
from belated.journals.arrivals import check_range
from belated.journals.folders import open_folder
from belated.journals.journal import DelegatingJournal, Journal
from belated.journals.log import EMPTY, Appended, Requests, Tail
from belated.journals.pages import ColumnPage
from belated.journals.snapshots import Snapshot

#: Format of an archived day's files, stored in the metadata of each file and in the manifest.
FORMAT = "belated-archive/1"
#: Length of a day in microseconds.
DAY = 86_400_000_000

_READ_ONLY = (
    "a journal that was opened with its archive is read-only: open it without the archive to append"
)

Times = NDArray[np.int64]


class StoredRecord(NamedTuple):
    """Position, timestamp and encoded event of a record."""

    position: int
    recorded: int
    event: bytes


class ArchivedDecision(NamedTuple):
    """The fields of an archived decision that are not part of exports."""

    x: NDArray[np.float32]
    records: Sequence[StoredRecord]
    request: bytes | None
    offered: Sequence[str] | None
    propensities: Sequence[float] | None
    context: str | None


@dataclass(frozen=True, eq=False)
class ArchivedDay:
    """The data to archive for one day of one partition.

    Attributes:
        partition: Partition of the journal.
        partitions: Number of partitions of the journal.
        day: Days since 1970-01-01.
        columns: Columns with one row per decision, by name, as Arrow or numpy arrays.
        decisions: Additional fields of each decision.
        others: Records that do not belong to an archived decision.
    """

    partition: int
    partitions: int
    day: int
    columns: Mapping[str, Any]
    decisions: Sequence[ArchivedDecision]
    others: Sequence[StoredRecord]


class File(msgspec.Struct, frozen=True):
    """A file of an archived day, as listed in its manifest."""

    name: str
    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest of one day of one partition; written last, it marks the day as archived.

    Attributes:
        bandit: Name of the bandit.
        partition: Partition of the journal.
        partitions: Number of partitions of the journal.
        day: Day in UTC, such as 2026-11-16.
        decisions: Number of decisions.
        records: Number of records, including those of the decisions.
        last: Greatest position of a record.
        files: The file with the decisions, and the file with the other records.
        format: Format of the files.
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
        """End of the day, in microseconds since 1970."""
        return (int(np.datetime64(self.day, "D").astype(np.int64)) + 1) * DAY


def name_of_day(day: int) -> str:
    """Format a day, given as days since 1970.

    >>> name_of_day(20_773)
    '2026-11-16'
    """
    return str(np.datetime64(day, "D"))


def arrow() -> tuple[Any, Any]:
    """Import pyarrow and pyarrow.parquet, or raise MissingExtra."""
    with extra("an archive", "archive"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    return pa, pq


def write_decisions(day: ArchivedDay, path: Path) -> None:
    """Write the decisions of a day, one row each."""
    pa, _ = arrow()
    decisions = day.decisions

    def column(name: str, kind: Any) -> Any:
        return pa.array([getattr(decision, name) for decision in decisions], kind)

    columns = dict(day.columns) | {
        "x": column("x", pa.list_(pa.float32())),
        "offered": column("offered", pa.list_(pa.string())),
        "propensities": column("propensities", pa.list_(pa.float64())),
        "context": column("context", pa.string()),
        "request": column("request", pa.binary()),
    }
    # Convert the records of all decisions as one column, then split it into lists.
    ends = np.cumsum([0, *(len(decision.records) for decision in decisions)], dtype=np.int32)
    records = _records(pa, [record for decision in decisions for record in decision.records])
    columns["records"] = pa.ListArray.from_arrays(pa.array(ends), records)
    _write_table(columns, path)


def _records(pa: Any, records: Sequence[StoredRecord]) -> Any:
    recorded = np.array([record.recorded for record in records], dtype=np.int64)
    return pa.StructArray.from_arrays(
        [
            pa.array([record.position for record in records], pa.int64()),
            pa.array(recorded, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
            pa.array([record.event for record in records], pa.binary()),
        ],
        names=StoredRecord._fields,
    )


def write_others(day: ArchivedDay, path: Path) -> None:
    """Write the records that do not belong to an archived decision."""
    pa, _ = arrow()
    columns = _records(pa, day.others).flatten()
    _write_table(dict(zip(StoredRecord._fields, columns, strict=True)), path)


def _write_table(columns: Mapping[str, Any], path: Path) -> None:
    pa, pq = arrow()
    table = pa.table(columns).replace_schema_metadata({"belated.schema": FORMAT})
    pq.write_table(table, path, compression="zstd")


class Archive:
    """Old days of a bandit's journal, as Parquet in a folder or an object store.

    Each file of a day is written atomically, and the manifest is written last. A day without a
    manifest is not archived; the next attempt overwrites its files.

    Args:
        address: Path of the folder, or an fsspec address such as ``s3://…``.
        bandit: Name of the bandit.
    """

    def __init__(self, address: str | Path, bandit: str) -> None:
        arrow()  # fail early if pyarrow is not installed
        self.bandit = bandit
        self._folder = open_folder(address)
        # Quote the name, because it may contain characters that are not allowed in paths.
        self._root = f"bandit={quote(bandit, safe='')}"

    def manifests(self, partition: int) -> list[Manifest]:
        """Return the manifests of a partition, ordered by day."""
        return [manifest for manifest in self._manifests if manifest.partition == partition]

    @cached_property
    def _manifests(self) -> list[Manifest]:
        return [self._manifest(name) for name in self._folder.names(f"{self._root}/_manifest")]

    def _manifest(self, name: str) -> Manifest:
        try:
            manifest = msgspec.json.decode(self._folder.read(name), type=Manifest)
        except msgspec.MsgspecError as error:
            message = f"{name} is not a valid manifest ({error}): restore it from a copy"
            raise CorruptJournal(message) from None
        if manifest.format != FORMAT:
            raise UnsupportedFormat(f"{name} has format {manifest.format}: upgrade belated")
        return manifest

    def until(self, partition: int) -> int:
        """Return the end of the last archived day, in microseconds since 1970, or 0."""
        return max((manifest.end for manifest in self.manifests(partition)), default=0)

    def check(self, partitions: int) -> None:
        """Raise InvalidInput if the archived journal has a different number of partitions."""
        counts = {manifest.partitions for manifest in self._manifests} - {partitions}
        if counts:
            message = (
                f"the archive of {self.bandit!r} is from a journal with {counts.pop()} partitions"
            )
            raise InvalidInput(f"{message}, not {partitions}: choose another folder", partitions)

    def write(self, day: ArchivedDay) -> Manifest:
        """Archive a day; it counts as archived once its manifest is written."""
        name, part = name_of_day(day.day), f"{day.partition:04d}"
        files = (
            self._put(f"{self._root}/day={name}/part-{part}.parquet", day, write_decisions),
            self._put(f"{self._root}/_others/{name}-{part}.records", day, write_others),
        )
        records = [record for decision in day.decisions for record in decision.records]
        records += day.others
        manifest = Manifest(
            bandit=self.bandit,
            partition=day.partition,
            partitions=day.partitions,
            day=name,
            decisions=len(day.decisions),
            records=len(records),
            last=max(record.position for record in records),
            files=files,
        )
        with self._folder.new(f"{self._root}/_manifest/{name}-{part}.json") as path:
            path.write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))
        self.__dict__.pop("_manifests", None)
        return manifest

    def _put(self, name: str, day: ArchivedDay, write: Callable[[ArchivedDay, Path], None]) -> File:
        with self._folder.new(name) as path:
            write(day, path)
            data = path.read_bytes()
            return File(name, len(data), sha256(data).hexdigest())

    # --- reading -------------------------------------------------------------------------------

    def _tables(self, manifest: Manifest, *columns: str) -> Iterator[Any]:
        """Yield the decisions and the other records of a day, as Arrow tables."""
        pa, pq = arrow()
        for file, names in zip(manifest.files, (columns, None), strict=True):
            data = self._folder.read(file.name)
            if sha256(data).hexdigest() != file.sha256:
                message = f"{file.name} does not match its manifest (changed or truncated)"
                raise CorruptJournal(f"{message}: restore it from a copy")
            # Do not use threads: if Arrow has not joined them at exit, they abort the process.
            parquet = pq.ParquetFile(pa.BufferReader(data))
            yield parquet.read(None if names is None else list(names), use_threads=False)

    def positions(self, partition: int, after: int) -> set[int]:
        """Return the positions of all archived records after a position."""
        archived: set[int] = set()
        for manifest in self.manifests(partition):
            if manifest.last > after:
                positions, _, _ = self._records(manifest)
                archived.update(positions[positions > after].tolist())
        return archived

    def records(self, partition: int, upto: int) -> tuple[Times, Times, Any]:
        """Return positions, timestamps and events of archived records up to a position."""
        pa, _ = arrow()
        days = [self._records(manifest) for manifest in self.manifests(partition)]
        if not days:
            return np.zeros(0, np.int64), np.zeros(0, np.int64), pa.array([], pa.binary())
        positions, stamps, events = zip(*days, strict=True)
        position, recorded = np.concatenate(positions), np.concatenate(stamps)
        order = np.argsort(position, kind="stable")
        order = order[position[order] <= upto]
        event = pa.chunked_array(events, pa.binary())
        return position[order], recorded[order], event.take(pa.array(order)).combine_chunks()

    def _records(self, manifest: Manifest) -> tuple[Times, Times, Any]:
        pa, _ = arrow()
        decisions, other_records = self._tables(manifest, "records")
        nested = decisions["records"].combine_chunks().flatten()
        position, recorded, event = (
            pa.concat_arrays([nested.field(name), other_records[name].combine_chunks()])
            for name in StoredRecord._fields
        )
        stamps = recorded.cast(pa.int64()).to_numpy(zero_copy_only=False)
        return position.to_numpy(zero_copy_only=False), stamps, event

    def requests(self, partition: int) -> dict[int, bytes]:
        """Return the stored requests of archived decisions, by position."""
        requests: dict[int, bytes] = {}
        for manifest in self.manifests(partition):
            table, _ = self._tables(manifest, "position", "request")
            table = table.filter(table["request"].is_valid())
            positions, values = (table[name].to_pylist() for name in ("position", "request"))
            requests.update(zip(positions, values, strict=True))
        return requests


T = TypeVar("T")


class WholeJournal(DelegatingJournal):
    """A read-only journal that returns trimmed records from the archive.

    The archived records that the journal has dropped are held in memory, encoded.

    Args:
        journal: Journal with the newer records.
        archive: Archive of the records that the journal may have dropped.

    Raises:
        InvalidInput: the journal has dropped records that are not in the archive.
    """

    def __init__(self, journal: Journal, archive: Archive) -> None:
        archive.check(journal.partitions)
        self._bandit, self._partitions = journal.bandit, journal.partitions
        self._journal = journal
        self._archive = archive
        self._records: dict[int, tuple[Times, Times, Any]] = {}
        self._requests: dict[int, dict[int, bytes]] = {}
        for partition in range(journal.partitions):
            start = journal.start(partition)
            if start.stamp >= (until := archive.until(partition)) and start != EMPTY:
                message = (
                    f"partition {partition} of {journal.bandit!r} was trimmed up to "
                    f"{as_datetime(start.stamp)}, but archived only up to {as_datetime(until)}"
                )
                raise InvalidInput(
                    f"{message}: the records in between are in neither the journal nor the archive"
                )

    def _ask(self, work: Callable[[], T], *, patient: bool = False) -> T:
        return work()

    def start(self, partition: int) -> Tail:
        """Return the start of an untrimmed log, because trimmed records are in the archive."""
        return EMPTY

    def base(self, partition: int) -> Snapshot | None:
        """Return None, because trimmed records are in the archive."""
        return None

    def read(self, partition: int, after: int, limit: int) -> list[Record]:
        """Return the records after a position; see :meth:`Log.read`."""
        check_range(partition, after, limit, self._partitions)
        start = self._journal.start(partition).position
        if after >= start:
            return self._journal.read(partition, after, limit)
        positions, stamps, events = self._archived(partition, start)
        first = int(np.searchsorted(positions, after, side="right"))
        stop = min(first + limit, len(positions))
        newer = self._journal.read(partition, start, max(limit - (stop - first), 1))
        # Folds compare decisions by digest if the journal stores digests.
        digests = any(record.digest for record in newer)
        archived = [
            Record(
                partition, position, stamp, read_event(data), digest_of(data) if digests else b""
            )
            for position, stamp, data in zip(
                positions[first:stop].tolist(),
                stamps[first:stop].tolist(),
                events[first:stop].to_pylist(),
                strict=True,
            )
        ]
        return archived + newer[: limit - len(archived)]

    def _archived(self, partition: int, start: int) -> tuple[Times, Times, Any]:
        if partition not in self._records:
            self._records[partition] = self._archive.records(partition, start)
        return self._records[partition]

    def read_columns(self, partition: int, after: int, limit: int) -> ColumnPage:
        """Return records after a position as columns; see :meth:`ColumnLog.read_columns`."""
        return ColumnPage.of_records(self.read(partition, after, limit))

    def requests(self, partition: int, positions: Sequence[int]) -> dict[int, bytes]:
        """Return the stored requests of decisions, by position."""
        start = self._journal.start(partition).position
        requests = self._journal.requests(partition, [n for n in positions if n > start])
        if len(requests) < len(positions) and start:
            if partition not in self._requests:
                self._requests[partition] = self._archive.requests(partition)
            archived = self._requests[partition]
            requests |= {n: archived[n] for n in positions if n <= start and n in archived}
        return requests

    def append(
        self,
        events: Sequence[Event],
        *,
        recorded: Sequence[int] | None = None,
        requests: Requests | None = None,
    ) -> list[int]:
        """Raise ReadOnly."""
        raise ReadOnly(_READ_ONLY)

    def append_unique(
        self, events: Sequence[Event], ids: Collection[str], requests: Requests | None = None
    ) -> Appended:
        """Raise ReadOnly."""
        raise ReadOnly(_READ_ONLY)

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()
