"""Logging to stderr as JSON lines, with one object per message."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from datetime import UTC, datetime
from typing import Any

import msgspec

#: Standard attributes of log records in :mod:`logging`. All others were passed as ``extra``.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class JsonLines(logging.Formatter):
    """Formats the time, level and message of a log record, and the fields passed as ``extra``.

    >>> record = logging.makeLogRecord(
    ...     {"created": 1.7e9, "levelname": "INFO", "process": 7, "msg": "serving", "port": 8080}
    ... )
    >>> JsonLines().format(record)
    '{"time":"2023-11-14T22:13:20.000Z","level":"info","pid":7,"message":"serving","port":8080}'
    """

    def format(self, record: logging.LogRecord) -> str:
        """Format a log record as one line of JSON."""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": when.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "pid": record.process,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            line["error"] = f"{type(error).__name__}: {error}"
            line["traceback"] = "".join(traceback.format_exception(error))
        return msgspec.json.encode(line, enc_hook=str).decode()


def start_logging(level: str = "info") -> None:
    """Log messages, warnings and uncaught exceptions in threads to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    logging.captureWarnings(True)
    threading.excepthook = _log_death


def _log_death(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
        name = args.thread.name if args.thread else ""
        logging.getLogger("belated.service").error(
            "a thread ended with an exception", extra={"thread_name": name}, exc_info=args.exc_value
        )
