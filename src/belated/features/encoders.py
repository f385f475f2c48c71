"""Encoders turn one field of a record into numbers of about the same magnitude."""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from statistics import NormalDist
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import MAX_ENTRY, as_dim, as_float, as_positive, must_be
from belated.core.times import as_datetime, as_microseconds
from belated.exceptions import InvalidInput
from belated.features.columns import Columns, Noticed, as_plain, flat_array, hint, missing
from belated.features.records import MAPPINGS, MAX_TEXT, is_missing, shown

#: Outcomes of encoding a value that are counted in addition to successes.
MISSING, UNKNOWN, CLIPPED, REFUSED = "missing", "unknown", "clipped", "refused"
#: Types of values that NumPy converts to float64 in one call.
_PLAIN = frozenset({int, float, bool, type(None)})
#: A run of letters and digits.
_WORD = re.compile(r"[^\W_]+")


class Seen(Counter[str]):
    """Counts of the encoded values of one field, by outcome.

    Attributes:
        last: the last unknown and clipped value, each with its time in microseconds since 1970.
    """

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        super().__init__(counts or {})
        self.last: dict[str, tuple[int, str]] = {}

    def note(self, what: str, value: Any, count: int = 1) -> None:
        """Count unknown or clipped values, and store one as an example."""
        self[what] += count
        example = value[:80] if isinstance(value, str) else shown(value)
        self.last[what] = time.time_ns() // 1000, example

    def add(self, other: Seen) -> None:
        """Add the counts of another instance for the same field."""
        self.update(other)
        self.last.update(other.last)


#: Receives the counts of values that are encoded without features.
_UNCOUNTED = Seen()


class Encoder:
    """Turns the value of one field into a vector with a typical norm of 1."""

    @property
    def labels(self) -> list[str]:
        """Suffix of each column's name, which follows the name of the field."""
        return [""]

    @property
    def description(self) -> tuple[Any, ...]:
        """All settings that affect the numbers."""
        raise NotImplementedError

    def encode(self, value: Any, seen: Seen = _UNCOUNTED) -> list[float]:
        """Return the encoded value, as one or more numbers; zeros if the value is missing.

        Args:
            value: the value of the field.
            seen: counter of missing, unknown and clipped values.
        """
        raise NotImplementedError

    def encode_all(self, values: Sequence[Any], seen: Seen) -> NDArray[np.float64]:
        """Return the encoded values, one row per value; see :meth:`encode`."""
        return np.array([self.encode(value, seen) for value in values], dtype=np.float64)


@dataclass(frozen=True)
class Number(Encoder):
    """A number, scaled from its range to [-2, 2]; values outside the range are clipped.

    With a range of about four standard deviations, a typical number has a magnitude of 1. A missing
    value (None or NaN) becomes 0, the middle of the range.

    Args:
        low: lower end of the range; few values should be smaller.
        high: upper end of the range; few values should be larger.
        log: whether to scale the logarithm. Use this for prices and counts, where the step from 10
            to 20 matters as much as the step from 100 to 200. ``low`` must then be above 0.

    >>> Number(18, 90).encode(54), Number(18, 90).encode(120), Number(18, 90).encode(None)
    ([0.0], [2.0], [0.0])
    >>> Number(1, 10_000, log=True).encode(100), Number(1, 10_000, log=True).encode(0)
    ([0.0], [-2.0])
    """

    low: float
    high: float
    _: KW_ONLY
    log: bool = False

    #: Both ends of the range, or their logarithms.
    _ends: tuple[float, float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        low, high = as_float(self.low), as_float(self.high)
        if not (low < high and math.isfinite(high - low)):
            message = f"Number({self.low!r}, {self.high!r}): pass two numbers, the lower one first"
            raise InvalidInput(message, (self.low, self.high))
        if self.log and low <= 0.0:
            message = f"Number({self.low!r}, {self.high!r}, log=True): low must be above 0"
            raise InvalidInput(message, self.low)
        _set(self, "low", low)
        _set(self, "high", high)
        _set(self, "log", bool(self.log))
        _set(self, "_ends", (math.log(low), math.log(high)) if self.log else (low, high))

    def __repr__(self) -> str:
        return f"Number(low={self.low}, high={self.high}{', log=True' if self.log else ''})"

    @property
    def description(self) -> tuple[Any, ...]:
        """The range, and whether it is logarithmic."""
        return ("Number", self.low, self.high, *(["log"] if self.log else []))

    def encode(self, value: Any, seen: Seen = _UNCOUNTED) -> list[float]:
        """Return the scaled number."""
        number = value if type(value) is float else as_float(value)
        if number != number:
            if is_missing(value):
                seen[MISSING] += 1
                return [0.0]
            raise InvalidInput(f"must be a number or None, got {shown(value)}", value)
        if not self.low <= number <= self.high:
            seen.note(CLIPPED, value)
        if self.log:
            number = math.log(max(number, self.low))
        low, high = self._ends
        scaled = 2.0 * (2.0 * number - low - high) / (high - low)
        return [max(-2.0, min(scaled, 2.0))]

    def encode_all(self, values: Sequence[Any], seen: Seen) -> NDArray[np.float64]:
        """Return several values, scaled and clipped to [-2, 2], one row per value."""
        if not _PLAIN.issuperset(map(type, values)):
            return super().encode_all(values, seen)
        numbers = np.array(values, dtype=np.float64)  # None becomes NaN
        missing = np.isnan(numbers)
        seen[MISSING] += int(missing.sum())
        clipped = (numbers < self.low) | (numbers > self.high)
        if clipped.any():
            seen.note(CLIPPED, values[int(clipped.argmax())], int(clipped.sum()))
        if self.log:  # not np.log, whose last bit depends on the processor
            numbers = np.array([math.log(max(number, self.low)) for number in numbers.tolist()])
        low, high = self._ends
        with np.errstate(over="ignore"):
            scaled = 2.0 * (2.0 * numbers - low - high) / (high - low)
        return np.where(missing, 0.0, scaled.clip(-2.0, 2.0))[:, None]


@dataclass(frozen=True)
class Datetime(Encoder):
    """A time, as the hour of the day, the day of the week, and whether it is a weekend.

    Hours and days are points on a circle, so 23:59 is near 00:01 and Sunday is near Monday. A time
    is a timezone-aware datetime (or pandas Timestamp), ISO 8601 text, or microseconds since 1970. A
    missing value (None or NaT) becomes zeros.

    Args:
        zone: time zone for hours and days, such as "Europe/Vienna".

    >>> Datetime("Europe/Vienna").labels
    [' hour cos', ' hour sin', ' day cos', ' day sin', ' weekend']
    >>> [round(number, 2) for number in Datetime("UTC").encode("2026-11-16T06:00:00Z")]
    [0.0, 0.67, 0.65, 0.15, -0.33]
    """

    zone: str = "UTC"

    _zone: ZoneInfo = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            _set(self, "_zone", ZoneInfo(self.zone))
        except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
            message = (
                f"`zone` is {self.zone!r}, which is not a known time zone: pass a name such as"
            )
            raise InvalidInput(
                f"{message} 'Europe/Vienna' (pip install tzdata if the system has none)", self.zone
            ) from None

    @property
    def labels(self) -> list[str]:
        """Suffix of each column's name."""
        return [" hour cos", " hour sin", " day cos", " day sin", " weekend"]

    @property
    def description(self) -> tuple[Any, ...]:
        """The kind of encoder and its time zone."""
        return "Datetime", self.zone

    def encode(self, value: Any, seen: Seen = _UNCOUNTED) -> list[float]:
        """Return five numbers, a vector with norm 1."""
        if is_missing(value):
            seen[MISSING] += 1
            return [0.0] * 5
        try:
            when = as_datetime(as_microseconds(value)).astimezone(self._zone)
        except OverflowError:  # on the first or last day that a datetime can represent
            message = f"must be a time between the years 2 and 9998, got {shown(value)}"
            raise InvalidInput(message, value) from None
        except InvalidInput as error:
            raise InvalidInput(str(error).removeprefix("`at` "), value) from None
        day = (when.hour + when.minute / 60 + when.second / 3600) / 24
        week = (when.weekday() + day) / 7
        weekend = 0.5 if when.weekday() >= 5 else -0.5
        circles = [turn(math.tau * share) for share in (day, week) for turn in (math.cos, math.sin)]
        return [number / 1.5 for number in (*circles, weekend)]


@dataclass(frozen=True)
class Vector(Encoder):
    """A list or array of numbers, such as an embedding, read as float32; zeros for None.

    Args:
        size: number of values in the vector.
        norm: typical Euclidean norm, by which vectors are divided; longer vectors are shortened to
            twice this norm. None means that each vector is divided by its own norm, so that only
            its direction matters.

    >>> Vector(2).encode([3.0, 4.0]), Vector(2, norm=10.0).encode([3.0, 4.0])
    ([0.6, 0.8], [0.3, 0.4])
    """

    size: int
    _: KW_ONLY
    norm: float | None = None

    def __post_init__(self) -> None:
        _set(self, "size", as_dim(self.size, "size"))
        if self.norm is not None:
            _set(self, "norm", as_positive(self.norm, "norm"))

    @property
    def labels(self) -> list[str]:
        """Suffix of each column's name."""
        return [f"[{n}]" for n in range(self.size)]

    @property
    def description(self) -> tuple[Any, ...]:
        """The size and the norm."""
        return "Vector", self.size, self.norm

    def encode(self, value: Any, seen: Seen = _UNCOUNTED) -> list[float]:
        """Return the scaled numbers."""
        if is_missing(value):
            seen[MISSING] += 1
            return [0.0] * self.size
        array = flat_array(value)
        if array is None:
            message = f"must be a list of {self.size} numbers or None, got {shown(value)}"
            raise InvalidInput(message, value)
        if len(array) != self.size:
            message = f"must have {self.size} numbers, got {len(array)}: send {self.size} numbers,"
            raise InvalidInput(f"{message} or declare Vector({len(array)}) in the features", value)
        # Journals store float32, so rows that are encoded again from a journal are identical.
        with np.errstate(over="ignore"):
            numbers = array.astype(np.float32).astype(np.float64)
        bad = ~(np.abs(numbers) <= MAX_ENTRY)
        if bad.any():
            at = int(bad.argmax())
            message = f"must contain finite numbers of at most {MAX_ENTRY:g}, or be None;"
            raise InvalidInput(f"{message} got {numbers[at]} at index {at}", value)
        length = math.sqrt(numbers @ numbers)
        scale = length or 1.0
        if self.norm is not None:
            scale = max(self.norm, length / 2.0)
            if scale > self.norm:
                seen.note(CLIPPED, f"a vector of norm {length:.4g}")
        scaled: list[float] = (numbers / scale).tolist()
        return scaled


@dataclass(frozen=True)
class Text(Encoder):
    """Text as a bag of words, hashed into a fixed number of columns.

    A word is a run of letters and digits; case is ignored. The encoded vector has norm 1, or is
    zero if the text has no words or is missing (None).

    Args:
        hash: number of columns. Words that share a column cannot be distinguished.

    >>> Text(hash=8).encode("red shoes") == Text(hash=8).encode("Shoes, RED!")
    True
    """

    _: KW_ONLY
    hash: int = 64

    def __post_init__(self) -> None:
        _set(self, "hash", as_dim(self.hash, "hash"))

    @property
    def labels(self) -> list[str]:
        """Suffix of each column's name."""
        return [f" word {n}" for n in range(self.hash)]

    @property
    def description(self) -> tuple[Any, ...]:
        """The number of columns."""
        return "Text", self.hash

    def encode(self, value: Any, seen: Seen = _UNCOUNTED) -> list[float]:
        """Return the word counts, with signs taken from the words' hashes, scaled to norm 1."""
        counts = [0.0] * self.hash
        if is_missing(value):
            seen[MISSING] += 1
            return counts
        for word in _WORD.findall(_bounded_text(value).casefold()):
            hashed = _hashed(word, b"belated.text")
            counts[(hashed >> 1) % self.hash] += -1.0 if hashed & 1 else 1.0
        length = math.hypot(*counts) or 1.0
        return [count / length for count in counts]


@dataclass(frozen=True)
class Category(Encoder):
    """One-hot encoding: a column for each listed value, and by default one for all other values.

    Values are compared as text, so 17 and "17" are the same. A missing value (None or NaN) is zero
    in all columns.

    Args:
        values: the values that get their own column.
        others: number of columns that all other values share; a hash of the value selects one.

    >>> Category(["AT", "DE"]).encode("DE"), Category(["AT", "DE"]).encode("FR")
    ([0.0, 1.0, 0.0], [0.0, 0.0, 1.0])
    """

    values: Sequence[str | int]
    _: KW_ONLY
    others: int = 1

    _places: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.values, str | bytes) or not isinstance(self.values, Sequence):
            message = f"Category({self.values!r}): pass a list of values"
            raise InvalidInput(f"{message}, as in Category(['AT', 'DE'])", self.values)
        if type(self.others) is not int or self.others < 1:
            raise must_be("others", "a positive integer", self.others)
        try:
            values = tuple(map(as_text, self.values))
        except InvalidInput as error:
            raise InvalidInput(f"a category {error}", error.value) from None
        if len(set(values)) != len(values):
            message = f"Category({self.values!r}) contains a value more than once"
            raise InvalidInput(f"{message}: remove duplicates", self.values)
        _set(self, "values", values)
        _set(self, "_places", {value: at for at, value in enumerate(values)})

    @property
    def labels(self) -> list[str]:
        """Suffix of each column's name."""
        other_labels = (
            ["=other"] if self.others == 1 else [f"=other {n}" for n in range(self.others)]
        )
        return [f"={value}" for value in self.values] + other_labels

    @property
    def description(self) -> tuple[Any, ...]:
        """The values in order, and the number of columns for other values."""
        return "Category", self.values, self.others

    def encode(self, value: Any, seen: Seen = _UNCOUNTED) -> list[float]:
        """Return a list of zeros with at most one 1."""
        numbers = [0.0] * (len(self.values) + self.others)
        place = self._place(value, seen)
        if place >= 0:
            numbers[place] = 1.0
        return numbers

    def encode_all(self, values: Sequence[Any], seen: Seen) -> NDArray[np.float64]:
        """Return one row for each value: zeros with at most one 1."""
        lookup = self._places
        indices = [
            lookup[value] if type(value) is str and value in lookup else self._place(value, seen)
            for value in values
        ]
        places = np.array(indices, dtype=np.intp)
        numbers = np.zeros((len(values), len(self.values) + self.others))
        present = np.flatnonzero(places >= 0)
        numbers[present, places[present]] = 1.0
        return numbers

    def _place(self, value: Any, seen: Seen) -> int:
        """Return the index of a value's column; -1 if the value is missing."""
        if is_missing(value):
            seen[MISSING] += 1
            return -1
        text = _bounded_text(value)
        at = self._places.get(text)
        if at is None:
            seen.note(UNKNOWN, text)
            hashed = 0 if self.others == 1 else _hashed(text, b"belated.category")
            at = len(self.values) + hashed % self.others
        return at


@dataclass(frozen=True)
class Flag(Encoder):
    """True or False, as ½ or -½. A missing value (None or NaN) becomes 0.

    The difference between True and False is 1, the magnitude of a category's value.

    >>> Flag().encode(True), Flag().encode(False), Flag().encode(None)
    ([0.5], [-0.5], [0.0])
    """

    @property
    def description(self) -> tuple[Any, ...]:
        """The kind of encoder, which has no settings."""
        return ("Flag",)

    def encode(self, value: Any, seen: Seen = _UNCOUNTED) -> list[float]:
        """Return ½, -½ or 0."""
        if is_missing(value):
            seen[MISSING] += 1
            return [0.0]
        if isinstance(value, bool | np.bool_ | int | float | np.number) and value in (0, 1):
            return [0.5 if value else -0.5]
        raise InvalidInput(f"must be True, False or None, got {shown(value)}", value)

    def encode_all(self, values: Sequence[Any], seen: Seen) -> NDArray[np.float64]:
        """Return ½, -½ or 0 for each of several values."""
        numbers = [
            value - 0.5 if type(value) is bool else self.encode(value, seen)[0] for value in values
        ]
        return np.array(numbers, dtype=np.float64)[:, None]


def as_text(value: Any) -> str:
    """Return ``value`` as text; raise unless it is text, a boolean or a whole number."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool | np.bool_ | int | np.integer):
        return str(value)
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))  # pandas converts integer columns with missing values to float
    raise InvalidInput(f"must be text, a whole number or None, got {shown(value)}", value)


def _bounded_text(value: Any) -> str:
    text = value if type(value) is str else as_text(value)
    if len(text) > MAX_TEXT:
        message = f"must have at most {MAX_TEXT:,} characters, got {len(text):,}"
        raise InvalidInput(message, text[:100])
    return text


def _hashed(text: str, person: bytes) -> int:
    """Return a 64-bit hash of a string that is the same in every process."""
    data = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8, person=person).digest(), "little")


_set = object.__setattr__


@dataclass(frozen=True)
class RandomFeatures:
    """Fields with random Fourier features, which let a linear model learn curves.

    For the encoded fields z, the columns cos(wᵀz) and sin(wᵀz) are added for random vectors w
    (Rahimi and Recht 2007). The vectors are drawn from a digest of the seed and the column names,
    so they are the same in every process. Use random features if the reward is far from linear in
    the fields; otherwise, the additional coefficients only slow down learning.

    Args:
        fields: an encoder for each field.
        size: number of columns to add; must be even.
        scale: distance below which two contexts are similar; a typical context has norm 1. A
            smaller scale fits finer shapes, but needs more rewards.
        seed: seed of the random vectors.

    >>> from belated import PerArm
    >>> fields = RandomFeatures({"age": Number(18, 90), "member": Flag()}, size=4)
    >>> PerArm(["mail", "call"], context=fields).block
    7
    """

    fields: Mapping[str, Encoder]
    _: KW_ONLY
    size: int = 128
    scale: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.fields, Mapping) or not self.fields:
            message = f"RandomFeatures({shown(self.fields)}): pass a mapping of fields to encoders"
            raise InvalidInput(
                f"{message}, as in RandomFeatures({{'age': Number(18, 90)}})", self.fields
            )
        if as_dim(self.size, "size") % 2:
            raise must_be("size", "an even number", self.size)
        if type(self.seed) is not int:
            raise must_be("seed", "an integer", self.seed)
        _set(self, "size", int(self.size))
        _set(self, "scale", as_positive(self.scale, "scale"))


#: A caller's specification of fields: encoders by name, names, or the number of fields.
Fields = Mapping[str, Encoder] | RandomFeatures | Sequence[str] | int


class EncodedColumns:
    """Columns of encoded fields, scaled to a norm of about 1 including the intercept ``unit``.

    Each of m fields has a typical norm of 1, and so has the intercept; all are divided by √(m + 1).
    Rows then have the norm that the policies' prior assumes, regardless of the number of fields.

    Args:
        spec: encoders, by the name of the field.
        what: what the columns describe, "context" or "action".
    """

    def __init__(self, spec: Mapping[Any, Any], what: str) -> None:
        for name, encoder in spec.items():
            if not isinstance(name, str) or not name:
                raise InvalidInput(f"field names of `{what}` must be text, got {name!r}", name)
            if not isinstance(encoder, Encoder):
                kinds = "Number(low, high), Category([...]), Flag(), Datetime(zone), Vector(size)"
                message = f"{name!r} of {what} must be {kinds} or Text(), got {shown(encoder)}"
                raise InvalidInput(message, encoder)
        self._what = what
        self._fields: dict[str, Encoder] = {
            str.__str__(name): encoder for name, encoder in spec.items()
        }
        self.spec: Mapping[str, Encoder] | RandomFeatures = self._fields
        self.names = [
            name + label for name, encoder in self._fields.items() for label in encoder.labels
        ]
        self.labels = [f"{what} {name}" for name in self.names]
        self.width = len(self.names)
        self.unit = 1.0 / math.sqrt(1 + len(self._fields))
        # Create all keys now, because other threads read the counts concurrently.
        zeros = dict.fromkeys((MISSING, UNKNOWN, CLIPPED, REFUSED), 0)
        self._seen = {name: Seen(zeros) for name in self._fields}
        self._encoded = 0
        self._encoders = [
            (name, encoder.encode, self._seen[name]) for name, encoder in self._fields.items()
        ]

    @property
    def description(self) -> tuple[Any, ...]:
        """All settings that affect the numbers, in order, for comparisons and fingerprints."""
        return tuple((name, *encoder.description) for name, encoder in self._fields.items())

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """Number of encoded values of each field, by outcome."""
        encoded, seen = self._encoded, self._seen
        return {name: {"ok": encoded - seen[name].total(), **seen[name]} for name in seen}

    @property
    def noticed(self) -> Noticed:
        """Unknown and clipped values, by kind and field."""
        return {
            (kind, name): (seen[kind], *last)
            for name, seen in self._seen.items()
            for kind, last in list(seen.last.items())
        }

    def numbers(self, record: Any, who: str) -> NDArray[Any]:
        """Return the encoded values of one record."""
        fields = {} if record is None else record
        if not isinstance(fields, MAPPINGS):
            message = f"{who} must be a mapping with the fields {', '.join(self._fields)},"
            raise InvalidInput(f"{message} got {shown(fields)}{as_plain(fields, who)}", fields)
        self._encoded += 1
        numbers: list[float] = []
        for name, encode, seen in self._encoders:
            if name not in fields:
                seen[REFUSED] += 1
                message = missing(name, who, fields, self._fields)
                raise InvalidInput(f"{message}; send null (None in Python) if unknown", name)
            try:
                numbers += encode(fields[name], seen)
            except InvalidInput as error:
                seen[REFUSED] += 1
                advice = hint(self._what, name, fields[name], type(self._fields[name]).__name__)
                raise InvalidInput(f"{name!r} of {who} {error}{advice}", error.value) from None
        return np.array(numbers) * self.unit

    def table(self, ids: Sequence[int | str], records: Sequence[Any]) -> NDArray[Any]:
        """Return the encoded values of several actions' records, one row per record."""
        if set(map(type, records)) == {dict}:
            # On failure, the records are encoded one at a time below, to name the invalid one.
            with suppress(KeyError, InvalidInput, OverflowError):
                return self._by_field(records)
        pairs = zip(ids, records, strict=True)
        return np.array([self.numbers(record, f"action {id!r}") for id, record in pairs])

    def _by_field(self, records: Sequence[dict[str, Any]]) -> NDArray[Any]:
        """Encode records field by field; if a value is invalid, nothing is counted."""
        counts = [Seen() for _ in self._fields]
        tables = [
            encoder.encode_all([record[name] for record in records], seen)
            for (name, encoder), seen in zip(self._fields.items(), counts, strict=True)
        ]
        self._encoded += len(records)
        for seen, new in zip(self._seen.values(), counts, strict=True):
            seen.add(new)
        return np.concatenate(tables, axis=1) * self.unit

    def check(self, numbers: NDArray[Any], who: str) -> None:
        """Do nothing: encoded numbers are never too large."""


class RandomColumns(EncodedColumns):
    """Encoded columns followed by random Fourier features; see :class:`RandomFeatures`."""

    def __init__(self, spec: RandomFeatures, what: str) -> None:
        super().__init__(spec.fields, what)
        half = spec.size // 2
        self.spec = spec
        self._vectors = np.array([_normals(f"{spec.seed} {name}", half) for name in self.names])
        self._vectors /= spec.scale
        # The fields and the random features each have a norm of 1.
        self.unit /= math.sqrt(2.0)
        waves = [f"{wave} {n}" for wave in ("cos", "sin") for n in range(half)]
        self.names = self.names + waves
        self.labels += [f"{what} {wave}" for wave in waves]
        self.width += spec.size
        self._drawn_by = "RandomFeatures", spec.size, spec.scale, spec.seed

    @property
    def description(self) -> tuple[Any, ...]:
        """All settings that affect the fields and the random features."""
        return (*super().description, self._drawn_by)

    def numbers(self, record: Any, who: str) -> NDArray[Any]:
        """Return the encoded values of one record."""
        return self._with_waves(super().numbers(record, who))

    def _by_field(self, records: Sequence[dict[str, Any]]) -> NDArray[Any]:
        return np.array([*map(self._with_waves, super()._by_field(records))])

    def _with_waves(self, fields: NDArray[Any]) -> NDArray[Any]:
        angles = fields * math.sqrt(2.0) @ self._vectors
        waves = np.concatenate([np.cos(angles), np.sin(angles)]) / math.sqrt(2.0 * len(angles))
        return np.concatenate([fields, waves])


def _normals(key: str, count: int) -> list[float]:
    """Draw normal deviates from a key; the result does not depend on the version of NumPy."""
    stream = hashlib.shake_256(f"belated.waves {key}".encode("utf-8", "surrogatepass"))
    bits = np.frombuffer(stream.digest(8 * count), dtype="<u8") >> np.uint64(12)
    return [NormalDist().inv_cdf((n + 0.5) * 2.0**-52) for n in bits.tolist()]


def columns_of(spec: Fields, what: str) -> Columns | EncodedColumns:
    """Return the columns for a caller's specification of fields."""
    if isinstance(spec, RandomFeatures):
        return RandomColumns(spec, what)
    if isinstance(spec, Mapping):
        return EncodedColumns(spec, what)
    return Columns(spec, what)
