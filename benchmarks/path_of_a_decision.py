"""The files that one decision passes through: embedded in a program, and over HTTP.

A profile hook notes the file of every function that is called, from the call of ``decide`` or the
first byte of the request to the answer. Threads that poll or learn are not part of it.

    python benchmarks/path_of_a_decision.py
"""

from __future__ import annotations

import json
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from datetime import timedelta
from http.client import HTTPConnection
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import belated
from belated import Bandit, Bernoulli, DefaultAfter, DelayedUCB
from belated.service import Definition, create_app
from belated.service.http.server import Server

ROOT = Path(belated.__file__).parent
ROWS = np.eye(3)
JSON = {"Content-Type": "application/json"}


Hook = Callable[[FrameType, str, Any], None]


def noting(files: set[str], wanted: Callable[[], bool] = lambda: True) -> Hook:
    """Return a profile hook that notes the files of the package whose functions are called."""

    def hook(frame: FrameType, event: str, argument: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and ROOT in path.parents and wanted():
            files.add(str(path.relative_to(ROOT)))

    return hook


def embedded() -> list[str]:
    """Of one decision in memory, without its opening."""
    bandit = Bandit(
        policy=DelayedUCB(3, Bernoulli()), rewards=DefaultAfter(timedelta(days=1)), seed=1
    )
    for _ in range(3):  # what is done only once is done
        bandit.decide(ROWS)
    files: set[str] = set()
    sys.setprofile(noting(files))
    bandit.decide(ROWS)
    sys.setprofile(None)
    return sorted(files)


def over_http() -> list[str]:
    """Of one decision over HTTP, with its commit to SQLite."""
    files: set[str] = set()
    listening = threading.Event()

    def deciding() -> bool:
        name = threading.current_thread().name
        return listening.is_set() and name in ("server", "belated commits")

    with tempfile.TemporaryDirectory() as folder:
        definition = Definition(
            "offers", DelayedUCB(3, Bernoulli()), DefaultAfter(timedelta(days=1))
        )
        app = create_app([definition], f"sqlite:///{folder}/offers.db")
        listening_on = socket.create_server(("127.0.0.1", 0))
        port = listening_on.getsockname()[1]
        server = Server(app, listening_on)
        threading.setprofile(noting(files, deciding))  # of the threads that start from now on
        thread = threading.Thread(target=server.run, name="server")
        thread.start()
        server.started.wait()
        threading.setprofile(None)
        connection = HTTPConnection("127.0.0.1", port)
        body = json.dumps({"rows": ROWS.tolist()})
        for last in (False, False, True):
            if last:
                listening.set()
            connection.request("POST", "/v1/offers/decisions", body, JSON)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 201, answer.status
        listening.clear()
        connection.close()
        server.stop()
        thread.join()
    return sorted(files)


def main() -> None:
    for title, files in (("embedded", embedded()), ("over HTTP", over_http())):
        print(f"One decision {title}: {len(files)} files")
        for file in files:
            print(f"  {file}")


if __name__ == "__main__":
    main()
