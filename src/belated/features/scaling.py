"""Advice on scaling rows whose norm is far from 1."""

from __future__ import annotations

from typing import Any

import numpy as np

from belated.core.inputs import Row
from belated.features.columns import Columns
from belated.features.fitting import number_between
from belated.features.per_arm import PerArm
from belated.features.shared import Shared

#: Maximum number of fields that the advice names.
SHOWN = 8


def scaling_advice(rows: Row, features: Any = None) -> str:
    """Return advice on how to scale rows to a norm of about 1, from observed rows.

    Args:
        rows: a sample of chosen rows.
        features: the features that encoded the rows, if any.

    >>> features = PerArm(["mail", "call"], context=["age", "income"])
    >>> contexts = [{"age": 20, "income": 9_000.0}, {"age": 70, "income": 90_000.0}]
    >>> rows = np.concatenate([features.rows(context, ["mail"]) for context in contexts])
    >>> print(scaling_advice(rows, features))  # doctest: +NORMALIZE_WHITESPACE
    use PerArm(..., context={'age': Number(20.5, 69.5), 'income': Number(9800.0, 89200.0)}), or
    features.fit(sample), with a new journal
    >>> scaling_advice(rows[:, 1:])
    'divide your rows by about 64,000'
    """
    scaled: dict[str, str] = {}
    if isinstance(features, PerArm):
        rows = rows[:, 1:]  # the first column is the number of the block
        if _has_names(features._columns):
            scaled["context"] = _written(features._columns, rows[:, features.intercept :])
    elif isinstance(features, Shared):
        start = int(features.intercept)
        for part, columns in (("context", features._context), ("action", features._action)):
            if _has_names(columns):
                scaled[part] = _written(columns, rows[:, start : start + columns.width])
            start += columns.width
    if scaled:
        arguments = ", ".join(f"{part}={fields}" for part, fields in scaled.items())
        name = type(features).__name__
        return f"use {name}(..., {arguments}), or features.fit(sample), with a new journal"
    length = float(np.sqrt(np.square(rows.astype(np.float64)).sum(axis=1).mean()))
    return f"divide your rows by about {float(f'{length:.2g}'):,.6g}"


def _has_names(columns: Any) -> bool:
    return isinstance(columns, Columns) and bool(columns.names)


def _written(columns: Any, numbers: Row) -> str:
    fields = []
    for name, values in zip(columns.names[:SHOWN], numbers.T, strict=False):
        number = number_between(values.astype(np.float64))
        fields.append(f"{name!r}: Number({number.low!r}, {number.high!r})")
    return "{" + ", ".join(fields) + (", ..." if len(columns.names) > SHOWN else "") + "}"
