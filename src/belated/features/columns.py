"""Columns of unencoded numbers, read by name or position."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import MAX_ENTRY, must_be
from belated.exceptions import InvalidInput
from belated.features.records import is_missing, is_number, shown

_REAL = "fiub"
#: The forms of a field specification, for error messages.
_SPEC = "a list of names, or a number of columns"
#: Unknown and clipped values by kind and field: the number of such values, the time of the last one
#: in microseconds since 1970, and the last value.
Noticed = Mapping[tuple[str, str], tuple[int, int, str]]


class Columns:
    """Numbers that are read from a record by name, or from a plain sequence in order.

    Args:
        spec: the names of the columns, or the number of columns.
        what: what the columns describe, "context" or "action".
    """

    #: Value of the intercept column that precedes these numbers.
    unit = 1.0
    #: Empty, because unencoded numbers are not counted.
    counts: Mapping[str, dict[str, int]] = MappingProxyType({})
    noticed: Noticed = MappingProxyType({})

    def __init__(self, spec: Sequence[str] | int, what: str) -> None:
        self.what = what
        if isinstance(spec, int | np.integer) and not isinstance(spec, bool):
            if spec < 0:
                raise must_be(what, _SPEC, spec)
            self.spec: tuple[str, ...] | int = int(spec)
            self.width = int(spec)
            self.names: list[str] = []
            self.labels = [f"{what} {i}" for i in range(self.width)]
        else:
            self.spec = _as_names(spec, what)
            self.width = len(self.spec)
            self.names = list(self.spec)
            self.labels = [f"{what} {name}" for name in self.spec]
            # itemgetter returns a bare value for one name, and requires at least one.
            self._pick = itemgetter(*self.spec) if self.width > 1 else self._pick_few

    def _pick_few(self, record: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(record[name] for name in self.names)

    @property
    def description(self) -> tuple[str, ...] | int:
        """All settings that affect the numbers, for comparisons and fingerprints."""
        return self.spec

    def numbers(self, record: Any, who: str) -> NDArray[Any]:
        """Return the values of one record, one per column, without checking their size."""
        values = record
        if record is None or (not isinstance(record, np.ndarray) and isinstance(record, Mapping)):
            values = self._named({} if record is None else record, who)
        array = flat_array(values)
        if array is None or array.shape != (self.width,):
            self._refuse(values, who)
        return array

    def table(self, ids: Sequence[int | str], records: Sequence[Any]) -> NDArray[Any]:
        """Return the values of several actions' records, one row per record."""
        values: Any = records
        if isinstance(records[0], Mapping) and not isinstance(self.spec, int):
            try:
                values = [*map(self._pick, records)]
            except (KeyError, IndexError, TypeError, ValueError):
                values = None  # read one at a time below, to name the invalid record
        if values is None or _any_is(values, (str, bytes, Mapping)) or any(map(_nested, values)):
            table = None
        else:
            table = _as_array(values)
        if table is None or table.shape != (len(ids), self.width) or table.dtype.kind not in _REAL:
            pairs = zip(ids, records, strict=True)
            table = np.array([self.numbers(record, f"action {id!r}") for id, record in pairs])
        return table

    def check(self, numbers: NDArray[Any], who: str) -> None:
        """Raise InvalidInput for the first number that is not finite or is too large, if any."""
        bad = ~(np.abs(numbers.astype(np.float64)) <= MAX_ENTRY)
        if bad.any():
            at = int(bad.argmax())
            self._refuse_number(at, numbers[at].item(), who)

    def _named(self, record: Mapping[str, Any], who: str) -> tuple[Any, ...]:
        if isinstance(self.spec, int):
            if self.width == 0:
                return ()
            message = f"{who} must be a sequence of {self.width} numbers, because the columns have"
            raise InvalidInput(f"{message} no names; got {shown(record)}", record)
        try:
            values: tuple[Any, ...] = self._pick(record)
        except KeyError:
            name = next((name for name in self.spec if name not in record), None)
            if name is None:
                raise
            raise InvalidInput(missing(name, who, record, self.spec), name) from None
        return values

    def _refuse(self, given: Any, who: str) -> NoReturn:
        flat = given.ndim == 1 if isinstance(given, np.ndarray) else isinstance(given, list | tuple)
        if flat and len(given) == self.width:
            for at, value in enumerate(given):
                if not is_number(value):
                    self._refuse_number(at, value, who)
        if not self.width:
            message = f"{who} is {shown(given)}, but the features do not read it: omit it"
            raise InvalidInput(
                f"{message}, or name its fields, as in PerArm(..., {self.what}=...)", given
            )
        message = f"{who} must be a list of {self.width} real numbers, got {shown(given)}"
        raise InvalidInput(message + as_plain(given, who), given)

    def _refuse_number(self, at: int, value: Any, who: str) -> NoReturn:
        column = f"number {at}" if isinstance(self.spec, int) else repr(self.names[at])
        needed = f"a finite number from {-MAX_ENTRY:g} to {MAX_ENTRY:g}"
        advice = "" if isinstance(self.spec, int) else hint(self.what, self.names[at], value)
        raise InvalidInput(f"{column} of {who} must be {needed}, got {shown(value)}{advice}", value)


def missing(name: str, who: str, record: Mapping[Any, Any], fields: Collection[str]) -> str:
    """Return the message for a missing field; suggest a present field if the name is misspelled."""
    unused = [str(key) for key in record if key not in fields]
    message = f"{name!r} of {who} is missing"
    if close := difflib.get_close_matches(name, unused, n=1):
        return f"{message}, but {close[0]!r} was sent: rename it to {name!r}"
    return message + (f"; unused fields: {', '.join(map(repr, unused[:5]))}" if unused else "")


def as_plain(given: Any, who: str) -> str:
    """Return a hint on how to pass a pandas Series; empty for other values."""
    name = who.removeprefix("the ").partition(" ")[0]
    return f"; pass {name}.to_dict()" if hasattr(given, "to_dict") else ""


def hint(what: str, name: str, value: Any, kind: str = "") -> str:
    """Return a hint on how to encode an invalid value; empty if its encoder is already suitable."""
    encoder = ""
    if is_missing(value):
        encoder = "Number(low, high)"
    elif isinstance(value, datetime | np.datetime64) or _is_iso(value):
        encoder = "Datetime('Europe/Vienna')"
    elif isinstance(value, str) and kind != "Text":
        encoder = f"Category([{shown(value)}, ...])"
    elif isinstance(value, list | tuple | np.ndarray) and flat_array(value) is not None:
        encoder = f"Vector({len(value)})"
    if not encoder or (kind and encoder.startswith(kind)):
        return ""
    return f"; to encode it, write {what}={{{name!r}: {encoder}, ...}}"


def _is_iso(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(datetime.fromisoformat(value))
    except ValueError:
        return False


def _as_names(spec: Any, what: str) -> tuple[str, ...]:
    if not isinstance(spec, Sequence) or isinstance(spec, str | bytes):
        raise must_be(what, _SPEC, spec)
    for at, name in enumerate(spec):
        if not isinstance(name, str) or not name:
            raise must_be(f"{what}[{at}]", "a name", name)
        if name in spec[:at]:
            message = f"`{what}` contains {name!r} more than once: remove duplicates"
            raise InvalidInput(message, name)
    return tuple(str.__str__(name) for name in spec)


def _nested(values: Any) -> bool:
    """Return whether a list contains text or nested lists, and so is not a row of numbers.

    Check before creating an array, which would reserve the size of the longest text for each entry.
    """
    return isinstance(values, list | tuple) and _any_is(values, (str, bytes, list, tuple, Mapping))


def _any_is(values: Iterable[Any], kinds: tuple[type, ...]) -> bool:
    return any(issubclass(kind, kinds) for kind in set(map(type, values)))


def flat_array(given: Any) -> NDArray[Any] | None:
    """Return a sequence of real numbers as an array; None for anything else."""
    array = None if _nested(given) else _as_array(given)
    return array if array is not None and array.ndim == 1 and array.dtype.kind in _REAL else None


def _as_array(given: Any) -> NDArray[Any] | None:
    try:
        return np.asarray(given)
    except (TypeError, ValueError):  # ragged nesting, or an object that is not an array
        return None
