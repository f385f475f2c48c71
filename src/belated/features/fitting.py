"""Choose encoders for the fields of a record from a sample of records."""

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

#: Maximum number of values of a categorical field that get their own column; number of columns that
#: the remaining values share.
LIMIT, SHARED = 20, 8
#: Quantiles of the sample that define the range of a number, chosen to ignore outliers.
QUANTILES = 0.01, 0.99


def fitted(fields: Fields, sample: Any, what: str, limit: int = LIMIT) -> Fields:
    """Return an encoder for each field; fields that already have encoders are unchanged.

    Args:
        fields: the names of the fields.
        sample: a list of mappings, or a pandas or polars data frame.
        what: what the fields describe, "context" or "action".
        limit: maximum number of values of a categorical field that get their own column.
    """
    if isinstance(fields, Mapping | RandomFeatures) or fields in ((), 0):
        return fields
    if isinstance(fields, int):
        message = f"`{what}` is {fields}, but `fit` needs the names of the fields"
        raise InvalidInput(f"{message}: pass them, as in {what}=['age', 'country']", fields)
    records: Any = frame_records(sample) if is_frame(sample) else sample
    if not isinstance(records, list) or not all(isinstance(item, Mapping) for item in records):
        needed = "a list of mappings, or a pandas or polars data frame"
        message = f"the sample for {what} must be {needed}, got {shown(sample)}"
        raise InvalidInput(message, sample)
    return {name: _fit_one(name, records, what, limit) for name in fields}


def _fit_one(name: str, records: list[Mapping[str, Any]], what: str, limit: int) -> Encoder:
    values: list[Any] = [value for record in records if not is_missing(value := record.get(name))]
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
        raise InvalidInput(f"{name!r} in the sample {error}", error.value) from None
    common = sorted(counts, key=lambda value: (-counts[value], value))[:limit]
    return Category(sorted(common), others=1 if len(counts) <= limit else SHARED)


def _checked(encoder: Encoder, values: list[Any]) -> Encoder:
    for value in values:
        encoder.encode(value)
    return encoder


def number_between(values: np.typing.NDArray[np.float64]) -> Number:
    """Return a Number for the range of a sample, with ends rounded to a hundredth of the range.

    >>> number_between(np.arange(1001.0))
    Number(low=10.0, high=990.0)
    """
    low, high = np.quantile(values, QUANTILES).tolist()
    if low == high:  # nearly all values are the same
        low, high = float(values.min()), float(values.max())
    if low == high:
        low, high = low - 1.0, high + 1.0
    digits = 2 - math.floor(math.log10(high - low))
    return Number(round(low, digits), round(high, digits))
