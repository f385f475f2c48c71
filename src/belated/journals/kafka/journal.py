"""A journal whose log is in Kafka, and whose shelf is in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from belated.core.events import Decision, Event, Record, Trimmed, encode
from belated.core.ids import check_id, check_partitions
from belated.exceptions import JournalError, JournalMismatch, NotIndexed
from belated.journals.arrivals import check_partition
from belated.journals.kafka.acts import ShelvedActs
from belated.journals.kafka.client import Cluster
from belated.journals.kafka.commits import Place, pack
from belated.journals.kafka.log import KafkaLog
from belated.journals.kafka.offsets import Offsets
from belated.journals.kafka.piece_files import PieceFiles
from belated.journals.kafka.reader import Finder, Reader
from belated.journals.kafka.topic import Topics, new_name
from belated.journals.kafka.writer import Writer
from belated.journals.log import EMPTY, Appended, Requests, Tail
from belated.journals.postgres import open_session
from belated.journals.postgres.shelf import PostgresShelf
from belated.journals.snapshots import Snapshot, checksum

if TYPE_CHECKING:
    from belated.journals.postgres.session import Talk


class KafkaJournal(ShelvedActs, KafkaLog, PostgresShelf):
    """Keeps events in a topic of Kafka, each append at enough brokers when it returns.

    Any number of threads, processes and machines may append at the same time. Events of one call
    and one partition are one record of Kafka. Stamps are those of the brokers, in milliseconds,
    held at the greatest so far. Identity, owners, snapshots and the acts of operators are in
    PostgreSQL, whose tables must be there: see :meth:`PostgresJournal.create_tables`.

    It is a log and no :class:`UniqueLog`: nothing is found by id. So an id that callers choose is
    refused for a decision, with :class:`NotIndexed`, and so is a look-up by id; the bandit or
    learner that has folded the partition can answer. Ids made here need no look-up.

    The topic is made when the bandit is first opened, and its settings are read back whenever it
    is: if a record could be lost or misdated, it is refused. Needs the extras ``kafka`` and
    ``postgres``. The how-to on Kafka shows it in use.

    Args:
        brokers: ``host:port`` of some brokers, with commas between.
        shelf: Address of the database: ``postgresql://user@host/name``.
        bandit: Name of the bandit within the database.
        partitions: A power of two, fixed when the bandit is first opened; None for as many as
            there are, and 1 in a new one.
        wait: Seconds to wait for brokers and the database before :class:`JournalUnavailable`.
        copies: Brokers that must have a copy of each record. With 1, losing a disk loses the
            journal: for tests.
        settings: Of librdkafka, such as ``{"security.protocol": "SSL"}``.
        snapshots: Where pieces of snapshots are: a folder that all processes reach, or an address
            that fsspec knows, as in ``s3://…``. In PostgreSQL if None.
    """

    #: Nothing is: a service then takes an id that its client has just made to be new.
    finds_by_id = False

    def __init__(
        self,
        brokers: str,
        *,
        shelf: str,
        bandit: str,
        partitions: int | None = None,
        wait: float = 10.0,
        copies: int = 3,
        settings: Mapping[str, str] | None = None,
        snapshots: str | None = None,
    ) -> None:
        self._bandit = check_id(bandit, "the bandit's name")
        wanted = None if partitions is None else check_partitions(partitions)
        self._clock = None
        self._known, self._epochs, self._shelved = {}, {}, set()
        self._cluster = cluster = Cluster(brokers, settings or {}, wait)
        topics = Topics(cluster, copies)
        self._session = open_session(shelf, wait)
        self._place = f"{cluster.place}, shelf in {self._session.place}"
        try:
            self._open(topics, wanted)
            assert self._topic is not None
            limit = topics.check(self._topic, self._partitions)
        except BaseException:
            self._session.close()
            raise
        self._writer = Writer(cluster, self._topic, limit)
        self._files = None if snapshots is None else PieceFiles(snapshots, self._topic)
        self._offsets = Offsets(cluster, self._topic)
        self._reader = Reader(cluster, self._topic, self._offsets, self._floor)
        self._finder = Finder(cluster, self._topic, self._offsets, self._floor)

    def _open(self, topics: Topics, wanted: int | None) -> None:
        """Find the bandit; make a topic first if there may be none."""
        if self._session.run_query("find", name=self._bandit):
            self._register(wanted, "")
            return
        name = new_name(self._bandit)
        topics.make(name, wanted or 1)
        self._register(wanted, name)
        if self._topic != name:  # another process was faster
            with suppress(JournalError):
                topics.remove(name)

    # --- what is found by id is refused ----------------------------------------------------------

    def append_unique(
        self, events: Sequence[Event], ids: Collection[str], requests: Requests | None = None
    ) -> Appended:
        """Append events if no id among them is a caller's own; refuse a look-up."""
        self._check_open()
        if ids:
            raise self._not_indexed(min(ids))
        return Appended(self.append(events, requests=requests), {})

    def decisions(self, ids: Sequence[str]) -> dict[str, Decision]:
        """Refuse: the owner of a partition knows its decisions."""
        self._check_open()
        if ids:
            raise self._not_indexed(ids[0])
        return {}

    def records_of(self, ids: Sequence[str]) -> list[Record]:
        """Refuse: the owner of a partition knows its records."""
        self._check_open()
        if ids:
            raise self._not_indexed(ids[0])
        return []

    def settlements(self, partition: int) -> list[Record]:
        """Refuse: the owner of a partition knows when it was settled."""
        check_partition(partition, self._partitions)
        self._check_open()
        raise NotIndexed(f"when partition {partition} was settled is not indexed: {_ASK_OWNER}")

    def overwrite(self, keys: Sequence[bytes]) -> int:
        """Refuse: what Kafka has, nobody can change."""
        self._check_open()
        if keys:
            message = "records in Kafka cannot be overwritten: what was erased is not learned from"
            raise JournalError(f"{message}, and its bytes go when the partition is trimmed")
        return 0

    def _not_indexed(self, id: str) -> NotIndexed:
        return NotIndexed(f"{self._place} finds nothing by the id {id!r}: {_ASK_OWNER}")

    # --- snapshots -------------------------------------------------------------------------------

    def save(self, snapshot: Snapshot) -> None:
        """Store a snapshot, its pieces as files first; see :meth:`Shelf.save`."""
        if self._files is None:
            super().save(snapshot)
            return
        partition = snapshot.partition
        check_partition(partition, self._partitions)
        # What is listed before it is saved, no later owner can have written: it begins with this.
        before = self._files.names(partition) if self._epoch(partition) else []
        self._files.write(partition, snapshot.pieces.values())
        super().save(snapshot)
        if before:
            stored = self._session.run_query("checksums", **self._whose(partition))
            self._files.sweep(partition, before, [named for _, named in stored])

    def _piece_row(self, data: bytes) -> bytes:
        return data if self._files is None else b""

    def _snapshot_rows(self, partition: int) -> list[tuple[Any, ...]]:
        rows = super()._snapshot_rows(partition)
        for _ in range(2):
            filled = [self._with_piece(partition, row) for row in rows]
            again = super()._snapshot_rows(partition) if None in filled else rows
            if again == rows:  # else another has saved since, and removed the files
                break
            rows = again
        return [row if found is None else found for row, found in zip(rows, filled, strict=True)]

    def _with_piece(self, partition: int, row: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return the row of a piece with its bytes; None if the file is gone."""
        *place, named, data = row
        if data or named is None or named == _NOTHING:
            return row
        if self._files is None:
            message = f"the snapshots of bandit {self._bandit!r} in {self._place} are in files"
            raise JournalMismatch(f"{message}: open it with the same snapshots= as the others")
        found = self._files.read(partition, named)
        return None if found is None else (*place, named, found)

    # --- old records -----------------------------------------------------------------------------

    def start(self, partition: int) -> Tail:
        """Return the last record that was dropped; see :meth:`Log.start`."""
        check_partition(partition, self._partitions)
        self._check_open()
        rows = self._session.run_query("start", **self._whose(partition))
        return Tail(*rows[0]) if rows else EMPTY

    def drop(self, partition: int, limit: int) -> int:
        """Drop the records up to the start; see :meth:`Log.drop`.

        Brokers do it at once, and by whole records of Kafka.

        Returns:
            How many records of Kafka were dropped.
        """
        start = self.start(partition).position
        span = self._finder.span(partition)
        offset = Place.behind(start - 1).offset
        if not start or offset < span.first:
            return 0
        found = self._finder.commits(partition, offset, span.end, 1)[0]
        before = offset if found.offset == offset and found.last > start else offset + 1
        assert self._topic is not None
        if before > span.first:
            Topics(self._cluster, 1).drop(self._topic, partition, before)
        return before - span.first

    def _prepare_trimmed(self, trimmed: Trimmed) -> Callable[[Talk], None]:
        # If the database fails afterwards, the record says more than was done: nothing reads it.
        stamps = self._stamps([trimmed], [trimmed.partition], None)
        value = pack([encode(trimmed)], stamps)

        def send(talk: Talk) -> None:
            self._writer.send([(trimmed.partition, value)])

        return send

    def _floor(self, partition: int) -> int:
        return self.start(partition).stamp // 1000

    def now(self) -> int:
        """Return the time of the database's clock, in microseconds since 1970.

        Brokers cannot be asked for theirs. A :class:`Settled` counts up to its own stamp at most,
        so a clock that is ahead of theirs settles nothing early.
        """
        self._check_open()
        if self._clock is not None:
            return self._clock()
        return int(self._session.run_query("clock")[0][0])

    def close(self) -> None:
        """Let go of all connections; any later call raises :class:`JournalClosed`."""
        if not self._closed:
            self._closed = True
            self._writer.close()
            self._reader.close()
            self._finder.close()
            self._offsets.close()
        self._session.close()


_NOTHING = checksum(b"")
_ASK_OWNER = (
    "ask the bandit or the learner that owns the partition, or use ids made here, under which no "
    "second decision is made"
)
