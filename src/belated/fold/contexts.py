"""Store the contexts of decisions, and encode stored contexts as rows.

``Decision.context`` consists of 16 bytes that identify the features that computed ``x``, followed
by a MessagePack array of the context and the record of the chosen action, if these are stored.
Lists of floats are stored as float32. The field is empty if the caller passed rows.
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

#: Number of bytes that identify features.
NAME = 16
#: In MessagePack, the head of an array of two values, and nil.
_PAIR, _NIL = b"\x92", b"\xc0"
#: The MessagePack extension type for arrays of float32.
_FLOATS = 1
#: Types of values that are packed unchanged; others may be lists of floats.
_SCALARS = frozenset({bool, int, float, str, type(None)})


class PackedContext(NamedTuple):
    """A context and the records of the available actions, as MessagePack.

    Attributes:
        context: the context.
        records: the record of each action, if there are records.
        catalogue: the catalogue of the features, if they have one.
        ids: the ids of the actions, if there is a catalogue.
    """

    context: bytes
    records: list[bytes] | None
    catalogue: Catalogue | None = None
    ids: Sequence[int | str] = ()

    def of_decision(self, index: int) -> bytes:
        """Return the bytes to store with a decision, given the index of the chosen action."""
        record = _NIL if self.records is None else self.records[index]
        if self.catalogue is not None:  # the journal must not depend on the catalogue
            own_record = None if record == _NIL else _as_array(record)
            record = _packed(self.catalogue.record(self.ids[index], own_record))
        return _PAIR + self.context + record

    def digests(self) -> bytes | None:
        """Return digests of the actions' catalogue records; None without a catalogue."""
        return None if self.catalogue is None else self.catalogue.digests(self.ids)

    def of_request(self, index: int) -> list[msgspec.Raw] | None:
        """Return the records of all actions except the chosen one."""
        if self.records is None:
            return None
        records = [*self.records[:index], _NIL, *self.records[index + 1 :]]
        return [msgspec.Raw(record) for record in records]

    def narrowed(self, indices: Sequence[int]) -> PackedContext:
        """Return the context with only the actions at these indices."""
        records, ids = self.records, self.ids
        return self._replace(
            records=None if records is None else [records[index] for index in indices],
            ids=[ids[index] for index in indices] if ids else (),
        )


def pack_context(
    context: Any, actions: Any, features: Features | None = None
) -> PackedContext | None:
    """Encode a context and the records of actions for storage; return None if this fails.

    Args:
        context: the context.
        actions: the available actions, with or without records.
        features: the features of the bandit, which may have a catalogue.

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
    except Exception:  # custom features may accept contexts of any type
        return None


def _packed(record: Any) -> bytes:
    if isinstance(record, MAPPINGS):
        if not _SCALARS.issuperset(map(type, record.values())):
            record = {name: _compact(value) for name, value in record.items()}
    else:
        record = _compact(record)
    return _encode(record)


def _compact(value: Any) -> Any:
    """Pack a list of floats as float32; return any other value unchanged."""
    array = flat_array(value) if isinstance(value, list | tuple | np.ndarray) else None
    if array is None or array.dtype.kind != "f":
        return value
    with np.errstate(over="ignore"):
        floats = array.astype("<f4")
    return msgspec.msgpack.Ext(_FLOATS, floats.tobytes()) if np.isfinite(floats).all() else value


def name_of(fingerprint: str) -> bytes:
    """Return the bytes that identify features with this fingerprint; empty without features."""
    if not fingerprint:
        return b""
    try:
        name = bytes.fromhex(fingerprint)
    except ValueError:
        name = b""
    return name if len(name) == NAME else blake2b(fingerprint.encode(), digest_size=NAME).digest()


class StoredContext(NamedTuple):
    """The data from which the row of a decision was computed.

    Attributes:
        context: the context.
        record: the record of the chosen action.
    """

    context: Any
    record: Any


def read_context(decision: Decision, *, floats: Any = None) -> StoredContext | None:
    """Return the data from which a decision's row was computed; None if it is not stored.

    Args:
        decision: the decision.
        floats: the decoder to use; by default, lists of floats are decoded as lists.
    """
    if len(decision.context) <= NAME:
        return None
    try:
        return StoredContext(*(floats or _as_lists)(memoryview(decision.context)[NAME:]))
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptEvent(f"the context of {decision.id!r} cannot be read: {error}") from None


#: Features that declare the fields they read.
_OURS = PerArm | Shared


class RowEncoder:
    """Computes the rows of decisions with the features of a bandit.

    If a decision was made with different features, its stored context is encoded again. Fields that
    are not in the context, or whose values the features reject, are treated as missing.

    Args:
        features: the features of the bandit; None if callers pass rows, or if the features are not
            available in this process.
        fingerprint: the fingerprint of features that are not available.

    Attributes:
        names: concatenated identifiers of all features that compute the same rows; empty if rows
            of any features are accepted.
        counts: number of decisions by outcome: ``encoded``, or why there is no row: ``without
            context`` and ``unknown action``, or ``refused`` if the features reject the context.
    """

    def __init__(self, features: Features | None, fingerprint: str = "") -> None:
        # Use a copy with separate counts, which show the fields that old decisions lack. The copy
        # needs no catalogue, because stored records are complete.
        self.features: Any = features
        if isinstance(features, PerArm):
            self.features = replace(features)
        elif isinstance(features, Shared):
            self.features = replace(features, catalogue=None)
        self.names = name_of(fingerprint if features is None else features.fingerprint)
        self.counts: Counter[str] = Counter()
        self._refused: set[bytes] = set()
        self._renamed: Mapping[Any, Any] = getattr(features, "renamed", {})
        actions = getattr(features, "actions", None)
        self._actions = None if actions is None else frozenset(actions)
        self._context = fields_of(features.context if isinstance(features, _OURS) else ())
        self._record = fields_of(features.action if isinstance(features, Shared) else ())

    def row(self, decision: Decision) -> Row | None:
        """Return the row of a decision; None if these features cannot compute it."""
        if not self.names or not decision.context or self._is_mine(decision.context[:NAME]):
            return decision.x
        if self.features is None:
            raise JournalMismatch(
                f"the decision {decision.id!r} was made with features other than the bandit's "
                "current features, which are custom and not available in this process: use a "
                "program that opens the bandit with its features"
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
        """Return a row for each action; None if these features cannot compute all rows.

        Args:
            context: the stored context.
            records: the records of the actions, by the names that the actions had at that time.
        """
        actions = {self._renamed.get(name, name): record for name, record in records.items()}
        are_known = self._actions is None or self._actions.issuperset(actions)
        # There are fewer actions than records if an action occurs under its old and its new name.
        if not are_known or len(actions) < len(records):
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
        except (ValueError, TypeError, LookupError):  # transformers may raise any of these
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
    """Return the encoder of each field (None for a plain number), or the number of unnamed fields.

    >>> fields_of(["age"]), fields_of(3)
    ({'age': None}, 3)
    """
    if isinstance(spec, RandomFeatures):
        spec = spec.fields
    if isinstance(spec, Mapping):
        return dict(spec)
    return spec if isinstance(spec, int) else dict.fromkeys(spec)


def _completed(record: Any, fields: dict[str, Any] | int) -> Any:
    """Return a record in which each absent field has a missing value."""
    if isinstance(fields, int):
        short = isinstance(record, list | np.ndarray) and len(record) < fields
        return [*record, *[0.0] * (fields - len(record))] if short else record
    if record is not None and not isinstance(record, Mapping):
        return record
    present = record or {}
    missing = {name: _missing(fields[name]) for name in fields if name not in present}
    return {**present, **missing} if missing else record


def _accepted(record: Any, fields: dict[str, Any] | int) -> Any:
    """Return a record in which values that the encoders reject are replaced by missing values."""
    if not isinstance(record, Mapping) or isinstance(fields, int):
        return record
    if not fields:  # the features accept any name
        return {name: value for name, value in record.items() if not is_missing(value)}
    return {
        name: value if _accepts(fields[name], value) else _missing(fields[name])
        for name, value in record.items()
        if name in fields
    }


def _missing(encoder: Any) -> float | None:
    return 0.0 if encoder is None else None  # encoders accept None; plain numbers cannot be None


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
    """Decode the MessagePack extension of a list of floats as a list."""
    return _floats(kind, data).tolist()


_encode = msgspec.msgpack.Encoder(enc_hook=plain).encode
_as_array = msgspec.msgpack.Decoder(ext_hook=_floats).decode
_as_arrays = msgspec.msgpack.Decoder(tuple[Any, Any], ext_hook=_floats).decode
_as_lists = msgspec.msgpack.Decoder(tuple[Any, Any], ext_hook=float_list).decode
