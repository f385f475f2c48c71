"""Base classes for results that work with JSON, web frameworks and notebooks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from html import escape
from reprlib import Repr
from typing import Any

import msgspec
import numpy as np

from belated.exceptions import extra

#: The maximum length of a ``repr``, in characters.
MAX_REPR = 300
#: Truncates field values.
_SHORT = Repr()
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = 4
_SHORT.maxstring, _SHORT.maxother = 60, 80


class Result:
    """The result of a call, which can be converted to plain data.

    ``to_dict()`` returns only text, numbers, lists and dicts, so ``json.dumps`` and msgspec can
    serialize the result. ``dict(result)`` returns the same. A result can be a field of a Pydantic
    model, and FastAPI can return it as a response.
    """

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data, keyed by field name."""
        if isinstance(self, msgspec.Struct):
            plain: dict[str, Any] = msgspec.to_builtins(self)
            return plain
        names: dict[str, Any] = getattr(type(self), "__dataclass_fields__", {})
        return {name: _plain(getattr(self, name)) for name in names}

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Iterate over field names and values, like a Pydantic model."""
        return iter(self.to_dict().items())

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Return a schema that accepts instances and serializes them with ``to_dict()``."""
        from pydantic_core import core_schema  # installed, because only Pydantic calls this

        return core_schema.is_instance_schema(
            cls,
            serialization=core_schema.plain_serializer_function_ser_schema(
                cls.to_dict, return_schema=core_schema.dict_schema()
            ),
        )


class Shortened:
    """A dataclass or struct whose ``repr`` truncates long fields and has a maximum length.

    >>> from dataclasses import dataclass
    >>> @dataclass(repr=False)
    ... class Series(Shortened):
    ...     name: str
    ...     values: Any
    >>> Series("clicks", list(range(1000)))
    Series(name='clicks', values=[0, 1, 2, 3, ...])
    >>> Series("clicks", np.zeros((1000, 3)))
    Series(name='clicks', values=<float64 array of 1000 x 3>)
    """

    __slots__ = ()

    def __repr__(self) -> str:
        fields: dict[str, Any] = getattr(type(self), "__dataclass_fields__", {})
        names = [name for name, field in fields.items() if field.repr]
        names = names or list(getattr(self, "__struct_fields__", ()))
        shown = ", ".join(f"{name}={_shown(getattr(self, name))}" for name in names)
        text = f"{type(self).__name__}({shown})"
        return text if len(text) <= MAX_REPR else f"{text[: MAX_REPR - 2]}…)"


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"<{value.dtype} array of {' x '.join(map(str, value.shape))}>"
    return _SHORT.repr(value)


def _plain(value: Any) -> Any:
    """Return a value as text, numbers, lists and dicts; durations become seconds."""
    match value:
        case Result():
            return value.to_dict()
        case datetime():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case tuple() if hasattr(value, "_asdict"):
            return value._asdict()
        case tuple() | list():
            return [_plain(item) for item in value]
        case np.ndarray():
            return value.tolist()
    return value


def frame_of(lines: list[dict[str, Any]], index: str) -> Any:
    """Return the rows as a pandas DataFrame with the given index column.

    Raises:
        MissingExtra: pandas is not installed.
    """
    with extra("a data frame", "experiments"):
        import pandas as pd
    return pd.DataFrame(lines).set_index(index)


def html_table(title: str, head: list[str], rows: list[list[object]]) -> str:
    """Return a small HTML table for a notebook; floats are rounded to four digits.

    >>> html_table("Scores", ["action", "mean"], [["blue", 0.123456]])
    '<b>Scores</b><table><tr><th>action</th><th>mean</th></tr><tr><td>blue</td>\
<td>0.1235</td></tr></table>'
    """
    lines = [f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in head)}</tr>"]
    for row in rows:
        cells = (f"{value:.4g}" if isinstance(value, float) else str(value) for value in row)
        lines.append(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>")
    return f"<b>{escape(title)}</b><table>{''.join(lines)}</table>"
