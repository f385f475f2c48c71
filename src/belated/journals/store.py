"""Where journals are: an address, opened on demand; and one connection for many of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from belated.core.events import Event, ModeChanged
from belated.journals.bandits import all_bandits, check_there, renaming
from belated.journals.cells import Cell, Cells, cell_name
from belated.journals.coordination import CoordinationStore, published
from belated.journals.journal import Journal
from belated.journals.keys import KeyStore
from belated.journals.log import Appended, Requests, UniqueLog
from belated.journals.shelf import ActionChanges, ChosenModels, actions, chosen_models, modes
from belated.journals.snapshots import read_contents


@dataclass(frozen=True)
class StoredSnapshot:
    """A snapshot without its pieces.

    Attributes:
        partition: It is of.
        position: The last record it covers.
        fingerprint: Of the fold that saved it.
        bytes: Size of its pieces.
    """

    partition: int
    position: int
    fingerprint: str
    bytes: int


@dataclass(frozen=True)
class StoredBandit:
    """What a store holds of a bandit, but for its records.

    Attributes:
        name: Name of the bandit.
        partitions: Number of partitions.
        identity: What the bandit is; None if none has used the journal yet.
        snapshots: At most one for each partition, by partition.
    """

    name: str
    partitions: int
    identity: dict[str, str] | None
    snapshots: list[StoredSnapshot]


@dataclass(frozen=True)
class Batch:
    """Events of one bandit.

    Attributes:
        journal: Where they go; opened by the session that appends them.
        events: What is to be appended.
        ids: Those among their ids that callers chose: each may have one decision.
        requests: What decisions among the events were chosen from, by their place.
    """

    journal: UniqueLog
    events: Sequence[Event]
    ids: Collection[str] = ()
    requests: Requests = field(default_factory=dict)

    def append(self) -> Appended:
        """Append them, in a commit of their own."""
        if self.ids:
            return self.journal.append_unique(self.events, self.ids, self.requests)
        return Appended(self.journal.append(self.events, requests=self.requests), {})


class BatchLog(Protocol):
    """Appends for several bandits at once."""

    def append_all(self, batches: Sequence[Batch]) -> list[Appended]:
        """Append batches, in one commit: all of them or none.

        Where a caller's id has a decision already, a commit for each bandit is allowed.
        """

    def close(self) -> None:
        """Release whatever is held."""


class Store:
    """A database, a file or the memory of this process.

    Nothing is opened until you ask. Every call gives an object with a connection of its own, so
    that a look-up never waits for an append; close each when you are done with it. What is opened
    by one :meth:`session` shares its connection.

    A store of your own defines :meth:`cells` and :meth:`journal`.
    :class:`belated.testing.StoreContract` tests it.
    """

    #: The kind of store: ``memory``, ``sqlite``, ``postgresql``, ``kafka`` or your own.
    name: str
    #: Where it is, for messages; never with a password.
    place: str
    #: Whether it assigns partitions to several learners of a bandit.
    assigns_partitions = False

    def cells(self, *, wait: float = 10.0) -> Cells:
        """Open the cells.

        Args:
            wait: Seconds to wait for the store before :class:`JournalUnavailable`.
        """
        raise NotImplementedError

    def journal(
        self, bandit: str = "default", *, partitions: int | None = None, wait: float = 10.0
    ) -> Journal:
        """Open the journal of a bandit; make it if it is new.

        Args:
            bandit: Name of the bandit.
            partitions: A power of two, fixed when the journal is made; None for as many as there
                are, and 1 in a new one.
            wait: Seconds to wait for the store before :class:`JournalUnavailable`.
        """
        raise NotImplementedError

    def session(self, *, wait: float = 10.0) -> StoreSession:
        """Open one connection for any number of bandits, if the store has connections.

        Args:
            wait: Seconds to wait for the store before :class:`JournalUnavailable`.
        """
        return StoreSession(self, self.cells(wait=wait), wait)

    def coordination(self, bandit: str = "default", *, wait: float = 10.0) -> CoordinationStore:
        """Open the lease and the published model of a bandit whose journal exists.

        Raises:
            JournalError: there is no such bandit yet.
        """
        return self.coordination_in(self.cells(wait=wait), bandit)

    def coordination_in(self, cells: Cells, bandit: str) -> CoordinationStore:
        """Open the same in cells of this store, which are closed with it."""
        try:
            check_there(cells, bandit, self.place)
        except BaseException:
            cells.close()
            raise
        return CoordinationStore(cells, bandit)

    def keys(self, *, wait: float = 10.0) -> KeyStore:
        """Open the API keys."""
        return KeyStore(self.cells(wait=wait))

    @contextmanager
    def new_journal(self, bandit: str, *, partitions: int) -> Iterator[Journal]:
        """Make a journal that is there once the block has ended, and not if it raises.

        For imports, which are taken whole or not at all. Until then its records stand under
        another name, and stay there if the block raises.

        Args:
            bandit: Name of the bandit, which must be new.
            partitions: A power of two.

        Raises:
            InvalidInput: there is such a bandit already, or for SQLite such a file.
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
        """Return what is stored of each bandit, by name; changes nothing."""
        cells = self.cells()
        try:
            return stored_bandits(cells.scan("bandit/"), cells.scan("snapshot/"))
        finally:
            cells.close()

    def create_tables(self) -> None:
        """Create the tables, if the store needs any."""


class StoreSession:
    """One connection, for the bandits of a process. Threads that use it take turns.

    What it opens stays open as long as it does. This one is for a store without connections: it
    asks for one bandit after the other.

    Args:
        store: the store.
        cells: of the store, closed with the session.
        wait: seconds to wait for the store.
    """

    def __init__(self, store: Store, cells: Cells, wait: float) -> None:
        self._store = store
        self._wait = wait
        #: Shared by all that is built on them.
        self.cells = cells
        self._looked: dict[str, Journal] = {}

    def journal(self, bandit: str, *, partitions: int | None = None) -> Journal:
        """Open a journal, as :meth:`Store.journal` does."""
        return self._store.journal(bandit, partitions=partitions, wait=self._wait)

    def share_cells(self) -> Cells:
        """Return the cells once more, to be closed by themselves."""
        return self._store.cells(wait=self._wait)

    def coordination(self, bandit: str) -> CoordinationStore:
        """Open a lease and a model, as :meth:`Store.coordination` does."""
        return self._store.coordination_in(self.share_cells(), bandit)

    def keys(self) -> KeyStore:
        """Open the API keys."""
        return KeyStore(self.share_cells())

    def append_all(self, batches: Sequence[Batch]) -> list[Appended]:
        """Append batches; see :meth:`BatchLog.append_all`."""
        return [batch.append() for batch in batches]

    def published(self, after: Mapping[str, int]) -> dict[str, tuple[int, bytes]]:
        """Return the models, with their numbers, of those bandits that have another than this."""
        return published(self.cells, after)

    def modes(self, bandits: Iterable[str]) -> dict[str, ModeChanged]:
        """Return the last event that changed the mode of each bandit, where there is one."""
        return modes(self.cells, bandits)

    def actions(self, after: Mapping[str, int]) -> ActionChanges:
        """Return changes of actions; see :func:`belated.journals.shelf.actions`."""
        return actions(self.cells, after)

    def chosen_models(self, after: Mapping[str, int]) -> ChosenModels:
        """Return the models that operators chose; see :func:`belated.journals.shelf.actions`."""
        return chosen_models(self.cells, after)

    def ends(self, bandits: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """Return where the partitions of each bandit end, where its journal exists."""
        return {
            name: tuple(map(journal.end, range(journal.partitions)))
            for name, journal in self._existing(bandits).items()
        }

    def close(self) -> None:
        """Close the connection, and what was opened to look."""
        for journal in self._looked.values():
            journal.close()
        self.cells.close()

    def _existing(self, bandits: Iterable[str]) -> dict[str, Journal]:
        """Return the journals of those bandits that have one; they stay open."""
        wanted = list(bandits)
        new = {cell_name("bandit", name): name for name in wanted if name not in self._looked}
        for name in self.cells.get(new) if new else ():
            self._looked[new[name]] = self.journal(new[name])
        return {name: self._looked[name] for name in wanted if name in self._looked}


def stored_bandits(
    bandits: Mapping[str, Cell], snapshots: Mapping[str, Cell]
) -> list[StoredBandit]:
    """Return what a store holds of each bandit, given the cells of bandits and of snapshots."""
    contents = {name: read_contents(cell) for name, cell in snapshots.items()}
    return [
        StoredBandit(
            bandit.name,
            bandit.partitions,
            bandit.identity,
            [
                StoredSnapshot(number, one.position, one.fingerprint, sum(one.sizes.values()))
                for number in range(bandit.partitions)
                if (one := contents.get(cell_name("snapshot", bandit.name, number))) is not None
            ],
        )
        for bandit in all_bandits(bandits)
    ]
