"""Coordination of a bandit's learners: the lease, the published model, and partial sums.

A *lease* is a cell that contains the name of its holder; its version is the *epoch*, which fences
previous holders. The lease is valid while the holder's *heartbeat* is fresh. The heartbeat is a
separate cell, so that one small write renews all leases of a process. Only the store's clock is
used, never the clock of a process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

import msgspec

from belated.exceptions import InvalidInput, OwnerFenced
from belated.journals.cells import NO_CELL, Cell, Cells, cell_name

#: Durations in microseconds.
HOUR, DAY = 3_600_000_000, 86_400_000_000
#: Error message if a store does not assign partitions.
ONLY_KAFKA = (
    'learners = "many" is for Kafka, whose brokers assign partitions to learners. On other stores, '
    'set learners = "one": a single learner folds faster than a database can ingest'
)


class Leader(msgspec.Struct, frozen=True):
    """The learner that leads a bandit.

    Attributes:
        holder: Name of the learner.
        epoch: Epoch of the lease; increases with every change of the holder.
        seconds: Number of seconds until the lease expires, unless it is renewed.
    """

    holder: str
    epoch: int
    seconds: float


class Held(NamedTuple):
    """A lease that a process believes it holds.

    Attributes:
        holder: Name of the learner.
        epoch: Epoch in which this learner leads.
    """

    holder: str
    epoch: int


class KeptModel(msgspec.Struct, frozen=True, array_like=True):
    """The metadata of an earlier model, retained so that an operator can choose the model.

    Attributes:
        version: Number of records that the model includes.
        at: Time at which the model was made, in microseconds since 1970.
        observations: Number of rewards that the model includes.
        size: Size of the model in bytes.
    """

    version: int
    at: int
    observations: int
    size: int


class Claim(msgspec.Struct, frozen=True):
    """The partitions assigned to a worker.

    Attributes:
        partitions: Partitions that the worker owns while it sends heartbeats.
        surplus: Partitions among these that the worker must save and give back.
    """

    partitions: tuple[int, ...]
    surplus: tuple[int, ...] = ()


class Assignment(Protocol):
    """The membership of a worker in the group that shares a bandit's partitions."""

    def claim(self) -> Claim:
        """Return the partitions assigned to the worker; join the group first if necessary.

        Raises:
            JournalUnavailable: the assignment is unknown.
        """

    def give_back(self, partitions: Collection[int]) -> None:
        """Release partitions to other workers."""

    def doubt(self, partitions: Collection[int]) -> None:
        """Stop claiming partitions temporarily, because another worker seems to own them."""

    def close(self) -> None:
        """Leave the group, and release all partitions immediately."""


class CoordinationStore:
    """The lease, the published model and the partial sums of a bandit.

    Args:
        cells: Cells of the store; closed together with this object.
        bandit: Name of the bandit.
    """

    def __init__(self, cells: Cells, bandit: str) -> None:
        self.cells = cells
        self._bandit = bandit
        self._lease, self._model = cell_name("lease", bandit), cell_name("model", bandit)
        self._kept = cell_name("models", bandit)
        #: Version of the sums last sent by this object, by partition.
        self._sent: dict[int, int] = {}

    def acquire_lease(self, holder: str, seconds: float) -> int | None:
        """Acquire or renew the lease for ``seconds``, measured by the store's clock.

        Returns:
            The epoch, which increases with every change of the holder; None while another learner
            leads.
        """
        heartbeat = _heartbeat(holder)
        while True:
            lease = self.cells.get([self._lease]).get(self._lease, NO_CELL)
            last = lease.value.decode()
            expected, puts = {self._lease: lease.version}, {heartbeat: _duration(seconds)}
            if last != holder:
                puts[self._lease] = holder.encode()
                if last:
                    name = _heartbeat(last)
                    beat = self.cells.get([name]).get(name, NO_CELL)
                    if _time_left(beat, self.cells.transact({}, {}).now) > 0:
                        return None
                    expected[name] = beat.version
            if self.cells.transact(expected, puts).ok:
                return lease.version + (last != holder)

    def release_lease(self, holder: str, *, is_last: bool = False) -> None:
        """Release the lease if this learner holds it.

        Args:
            holder: Name of the learner.
            is_last: Whether this is the learner's last lease, so that its heartbeat can be deleted.
        """
        while True:
            lease = self.cells.get([self._lease]).get(self._lease, NO_CELL)
            if lease.value.decode() != holder:
                return
            ended = [_heartbeat(holder)] if is_last else []
            if self.cells.transact({self._lease: lease.version}, {self._lease: b""}, ended).ok:
                return

    def leader(self) -> Leader | None:
        """Return the current leader, or None."""
        return leaders(self.cells, [self._bandit]).get(self._bandit)

    def publish(self, data: bytes, epoch: int) -> None:
        """Replace the published model.

        Raises:
            OwnerFenced: another learner has held the lease since that epoch.
        """
        if not self.cells.transact({self._lease: epoch or -1}, {self._model: data}).ok:
            raise OwnerFenced(None)

    def published(self, after: int = 0) -> tuple[int, bytes] | None:
        """Return the published model and its version; None if it is not newer than ``after``."""
        return published(self.cells, {self._bandit: after}).get(self._bandit)

    def kept_models(self) -> list[KeptModel]:
        """Return the metadata of the retained models, oldest first."""
        return _read_kept(self.cells.get([self._kept]).get(self._kept, _NONE_KEPT).value)

    def kept_model(self, version: int) -> bytes | None:
        """Return a retained model; None if no model with this version is retained."""
        name = self._kept_cell(version)
        return self.cells.get([name]).get(name, NO_CELL).value or None

    def keep(self, model: KeptModel, data: bytes, epoch: int) -> None:
        """Retain a model unless there already is one from the same hour; drop expired models.

        Raises:
            OwnerFenced: another learner has held the lease since that epoch.
        """
        cell = self.cells.get([self._kept]).get(self._kept, _NONE_KEPT)
        before = _read_kept(cell.value)
        older = [earlier for earlier in before if earlier.version != model.version]
        retained = first_of_each_time(older, model)
        if model not in retained:
            return
        dropped = {model.version for model in before} - {model.version for model in retained}
        expected = {self._lease: epoch or -1, self._kept: cell.version}
        puts = {self._kept: _encode(retained), self._kept_cell(model.version): data}
        if not self.cells.transact(expected, puts, list(map(self._kept_cell, dropped))).ok:
            raise OwnerFenced(None)

    def _kept_cell(self, version: int) -> str:
        return cell_name("kept", self._bandit, version)

    def join_group(self, seconds: float) -> Assignment:
        """Join the workers that share the partitions.

        Args:
            seconds: Session timeout, after which a worker without a heartbeat is replaced.

        Raises:
            InvalidInput: this store does not assign partitions to learners.
        """
        raise InvalidInput(ONLY_KAFKA, self._bandit)

    def send(self, sums: Mapping[int, tuple[int, bytes]]) -> list[int]:
        """Replace the stored sums of partitions.

        Args:
            sums: Epoch of ownership and sums of each partition, by partition.

        Returns:
            The partitions whose sums were not stored, because another worker has acquired them.
        """
        pending = dict(sums)
        while pending:
            owners = {
                owner_cell(self._bandit, number): epoch or -1
                for number, (epoch, _) in pending.items()
            }
            expected = {self._sums_of(number): self._sent.get(number, 0) for number in pending}
            puts = {self._sums_of(number): data for number, (_, data) in pending.items()}
            if self.cells.transact(owners | expected, puts).ok:
                self._sent |= {number: self._sent.get(number, 0) + 1 for number in pending}
                break
            cells = self.cells.get([*owners, *expected])
            versions = {name: cell.version for name, cell in cells.items()}
            self._sent |= {number: versions.get(self._sums_of(number), 0) for number in pending}
            current = [name for name, epoch in owners.items() if versions.get(name) == epoch]
            pending = {n: pending[n] for n in pending if owner_cell(self._bandit, n) in current}
        return [number for number in sums if number not in pending]

    def sent(self, partitions: int, known: Mapping[int, int]) -> dict[int, tuple[int, bytes]]:
        """Return the stored sums with their versions, by partition.

        Args:
            partitions: Number of partitions.
            known: Versions by partition; sums that still have the known version are omitted.
        """
        names = {self._sums_of(number): number for number in range(partitions)}
        cells = self.cells.get(names, {self._sums_of(n): version for n, version in known.items()})
        return {names[name]: (cell.version, cell.value) for name, cell in cells.items()}

    def close(self) -> None:
        """Close the cells."""
        self.cells.close()

    def _sums_of(self, partition: int) -> str:
        return cell_name("sums", self._bandit, partition)


def first_of_each_time(earlier: Iterable[KeptModel], newest: KeptModel) -> list[KeptModel]:
    """Return the first model of each of the last 24 hours, and of each of the last 7 days.

    Args:
        earlier: Earlier models, oldest first.
        newest: Newest model, whose time is the end of both periods.

    >>> hourly = [KeptModel(n, n * HOUR, n, 0) for n in range(200)]
    >>> versions = [model.version for model in first_of_each_time(hourly[:-1], hourly[-1])]
    >>> versions[:8], len(versions)
    ([32, 48, 72, 96, 120, 144, 168, 176], 31)
    """
    models: dict[tuple[int, int], KeptModel] = {}
    for model in (*earlier, newest):
        span = HOUR if newest.at - model.at < DAY else DAY
        if newest.at - model.at < 7 * DAY:
            models.setdefault((span, model.at // span), model)
    return list(models.values())


def renew_leases(cells: Cells, held: Mapping[str, Held], seconds: float) -> set[str]:
    """Renew leases, given by bandit, in a single transaction.

    Returns:
        The bandits whose leases are still held.
    """
    pending = {cell_name("lease", bandit): bandit for bandit in held}
    while pending:
        leases = {name: held[bandit] for name, bandit in pending.items()}
        expected = {name: lease.epoch for name, lease in leases.items()}
        beats = {_heartbeat(lease.holder): _duration(seconds) for lease in leases.values()}
        if cells.transact(expected, beats).ok:
            break
        current = cells.get(expected)
        pending = {
            name: bandit
            for name, bandit in pending.items()
            if name in current and current[name].version == expected[name]
        }
    return set(pending.values())


def leaders(cells: Cells, bandits: Iterable[str]) -> dict[str, Leader]:
    """Return the current leaders, by bandit; bandits without a leader are omitted."""
    names = {cell_name("lease", bandit): bandit for bandit in bandits}
    leases = {names[name]: cell for name, cell in cells.get(names).items() if cell.value}
    holders = {bandit: cell.value.decode() for bandit, cell in leases.items()}
    beats = cells.get({_heartbeat(holder) for holder in holders.values()})
    now = cells.transact({}, {}).now
    result = {}
    for bandit, lease in leases.items():
        time_left = _time_left(beats.get(_heartbeat(holders[bandit]), NO_CELL), now)
        if time_left > 0:
            result[bandit] = Leader(holders[bandit], lease.version, time_left / 1e6)
    return result


def published(cells: Cells, after: Mapping[str, int]) -> dict[str, tuple[int, bytes]]:
    """Return the models newer than ``after`` with their versions, by bandit."""
    names = {cell_name("model", bandit): bandit for bandit in after}
    models = cells.get(names, {name: after[bandit] for name, bandit in names.items()})
    return {names[name]: (cell.version, cell.value) for name, cell in models.items()}


def owner_cell(bandit: str, partition: int) -> str:
    """Return the name of the cell whose version is the epoch of a partition's owner."""
    return cell_name("owner", bandit, partition)


_encode = msgspec.msgpack.encode
_read_kept = msgspec.msgpack.Decoder(list[KeptModel]).decode
_NONE_KEPT = Cell(0, 0, _encode([]))


def _time_left(beat: Cell, now: int) -> int:
    """Return the number of microseconds for which a heartbeat remains fresh; 0 if it is not fresh.

    A heartbeat from the future is treated as expired, because the store's clock was or is wrong.
    Correcting that clock may therefore end a lease early, but no lease lasts longer than twice its
    duration.
    """
    duration = int(beat.value or 0)
    return 0 if abs(now - beat.written) >= duration else duration + beat.written - now


def _duration(seconds: float) -> bytes:
    return b"%d" % round(seconds * 1e6)


def _heartbeat(holder: str) -> str:
    return cell_name("heartbeat", holder)
