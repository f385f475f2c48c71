"""Lossless representation of journals as JSON lines.

The first line is a header. The last line contains the number of records, to detect truncated files,
and the head of the journal, to detect modified files. Between them, there is one line per record,
ordered by ``recorded``. ``kind`` is the type of the line. The other fields are those of the event,
unless they equal their defaults. The numbers in a row are the exact float64 equivalents of its
float32 values. If the request for a decision was stored, ``request`` contains the bytes in the
journal, encoded as base64.

If JSON cannot represent an event, the line also contains ``bytes``, the event encoded as base64,
which takes precedence. This applies to events that this release cannot read (kind ``unknown``) and
to events with non-finite numbers.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Union, cast, get_args

import msgspec
import numpy as np

from belated.core.events import (
    Decision,
    DecisionEvent,
    Event,
    Opaque,
    Record,
    Reward,
    SubjectEvent,
    SubjectReward,
    encode,
    kind_of,
    read_event,
)
from belated.core.ids import check_id
from belated.core.inputs import as_row, must_be
from belated.exceptions import CorruptEvent
from belated.fold.contexts import NAME

#: Version of the format. Files with a higher version are rejected.
FORMAT = 2
#: Maximum magnitude of a predicted mean, well above :data:`belated.core.inputs.MAX_REWARD`.
MAX_MEAN = 1e12
#: The end of the year 9999, in microseconds since 1970.
MAX_TIME = 253_402_300_799_999_999


class Header(msgspec.Struct, tag_field="kind", tag="journal", frozen=True, omit_defaults=True):
    """The first line, with the bandit and the position up to which each partition was trimmed."""

    format: int
    bandit: str
    partitions: int
    identity: dict[str, str] | None = None
    trimmed: list[int] | None = None


class _Strict(
    msgspec.Struct, tag_field="kind", frozen=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A line in which unknown fields are not allowed."""


class End(_Strict, tag="end", frozen=True):
    """The last line, with the number of records and the head of the journal."""

    records: int
    head: str = ""


class Line(_Strict, tag="unknown", frozen=True, gc=False, kw_only=True):
    """A record. For known kinds, there are subclasses with the fields of the event."""

    partition: int
    position: int
    recorded: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
    data: bytes | None = msgspec.field(default=None, name="bytes")


_NUMBER = float | None
_IN_JSON: dict[str, Any] = {
    "x": list[_NUMBER],
    "mean": _NUMBER,
    "means": tuple[_NUMBER, ...],
    "propensity": _NUMBER,
    "value": _NUMBER,
}


def _line_class(kind: Any) -> type[Line]:
    """Create the JSON Lines class for a kind of event."""
    fields: list[Any] = []
    for field in msgspec.structs.fields(kind):
        if field.name == "partition":  # all lines have this field
            continue
        # Numbers that are not finite are written as null. The bytes contain their values.
        shape = (field.name, _IN_JSON.get(field.name, field.type))
        required = field.default is msgspec.NODEFAULT
        fields.append(shape if required else (*shape, field.default))
    if kind is Decision:
        fields.append(("request", bytes | None, None))
    line = msgspec.defstruct(
        f"{kind.__name__}Line",
        fields,
        bases=(Line,),
        tag=kind_of(kind),
        kw_only=True,
        frozen=True,
        rename={"at_us": "at"},  # no suffix, as with the other times in a line
    )
    return cast("type[Line]", line)


_CLASSES: dict[type, type[Line]] = {kind: _line_class(kind) for kind in get_args(Event)}
_KINDS = {line: kind for kind, line in _CLASSES.items()}


def line_of(record: Record, request: bytes | None = None) -> Line:
    """Convert a record to a line, with the stored request if the record is a decision.

    >>> from belated.core.events import Void
    >>> msgspec.json.encode(line_of(Record(0, 1, 7, Void("a1", 5)))).decode()
    '{"kind":"void","partition":0,"position":1,"recorded":7,"id":"a1","at":5}'
    """
    event = record.event
    fields: dict[str, Any] = {"position": record.position, "recorded": record.recorded}
    if isinstance(event, Opaque):
        return Line(partition=record.partition, data=event.data, **fields)
    fields |= msgspec.structs.asdict(event)
    fields["partition"] = record.partition
    if isinstance(event, Decision):
        fields["request"] = request
        fields["x"] = event.x.astype(np.float64).tolist()
        numbers = [event.mean, event.propensity, *event.means, *fields["x"], event.overall or 0.0]
        fields["data"] = None if all(map(math.isfinite, numbers)) else encode(event)
    elif isinstance(event, Reward | SubjectReward) and not math.isfinite(event.value):
        fields["data"] = encode(event)
    return _CLASSES[type(event)](**fields)


def record_of(line: Line) -> Record:
    """Convert a line to a record.

    >>> record_of(line_of(Record(0, 1, 7, Reward("a1", 5, float("inf"))))).event.value
    inf

    Raises:
        CorruptEvent: the line is not a valid event.
    """
    event = _read(line) if line.data is None else read_event(line.data)
    return Record(line.partition, line.position, line.recorded, event)


def check_values(event: Event | Opaque, dim: int | None, features: bytes) -> None:
    """Raise InvalidInput for values that no bandit writes and that other commands cannot process.

    Args:
        event: the event in a line.
        dim: the width of rows with these features; None if unknown.
        features: the bytes that identify the features in records.

    Raises:
        InvalidInput: a value is invalid; the message names the field.
    """
    if isinstance(event, DecisionEvent):
        check_id(event.id, "id")
    elif isinstance(event, SubjectEvent):
        check_id(event.subject, "subject")
    if not isinstance(event, Decision):
        return
    for name, share in (("propensity", event.propensity), ("overall", event.overall)):
        if share is not None and not 0.0 < share <= 1.0:
            raise must_be(name, "a probability above 0 and at most 1", share)
    for name, mean in (("mean", event.mean), *(("means", mean) for mean in event.means)):
        if not abs(mean) <= MAX_MEAN:
            raise must_be(name, f"from {-MAX_MEAN:g} to {MAX_MEAN:g}", mean)
    for name, number, most in (
        ("index", event.index, (1 << 31) - 1),
        ("model", event.model, (1 << 63) - 1),
        ("at", event.at_us, MAX_TIME),
    ):
        if not 0 <= number <= most:
            raise must_be(name, f"from 0 to {most}", number)
    foreign = event.context and event.context[:NAME] != features
    as_row(event.x, len(event.x) if dim is None or foreign else dim)


def request_of(line: Line) -> bytes | None:
    """Return the stored request for a decision; None if the line does not contain it."""
    return getattr(line, "request", None)


def _read(line: Line) -> Event:
    kind: Any = _KINDS.get(type(line))
    if kind is None:
        raise CorruptEvent("a line of an unknown kind has no bytes")
    fields = {name: getattr(line, name) for name in kind.__struct_fields__}
    if None in (fields.get("mean", 0), fields.get("propensity", 0), fields.get("value", 0)):
        raise CorruptEvent("a number is missing")
    if kind is Decision:
        if None in fields["x"] or None in fields["means"]:
            raise CorruptEvent("a number is missing")
        with np.errstate(over="ignore"):
            fields["x"] = np.array(fields["x"], dtype=np.float32)
        if not np.isfinite(fields["x"]).all():
            raise CorruptEvent("a number in the row is too large for a float32")
    event: Event = kind(**fields)
    return event


#: Decoders for the first line and for all other lines.
read_header = msgspec.json.Decoder(Header).decode
read_line = msgspec.json.Decoder(Union[(*_KINDS, Line, End)]).decode
