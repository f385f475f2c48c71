"""The shelf of a bandit: what is stored in place of the last, beside the log.

* :class:`Shelf`: for every bandit: its identity, who owns a partition, and snapshots.
* :class:`CoordinationStore`: for a service: which learner leads, the model it last published, and
  what several learners of one bandit share.
* :class:`KeyStore`: for a service: the API keys.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

import msgspec

from belated.core.events import Trimmed
from belated.journals.snapshots import Snapshot
from belated.journals.workers import Claim, Known, SentSums


@runtime_checkable
class Shelf(Protocol):
    """Identity, ownership and snapshots of one bandit.

    Several processes may have the same shelf open: between two calls others may save, acquire or
    identify. :class:`belated.testing.ShelfContract` tests it.
    """

    def identify(self, identity: dict[str, str]) -> dict[str, str]:
        """Store what the bandit is, if nothing is stored yet.

        Returns:
            What is stored now: of several processes at once, all get that of the first.
        """

    def reidentify(self, identity: dict[str, str]) -> None:
        """Store what the bandit is, in place of what was stored."""

    def acquire(self, partition: int) -> int:
        """Become the owner of a partition: from now on the previous owner cannot save.

        For learners that take over from each other: one that is slow, and not dead, must not
        overwrite the state of its successor. An object that has acquired nothing saves as it likes.

        Returns:
            The epoch, which grows each time the partition is acquired.
        """

    def save(self, snapshot: Snapshot) -> None:
        """Store a snapshot in place of the last one of its partition, in one step.

        One that is behind the stored one is ignored: another process was further.

        Raises:
            OwnerFenced: another has acquired the partition since this object did.
            SnapshotConflict: a piece to be kept is not stored as it was; save them all.
            InvalidInput: its position is beyond the end of the partition.
        """

    def load(self, partition: int) -> Snapshot | None:
        """Return the stored snapshot with all its pieces, None if there is none.

        A damaged one is removed, with a :class:`SnapshotWarning`: the fold then starts from the
        beginning.

        Raises:
            HistoryChanged: the partition ends before it, so records are gone; it is removed, too.
        """

    def base(self, partition: int) -> Snapshot | None:
        """Return what the records that were dropped came to, None if none were.

        Raises:
            CorruptJournal: it is damaged; nothing else has what was in those records.
        """

    def rebase(self, base: Snapshot, trimmed: Trimmed, undone: int) -> None:
        """Store a base, and a record that says so: what is up to its position may then be dropped.

        All or nothing. :meth:`Log.drop` then drops the records.

        Args:
            base: all its pieces are given; its position is at the end of a link.
            trimmed: the record.
            undone: how many records of the partition undo others, as far as the base knows.

        Raises:
            HistoryUndone: there are more by now; make the base anew.
            InvalidInput: it is behind the base that is stored, or not behind the snapshot's links.
        """


class Leader(msgspec.Struct, frozen=True):
    """The learner that leads a bandit.

    Attributes:
        holder: Name of the learner.
        epoch: Number of the lease; grows with every other holder.
        seconds: Time left until the lease ends, unless it is renewed.
    """

    holder: str
    epoch: int
    seconds: float


@runtime_checkable
class CoordinationStore(Protocol):
    """Where learners agree on who leads a bandit, and deciders find its model.

    :class:`belated.testing.CoordinationContract` tests it.
    """

    def acquire_lease(self, holder: str, seconds: float) -> int | None:
        """Become the leader, or stay it, for so many seconds by the store's clock.

        Returns:
            The epoch, which grows with every other holder; None while another one leads.
        """

    def release_lease(self, holder: str) -> None:
        """End the lease of this holder now, so that another need not wait."""

    def leader(self) -> Leader | None:
        """Return who leads now, None if no one does."""

    def publish(self, data: bytes, epoch: int) -> int:
        """Store a model in place of the last.

        Returns:
            Its number, which grows.

        Raises:
            OwnerFenced: another holder has had the lease since that epoch.
        """

    def published(self, after: int = 0) -> tuple[int, bytes] | None:
        """Return the last model and its number, None if that number is ``after``."""

    def claim(self, worker: str, seconds: float) -> Claim:
        """Be one of the workers that share the partitions, for so many seconds.

        By the store's clock. A partition has one worker at a time, and a new one only once the
        last has given it back or its session has ended. The worker then acquires it
        (:meth:`Shelf.acquire`): so one that is slow, and not dead, cannot write.

        Returns:
            The worker's partitions; and which of them others should have.
        """

    def give_back(self, worker: str, partitions: Collection[int]) -> None:
        """Leave partitions to other workers."""

    def leave(self, worker: str) -> None:
        """End the session of this worker now, so that others need not wait."""

    def send(self, sums: Sequence[SentSums]) -> list[int]:
        """Store sums in place of the last ones of their partitions.

        Those that are not behind what is stored, by epoch and position, and whose epoch is that
        of the partition.

        Returns:
            The partitions that another has acquired since that epoch: of these nothing is stored.
        """

    def sent(self, known: Known) -> list[SentSums]:
        """Return the last sums of each partition, but for those that are known."""

    def close(self) -> None:
        """Release whatever is held."""


class LiveKey(msgspec.Struct, frozen=True):
    """What a service knows of a key that works.

    Attributes:
        id: Public part of the key.
        name: Program that uses it.
        bandits: Bandits it may access; ``*`` for all.
        scopes: What it may do.
        rate: Requests a second; None for any number.
        hash: SHA-256 of the whole key.
    """

    id: str
    name: str
    bandits: tuple[str, ...]
    scopes: tuple[str, ...]
    rate: float | None
    hash: bytes


class KeyHistory(msgspec.Struct, frozen=True):
    """What people are told of a key.

    Attributes:
        id: Public part of the key.
        name: Program that uses it.
        bandits: Bandits it may access; ``*`` for all.
        scopes: What it may do.
        rate: Requests a second; None for any number.
        created: When it was made.
        revoked: When it was revoked; None if it works.
    """

    id: str
    name: str
    bandits: tuple[str, ...]
    scopes: tuple[str, ...]
    rate: float | None
    created: datetime
    revoked: datetime | None


@runtime_checkable
class KeyStore(Protocol):
    """Where the API keys of a service are stored: hashes, never the keys.

    :class:`belated.testing.KeyStoreContract` tests it.
    """

    def create(
        self,
        id: str,
        name: str,
        bandits: Sequence[str],
        scopes: Sequence[str],
        rate: float | None,
        hash: bytes,
    ) -> bool:
        """Add a key; False if two keys with this name work already."""

    def live(self) -> list[LiveKey]:
        """Return all keys that work."""

    def all(self) -> list[KeyHistory]:
        """Return all keys that ever worked, the newest first."""

    def revoke(self, id: str) -> bool:
        """End a key for good; False if there is none with this id."""

    def close(self) -> None:
        """Release whatever is held."""
