"""How one field of a record becomes numbers of about the same size: scaled, or one-hot."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import as_float
from belated.exceptions import InvalidInput
from belated.features.columns import Columns
from belated.features.records import MAX_TEXT, is_missing, shown


class Encoder:
    """How one field becomes numbers, typically of length 1: see the three below."""

    @property
    def labels(self) -> list[str]:
        """What follows the name of the field in the names of its columns: one for each."""
        return [""]

    @property
    def description(self) -> tuple[Any, ...]:
        """All that the numbers depend on."""
        raise NotImplementedError

    def encode(self, value: Any) -> list[float]:
        """Return the numbers of a value; zeros if it is missing."""
        raise NotImplementedError


@dataclass(frozen=True)
class Number(Encoder):
    """A number, scaled from its range to -2 … 2; beyond the range it counts as the nearer end.

    So a typical number has the size 1, if its range is about four standard deviations wide. A
    missing value (None or NaN) counts as the middle, 0.

    Args:
        low: a value below which few are.
        high: a value above which few are.

    >>> Number(18, 90).encode(54), Number(18, 90).encode(120), Number(18, 90).encode(None)
    ([0.0], [2.0], [0.0])
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        low, high = as_float(self.low), as_float(self.high)
        if not (low < high and math.isfinite(high - low)):
            message = f"Number({self.low!r}, {self.high!r}): two numbers, the lower first"
            raise InvalidInput(f"{message}, were expected", (self.low, self.high))
        _set(self, "low", low)
        _set(self, "high", high)

    @property
    def description(self) -> tuple[Any, ...]:
        """The range."""
        return "Number", self.low, self.high

    def encode(self, value: Any) -> list[float]:
        """Return the scaled number."""
        if is_missing(value):
            return [0.0]
        number = as_float(value)
        if number != number:
            raise InvalidInput(f"{shown(value)}: a number was expected, or None", value)
        scaled = 2.0 * (2.0 * number - self.low - self.high) / (self.high - self.low)
        return [max(-2.0, min(scaled, 2.0))]


@dataclass(frozen=True)
class Category(Encoder):
    """One of several values, one-hot: a column for each that is listed, and one for all others.

    Values are compared as text, so 17 and "17" are the same. A missing value (None or NaN) has a 1
    in no column.

    Args:
        values: those with a column of their own.
        others: columns that all other values share; which of them is drawn by a hash of the value.

    >>> Category(["AT", "DE"]).encode("DE"), Category(["AT", "DE"]).encode("FR")
    ([0.0, 1.0, 0.0], [0.0, 0.0, 1.0])
    """

    values: Sequence[str | int]
    _: KW_ONLY
    others: int = 1

    _places: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.values, str | bytes) or not isinstance(self.values, Sequence):
            message = f"Category({self.values!r}): a list of values was expected"
            raise InvalidInput(f"{message}, as in Category(['AT', 'DE'])", self.values)
        if type(self.others) is not int or self.others < 1:
            message = f"others is {self.others!r}: a whole number of at least 1 was expected"
            raise InvalidInput(message, self.others)
        values = tuple(map(as_text, self.values))
        if len(set(values)) != len(values):
            raise InvalidInput(f"Category({self.values!r}) names a value twice", self.values)
        _set(self, "values", values)
        _set(self, "_places", {value: at for at, value in enumerate(values)})

    @property
    def labels(self) -> list[str]:
        """What follows the name of the field in the names of its columns."""
        others = ["=other"] if self.others == 1 else [f"=other {n}" for n in range(self.others)]
        return [f"={value}" for value in self.values] + others

    @property
    def description(self) -> tuple[Any, ...]:
        """The values, in their order, and the columns of the others."""
        return "Category", self.values, self.others

    def encode(self, value: Any) -> list[float]:
        """Return zeros, and at most one 1."""
        found = [0.0] * (len(self.values) + self.others)
        if not is_missing(value):
            text = value if type(value) is str else as_text(value)
            if len(text) > MAX_TEXT:
                message = f"a text of {len(text):,} characters: at most {MAX_TEXT:,} are allowed"
                raise InvalidInput(message, text[:100])
            at = self._places.get(text)
            found[len(self.values) + self._drawn(text) if at is None else at] = 1.0
        return found

    def _drawn(self, text: str) -> int:
        if self.others == 1:
            return 0
        digest = hashlib.blake2b(
            text.encode("utf-8", "surrogatepass"), digest_size=8, person=b"belated.category"
        ).digest()
        return int.from_bytes(digest, "little") % self.others


@dataclass(frozen=True)
class Flag(Encoder):
    """True or False, as ½ or -½. A missing value (None or NaN) counts as 0.

    The two are 1 apart, as a category's values are.

    >>> Flag().encode(True), Flag().encode(False), Flag().encode(None)
    ([0.5], [-0.5], [0.0])
    """

    @property
    def description(self) -> tuple[Any, ...]:
        """Nothing but the kind."""
        return ("Flag",)

    def encode(self, value: Any) -> list[float]:
        """Return ½, -½ or 0."""
        if is_missing(value):
            return [0.0]
        if isinstance(value, bool | np.bool_ | int | float | np.number) and value in (0, 1):
            return [0.5 if value else -0.5]
        raise InvalidInput(f"{shown(value)}: True or False was expected, or None", value)


def as_text(value: Any) -> str:
    """A value of a category: what is not text is written as Python writes it."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool | np.bool_ | int | np.integer):
        return str(value)
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))  # a column of whole numbers with gaps has become one of floats
    raise InvalidInput(f"{shown(value)}: text or a whole number was expected, or None", value)


_set = object.__setattr__


#: What a caller says of the fields that are read: how each is encoded, their names, or how many.
Fields = Mapping[str, Encoder] | Sequence[str] | int


class EncodedColumns:
    """The numbers of the fields of a record, which together with ``unit`` have a length of about 1.

    Each of m fields has a typical length of 1, and so has an intercept; all are divided by
    √(m + 1). So rows have the length for which the policies' prior is made, however many fields
    there are.

    Args:
        spec: how each field is encoded, by its name.
        what: whose fields they are, "context" or "action".
    """

    def __init__(self, spec: Mapping[Any, Any], what: str) -> None:
        for name, encoder in spec.items():
            if not isinstance(name, str) or not name:
                raise InvalidInput(f"{what} has the name {name!r}: text was expected", name)
            if not isinstance(encoder, Encoder):
                message = f"{name!r} of {what} is {shown(encoder)}: Number(low, high)"
                raise InvalidInput(f"{message}, Category([...]) or Flag() was expected", encoder)
        self.spec: dict[str, Encoder] = {str.__str__(name): one for name, one in spec.items()}
        self.names = [name + label for name, one in self.spec.items() for label in one.labels]
        self.labels = [f"{what} {name}" for name in self.names]
        self.width = len(self.names)
        self.unit = 1.0 / math.sqrt(1 + len(self.spec))
        self._encoders = [(name, one.encode) for name, one in self.spec.items()]

    @property
    def description(self) -> tuple[Any, ...]:
        """All that the numbers depend on, in their order: for comparisons and fingerprints."""
        return tuple((name, *encoder.description) for name, encoder in self.spec.items())

    def numbers(self, record: Any, who: str) -> NDArray[Any]:
        """Return the numbers of one record."""
        given = {} if record is None else record
        if not isinstance(given, Mapping):
            expected = f"a mapping with the names {', '.join(self.spec)} was expected"
            raise InvalidInput(f"{who} is {shown(given)}: {expected}", given)
        found: list[float] = []
        for name, encode in self._encoders:
            if name not in given:
                message = f"{name!r} of {who} is missing: send None if it is not known"
                raise InvalidInput(message, name)
            try:
                found += encode(given[name])
            except InvalidInput as error:
                raise InvalidInput(f"{name!r} of {who} is {error}", error.value) from None
        return np.array(found) * self.unit

    def table(self, ids: Sequence[int | str], records: Sequence[Any]) -> NDArray[Any]:
        """Return the numbers of several actions' records, one below the other."""
        pairs = zip(ids, records, strict=True)
        return np.array([self.numbers(record, f"action {id!r}") for id, record in pairs])

    def check(self, numbers: NDArray[Any], who: str) -> None:
        """Encoded numbers are never too large."""


def columns_of(spec: Fields, what: str) -> Columns | EncodedColumns:
    """Return what reads the numbers of a record, by what a caller says of its fields."""
    if isinstance(spec, Mapping):
        return EncodedColumns(spec, what)
    return Columns(spec, what)
