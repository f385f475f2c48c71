"""Stores, which open journals on demand, and sessions, which share one connection."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from belated.core.events import Event, ModeChanged
from belated.journals.bandits import all_bandits, check_exists, renaming
from belated.journals.cells import Cell, Cells, cell_name
from belated.journals.coordination import CoordinationStore, published
from belated.journals.journal import Journal
from belated.journals.keys import KeyStore
from belated.journals.log import Appended, Requests, UniqueLog
from belated.journals.shelf import ActionChanges, ChosenModels, actions, chosen_models, modes
from belated.journals.snapshots import read_contents


@dataclass(frozen=True)
class StoredSnapshot:
    """Metadata of a snapshot.

    Attributes:
        partition: Partition of the snapshot.
        position: Position of the last record included.
        fingerprint: Fingerprint of the fold that saved the snapshot.
        bytes: Total size of the pieces, in bytes.
    """

    partition: int
    position: int
    fingerprint: str
    bytes: int


@dataclass(frozen=True)
class StoredBandit:
    """Metadata of a bandit in a store.

    Attributes:
        name: Name of the bandit.
        partitions: Number of partitions.
        identity: Family, width and features of the bandit; None before its first use.
        snapshots: At most one snapshot per partition, by partition.
    """

    name: str
    partitions: int
    identity: dict[str, str] | None
    snapshots: list[StoredSnapshot]


@dataclass(frozen=True)
class Batch:
    """Events of one bandit.

    Attributes:
        journal: Journal of the bandit, opened by the session that appends the batch.
        events: Events to append.
        ids: Ids chosen by callers, each of which may have only one decision.
        requests: Stored requests of decisions, by index in ``events``.
    """

    journal: UniqueLog
    events: Sequence[Event]
    ids: Collection[str] = ()
    requests: Requests = field(default_factory=dict)

    def append(self) -> Appended:
        """Append the events in a separate commit."""
        if self.ids:
            return self.journal.append_unique(self.events, self.ids, self.requests)
        return Appended(self.journal.append(self.events, requests=self.requests), {})


class BatchLog(Protocol):
    """Appends the events of several bandits at once."""

    def append_all(self, batches: Sequence[Batch]) -> list[Appended]:
        """Append batches atomically, in one commit.

        If an id in ``ids`` already has a decision, implementations may use one commit per bandit.
        """

    def close(self) -> None:
        """Close the connection."""


class Store:
    """A place for journals and cells: a database, a file or the memory of this process.

    Creating a store opens nothing. Every method opens an object with a separate connection, so that
    a lookup never waits for an append; close each object when you no longer need it. Objects
    opened by a :meth:`session` share the session's connection.

    To implement a store, define :meth:`cells` and :meth:`journal`, and test it with
    :class:`belated.testing.StoreContract`.
    """

    #: The kind of store: ``memory``, ``sqlite``, ``postgresql``, ``kafka`` or a custom name.
    name: str
    #: Location for error messages, without a password.
    place: str
    #: Whether the store assigns partitions to several learners of a bandit.
    assigns_partitions = False
    #: Whether several processes can append at the same time, instead of waiting for each other.
    concurrent_appends = True

    def cells(self, *, wait: float = 10.0) -> Cells:
        """Open the cells.

        Args:
            wait: Seconds to wait for the store before raising :class:`JournalUnavailable`.
        """
        raise NotImplementedError

    def journal(
        self, bandit: str = "default", *, partitions: int | None = None, wait: float = 10.0
    ) -> Journal:
        """Open the journal of a bandit; create it if it does not exist.

        Args:
            bandit: Name of the bandit.
            partitions: Number of partitions, a power of two that is fixed when the journal is
                created. None means the existing number, or 1 for a new journal.
            wait: Seconds to wait for the store before raising :class:`JournalUnavailable`.
        """
        raise NotImplementedError

    def session(self, *, wait: float = 10.0) -> StoreSession:
        """Open one connection for any number of bandits.

        Args:
            wait: Seconds to wait for the store before raising :class:`JournalUnavailable`.
        """
        return StoreSession(self, self.cells(wait=wait), wait)

    def coordination(self, bandit: str = "default", *, wait: float = 10.0) -> CoordinationStore:
        """Open the lease and the published model of an existing bandit.

        Raises:
            JournalError: the bandit does not exist.
        """
        return self.coordination_in(self.cells(wait=wait), bandit)

    def coordination_in(self, cells: Cells, bandit: str) -> CoordinationStore:
        """Open the lease and the published model; the returned object takes over the cells."""
        try:
            check_exists(cells, bandit, self.place)
        except BaseException:
            cells.close()
            raise
        return CoordinationStore(cells, bandit)

    def keys(self, *, wait: float = 10.0) -> KeyStore:
        """Open the API keys."""
        return KeyStore(self.cells(wait=wait))

    @contextmanager
    def new_journal(self, bandit: str, *, partitions: int) -> Iterator[Journal]:
        """Create a journal that becomes visible when the block ends without an error.

        Use this for atomic imports. Until the block ends, records are stored under a temporary
        name, where they remain if the block raises an error.

        Args:
            bandit: Name of the bandit, which must be new.
            partitions: Number of partitions, a power of two.

        Raises:
            InvalidInput: the bandit exists, or, with SQLite, the file exists.
        """
        cells = self.cells()
        try:
            with (
                renaming(cells, bandit, self.place) as unfinished,
                self.journal(unfinished, partitions=partitions) as journal,
            ):
                yield journal
        finally:
            cells.close()

    def describe(self) -> list[StoredBandit]:
        """Return the metadata of each bandit, sorted by name, without changing anything."""
        cells = self.cells()
        try:
            return stored_bandits(cells.scan("bandit/"), cells.scan("snapshot/"))
        finally:
            cells.close()

    def create_tables(self) -> None:
        """Create the tables that the store needs."""


class StoreSession:
    """A connection for all bandits of a process; access by threads is serialized.

    Objects opened by a session are usable until the session is closed. This base class works with
    any store, and queries bandits one after another.

    Args:
        store: Store from which to open journals.
        cells: Cells of the store, closed with the session.
        wait: Seconds to wait for the store.
    """

    def __init__(self, store: Store, cells: Cells, wait: float) -> None:
        self._store = store
        self._wait = wait
        #: The cells of the store.
        self.cells = cells
        #: Journals that :meth:`ends` reads.
        self._journals: dict[str, Journal] = {}

    def journal(self, bandit: str, *, partitions: int | None = None) -> Journal:
        """Open a journal, like :meth:`Store.journal`."""
        return self._store.journal(bandit, partitions=partitions, wait=self._wait)

    def share_cells(self) -> Cells:
        """Return a separate object for the same cells, which is closed independently."""
        return self._store.cells(wait=self._wait)

    def coordination(self, bandit: str) -> CoordinationStore:
        """Open the lease and the model of a bandit, like :meth:`Store.coordination`."""
        return self._store.coordination_in(self.share_cells(), bandit)

    def keys(self) -> KeyStore:
        """Open the API keys."""
        return KeyStore(self.share_cells())

    def append_all(self, batches: Sequence[Batch]) -> list[Appended]:
        """Append batches; see :meth:`BatchLog.append_all`."""
        return [batch.append() for batch in batches]

    def published(self, after: Mapping[str, int]) -> dict[str, tuple[int, bytes]]:
        """Return the models newer than ``after`` with their versions, by bandit."""
        return published(self.cells, after)

    def modes(self, bandits: Iterable[str]) -> dict[str, ModeChanged]:
        """Return the last mode change of each bandit that has one."""
        return modes(self.cells, bandits)

    def actions(self, after: Mapping[str, int]) -> ActionChanges:
        """Return action changes since versions; see :func:`belated.journals.shelf.actions`."""
        return actions(self.cells, after)

    def chosen_models(self, after: Mapping[str, int]) -> ChosenModels:
        """Return the models that operators chose; see :func:`belated.journals.shelf.actions`."""
        return chosen_models(self.cells, after)

    def ends(self, bandits: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """Return the end of each partition, by bandit; bandits without a journal are omitted."""
        return {
            name: tuple(map(journal.end, range(journal.partitions)))
            for name, journal in self._existing(bandits).items()
        }

    def close(self) -> None:
        """Close the connection and all journals opened by :meth:`ends`."""
        for journal in self._journals.values():
            journal.close()
        self.cells.close()

    def _existing(self, bandits: Iterable[str]) -> dict[str, Journal]:
        """Return the journals that exist, by bandit; they stay open."""
        names = list(bandits)
        new = {cell_name("bandit", name): name for name in names if name not in self._journals}
        for cell in self.cells.get(new) if new else ():
            self._journals[new[cell]] = self.journal(new[cell])
        return {name: self._journals[name] for name in names if name in self._journals}


def stored_bandits(
    bandits: Mapping[str, Cell], snapshots: Mapping[str, Cell]
) -> list[StoredBandit]:
    """Return the metadata of each bandit, given all bandit cells and snapshot cells."""
    contents = {name: read_contents(cell) for name, cell in snapshots.items()}
    return [
        StoredBandit(
            bandit.name,
            bandit.partitions,
            bandit.identity,
            [
                StoredSnapshot(
                    number, stored.position, stored.fingerprint, sum(stored.sizes.values())
                )
                for number in range(bandit.partitions)
                if (stored := contents.get(cell_name("snapshot", bandit.name, number))) is not None
            ],
        )
        for bandit in all_bandits(bandits)
    ]
