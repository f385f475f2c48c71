"""The format in which a learner publishes its model for deciders.

A published model consists of one byte for the format version, a checksum, and MessagePack data. The
data includes the fingerprint of the policy; processes with a different policy reject the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Self

import msgspec
import numpy as np

from belated.advice.issues import Noticed
from belated.core.inputs import Matrix
from belated.exceptions import CorruptJournal, JournalMismatch, UnsupportedFormat
from belated.model.kernels import Kernels
from belated.model.model import Model
from belated.policies import Policy

#: Format version, stored in the first byte; increment it when the layout changes.
VERSION = 1
_CHECKSUM = 16


class PublishedModel(msgspec.Struct, frozen=True, array_like=True):
    """The parts of a model that deciders need, and the journal positions up to which it learned.

    Attributes:
        fingerprint: the fingerprint of the policy.
        positions: for each partition, the position of the last record included in the model.
        version: number of records folded so far in all partitions.
        at: when the model was published, in microseconds since 1970.
        n: number of rewards.
        pending: number of decisions with a pending reward.
        decisions: number of decisions made so far.
        dispersion: the dispersion φ.
        theta: θ̂, as bytes of float64, like the roots.
        observed: the root of the covariance given the arrived rewards.
        decided: the root of the covariance that also includes pending decisions.
        head: identifies all records included in the model; empty if the journal stores no digests.
        effective_n: effective number of rewards; None if all rewards have full weight.
        rivals: θ̂ for each half-life being compared; empty if none are compared.
        picked: index of the half-life in use.
        center: if several learners share the bandit, the θ at which they expand the log-likelihood
            of their partitions; empty for a single learner.
        center_number: the number of the center, which increases with each change.
        center_n: number of rewards in the estimate of the center.
        unmatched: number of ids with events but without a decision, by the reporter of the first
            event.
        features: fingerprint of the features used for learning; empty if callers pass rows.
        issues: issues with the events in the journal.

    >>> from belated import Bernoulli, DelayedUCB
    >>> policy = DelayedUCB(2, Bernoulli())
    >>> model = Model(policy.start, policy.family)
    >>> sent = PublishedModel.of(model, policy, positions=[7], version=7, at=1_700_000_000_000_000)
    >>> received = PublishedModel.read(sent.write())
    >>> received.positions, received.model(policy).pending
    ([7], 0)
    """

    fingerprint: str
    positions: list[int]
    version: int
    at: int
    n: int
    pending: int
    decisions: int
    dispersion: float
    theta: bytes
    observed: bytes
    decided: bytes
    head: str = ""
    effective_n: float | None = None
    rivals: bytes = b""
    picked: int = 0
    center: bytes = b""
    center_number: int = 0
    center_n: int = 0
    unmatched: dict[str, int] = {}
    features: str = ""
    issues: dict[str, Noticed] = {}

    @classmethod
    def of(
        cls,
        model: Model,
        policy: Policy,
        *,
        positions: Sequence[int],
        version: int,
        at: int,
        head: str = "",
        unmatched: dict[str, int] | None = None,
        issues: dict[str, Noticed] | None = None,
    ) -> Self:
        """Create a published model from the current state of a model."""
        return cls(
            fingerprint=policy.fingerprint,
            positions=list(positions),
            version=version,
            at=at,
            n=model.n,
            pending=model.pending,
            decisions=model.decisions,
            dispersion=model.dispersion,
            theta=model.theta.astype("<f8").tobytes(),
            observed=_bytes(model.observed),
            decided=_bytes(model.decided),
            head=head,
            effective_n=model.effective_n,
            rivals=b"" if model.rivals is None else _bytes(model.rivals),
            picked=model.picked,
            unmatched=unmatched or {},
            features=policy.features,
            issues=issues or {},
        )

    def model(self, policy: Policy, *, kernels: Kernels | None = None) -> Model:
        """Return an independent model for making decisions.

        Raises:
            JournalMismatch: the model belongs to a different policy or to different features.
            CorruptJournal: the model contains numbers that are not finite.
        """
        if self.features != policy.features:
            message = (
                "the newest model was trained with different features: configure the learner and"
                " the deciders with the same features"
            )
            raise JournalMismatch(message)
        if self.fingerprint != policy.fingerprint:
            message = (
                "the model was trained with a different policy: configure the learner and the"
                f" deciders with the same policy (this process has {policy!r})"
            )
            raise JournalMismatch(message)
        arrays = (np.frombuffer(data, dtype="<f8") for data in self._numbers)
        if not all(np.isfinite(array).all() for array in arrays):
            raise CorruptJournal("a published model contains numbers that are not finite")
        matrix = *policy.shape, policy.shape[-1]
        model = Model(policy.start, policy.family, kernels=kernels)
        model.restart(_array(self.theta, policy.shape), self.dispersion)
        model.observed = _array(self.observed, matrix)
        model.decided = _array(self.decided, matrix)
        model.n, model.pending, model.decisions = self.n, self.pending, self.decisions
        model.effective_n, model.picked = self.effective_n, self.picked
        if self.rivals:
            model.rivals = _array(self.rivals, (-1, *policy.shape))
        return model

    @property
    def _numbers(self) -> tuple[bytes, ...]:
        return self.theta, self.observed, self.decided, self.rivals

    def write(self) -> bytes:
        """Encode the model."""
        return seal(VERSION, msgspec.msgpack.encode(self))

    @staticmethod
    def read(data: bytes) -> PublishedModel:
        """Decode a model that :meth:`write` encoded.

        Raises:
            UnsupportedFormat: a newer release wrote the model.
            CorruptJournal: the checksum does not match.
        """
        return _read(unseal(VERSION, data, "a published model"))


def readable_model(data: bytes) -> PublishedModel | None:
    """Decode a published model; return None if it is empty or this release cannot read it."""
    with suppress(CorruptJournal, UnsupportedFormat, msgspec.DecodeError):
        return PublishedModel.read(data) if data else None
    return None


def seal(version: int, body: bytes) -> bytes:
    """Prepend the format version and a checksum."""
    return bytes([version]) + blake2b(body, digest_size=_CHECKSUM).digest() + body


def unseal(version: int, data: bytes, what: str) -> bytes:
    """Return the body that was passed to :func:`seal`.

    Args:
        version: the format version that this release reads.
        data: the bytes that :func:`seal` returned.
        what: description of the data, for error messages.

    Raises:
        UnsupportedFormat: a newer release wrote the data.
        CorruptJournal: the checksum does not match.

    >>> unseal(1, seal(1, b"x"), "a published model")
    b'x'
    """
    if data[:1] != bytes([version]):
        message = f"the format of {what} is {data[0] if data else None}, but this release"
        raise UnsupportedFormat(f"{message} reads only format {version}: upgrade belated")
    checksum, body = data[1 : 1 + _CHECKSUM], data[1 + _CHECKSUM :]
    if blake2b(body, digest_size=_CHECKSUM).digest() != checksum:
        raise CorruptJournal(f"the checksum of {what} does not match: publish the model again")
    return body


_read = msgspec.msgpack.Decoder(PublishedModel).decode


def _bytes(root: Matrix) -> bytes:
    return root.astype("<f8").tobytes()


def _array(data: bytes, shape: tuple[int, ...]) -> Matrix:
    return np.frombuffer(data, dtype="<f8").reshape(shape).astype(np.float64)
