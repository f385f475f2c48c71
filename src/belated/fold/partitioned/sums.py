"""The format in which learners send the sums of a partition to the leader."""

from __future__ import annotations

import msgspec
import numpy as np

from belated.core.inputs import Vector
from belated.fold.published import seal, unseal
from belated.model.statistics import FrozenSums, Information

#: Format version, stored in the first byte; increment it when the layout changes.
VERSION = 1


class PartitionSums(msgspec.Struct, frozen=True, array_like=True):
    """The state of a partition at a position, as folded by the partition's owner in an epoch.

    Attributes:
        fingerprint: the fingerprint of the fold, including erasures and retractions, as in a
            snapshot.
        partition: the partition.
        epoch: the epoch in which the sender owned the partition.
        position: the position of the last included record.
        expanded_at: number of the center at which the log-likelihood was expanded; 0 for the
            partition's own estimate.
        version: number of included records.
        decisions: number of decisions made so far.
        pending: number of decisions with a pending reward.
        counts: number of decisions by state.
        counters: number of events by status.
        shape: the shape of θ.
        theta: θ at which the log-likelihood was expanded, as bytes of float64.
        rows: the sums of the rewards that have arrived, from :meth:`FrozenSums.pack`; if
            observations are weighted by age, from :meth:`AgedSums.pack`.
        information: the information of the pending decisions, as bytes of float64; zero if
            observations are weighted by age.
        head: identifies all included records; empty if the journal stores no digests.
        oldest: when the oldest pending decision was recorded; None if there is none.
        last_stamp: the timestamp of the last record.
        at: the time at which ages were measured: the latest timestamp that the learner knows.
        unmatched: number of ids with events but without a decision, by the reporter of the first
            event.
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
    at: int = 0
    unmatched: dict[str, int] = {}

    @property
    def order(self) -> tuple[int, int, int]:
        """Sort key for the entries of a partition; the entry with the greatest key counts."""
        return self.epoch, self.position, self.expanded_at

    @property
    def center(self) -> Vector:
        """The θ at which the log-likelihood was expanded."""
        return np.frombuffer(self.theta, dtype="<f8").reshape(self.shape).astype(np.float64)

    def arrived(self) -> FrozenSums:
        """Return the sums of the rewards that have arrived."""
        return FrozenSums.read(self.rows, self.shape)

    def outstanding(self) -> Information:
        """Return the information of the pending decisions."""
        matrix = np.frombuffer(self.information, dtype="<f8")
        return Information(self.pending, matrix.reshape(*self.shape, -1).astype(np.float64))

    def write(self) -> bytes:
        """Encode the sums."""
        return seal(VERSION, msgspec.msgpack.encode(self))

    @staticmethod
    def read(data: bytes) -> PartitionSums:
        """Decode sums that :meth:`write` encoded.

        Raises:
            UnsupportedFormat: a newer release wrote the sums.
            CorruptJournal: the checksum does not match.
        """
        return _read(unseal(VERSION, data, "a partition's sums"))


_read = msgspec.msgpack.Decoder(PartitionSums).decode
