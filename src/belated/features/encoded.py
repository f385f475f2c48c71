"""Fields that are encoded one by one: numbers, categories and flags."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from belated.exceptions import InvalidInput
from belated.features.columns import Columns
from belated.features.encoders import Encoder
from belated.features.records import shown

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
