"""The context of a decision in its record, and the row that features make of it.

``Decision.context`` is 16 bytes that name the features that made ``x``, then a MessagePack array of
the context and the record of the chosen action, if these are stored. Lists of floats are float32.
It is empty where the caller passes rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec
import numpy as np

from belated.core.events import Decision
from belated.core.inputs import Row
from belated.exceptions import CorruptEvent, InvalidInput, JournalMismatch
from belated.features import Features, PerArm, RandomFeatures, Shared
from belated.features.catalogue import Catalogue
from belated.features.columns import flat_array
from belated.features.records import MAPPINGS, as_actions, is_missing, is_number, plain

#: Bytes that name features.
NAME = 16
#: MessagePack: the head of an array of two values, and no value.
_PAIR, _NIL = b"\x92", b"\xc0"
#: The MessagePack extension type of float32 numbers.
_FLOATS = 1
#: Types of values that are packed as they are; others may be lists of floats.
_SCALARS = frozenset({bool, int, float, str, type(None)})


class PackedContext(NamedTuple):
    """A context and the records of the actions on offer, as MessagePack.

    Attributes:
        context: what was known before choosing.
        records: a record for each action, if there are any.
        catalogue: has records of actions, if the features have one.
        ids: of the actions, beside a catalogue.
    """

    context: bytes
    records: list[bytes] | None
    catalogue: Catalogue | None = None
    ids: Sequence[int | str] = ()

    def of_decision(self, index: int) -> bytes:
        """Return what the record of a decision holds, by the place of the chosen action."""
        record = _NIL if self.records is None else self.records[index]
        if self.catalogue is not None:  # the journal has to make the row without it
            given = None if record == _NIL else _as_array(record)
            record = _packed(self.catalogue.record(self.ids[index], given))
        return _PAIR + self.context + record

    def digests(self) -> bytes | None:
        """Return digests of the records that a catalogue has; None without one."""
        return None if self.catalogue is None else self.catalogue.digests(self.ids)

    def of_request(self, index: int) -> list[msgspec.Raw] | None:
        """Return the records of the other actions."""
        if self.records is None:
            return None
        others = [*self.records[:index], _NIL, *self.records[index + 1 :]]
        return [msgspec.Raw(record) for record in others]

    def narrowed(self, places: Sequence[int]) -> PackedContext:
        """Return the same with only some of the actions."""
        records, ids = self.records, self.ids
        return self._replace(
            records=None if records is None else [records[place] for place in places],
            ids=[ids[place] for place in places] if ids else (),
        )


def pack_context(
    context: Any, actions: Any, features: Features | None = None
) -> PackedContext | None:
    """Return a context and the records of the actions as they are stored; None if they cannot be.

    Args:
        context: what is known.
        actions: on offer, with or without records.
        features: of the bandit, which may have a catalogue.

    >>> pack_context({"age": np.int64(3)}, ["red", "blue"]).context.hex(" ")
    '81 a3 61 67 65 03'
    >>> pack_context(object(), ["red", "blue"]) is None
    True
    """
    try:
        records = None
        if isinstance(actions, MAPPINGS):
            records = [_packed(record) for record in actions.values()]
        packed = _packed(context)
        if not isinstance(features, Shared) or features.encoded is None:
            return PackedContext(packed, records)
        return PackedContext(packed, records, features.encoded, as_actions(actions))
    except Exception:  # features of the user's own may read anything
        return None


def _packed(record: Any) -> bytes:
    if isinstance(record, MAPPINGS):
        if not _SCALARS.issuperset(map(type, record.values())):
            record = {name: _compact(value) for name, value in record.items()}
    else:
        record = _compact(record)
    return _encode(record)


def _compact(value: Any) -> Any:
    """Return a list of floats as float32, and anything else as it is."""
    array = flat_array(value) if isinstance(value, list | tuple | np.ndarray) else None
    if array is None or array.dtype.kind != "f":
        return value
    with np.errstate(over="ignore"):
        floats = array.astype("<f4")
    return msgspec.msgpack.Ext(_FLOATS, floats.tobytes()) if np.isfinite(floats).all() else value


def name_of(fingerprint: str) -> bytes:
    """Return the bytes that name features by their fingerprint; none without features."""
    if not fingerprint:
        return b""
    try:
        name = bytes.fromhex(fingerprint)
    except ValueError:
        name = b""
    return name if len(name) == NAME else blake2b(fingerprint.encode(), digest_size=NAME).digest()


class StoredContext(NamedTuple):
    """What the row of a decision was made of.

    Attributes:
        context: what was known before choosing.
        record: of the chosen action.
    """

    context: Any
    record: Any


def read_context(decision: Decision, *, floats: Any = None) -> StoredContext | None:
    """Return what the row of a decision was made of; None if that is not stored.

    Args:
        decision: from its record.
        floats: what decodes lists of floats; by default they become lists.
    """
    if len(decision.context) <= NAME:
        return None
    try:
        return StoredContext(*(floats or _as_lists)(memoryview(decision.context)[NAME:]))
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptEvent(f"the context of {decision.id!r} cannot be read: {error}") from None


#: Features that name the fields they read.
_OURS = PerArm | Shared


class RowEncoder:
    """Returns the row of each decision under one bandit's features.

    A decision that other features made is encoded again from its context. A field that its context
    lacks, or whose value the features refuse, counts as missing.

    Args:
        features: of the bandit; None if callers pass rows, or if they cannot be made here.
        fingerprint: of features that cannot be made here.

    Attributes:
        names: of the features whose rows are rows of these, concatenated; empty: any.
        counts: decisions that were ``encoded``; and those that have no row, because they are
            ``without context``, their action is an ``unknown action``, or they are ``refused``.
    """

    def __init__(self, features: Features | None, fingerprint: str = "") -> None:
        # A copy has counts of its own: they tell which fields old decisions lack. It has no
        # catalogue: a record that was stored is whole.
        self.features: Any = features
        if isinstance(features, PerArm):
            self.features = replace(features)
        elif isinstance(features, Shared):
            self.features = replace(features, catalogue=None)
        self.names = name_of(fingerprint if features is None else features.fingerprint)
        self.counts: Counter[str] = Counter()
        self._refused: set[bytes] = set()
        self._renamed: Mapping[Any, Any] = getattr(features, "renamed", {})
        known = getattr(features, "actions", None)
        self._actions = None if known is None else frozenset(known)
        self._context = fields_of(features.context if isinstance(features, _OURS) else ())
        self._record = fields_of(features.action if isinstance(features, Shared) else ())

    def row(self, decision: Decision) -> Row | None:
        """Return the row of a decision; None if these features cannot make one."""
        if not self.names or not decision.context or self._is_mine(decision.context[:NAME]):
            return decision.x
        if self.features is None:
            message = f"the decision {decision.id!r} was made with other features, and those of the"
            raise JournalMismatch(
                f"{message} bandit, which are of your own, cannot be made here: use a program that "
                "opens the bandit with them"
            )
        stored = read_context(decision, floats=_as_arrays)
        if stored is None:
            self.counts["without context"] += 1
            return None
        rows = self.rows(stored.context, {decision.action: stored.record})
        return None if rows is None else rows[0]

    def lacks_fields(self, decision: Decision) -> bool:
        """Return whether the stored context of a decision lacks a field that the features read."""
        stored = read_context(decision, floats=_as_arrays)
        return stored is None or any(
            _completed(record, fields) is not record
            for record, fields in ((stored.context, self._context), (stored.record, self._record))
        )

    def rows(self, context: Any, records: Mapping[int | str, Any]) -> Row | None:
        """Return a row for each action; None if these features cannot make all of them.

        Args:
            context: as it was stored.
            records: of the actions, by the names they had then.
        """
        actions = {self._renamed.get(name, name): record for name, record in records.items()}
        known = self._actions is None or self._actions.issuperset(actions)
        if not known or len(actions) < len(records):  # an action under its old and its new name
            self.counts["unknown action"] += 1
            return None
        context = _completed(context, self._context)
        actions = {name: _completed(record, self._record) for name, record in actions.items()}
        try:
            try:
                rows: Row = self.features.rows(context, actions)
            except InvalidInput:
                context = _accepted(context, self._context)
                actions = {
                    name: _accepted(record, self._record) for name, record in actions.items()
                }
                rows = self.features.rows(context, actions)
        except (ValueError, TypeError, LookupError):  # a transformer raises what it likes
            self.counts["refused"] += 1
            return None
        self.counts["encoded"] += 1
        return rows

    def _is_mine(self, name: bytes) -> bool:
        if any(self.names[at : at + NAME] == name for at in range(0, len(self.names), NAME)):
            return True
        if name in self._refused:
            return False
        if self.features is not None and self.features.extends(name.hex()):
            self.names += name
            return True
        self._refused.add(name)
        return False


def fields_of(spec: Any) -> dict[str, Any] | int:
    """Return the encoder of each field, None for a plain number; or how many numbers there are.

    >>> fields_of(["age"]), fields_of(3)
    ({'age': None}, 3)
    """
    if isinstance(spec, RandomFeatures):
        spec = spec.fields
    if isinstance(spec, Mapping):
        return dict(spec)
    return spec if isinstance(spec, int) else dict.fromkeys(spec)


def _completed(record: Any, fields: dict[str, Any] | int) -> Any:
    """Return a record with what stands for a missing value in each field that it lacks."""
    if isinstance(fields, int):
        short = isinstance(record, list | np.ndarray) and len(record) < fields
        return [*record, *[0.0] * (fields - len(record))] if short else record
    if record is not None and not isinstance(record, Mapping):
        return record
    given = record or {}
    missing = {name: _missing(fields[name]) for name in fields if name not in given}
    return {**given, **missing} if missing else record


def _accepted(record: Any, fields: dict[str, Any] | int) -> Any:
    """Return a record without the values that are refused."""
    if not isinstance(record, Mapping) or isinstance(fields, int):
        return record
    if not fields:  # any name is read
        return {name: value for name, value in record.items() if not is_missing(value)}
    return {
        name: value if _accepts(fields[name], value) else _missing(fields[name])
        for name, value in record.items()
        if name in fields
    }


def _missing(encoder: Any) -> float | None:
    return 0.0 if encoder is None else None  # an encoder knows None, and a plain number does not


def _accepts(encoder: Any, value: Any) -> bool:
    if encoder is None:
        return is_number(value)
    try:
        encoder.encode(value)
    except InvalidInput:
        return False
    return True


def _floats(kind: int, data: memoryview) -> Any:
    if kind != _FLOATS:
        raise ValueError(f"unknown extension type {kind}")
    return np.frombuffer(data, dtype="<f4")


def float_list(kind: int, data: memoryview) -> Any:
    """Return a list of floats of a context or a record, from its MessagePack extension."""
    return _floats(kind, data).tolist()


_encode = msgspec.msgpack.Encoder(enc_hook=plain).encode
_as_array = msgspec.msgpack.Decoder(ext_hook=_floats).decode
_as_arrays = msgspec.msgpack.Decoder(tuple[Any, Any], ext_hook=_floats).decode
_as_lists = msgspec.msgpack.Decoder(tuple[Any, Any], ext_hook=float_list).decode
