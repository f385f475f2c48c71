"""What the service says: one JSON object in a line."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

from belated.service.operating.logs import JsonLines


def line(**fields: object) -> dict[str, object]:
    """What is written of a record."""
    written = JsonLines().format(logging.makeLogRecord({"levelname": "INFO", **fields}))
    assert "\n" not in written
    read: dict[str, object] = json.loads(written)
    return read


def test_a_line_has_time_level_message_and_what_was_given() -> None:
    """In this order, so that people can read it too."""
    about = {"msg": "%s of %s", "args": ("one", "two"), "port": 80, "bandits": ["offers"]}
    found = line(created=1.7e9, process=7, **about)
    assert list(found.items()) == [
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
        found = line(msg="it failed", exc_info=(type(error), error, error.__traceback__))
    assert found["error"] == "ValueError: two\nlines"
    assert "test_service_logs.py" in str(found["traceback"])


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
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    beware, death = (json.loads(one) for one in ran.stderr.splitlines())
    assert beware["level"] == "warning"
    assert "beware" in beware["message"]
    assert (death["level"], death["thread_name"]) == ("error", "writer")
    assert death["error"] == "ZeroDivisionError: division by zero"
