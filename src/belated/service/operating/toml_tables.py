"""Tables of a TOML file: each key is asked for, and whatever was not is a mistake."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar, overload

from belated.exceptions import InvalidConfig, InvalidInput

T = TypeVar("T")
D = TypeVar("D")

_NEEDED: Any = object()
_HEADER = re.compile(r"\s*\[([^\[\]]+)\]\s*(#.*)?")
_KEY = re.compile(r"""\s*(?:([A-Za-z0-9_-]+)|"([^"]*)"|'([^']*)')\s*=""")


class ConfigErrors:
    """What is wrong with a file, in the order in which it was found.

    Args:
        file: its name.
        text: what it holds, to find the lines of keys.
    """

    def __init__(self, file: str, text: str) -> None:
        self._file = file
        self._lines = _lines(text)
        self.found: list[str] = []

    def add(self, path: tuple[str, ...], why: str) -> None:
        """Note a mistake at a key, or at a table."""
        line = self._lines.get(path) or self._lines.get(path[:-1])
        where = f"{self._file}, line {line}" if line else self._file
        self.found.append(": ".join([where, *filter(None, [".".join(path)]), why]))

    def check(self) -> None:
        """Raise if there was any."""
        if self.found:
            raise InvalidConfig(self.found)


class TomlTable:
    r"""One table.

    Args:
        mistakes: where to note what is wrong.
        path: the names that lead to it.
        values: what it holds.

    >>> mistakes = ConfigErrors("shop.toml", "[till]\ncoins = 3\n")
    >>> table = TomlTable(mistakes, ("till",), {"coins": 3})
    >>> table.take("coin", str, "")
    ''
    >>> table.finish()
    >>> mistakes.found
    ['shop.toml, line 2: till.coins: there is no such key, but coin']
    """

    def __init__(self, mistakes: ConfigErrors, path: tuple[str, ...], values: Any) -> None:
        self._mistakes = mistakes
        self._path = path
        self._asked: list[str] = []
        self._values: Mapping[str, Any] = values if isinstance(values, dict) else {}
        if not isinstance(values, dict):
            name = ".".join(path)
            self.refuse(None, f"a table was expected, as in [{name}]")

    @property
    def names(self) -> list[str]:
        """Of all that is in it."""
        return list(self._values)

    @overload
    def take(self, key: str, read: Callable[[Any], T], *, example: str) -> T | None: ...
    @overload
    def take(self, key: str, read: Callable[[Any], T], default: D) -> T | D: ...
    def take(
        self, key: str, read: Callable[[Any], Any], default: Any = _NEEDED, *, example: str = ""
    ) -> Any:
        """The value of a key.

        Args:
            key: its name.
            read: gives the value, or raises InvalidInput.
            default: where it is not there, or not to be read; without it the key is needed.
            example: of a value, for a key that is needed.
        """
        self._asked.append(key)
        if key in self._values:
            found = self.checked(key, lambda: read(self._values[key]))
            return default if found is None and default is not _NEEDED else found
        if default is _NEEDED:
            self.refuse(key, f"it is missing: add {key} = {example} under [{'.'.join(self._path)}]")
            return None
        return default

    def table(self, key: str) -> TomlTable:
        """A table within; an empty one if it is not there."""
        self._asked.append(key)
        return TomlTable(self._mistakes, (*self._path, key), self._values.get(key, {}))

    def checked(self, key: str, made: Callable[[], T]) -> T | None:
        """What is made; None where that is refused."""
        try:
            return made()
        except InvalidInput as error:
            self.refuse(key, str(error))
            return None

    def refuse(self, key: str | None, why: str) -> None:
        """Note a mistake at a key, or at the table itself."""
        self._mistakes.add(self._path if key is None else (*self._path, key), why)

    def finish(self, hints: Mapping[str, str] = MappingProxyType({})) -> None:
        """Refuse what was not asked for.

        Args:
            hints: what to write instead of keys that were once known.
        """
        for key in self._values:
            if key not in self._asked:
                close = difflib.get_close_matches(key, self._asked, n=1)
                instead = f", but {close[0]}" if close else f": {', '.join(self._asked)} are known"
                if key in hints:
                    instead = f" any more: {hints[key]}"
                self.refuse(key, f"there is no such key{instead}")


def _lines(text: str) -> dict[tuple[str, ...], int]:
    """Where tables and keys stand, as most people write them; what is not found has no line."""
    table: tuple[str, ...] = ()
    found: dict[tuple[str, ...], int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.fullmatch(line):
            table = tuple(part.strip(" \t\"'") for part in header[1].split("."))
            found.setdefault(table, number)
        elif key := _KEY.match(line):
            name = next(group for group in key.groups() if group is not None)
            found.setdefault((*table, name), number)
    return found
