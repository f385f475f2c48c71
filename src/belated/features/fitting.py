"""How the fields of a record are encoded, by a sample of records."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np

from belated.exceptions import InvalidInput
from belated.features.encoders import (
    Category,
    Datetime,
    Encoder,
    Fields,
    Flag,
    Number,
    RandomFeatures,
    Vector,
    as_text,
)
from belated.features.records import frame_records, is_frame, is_missing, shown

#: Values of a category that have a column of their own, and columns that further ones share.
LIMIT, SHARED = 20, 8
#: The quantiles of a sample between which a number is scaled: a few outliers change nothing.
QUANTILES = 0.01, 0.99


def fitted(fields: Fields, sample: Any, what: str, limit: int = LIMIT) -> Fields:
    """Return how each field is encoded; fields of which that is known stay as they are.

    Args:
        fields: their names.
        sample: a list of mappings, or a frame of pandas or polars.
        what: whose fields they are, "context" or "action".
        limit: values of a category that have a column of their own.
    """
    if isinstance(fields, Mapping | RandomFeatures) or fields in ((), 0):
        return fields
    if isinstance(fields, int):
        message = f"{what} is {fields}: to fit, the names of the fields are needed"
        raise InvalidInput(f"{message}, as in {what}=['age', 'country']", fields)
    records: Any = frame_records(sample) if is_frame(sample) else sample
    if not isinstance(records, list) or not all(isinstance(one, Mapping) for one in records):
        expected = "a list of mappings, or a frame of pandas or polars, was expected"
        raise InvalidInput(f"the sample for {what} is {shown(sample)}: {expected}", sample)
    return {name: _fit_one(name, records, what, limit) for name in fields}


def _fit_one(name: str, records: list[Mapping[str, Any]], what: str, limit: int) -> Encoder:
    values: list[Any] = [value for one in records if not is_missing(value := one.get(name))]
    if not values:
        message = f"the sample has no value for {name!r} of the {what}"
        raise InvalidInput(f"{message}: write {what}={{{name!r}: Number(low, high), ...}}", name)
    if all(isinstance(value, bool | np.bool_) for value in values):
        return Flag()
    if all(isinstance(value, int | float | np.number) for value in values):
        return number_between(np.array(values, dtype=np.float64))
    try:
        if all(isinstance(value, datetime) for value in values):
            return _checked(Datetime(), values)
        if all(isinstance(value, list | tuple | np.ndarray) for value in values):
            return _checked(Vector(len(values[0])), values)
        counts = Counter(map(as_text, values))
    except InvalidInput as error:
        raise InvalidInput(f"{name!r} in the sample is {error}", error.value) from None
    common = sorted(counts, key=lambda value: (-counts[value], value))[:limit]
    return Category(sorted(common), others=1 if len(counts) <= limit else SHARED)


def _checked(encoder: Encoder, values: list[Any]) -> Encoder:
    for value in values:
        encoder.encode(value)
    return encoder


def number_between(values: np.typing.NDArray[np.float64]) -> Number:
    """Return the range of a number, by values that occur: rounded to a hundredth of it.

    >>> number_between(np.arange(1001.0))
    Number(low=10.0, high=990.0)
    """
    low, high = np.quantile(values, QUANTILES).tolist()
    if low == high:  # nearly all are the same
        low, high = float(values.min()), float(values.max())
    if low == high:
        low, high = low - 1.0, high + 1.0
    digits = 2 - math.floor(math.log10(high - low))
    return Number(round(low, digits), round(high, digits))
