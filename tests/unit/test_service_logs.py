"""What the service says: one JSON object in a line."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

from belated.service.operating.logs import JsonLines


def line(**fields: object) -> dict[str, object]:
    """What is written of a record."""
    text = JsonLines().format(logging.makeLogRecord({"levelname": "INFO", **fields}))
    assert "\n" not in text
    fields_read: dict[str, object] = json.loads(text)
    return fields_read


def test_a_line_has_time_level_message_and_what_was_given() -> None:
    """In this order, so that people can read it too."""
    attributes = {"msg": "%s of %s", "args": ("one", "two"), "port": 80, "bandits": ["offers"]}
    record = line(created=1.7e9, process=7, **attributes)
    assert list(record.items()) == [
        ("time", "2023-11-14T22:13:20.000Z"),
        ("level", "info"),
        ("pid", 7),
        ("message", "one of two"),
        ("port", 80),
        ("bandits", ["offers"]),
    ]


def test_an_error_comes_with_where_it_was_raised() -> None:
    """Within the one line."""
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        record = line(msg="it failed", exc_info=(type(error), error, error.__traceback__))
    assert record["error"] == "ValueError: two\nlines"
    assert "test_service_logs.py" in str(record["traceback"])


def test_whatever_is_given_can_be_written() -> None:
    """What JSON does not know is written as text."""
    assert line(msg="odd", what={1: object})["what"] == {"1": "<class 'object'>"}


def test_warnings_and_the_death_of_a_thread_are_lines_too() -> None:
    """Nothing is said in another form."""
    code = """
import threading, warnings
from belated.service.operating.logs import start_logging
start_logging("warning")
warnings.warn("beware")
thread = threading.Thread(target=lambda: 1 / 0, name="writer")
thread.start()
thread.join()
"""
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    warning, death = (json.loads(text) for text in process.stderr.splitlines())
    assert warning["level"] == "warning"
    assert "beware" in warning["message"]
    assert (death["level"], death["thread_name"]) == ("error", "writer")
    assert death["error"] == "ZeroDivisionError: division by zero"
