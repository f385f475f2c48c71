"""The archive of a bandit: days are written once, and read back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import numpy as np

from belated.exceptions import CorruptJournal, InvalidInput, UnsupportedFormat
from belated.journals.archive.days import (
    FORMAT,
    ArchivedDay,
    File,
    Manifest,
    Times,
    arrow,
    name_of_day,
    write_decisions,
    write_others,
)
from belated.journals.folders import open_folder


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
            [nested.field(name), others[name].combine_chunks()]
            for name in ("position", "recorded", "event")
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
