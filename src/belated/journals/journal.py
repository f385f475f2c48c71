"""What a bandit holds: a log, and what is stored beside it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from belated.core.events import Trimmed
from belated.journals.log import UniqueLog
from belated.journals.snapshots import Snapshot


@runtime_checkable
class Journal(UniqueLog, Protocol):
    """The events of one bandit, what it is, and its owners, snapshots and bases.

    All but the log is written once for all stores, in
    :class:`~belated.journals.snapshots.CellShelf`. :class:`belated.testing.JournalContract` has
    the tests of both.
    """

    def identify(self, identity: dict[str, str]) -> dict[str, str]:
        """Store what the bandit is, if nothing is stored yet; returns what is stored now."""

    def reidentify(self, identity: dict[str, str]) -> None:
        """Store what the bandit is, in place of what was stored."""

    def acquire(self, partition: int) -> int:
        """Become the owner of a partition; see :meth:`CellShelf.acquire`."""

    def save(self, snapshot: Snapshot) -> None:
        """Store a snapshot; see :meth:`CellShelf.save`."""

    def load(self, partition: int) -> Snapshot | None:
        """Return the stored snapshot, None if there is none; see :meth:`CellShelf.load`."""

    def base(self, partition: int) -> Snapshot | None:
        """Return what the records that were dropped came to; see :meth:`CellShelf.base`."""

    def rebase(self, base: Snapshot, trimmed: Trimmed, undone: int) -> None:
        """Store a base, and a record that says so; see :meth:`CellShelf.rebase`."""
