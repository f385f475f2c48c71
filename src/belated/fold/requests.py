"""What a decision was chosen from, kept beside its record; no fold reads it.

Whoever wants to know what another policy would have earned needs more than the chosen row: the
other rows, and the probability of each. The context and the record of the chosen action are in the
record of the decision. The bytes are one byte for the version, 8 for the share with which the
request was kept, then a MessagePack array.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Literal

import msgspec
import numpy as np

from belated.core.events import Decision
from belated.core.inputs import Row
from belated.core.results import Shortened
from belated.exceptions import CorruptEvent, InvalidInput, UnknownEvent
from belated.fold.contexts import PackedContext, float_list, read_context

#: The first byte of every request.
VERSION = 1
#: Requests of so many bytes are all kept; of larger ones a share that takes as many on average.
WHOLE = 4096

#: The share of requests that is kept; "auto": all, but of those above :data:`WHOLE` bytes a share.
Keep = float | Literal["auto"]

_HEAD = struct.Struct("<Bd")


class KeptRequest(Shortened, msgspec.Struct, frozen=True, eq=False):
    """What a decision was chosen from.

    Attributes:
        share: the probability with which the request was kept: weigh it by the inverse.
        actions: the names of the actions that were open; None: the indices of all.
        rows: the row of each, float32; None if features made them of the next two.
        context: what was known before choosing, if features made the rows; from the record of the
            decision.
        records: a record for each action, if there were any.
        digests: of the actions' records in a catalogue, four bytes each, if there was one.
        propensities: the probability of each action. None if the policy did not say all of them;
            where that of the chosen one is 1, the others have none.

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
        """Return the request in some bytes.

        Args:
            data: from :func:`keep_request`.
            decision: that was chosen from it, which has its context; None if that is trimmed.

        Raises:
            UnknownEvent: a newer release wrote it.
            CorruptEvent: it was changed after it was written.
        """
        if data[:1] != bytes([VERSION]) and data:
            raise UnknownEvent(data[0])
        try:
            _, share = _HEAD.unpack_from(data)
            body = _decoder.decode(memoryview(data)[_HEAD.size :])
            rows = None
            if body.rows is not None:
                rows = np.frombuffer(body.rows, "<f4").reshape(body.count, -1)
            said = body.propensities
            shares = None if said is None else np.frombuffer(said, "<f8").tolist()
            request = cls(share, body.actions, rows, None, body.records, shares, body.digests)
            stored = None if decision is None or rows is not None else read_context(decision)
            if decision is None or stored is None:
                return request
            if request.records is not None:
                request.records[request.place(decision.index, decision.action)] = stored.record
            return msgspec.structs.replace(request, context=stored.context)
        except (struct.error, msgspec.MsgspecError, ValueError) as error:
            raise CorruptEvent(f"not a request: {error}") from None

    def place(self, index: int, action: int | str) -> int:
        """Return the place of the chosen action here: paused ones before it are left out.

        Args:
            index: its place among the rows of the request.
            action: its name.
        """
        return index if self.actions is None else self.actions.index(action)

    def to_dict(self) -> dict[str, Any]:
        """The same in plain values."""
        rows = None if self.rows is None else self.rows.tolist()
        fields = msgspec.structs.asdict(self) | {"rows": rows}
        del fields["digests"]  # of use only beside the catalogue
        return fields

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeptRequest) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]  # a context need not be hashable


class _Body(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is written after the head."""

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
    """The bytes of a request, or None if it is not among those that are kept.

    It is drawn by a hash of the id, so every process draws the same.

    Args:
        id: decision id.
        keep: the share that is kept.
        count: number of actions.
        actions: their names; None: their indices.
        rows: the row of each.
        context: from :func:`~belated.fold.contexts.pack_context`, instead of the rows.
        propensities: the probability of each, if they are known.
        index: place of the chosen action, whose record the decision has.
    """
    if keep != "auto" and not is_drawn(id, keep):
        return None
    said = None if propensities is None else np.asarray(propensities, "<f8").tobytes()
    table = None if context is not None else rows.astype("<f4", copy=False).tobytes()
    records = None if context is None else context.of_request(index)
    parts = count, actions, table, records, said
    digests = None if context is None else context.digests()
    body = _encode(parts if digests is None else (*parts, digests))
    share = min(1.0, WHOLE / len(body)) if keep == "auto" else keep
    return _HEAD.pack(VERSION, share) + body if is_drawn(id, share) else None


def is_drawn(id: str, share: float) -> bool:
    """Whether an id is within a share, which is the same in every process.

    >>> sum(is_drawn(f"order {n}", 0.1) for n in range(10_000))
    975
    """
    if share >= 1.0 or share <= 0.0:
        return share > 0.0
    draw = blake2b(id.encode(), digest_size=8, person=b"belated.requests").digest()
    return int.from_bytes(draw) < share * (1 << 64)


def check_keep(keep: Any) -> Keep:
    """Refuse what is not a share of requests."""
    number = isinstance(keep, int | float) and not isinstance(keep, bool)
    if keep != "auto" and not (number and 0.0 <= keep <= 1.0):
        message = f"keep_requests is {keep!r}: 'auto' or a share from 0 to 1 was expected"
        raise InvalidInput(message, keep)
    return keep if keep == "auto" else float(keep)


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(_Body, ext_hook=float_list)
