"""A model as it travels: from the learner that makes it to deciders that only choose.

The bytes are one byte for the version of the format, a checksum, then MessagePack. A model belongs
to a policy: its fingerprint says which, and one of another policy is refused.
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

#: The first byte. Another layout means another number.
VERSION = 1
_CHECKSUM = 16


class PublishedModel(msgspec.Struct, frozen=True, array_like=True):
    """All a decider needs of a model, and up to where in the journal it knows.

    Attributes:
        fingerprint: of the policy it belongs to.
        positions: for each partition, that of the last record it has learned from.
        version: records folded so far, over all partitions.
        at: when it was made, in microseconds since 1970.
        n: rewards counted.
        pending: decisions whose reward is out.
        decisions: made so far.
        dispersion: φ.
        theta: θ̂, as bytes of float64; so are the roots.
        observed: the root of what has arrived.
        decided: the root that counts pending decisions too.
        head: names all records it has learned from; empty if the journal stores no digests.
        effective_n: rewards by what they still count for; None if all count in full.
        rivals: θ̂ by each half-life that is compared; empty if none are.
        picked: which of them is in use.
        center: of several learners, the θ at which each expands the log-likelihood of its
            partitions; empty if one learner has them all.
        center_number: of that θ; grows with each.
        center_n: rewards that θ was estimated from.
        unmatched: number of ids with events but without a decision, by the reporter of the first.
        features: fingerprint of the features it was learned with; empty if callers pass rows.
        issues: that were noticed among the events of the journal.

    >>> from belated import Bernoulli, DelayedUCB
    >>> policy = DelayedUCB(2, Bernoulli())
    >>> model = Model(policy.start, policy.family)
    >>> sent = PublishedModel.of(model, policy, positions=[7], version=7, at=1_700_000_000_000_000)
    >>> come = PublishedModel.read(sent.write())
    >>> come.positions, come.model(policy).pending
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
        """The model as it is now."""
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
        """A model of one's own, to choose with and to count decisions in.

        Raises:
            JournalMismatch: it is that of another policy, or for other features.
            CorruptJournal: it holds numbers that are not finite.
        """
        if self.features != policy.features:
            message = (
                "the newest model was learned with other features: it is used once the learner"
            )
            raise JournalMismatch(f"{message} and this process have the same")
        if self.fingerprint != policy.fingerprint:
            message = (
                "the model was made for another policy: start learner and deciders with the same"
                f" one (this one is {policy!r})"
            )
            raise JournalMismatch(message)
        if not all(np.isfinite(np.frombuffer(one, dtype="<f8")).all() for one in self._numbers):
            raise CorruptJournal("a published model holds numbers that are not finite")
        matrix = *policy.shape, policy.shape[-1]
        made = Model(policy.start, policy.family, kernels=kernels)
        made.restart(_array(self.theta, policy.shape), self.dispersion)
        made.observed = _array(self.observed, matrix)
        made.decided = _array(self.decided, matrix)
        made.n, made.pending, made.decisions = self.n, self.pending, self.decisions
        made.effective_n, made.picked = self.effective_n, self.picked
        if self.rivals:
            made.rivals = _array(self.rivals, (-1, *policy.shape))
        return made

    @property
    def _numbers(self) -> tuple[bytes, ...]:
        return self.theta, self.observed, self.decided, self.rivals

    def write(self) -> bytes:
        """As bytes."""
        return seal(VERSION, msgspec.msgpack.encode(self))

    @staticmethod
    def read(data: bytes) -> PublishedModel:
        """What :meth:`write` gave.

        Raises:
            UnsupportedFormat: a later release wrote it.
            CorruptJournal: it was changed on its way.
        """
        return _read(unseal(VERSION, data, "a published model"))


def readable_model(data: bytes) -> PublishedModel | None:
    """Return a published model; None if there is none, or this release cannot read it."""
    with suppress(CorruptJournal, UnsupportedFormat, msgspec.DecodeError):
        return PublishedModel.read(data) if data else None
    return None


def seal(version: int, body: bytes) -> bytes:
    """Put the version of its format and a checksum before what travels."""
    return bytes([version]) + blake2b(body, digest_size=_CHECKSUM).digest() + body


def unseal(version: int, data: bytes, what: str) -> bytes:
    """Return what :func:`seal` was given.

    Args:
        version: that this release reads.
        data: what has come.
        what: it is, for messages.

    Raises:
        UnsupportedFormat: a later release wrote it.
        CorruptJournal: it was changed on its way.

    >>> unseal(1, seal(1, b"x"), "a letter")
    b'x'
    """
    if data[:1] != bytes([version]):
        message = f"{what} has format {data[0] if data else None}"
        raise UnsupportedFormat(f"{message}, and this release reads {version}: upgrade belated")
    checksum, body = data[1 : 1 + _CHECKSUM], data[1 + _CHECKSUM :]
    if blake2b(body, digest_size=_CHECKSUM).digest() != checksum:
        raise CorruptJournal(f"{what} was changed on its way: publish it again")
    return body


_read = msgspec.msgpack.Decoder(PublishedModel).decode


def _bytes(root: Matrix) -> bytes:
    return root.astype("<f8").tobytes()


def _array(data: bytes, shape: tuple[int, ...]) -> Matrix:
    return np.frombuffer(data, dtype="<f8").reshape(shape).astype(np.float64)
