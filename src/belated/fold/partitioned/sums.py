"""The sums of one partition as they travel to whoever merges them."""

from __future__ import annotations

import msgspec
import numpy as np

from belated.core.inputs import Vector
from belated.fold.published import seal, unseal
from belated.model.statistics import FrozenSums, Information

#: The first byte. Another layout means another number.
VERSION = 1


class PartitionSums(msgspec.Struct, frozen=True, array_like=True):
    """What a partition has come to at a position, in the hands of the owner of an epoch.

    Attributes:
        fingerprint: of the fold that made it, and of what is undone, as that of a snapshot.
        partition: it is of.
        epoch: in which its maker owned the partition.
        position: of the last record that is in it.
        expanded_at: number of the center at which the log-likelihood was expanded; 0: an estimate
            of the partition's own.
        version: records that are in it.
        decisions: made so far.
        pending: decisions whose reward is out.
        counts: decisions by state.
        counters: events by what they meant.
        theta: where the log-likelihood was expanded, as bytes of float64.
        rows: the sums of what has arrived, as :meth:`FrozenSums.pack` gave them.
        information: of the pending decisions, as bytes of float64.
        head: names all records that are in it; empty if the journal stores no digests.
        oldest: when the journal took the oldest pending decision; None if there is none.
        last_stamp: of the last record.
        unmatched: number of ids with events but without a decision, by the reporter of the first.
    """

    fingerprint: str
    partition: int
    epoch: int
    position: int
    expanded_at: int
    version: int
    decisions: int
    pending: int
    counts: dict[str, int]
    counters: dict[str, int]
    shape: tuple[int, ...]
    theta: bytes
    rows: bytes
    information: bytes
    head: bytes
    oldest: int | None
    last_stamp: int
    unmatched: dict[str, int] = {}

    @property
    def order(self) -> tuple[int, int, int]:
        """Of two entries of a partition, the greater one counts: by epoch, then by position."""
        return self.epoch, self.position, self.expanded_at

    @property
    def center(self) -> Vector:
        """Where the log-likelihood was expanded."""
        return np.frombuffer(self.theta, dtype="<f8").reshape(self.shape).astype(np.float64)

    def arrived(self) -> FrozenSums:
        """Return the sums of what has arrived."""
        return FrozenSums.read(self.rows, self.shape)

    def outstanding(self) -> Information:
        """Return the information of the pending decisions."""
        matrix = np.frombuffer(self.information, dtype="<f8")
        return Information(self.pending, matrix.reshape(*self.shape, -1).astype(np.float64))

    def write(self) -> bytes:
        """As bytes."""
        return seal(VERSION, msgspec.msgpack.encode(self))

    @staticmethod
    def read(data: bytes) -> PartitionSums:
        """What :meth:`write` gave.

        Raises:
            UnsupportedFormat: a later release wrote it.
            CorruptJournal: it was changed on its way.
        """
        return _read(unseal(VERSION, data, "a partition's sums"))


_read = msgspec.msgpack.Decoder(PartitionSums).decode
