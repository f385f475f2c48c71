"""Everything that a service logs at the most verbose level."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from belated.service.operating.logs import JsonLines

# Not all loggers: the test's own client tells what it sends. That of psycopg has this level by
# itself, whatever is asked for.
_LEVELS = {
    "belated": logging.DEBUG,
    "asyncio": logging.DEBUG,
    "psycopg": logging.WARNING,
}


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonLines())
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@contextmanager
def listening() -> Iterator[list[str]]:
    """Yield the lines, which are added as they are logged."""
    handler = _Lines()
    levels = {name: logging.getLogger(name).level for name in _LEVELS}
    for name, level in _LEVELS.items():
        logging.getLogger(name).addHandler(handler)
        logging.getLogger(name).setLevel(level)
    try:
        yield handler.lines
    finally:
        for name, level in levels.items():
            logging.getLogger(name).removeHandler(handler)
            logging.getLogger(name).setLevel(level)
