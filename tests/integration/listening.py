"""All that a service logs, as it would stand on stderr at its most talkative."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from belated.service.logs import JsonLines

# Not all loggers: the test's own client tells what it sends.
_LOGGERS = ("belated", "uvicorn", "asyncio", "psycopg")


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonLines())
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@contextmanager
def listening() -> Iterator[list[str]]:
    """Gives the lines, which come in as they are written."""
    handler = _Lines()
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
    try:
        yield handler.lines
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
            logger.setLevel(logging.NOTSET)
