"""Old days of a journal as Parquet, in a folder or an object store; and a journal with its archive.

A day has the decisions that the journal took on it, in UTC, each with all its records, however
later they came; and the other records of that day, which belong to no archived decision. So every
record of a journal is in exactly one place.
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
from belated.exceptions import (
    CorruptJournal,
    InvalidInput,
    ReadOnly,
    UnsupportedFormat,
    extra,
)
from belated.journals.arrivals import check_range
from belated.journals.folders import open_folder
from belated.journals.journal import Journal, PassedOn
from belated.journals.log import EMPTY, Appended, Requests, Tail
from belated.journals.pages import ColumnPage
from belated.journals.snapshots import Snapshot

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
        names=StoredRecord._fields,
    )


def write_others(day: ArchivedDay, path: Path) -> None:
    """Write the records that belong to no archived decision."""
    pa, pq = arrow()
    columns = _records(pa, day.others).flatten()
    table = pa.table(dict(zip(StoredRecord._fields, columns, strict=True)))
    table = table.replace_schema_metadata({"belated.schema": FORMAT})
    pq.write_table(table, path, compression="zstd")


class Archive:
    """Old days of a bandit's journal, as Parquet in a folder or an object store.

    Files of a day are put in place as a whole, its manifest last. A day without a manifest was not
    archived: whoever archives next writes the same files again, in place of those.

    Args:
        address: of the folder: a path, or an address that fsspec knows, as in ``s3://…``.
        bandit: name of the bandit.
    """

    def __init__(self, address: str | Path, bandit: str) -> None:
        arrow()  # say at once if it is missing
        self.bandit = bandit
        self._folder = open_folder(address)
        # What may stand in a name of a bandit may not in that of a folder.
        self._root = f"bandit={quote(bandit, safe='')}"

    def manifests(self, partition: int) -> list[Manifest]:
        """Return what was archived of a partition, in the order of days."""
        return [one for one in self._manifests if one.partition == partition]

    @cached_property
    def _manifests(self) -> list[Manifest]:
        return [self._manifest(name) for name in self._folder.names(f"{self._root}/_manifest")]

    def _manifest(self, name: str) -> Manifest:
        try:
            found = msgspec.json.decode(self._folder.read(name), type=Manifest)
        except msgspec.MsgspecError as error:
            raise CorruptJournal(f"{name} is not the manifest of a day: {error}") from None
        if found.format != FORMAT:
            raise UnsupportedFormat(f"{name} has format {found.format}: upgrade belated")
        return found

    def until(self, partition: int) -> int:
        """Return up to when a partition was archived, in microseconds since 1970; 0: not at all."""
        return max((one.end for one in self.manifests(partition)), default=0)

    def check(self, partitions: int) -> None:
        """Refuse an archive of another number of partitions."""
        other = {one.partitions for one in self._manifests} - {partitions}
        if other:
            message = f"the archive of {self.bandit!r} is of a journal of {other.pop()} partitions"
            raise InvalidInput(f"{message}, not {partitions}: choose another folder", partitions)

    def write(self, day: ArchivedDay) -> Manifest:
        """Archive a day; nothing of it counts before all of it is there."""
        name, part = name_of_day(day.day), f"{day.partition:04d}"
        files = (
            self._put(f"{self._root}/day={name}/part-{part}.parquet", day, write_decisions),
            self._put(f"{self._root}/_others/{name}-{part}.records", day, write_others),
        )
        records = [one for decision in day.decisions for one in decision.records] + [*day.others]
        manifest = Manifest(
            bandit=self.bandit,
            partition=day.partition,
            partitions=day.partitions,
            day=name,
            decisions=len(day.decisions),
            records=len(records),
            last=max(one.position for one in records),
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
        """The decisions and the other records of a day, as Arrow tables."""
        pa, pq = arrow()
        for file, names in zip(manifest.files, (columns, None), strict=True):
            data = self._folder.read(file.name)
            if sha256(data).hexdigest() != file.sha256:
                message = f"{file.name} is not what its manifest says: it was changed or cut off"
                raise CorruptJournal(f"{message}; restore it from a copy")
            # Without threads: one that Arrow has not joined when Python ends aborts the process.
            parquet = pq.ParquetFile(pa.BufferReader(data))
            yield parquet.read(None if names is None else list(names), use_threads=False)

    def positions(self, partition: int, after: int) -> set[int]:
        """Return the positions of all archived records beyond one."""
        found: set[int] = set()
        for manifest in self.manifests(partition):
            if manifest.last > after:
                position, _, _ = self._records(manifest)
                found.update(position[position > after].tolist())
        return found

    def records(self, partition: int, upto: int) -> tuple[Times, Times, Any]:
        """Return positions, stamps and bytes of all archived records up to a position, in order."""
        pa, _ = arrow()
        parts = [self._records(one) for one in self.manifests(partition)]
        if not parts:
            return np.zeros(0, np.int64), np.zeros(0, np.int64), pa.array([], pa.binary())
        position = np.concatenate([one for one, _, _ in parts])
        recorded = np.concatenate([one for _, one, _ in parts])
        order = np.argsort(position, kind="stable")
        order = order[position[order] <= upto]
        events = pa.chunked_array([one for _, _, one in parts], pa.binary())
        return position[order], recorded[order], events.take(pa.array(order)).combine_chunks()

    def _records(self, manifest: Manifest) -> tuple[Times, Times, Any]:
        pa, _ = arrow()
        decisions, others = self._tables(manifest, "records")
        nested = decisions["records"].combine_chunks().flatten()
        both = [
            [nested.field(name), others[name].combine_chunks()] for name in StoredRecord._fields
        ]
        position, recorded, event = (pa.concat_arrays(one) for one in both)
        stamps = recorded.cast(pa.int64()).to_numpy(zero_copy_only=False)
        return position.to_numpy(zero_copy_only=False), stamps, event

    def requests(self, partition: int) -> dict[int, bytes]:
        """Return what archived decisions were chosen from, by position, where it was kept."""
        found: dict[int, bytes] = {}
        for manifest in self.manifests(partition):
            table, _ = self._tables(manifest, "position", "request")
            for position, request in zip(
                table["position"].to_pylist(), table["request"].to_pylist(), strict=True
            ):
                if request is not None:
                    found[position] = request
        return found


T = TypeVar("T")


class WholeJournal(PassedOn):
    """Reads what was trimmed from the archive, and the rest from the journal; appends nothing.

    The archived records that the journal no longer has are held in memory, as bytes.

    Args:
        journal: with the newer records.
        archive: with those that it may have dropped.

    Raises:
        InvalidInput: the journal has dropped records that the archive does not have.
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
                    f"{as_datetime(start.stamp)}, and archived up to {as_datetime(until)} only"
                )
                raise InvalidInput(f"{message}: the records between are in neither")

    def _ask(self, work: Callable[[], T], *, patient: bool = False) -> T:
        return work()

    def start(self, partition: int) -> Tail:
        """Nothing was dropped."""
        return EMPTY

    def base(self, partition: int) -> Snapshot | None:
        """Nothing stands for what was dropped: it is here."""
        return None

    def read(self, partition: int, after: int, limit: int) -> list[Record]:
        """The records beyond a position; see :meth:`Log.read`."""
        check_range(partition, after, limit, self._partitions)
        start = self._journal.start(partition).position
        if after >= start:
            return self._journal.read(partition, after, limit)
        positions, stamps, events = self._archived(partition, start)
        first = int(np.searchsorted(positions, after, side="right"))
        stop = min(first + limit, len(positions))
        rest = self._journal.read(partition, start, max(limit - (stop - first), 1))
        # If the journal stores digests, a fold compares decisions by them.
        digests = any(one.digest for one in rest)
        found = [
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
        return found + rest[: limit - len(found)]

    def _archived(self, partition: int, start: int) -> tuple[Times, Times, Any]:
        if partition not in self._records:
            self._records[partition] = self._archive.records(partition, start)
        return self._records[partition]

    def read_columns(self, partition: int, after: int, limit: int) -> ColumnPage:
        """The same as columns; see :meth:`ColumnLog.read_columns`."""
        return ColumnPage.of_records(self.read(partition, after, limit))

    def requests(self, partition: int, positions: Sequence[int]) -> dict[int, bytes]:
        """What decisions were chosen from, by position."""
        start = self._journal.start(partition).position
        found = self._journal.requests(partition, [one for one in positions if one > start])
        if len(found) < len(positions) and start:
            if partition not in self._requests:
                self._requests[partition] = self._archive.requests(partition)
            known = self._requests[partition]
            found |= {one: known[one] for one in positions if one <= start and one in known}
        return found

    def append(
        self,
        events: Sequence[Event],
        *,
        recorded: Sequence[int] | None = None,
        requests: Requests | None = None,
    ) -> list[int]:
        """Refused: append to the journal itself."""
        raise ReadOnly("a journal with its archive is for reading: append to the journal itself")

    def append_unique(
        self, events: Sequence[Event], ids: Collection[str], requests: Requests | None = None
    ) -> Appended:
        """Refused: append to the journal itself."""
        raise ReadOnly("a journal with its archive is for reading: append to the journal itself")

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()
