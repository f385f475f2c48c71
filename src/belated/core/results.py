"""Results that can be passed on: to JSON, to a web framework, to a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from html import escape
from typing import Any

import numpy as np

from belated.exceptions import extra


class Result:
    """What a call returns, as plain data.

    ``to_dict()`` holds text, numbers, lists and dicts only: ``json.dumps`` and msgspec take it as
    it is. ``dict(result)`` is the same. Pydantic takes a result as a field, FastAPI as a response.
    """

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data: its fields, for a dataclass."""
        names: dict[str, Any] = getattr(type(self), "__dataclass_fields__", {})
        return {name: _plain(getattr(self, name)) for name in names}

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Names and values, as in a model of pydantic."""
        return iter(self.to_dict().items())

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """An instance passes; it is written as ``to_dict()`` says."""
        from pydantic_core import core_schema  # whoever calls this has it

        return core_schema.is_instance_schema(
            cls,
            serialization=core_schema.plain_serializer_function_ser_schema(
                cls.to_dict, return_schema=core_schema.dict_schema()
            ),
        )


def _plain(value: Any) -> Any:
    """Return a value as text, numbers, lists and dicts; time spans are in seconds."""
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
    """Return a DataFrame of pandas, which is needed for nothing else.

    Raises:
        MissingExtra: pandas is not installed.
    """
    with extra("a data frame", "experiments"):
        import pandas as pd
    return pd.DataFrame(lines).set_index(index)


def html_table(title: str, head: list[str], rows: list[list[object]]) -> str:
    """A small table for a notebook; numbers with four digits.

    >>> html_table("Scores", ["action", "mean"], [["blue", 0.123456]])
    '<b>Scores</b><table><tr><th>action</th><th>mean</th></tr><tr><td>blue</td>\
<td>0.1235</td></tr></table>'
    """
    lines = [f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in head)}</tr>"]
    for row in rows:
        cells = (f"{one:.4g}" if isinstance(one, float) else str(one) for one in row)
        lines.append(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>")
    return f"<b>{escape(title)}</b><table>{''.join(lines)}</table>"
