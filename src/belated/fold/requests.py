"""Decision requests, stored alongside the decisions.

Off-policy evaluation needs the rows that were not chosen and the probability of each row. The
context and the record of the chosen action are stored with the decision itself. An encoded request
consists of one byte for the version, 8 bytes for the share of requests that are stored, and a
MessagePack array. The fold does not read requests.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Literal

import msgspec
import numpy as np

from belated.core.events import Decision
from belated.core.inputs import Row, must_be
from belated.core.results import Shortened
from belated.exceptions import CorruptEvent, UnknownEvent
from belated.fold.contexts import PackedContext, float_list, read_context

#: Format version, stored in the first byte of every request.
VERSION = 1
#: Requests of up to this many bytes are all stored. Larger requests are sampled, so that they take
#: this many bytes per decision on average.
WHOLE = 4096

#: The share of requests to store; "auto" stores every request of up to :data:`WHOLE` bytes and a
#: sample of the larger ones.
Keep = float | Literal["auto"]

_HEAD = struct.Struct("<Bd")


class KeptRequest(Shortened, msgspec.Struct, frozen=True, eq=False):
    """The stored request of a decision, with the actions that were available.

    Attributes:
        share: the probability of storing the request; weight the request by the inverse.
        actions: the names of the available actions; None if all actions are available and are
            identified by index.
        rows: the row of each action, as float32; None if features computed the rows from
            ``context`` and ``records``.
        context: the context, if features computed the rows; it is stored with the decision.
        records: the record of each action, if there were records.
        digests: digests of the actions' catalogue records, four bytes each, if there was a
            catalogue.
        propensities: the probability of each action; None if the policy does not return all
            probabilities. If the chosen action has probability 1, all other actions have 0.

    >>> rows = np.eye(2, dtype=np.float32)
    >>> data = keep_request("a1", "auto", 2, ["red", "blue"], rows, propensities=[0.25, 0.75])
    >>> kept = KeptRequest.read(data)
    >>> kept.actions, kept.rows.tolist(), kept.propensities, kept.share
    (['red', 'blue'], [[1.0, 0.0], [0.0, 1.0]], [0.25, 0.75], 1.0)
    """

    share: float
    actions: list[int | str] | None = None
    rows: Row | None = None
    context: Any = None
    records: list[Any] | None = None
    propensities: list[float] | None = None
    digests: bytes | None = None

    @classmethod
    def read(cls, data: bytes, decision: Decision | None = None) -> KeptRequest:
        """Decode a request.

        Args:
            data: the bytes that :func:`keep_request` returned.
            decision: the decision, which contains the context; None if it was trimmed.

        Raises:
            UnknownEvent: a newer release wrote the request.
            CorruptEvent: the bytes are not a request.
        """
        if data[:1] != bytes([VERSION]) and data:
            raise UnknownEvent(data[0])
        try:
            _, share = _HEAD.unpack_from(data)
            body = _decoder.decode(memoryview(data)[_HEAD.size :])
            rows = None
            if body.rows is not None:
                rows = np.frombuffer(body.rows, "<f4").reshape(body.count, -1)
            propensities = None
            if body.propensities is not None:
                propensities = np.frombuffer(body.propensities, "<f8").tolist()
            request = cls(share, body.actions, rows, None, body.records, propensities, body.digests)
            stored = None if decision is None or rows is not None else read_context(decision)
            if decision is None or stored is None:
                return request
            if request.records is not None:
                request.records[request.place(decision.index, decision.action)] = stored.record
            return msgspec.structs.replace(request, context=stored.context)
        except (struct.error, msgspec.MsgspecError, ValueError) as error:
            raise CorruptEvent(f"a stored request cannot be read: {error}") from None

    def place(self, index: int, action: int | str) -> int:
        """Return the index of the chosen action in this request, which omits paused actions.

        Args:
            index: the index of the action among all actions.
            action: the name of the action.
        """
        return index if self.actions is None else self.actions.index(action)

    def to_dict(self) -> dict[str, Any]:
        """Return the request as plain data, excluding digests."""
        rows = None if self.rows is None else self.rows.tolist()
        fields = msgspec.structs.asdict(self) | {"rows": rows}
        del fields["digests"]  # useful only together with the catalogue
        return fields

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeptRequest) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]  # a context need not be hashable


class _Body(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The part of an encoded request that follows the version and the share."""

    count: int
    actions: list[int | str] | None
    rows: bytes | None
    records: list[Any] | None
    propensities: bytes | None
    digests: bytes | None = None


def keep_request(
    id: str,
    keep: Keep,
    count: int,
    actions: Sequence[int | str] | None,
    rows: Row,
    context: PackedContext | None = None,
    propensities: Sequence[float] | None = None,
    index: int = 0,
) -> bytes | None:
    """Encode a request; return None if it is not in the share of requests to store.

    The choice depends on a hash of the id, so every process makes the same choice.

    Args:
        id: decision id.
        keep: the share of requests to store.
        count: number of actions.
        actions: the names of the actions; None if they are identified by index.
        rows: the row of each action.
        context: the result of :func:`~belated.fold.contexts.pack_context`, stored instead of the
            rows.
        propensities: the probability of each action, if known.
        index: index of the chosen action, whose record is stored with the decision.
    """
    if keep != "auto" and not is_drawn(id, keep):
        return None
    packed_rows = None if context is not None else rows.astype("<f4", copy=False).tobytes()
    packed = None if propensities is None else np.asarray(propensities, "<f8").tobytes()
    records = None if context is None else context.of_request(index)
    parts = count, actions, packed_rows, records, packed
    digests = None if context is None else context.digests()
    body = _encode(parts if digests is None else (*parts, digests))
    share = min(1.0, WHOLE / len(body)) if keep == "auto" else keep
    return _HEAD.pack(VERSION, share) + body if is_drawn(id, share) else None


def is_drawn(id: str, share: float) -> bool:
    """Return whether an id belongs to a pseudo-random share of ids, which all processes agree on.

    >>> sum(is_drawn(f"order {n}", 0.1) for n in range(10_000))
    975
    """
    if share >= 1.0 or share <= 0.0:
        return share > 0.0
    draw = blake2b(id.encode(), digest_size=8, person=b"belated.requests").digest()
    return int.from_bytes(draw) < share * (1 << 64)


def check_keep(keep: Any) -> Keep:
    """Return ``keep`` as "auto" or a float; raise unless it is "auto" or a share from 0 to 1."""
    number = isinstance(keep, int | float) and not isinstance(keep, bool)
    if keep != "auto" and not (number and 0.0 <= keep <= 1.0):
        raise must_be("keep_requests", "'auto' or a share from 0 to 1", keep)
    return keep if keep == "auto" else float(keep)


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(_Body, ext_hook=float_list)
