"""A journal as text: JSON lines that give back exactly the events they were made of.

The first line is the header, the last one says how many records there were, so that a file that
was cut off is noticed; and the head of the journal, so that one that was changed is noticed too.
Between them is one line for each record, in the order of ``recorded``: who
reads them need not sort. ``kind`` tells the lines apart; what else a line holds are the fields of
its event, but for those that have their default. The numbers of a row are written as the float64
that equals each float32. A decision has its ``request``, what it was chosen from, if that was kept:
the bytes of the journal in base64.

Where JSON cannot say what an event holds, its ``bytes`` stand beside it in base64, and count: for
an event this release cannot read (kind ``unknown``), and for numbers that are not finite.
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
from belated.core.inputs import as_row
from belated.exceptions import CorruptEvent, InvalidInput
from belated.fold.contexts import NAME

#: Of the lines; a file of a greater one is not read.
FORMAT = 2
#: The largest predicted mean: a reward of :data:`belated.core.inputs.MAX_REWARD`, with room.
MAX_MEAN = 1e12
#: The end of the year 9999, in microseconds since 1970.
MAX_TIME = 253_402_300_799_999_999


class Header(msgspec.Struct, tag_field="kind", tag="journal", frozen=True, omit_defaults=True):
    """The first line: what the records are of, and how far each partition was trimmed, if any."""

    format: int
    bandit: str
    partitions: int
    identity: dict[str, str] | None = None
    trimmed: list[int] | None = None


class _Strict(
    msgspec.Struct, tag_field="kind", frozen=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A line in which every field is known."""


class End(_Strict, tag="end", frozen=True):
    """The last line: how many records stand above, and the head that names them all."""

    records: int
    head: str = ""


class Line(_Strict, tag="unknown", frozen=True, gc=False, kw_only=True):
    """A record; those of a known kind have a class with the fields of the event beside these."""

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
    """The class of the lines of one kind of event."""
    fields: list[Any] = []
    for field in msgspec.structs.fields(kind):
        if field.name == "partition":  # each line has one
            continue
        # What is not finite is null here, and then the bytes count.
        shape = (field.name, _IN_JSON.get(field.name, field.type))
        required = field.default is msgspec.NODEFAULT
        fields.append(shape if required else (*shape, field.default))
    if kind is Decision:
        fields.append(("request", bytes | None, None))
    made = msgspec.defstruct(
        f"{kind.__name__}Line",
        fields,
        bases=(Line,),
        tag=kind_of(kind),
        kw_only=True,
        frozen=True,
        rename={"at_us": "at"},  # as the other times of a line, which have no suffix either
    )
    return cast("type[Line]", made)


_CLASSES: dict[type, type[Line]] = {kind: _line_class(kind) for kind in get_args(Event)}
_KINDS = {line: kind for kind, line in _CLASSES.items()}


def line_of(record: Record, request: bytes | None = None) -> Line:
    """A record as a line; that of a decision with what it was chosen from, if that was kept.

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
    """The record a line was made of.

    >>> record_of(line_of(Record(0, 1, 7, Reward("a1", 5, float("inf"))))).event.value
    inf

    Raises:
        CorruptEvent: the line is no event.
    """
    event = _read(line) if line.data is None else read_event(line.data)
    return Record(line.partition, line.position, line.recorded, event)


def check_values(event: Event | Opaque, dim: int | None, features: bytes) -> None:
    """Refuse values that no bandit writes, and that later commands could not compute with.

    Args:
        event: of a line.
        dim: width of the rows of these features, if that is known.
        features: their name in records.

    Raises:
        InvalidInput: names the field.
    """
    if isinstance(event, DecisionEvent):
        check_id(event.id, "id")
    elif isinstance(event, SubjectEvent):
        check_id(event.subject, "subject")
    if not isinstance(event, Decision):
        return
    for name, share in (("propensity", event.propensity), ("overall", event.overall)):
        if share is not None and not 0.0 < share <= 1.0:
            expected = "a probability above 0 and at most 1 was expected"
            raise InvalidInput(f"{name} is {share}: {expected}", share)
    for name, mean in (("mean", event.mean), *(("means", one) for one in event.means)):
        if not abs(mean) <= MAX_MEAN:
            raise InvalidInput(f"{name} is {mean}: at most {MAX_MEAN:g} was expected", mean)
    for name, number, most in (
        ("index", event.index, (1 << 31) - 1),
        ("model", event.model, (1 << 63) - 1),
        ("at", event.at_us, MAX_TIME),
    ):
        if not 0 <= number <= most:
            raise InvalidInput(f"{name} is {number}: from 0 to {most} was expected", number)
    foreign = event.context and event.context[:NAME] != features
    as_row(event.x, len(event.x) if dim is None or foreign else dim)


def request_of(line: Line) -> bytes | None:
    """What a decision was chosen from, if the line has it."""
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
            raise CorruptEvent("a number of the row is too large for a float32")
    event: Event = kind(**fields)
    return event


#: Of the first line, and of the others.
read_header = msgspec.json.Decoder(Header).decode
read_line = msgspec.json.Decoder(Union[(*_KINDS, Line, End)]).decode
