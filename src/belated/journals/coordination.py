"""What the learners of a bandit share: who leads, the model it published, and partial sums.

A *lease* is a cell with the name of its holder; its version is the *epoch*, which fences those who
held it before. It is held for as long as its holder's *heartbeat* is fresh: a cell of its own, so
that one small write renews all leases of a process. The store dates heartbeats and says what time
it is, so no process's clock counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

import msgspec

from belated.exceptions import InvalidInput, OwnerFenced
from belated.journals.cells import NO_CELL, Cell, Cells, cell_name

#: In microseconds.
HOUR, DAY = 3_600_000_000, 86_400_000_000
#: Why several learners cannot share a bandit in other stores.
ONLY_KAFKA = (
    'learners = "many" is for Kafka, whose brokers assign partitions to learners: one learner '
    'folds more than one database takes, so write learners = "one"'
)


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


class Held(NamedTuple):
    """A lease that a process believes to hold.

    Attributes:
        holder: Name of the learner.
        epoch: In which it leads.
    """

    holder: str
    epoch: int


class KeptModel(msgspec.Struct, frozen=True, array_like=True):
    """An earlier model that is kept, so that an operator can choose it.

    Attributes:
        version: Records it has learned from.
        at: When it was made, in microseconds since 1970.
        observations: Rewards it has learned from.
        size: In bytes.
    """

    version: int
    at: int
    observations: int
    size: int


class Claim(msgspec.Struct, frozen=True):
    """What a worker holds.

    Attributes:
        partitions: That are its own, as long as it shows signs of life.
        surplus: Those of them that are beyond its share: to be given back, once they are saved.
    """

    partitions: tuple[int, ...]
    surplus: tuple[int, ...] = ()


class Assignment(Protocol):
    """The place of one worker among those that share the partitions of a bandit."""

    def claim(self) -> Claim:
        """Return what the worker holds now; join the others first if it has not.

        Raises:
            JournalUnavailable: nobody can tell.
        """

    def give_back(self, partitions: Collection[int]) -> None:
        """Leave partitions to others."""

    def doubt(self, partitions: Collection[int]) -> None:
        """Another has acquired what this worker believed to hold: ask before it is claimed."""

    def close(self) -> None:
        """Leave all partitions to others, so that they need not wait."""


class CoordinationStore:
    """Where learners agree on who leads a bandit, and deciders find its model.

    Args:
        cells: Cells of the store; closed together with this.
        bandit: Name of the bandit.
    """

    def __init__(self, cells: Cells, bandit: str) -> None:
        self.cells = cells
        self._bandit = bandit
        self._lease, self._model = cell_name("lease", bandit), cell_name("model", bandit)
        self._kept = cell_name("models", bandit)
        #: By partition, the version of the sums that were last sent here.
        self._sent: dict[int, int] = {}

    def acquire_lease(self, holder: str, seconds: float) -> int | None:
        """Become the leader, or stay it, for so many seconds by the store's clock.

        Returns:
            The epoch, which grows with every other holder; None while another one leads.
        """
        mine = _heartbeat(holder)
        while True:
            lease = self.cells.get([self._lease]).get(self._lease, NO_CELL)
            last = lease.value.decode()
            expected, puts = {self._lease: lease.version}, {mine: _duration(seconds)}
            if last != holder:
                puts[self._lease] = holder.encode()
                if last:
                    theirs = _heartbeat(last)
                    beat = self.cells.get([theirs]).get(theirs, NO_CELL)
                    if _time_left(beat, self.cells.transact({}, {}).now) > 0:
                        return None
                    expected[theirs] = beat.version
            if self.cells.transact(expected, puts).ok:
                return lease.version + (last != holder)

    def release_lease(self, holder: str, *, is_last: bool = False) -> None:
        """End the lease of this holder now, so that another need not wait.

        Args:
            holder: Name of the learner.
            is_last: Whether it holds no other: then its heartbeat is removed, too.
        """
        while True:
            lease = self.cells.get([self._lease]).get(self._lease, NO_CELL)
            if lease.value.decode() != holder:
                return
            ended = [_heartbeat(holder)] if is_last else []
            if self.cells.transact({self._lease: lease.version}, {self._lease: b""}, ended).ok:
                return

    def leader(self) -> Leader | None:
        """Return who leads now, None if no one does."""
        return leaders(self.cells, [self._bandit]).get(self._bandit)

    def publish(self, data: bytes, epoch: int) -> None:
        """Store a model in place of the last.

        Raises:
            OwnerFenced: another holder has had the lease since that epoch.
        """
        if not self.cells.transact({self._lease: epoch or -1}, {self._model: data}).ok:
            raise OwnerFenced(None)

    def published(self, after: int = 0) -> tuple[int, bytes] | None:
        """Return the last model and its number, None if that number is ``after``."""
        return published(self.cells, {self._bandit: after}).get(self._bandit)

    def kept_models(self) -> list[KeptModel]:
        """Return the earlier models that are kept, the oldest first."""
        return _read_kept(self.cells.get([self._kept]).get(self._kept, _NONE_KEPT).value)

    def kept_model(self, version: int) -> bytes | None:
        """Return an earlier model; None if it is not kept."""
        name = self._kept_cell(version)
        return self.cells.get([name]).get(name, NO_CELL).value or None

    def keep(self, model: KeptModel, data: bytes, epoch: int) -> None:
        """Keep a model, unless another of its hour is, and drop those that are too old.

        Raises:
            OwnerFenced: another holder has had the lease since that epoch.
        """
        cell = self.cells.get([self._kept]).get(self._kept, _NONE_KEPT)
        before = _read_kept(cell.value)
        kept = first_of_each_time([one for one in before if one.version != model.version], model)
        if model not in kept:
            return
        dropped = {one.version for one in before} - {one.version for one in kept}
        expected = {self._lease: epoch or -1, self._kept: cell.version}
        puts = {self._kept: _encode(kept), self._kept_cell(model.version): data}
        if not self.cells.transact(expected, puts, list(map(self._kept_cell, dropped))).ok:
            raise OwnerFenced(None)

    def _kept_cell(self, version: int) -> str:
        return cell_name("kept", self._bandit, version)

    def join_group(self, seconds: float) -> Assignment:
        """Be one of the workers that share the partitions.

        Args:
            seconds: After which a worker that shows no sign of life is replaced.

        Raises:
            InvalidInput: this store does not share partitions among learners.
        """
        raise InvalidInput(ONLY_KAFKA, self._bandit)

    def send(self, sums: Mapping[int, tuple[int, bytes]]) -> list[int]:
        """Store the sums of partitions in place of the last ones.

        Args:
            sums: By partition, the epoch in which it is owned, and the sums.

        Returns:
            The partitions that another has acquired since that epoch: of these nothing is stored.
        """
        left = dict(sums)
        while left:
            owners = {
                owner_cell(self._bandit, one): epoch or -1 for one, (epoch, _) in left.items()
            }
            places = {self._sums_of(one): self._sent.get(one, 0) for one in left}
            puts = {self._sums_of(one): data for one, (_, data) in left.items()}
            if self.cells.transact(owners | places, puts).ok:
                self._sent |= {one: self._sent.get(one, 0) + 1 for one in left}
                break
            found = self.cells.get([*owners, *places])
            versions = {name: cell.version for name, cell in found.items()}
            self._sent |= {one: versions.get(self._sums_of(one), 0) for one in left}
            held = [name for name, epoch in owners.items() if versions.get(name) == epoch]
            left = {p: one for p, one in left.items() if owner_cell(self._bandit, p) in held}
        return [one for one in sums if one not in left]

    def sent(self, partitions: int, known: Mapping[int, int]) -> dict[int, tuple[int, bytes]]:
        """Return the last sums by partition, each with their version, but for those that are known.

        Args:
            partitions: How many there are.
            known: Versions, by partition.
        """
        names = {self._sums_of(one): one for one in range(partitions)}
        found = self.cells.get(names, {self._sums_of(one): v for one, v in known.items()})
        return {names[name]: (cell.version, cell.value) for name, cell in found.items()}

    def close(self) -> None:
        """Release whatever is held."""
        self.cells.close()

    def _sums_of(self, partition: int) -> str:
        return cell_name("sums", self._bandit, partition)


def first_of_each_time(earlier: Iterable[KeptModel], newest: KeptModel) -> list[KeptModel]:
    """Return the first model of each of the last 24 hours, and of each of the last 7 days.

    Args:
        earlier: Models, the oldest first.
        newest: Of which the time is now.

    >>> hourly = [KeptModel(n, n * HOUR, n, 0) for n in range(200)]
    >>> versions = [model.version for model in first_of_each_time(hourly[:-1], hourly[-1])]
    >>> versions[:8], len(versions)
    ([32, 48, 72, 96, 120, 144, 168, 176], 31)
    """
    found: dict[tuple[int, int], KeptModel] = {}
    for model in (*earlier, newest):
        span = HOUR if newest.at - model.at < DAY else DAY
        if newest.at - model.at < 7 * DAY:
            found.setdefault((span, model.at // span), model)
    return list(found.values())


def renew_leases(cells: Cells, held: Mapping[str, Held], seconds: float) -> set[str]:
    """Renew leases, by the names of their bandits, in one transaction.

    Returns:
        The bandits whose leases are still held.
    """
    left = {cell_name("lease", bandit): (bandit, one) for bandit, one in held.items()}
    while left:
        expected = {name: one.epoch for name, (_, one) in left.items()}
        beats = {_heartbeat(one.holder): _duration(seconds) for _, one in left.values()}
        if cells.transact(expected, beats).ok:
            break
        found = cells.get(expected)
        left = {
            name: one
            for name, one in left.items()
            if name in found and found[name].version == expected[name]
        }
    return {bandit for bandit, _ in left.values()}


def leaders(cells: Cells, bandits: Iterable[str]) -> dict[str, Leader]:
    """Return who leads these bandits now, where anyone does."""
    names = {cell_name("lease", bandit): bandit for bandit in bandits}
    leases = {names[name]: cell for name, cell in cells.get(names).items() if cell.value}
    holders = {bandit: cell.value.decode() for bandit, cell in leases.items()}
    beats = cells.get({_heartbeat(holder) for holder in holders.values()})
    now = cells.transact({}, {}).now
    found = {}
    for bandit, lease in leases.items():
        left = _time_left(beats.get(_heartbeat(holders[bandit]), NO_CELL), now)
        if left > 0:
            found[bandit] = Leader(holders[bandit], lease.version, left / 1e6)
    return found


def published(cells: Cells, after: Mapping[str, int]) -> dict[str, tuple[int, bytes]]:
    """Return models with their numbers, by bandit, if the number is another than that given."""
    names = {cell_name("model", bandit): bandit for bandit in after}
    known = {name: after[bandit] for name, bandit in names.items()}
    found = cells.get(names, known)
    return {names[name]: (cell.version, cell.value) for name, cell in found.items()}


def owner_cell(bandit: str, partition: int) -> str:
    """Return the name of the cell whose version is the epoch of the owner of a partition."""
    return cell_name("owner", bandit, partition)


_encode = msgspec.msgpack.encode
_read_kept = msgspec.msgpack.Decoder(list[KeptModel]).decode
_NONE_KEPT = Cell(0, 0, _encode([]))


def _time_left(beat: Cell, now: int) -> int:
    """Return for how many microseconds a heartbeat is fresh; 0 if it is not.

    A heartbeat of the future is as good as an old one: the store's clock was wrong when it was
    written, or is so now. So a clock that is set right ends a lease early, and none makes it last
    for more than twice its time.
    """
    duration = int(beat.value or 0)
    return 0 if abs(now - beat.written) >= duration else duration + beat.written - now


def _duration(seconds: float) -> bytes:
    return b"%d" % round(seconds * 1e6)


def _heartbeat(holder: str) -> str:
    return cell_name("heartbeat", holder)
