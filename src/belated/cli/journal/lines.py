"""A journal as text: JSON lines that give back exactly the events they were made of.

The first line is the header, the last one says how many records there were, so that a file that
was cut off is noticed. Between them is one line for each record, in the order of ``recorded``: who
reads them need not sort. ``kind`` tells the lines apart. The numbers of a row are written as the
float64 that equals each float32.

Where JSON cannot say what an event holds, its ``bytes`` stand beside it in base64, and count: for
an event this release cannot read (kind ``unknown``), and for numbers that are not finite.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import msgspec
import numpy as np

from belated.events import (
    Activation,
    Decision,
    Event,
    ModeChanged,
    Opaque,
    Record,
    Reward,
    Settled,
    Void,
    encode,
    read_event,
)
from belated.exceptions import CorruptEvent

#: Of the lines; a file of a greater one is not read.
FORMAT = 1


class Header(msgspec.Struct, tag_field="kind", tag="journal", frozen=True):
    """The first line: what the records are of."""

    format: int
    bandit: str
    partitions: int
    identity: dict[str, str] | None = None


class End(msgspec.Struct, tag_field="kind", tag="end", frozen=True, forbid_unknown_fields=True):
    """The last line: how many records stand above."""

    records: int


class _Line(
    msgspec.Struct,
    tag_field="kind",
    frozen=True,
    gc=False,
    forbid_unknown_fields=True,
):
    partition: int
    position: int
    recorded: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]

    def read(self) -> Event | Opaque:
        """The event, where the line has no bytes."""
        raise NotImplementedError


class _DecisionLine(_Line, tag="decision", frozen=True, omit_defaults=True):
    id: str
    at: int
    action: int | str
    index: int
    x: list[float | None]
    mean: float | None
    propensity: float | None
    model: int
    activated: bool
    data: bytes | None = msgspec.field(default=None, name="bytes")

    def read(self) -> Event:
        with np.errstate(over="ignore"):
            x = np.array([_known(value) for value in self.x], dtype=np.float32)
        if not np.isfinite(x).all():
            raise CorruptEvent("a number of the row is too large for a float32")
        return Decision(
            self.id,
            self.at,
            self.action,
            self.index,
            x,
            _known(self.mean),
            _known(self.propensity),
            self.model,
            self.activated,
        )


class _ActivationLine(_Line, tag="activation", frozen=True):
    id: str
    at: int

    def read(self) -> Event:
        return Activation(self.id, self.at)


class _RewardLine(_Line, tag="reward", frozen=True, omit_defaults=True):
    id: str
    at: int
    value: float | None
    part: str = ""
    revision: int = 0
    data: bytes | None = msgspec.field(default=None, name="bytes")

    def read(self) -> Event:
        return Reward(self.id, self.at, _known(self.value), self.part, self.revision)


class _VoidLine(_Line, tag="void", frozen=True):
    id: str
    at: int

    def read(self) -> Event:
        return Void(self.id, self.at)


class _SettledLine(_Line, tag="settled", frozen=True):
    until: int

    def read(self) -> Event:
        return Settled(self.partition, self.until)


class _SwitchedLine(_Line, tag="switched", frozen=True):
    at: int
    mode: str
    reason: str

    def read(self) -> Event:
        return ModeChanged(self.at, self.mode, self.reason)


class _UnknownLine(_Line, tag="unknown", frozen=True):
    data: bytes = msgspec.field(name="bytes")


Line = (
    _DecisionLine
    | _ActivationLine
    | _RewardLine
    | _VoidLine
    | _SettledLine
    | _SwitchedLine
    | _UnknownLine
)


def line_of(record: Record) -> Line:
    """A record as a line.

    >>> msgspec.json.encode(line_of(Record(0, 1, 7, Void("a1", 5)))).decode()
    '{"kind":"void","partition":0,"position":1,"recorded":7,"id":"a1","at":5}'
    """
    event = record.event
    place: dict[str, Any] = {
        "partition": record.partition,
        "position": record.position,
        "recorded": record.recorded,
    }
    if isinstance(event, Decision):
        x = event.x.astype(np.float64).tolist()
        finite = math.isfinite(event.mean + event.propensity) and math.isfinite(math.fsum(x))
        return _DecisionLine(
            **place,
            id=event.id,
            at=event.at,
            action=event.action,
            index=event.index,
            x=x,
            mean=event.mean,
            propensity=event.propensity,
            model=event.model,
            activated=event.activated,
            data=None if finite else encode(event),
        )
    if isinstance(event, Reward):
        return _RewardLine(
            **place,
            id=event.id,
            at=event.at,
            value=event.value,
            part=event.part,
            revision=event.revision,
            data=None if math.isfinite(event.value) else encode(event),
        )
    if isinstance(event, Activation):
        return _ActivationLine(**place, id=event.id, at=event.at)
    if isinstance(event, Void):
        return _VoidLine(**place, id=event.id, at=event.at)
    if isinstance(event, Settled):
        return _SettledLine(**place, until=event.until)
    if isinstance(event, ModeChanged):
        return _SwitchedLine(**place, at=event.at, mode=event.mode, reason=event.reason)
    return _UnknownLine(**place, data=event.data)


def record_of(line: Line) -> Record:
    """The record a line was made of.

    >>> record_of(line_of(Record(0, 1, 7, Reward("a1", 5, float("inf"))))).event.value
    inf

    Raises:
        CorruptEvent: the line is no event.
    """
    data = getattr(line, "data", None)
    event = line.read() if data is None else read_event(data)
    return Record(line.partition, line.position, line.recorded, event)


def kind_of(event: Event | Opaque) -> str:
    """The kind of an event, as in its line.

    >>> kind_of(Void("a1", 5))
    'void'
    """
    return "unknown" if isinstance(event, Opaque) else type(event).__name__.lower()


def _known(value: float | None) -> float:
    if value is None:
        raise CorruptEvent("a number is missing")
    return value


#: Of the first line, and of the others.
read_header = msgspec.json.Decoder(Header).decode
read_line = msgspec.json.Decoder(Line | End).decode
