"""A journal whose log is in Kafka, and whose cells are in PostgreSQL or SQLite."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from belated.core.events import Decision, Event, Record
from belated.core.ids import check_id, check_partitions
from belated.exceptions import JournalError, JournalMismatch, NotIndexed
from belated.journals.addresses import open_store
from belated.journals.arrivals import check_partition
from belated.journals.bandits import Registration, check_wanted, find_bandit, register_as
from belated.journals.kafka.client import Cluster
from belated.journals.kafka.commits import Place
from belated.journals.kafka.log import KafkaLog
from belated.journals.kafka.offsets import Offsets
from belated.journals.kafka.piece_files import PieceFiles
from belated.journals.kafka.reader import Finder, Reader
from belated.journals.kafka.topic import Topics, new_name
from belated.journals.kafka.writer import Writer
from belated.journals.log import Appended, Requests


class KafkaJournal(KafkaLog):
    """Keeps events in a topic of Kafka, each append at enough brokers when it returns.

    Any number of threads, processes and machines may append at the same time. Events of one call
    and one partition are one record of Kafka. Stamps are those of the brokers, in milliseconds,
    held at the greatest so far. Identity, owners, snapshots and the acts of operators are cells of
    a store in PostgreSQL, whose tables must exist (:meth:`PostgresJournal.create_tables`), or in a
    file of SQLite, if all processes are on one machine.

    It is a log and no :class:`UniqueLog`: nothing is found by id. So an id that callers choose is
    refused for a decision, with :class:`NotIndexed`, and so is a look-up by id; the bandit or
    learner that has folded the partition can answer. Ids made here need no look-up.

    The topic is made when the bandit is first opened, and its settings are read back whenever it
    is: if a record could be lost or misdated, it is refused. Needs the extras ``kafka`` and
    ``postgres``. The how-to on Kafka shows it in use.

    Args:
        brokers: ``host:port`` of some brokers, with commas between.
        shelf: Address of the store of cells: ``postgresql://user@host/name``, or
            ``sqlite:///offers.db``.
        bandit: Name of the bandit within that store.
        partitions: A power of two, fixed when the bandit is first opened; None for as many as
            there are, and 1 in a new one.
        wait: Seconds to wait for brokers and the database before :class:`JournalUnavailable`.
        copies: Brokers that must have a copy of each record. With 1, losing a disk loses the
            journal: for tests.
        settings: Of librdkafka, such as ``{"security.protocol": "SSL"}``.
        snapshots: Where pieces of snapshots are: a folder that all processes reach, or an address
            that fsspec knows, as in ``s3://…``. In cells if None.
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
        self._cluster = cluster = Cluster(brokers, settings or {}, wait)
        topics, store = Topics(cluster, copies), open_store(shelf)
        self._place = f"{cluster.place}, cells in {store.place}"
        self._open_shelf(store.cells(wait=wait))
        try:
            self._topic = self._open_topic(topics, wanted)
            limit = topics.check(self._topic, self._partitions)
        except BaseException:
            self.cells.close()
            raise
        if snapshots is not None:
            self._snapshots = PieceFiles(self.cells, snapshots, self._bandit, self._topic)
        self._writer = Writer(cluster, self._topic, limit)
        self._offsets = Offsets(cluster, self._topic)
        self._reader = Reader(cluster, self._topic, self._offsets, self._floor)
        self._finder = Finder(cluster, self._topic, self._offsets, self._floor)

    def _open_topic(self, topics: Topics, wanted: int | None) -> str:
        """Find the bandit; make a topic first if there is none."""
        _, found = find_bandit(self.cells, self._bandit)
        if found is None:
            name = new_name(self._bandit)
            topics.make(name, wanted or 1)
            new = Registration(self._bandit, 0, wanted or 1, topic=name)
            found = register_as(self.cells, new)
            assert found is not None
            if found.topic != name:  # another process was faster
                with suppress(JournalError):
                    topics.remove(name)
        if found.topic is None:
            message = (
                f"the records of bandit {self._bandit!r} are not in Kafka: open it by its address "
                "that begins with `postgresql:` or `sqlite:`"
            )
            raise JournalMismatch(f"{message}, or choose another name")
        check_wanted(self._bandit, self._place, wanted, found.partitions)
        self._partitions = found.partitions
        return found.topic

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

    def records_of(self, ids: Sequence[str], limit: int | None = None) -> list[Record]:
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

    # --- old records -----------------------------------------------------------------------------

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
        if before > span.first:
            Topics(self._cluster, 1).drop(self._topic, partition, before)
        return before - span.first

    def _floor(self, partition: int) -> int:
        return self.start(partition).stamp // 1000

    def now(self) -> int:
        """Return the time of the database's clock, in microseconds since 1970.

        Brokers cannot be asked for theirs. A :class:`Settled` counts up to its own stamp at most,
        so a clock that is ahead of theirs settles nothing early.
        """
        self._check_open()
        return super().now() if self._clock is None else self._clock()

    def close(self) -> None:
        """Let go of all connections; any later call raises :class:`JournalClosed`."""
        if not self._closed:
            self._closed = True
            self._writer.close()
            self._reader.close()
            self._finder.close()
            self._offsets.close()
        self.cells.close()


_ASK_OWNER = (
    "ask the bandit or the learner that owns the partition, or use ids made here, under which no "
    "second decision is made"
)
