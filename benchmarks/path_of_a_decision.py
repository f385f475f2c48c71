"""List the source files that one decision and one reward pass through, embedded and over HTTP.

The bandit is the one README and ``belated init`` recommend: ``PerArm`` features with named fields,
``ConversionsOnly``, requests kept ("auto"), SQLite. ``--plain`` lists the paths of a bandit with
plain rows and ``DefaultAfter`` as well.

A profile hook records the file of every Python function that is called, from the call of ``decide``
or ``observe``, or from the first byte of the request, to the response. Threads that poll, learn or
save are not part of the path. The path that most of the measured calls take is listed, so that a
fit that happens to be due does not count. The calls run without numba, because a profile hook does
not see the functions that a compiled kernel calls.

``__init__.py`` files count only if one of their functions is called. They hold re-exports, which
run once, at import.

Run: python benchmarks/path_of_a_decision.py [--plain]
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

sys.modules["numba"] = None  # type: ignore[assignment]

import belated  # noqa: E402
from belated import (  # noqa: E402
    Bandit,
    Bernoulli,
    Category,
    ConversionsOnly,
    DefaultAfter,
    DelayedUCB,
    Number,
    PerArm,
)
from belated.service import Definition, Service  # noqa: E402
from belated.service.http.server import Server  # noqa: E402

ROOT = f"{Path(belated.__file__).parent}/"
JSON = {"Content-Type": "application/json"}
#: Warm-up calls, and measured calls.
WARM_UP, CALLS = 100, 25
#: Parts of the names of threads that do not belong to the path.
BACKGROUND = ("models", "learn", "fit", "save", "lease", "keys", "spool", "session")

T = TypeVar("T")


@dataclass(frozen=True)
class Configuration:
    """A bandit to measure, and one request to it."""

    definition: Definition
    #: The arguments of ``Bandit.decide``, and the body of the same request over HTTP.
    request: dict[str, Any]
    body: dict[str, Any]


def recommended() -> Configuration:
    actions = ["blue", "red"]
    fields = {"age": Number(18, 90), "country": Category(["AT", "DE"])}
    features = PerArm(actions, context=fields)
    policy = DelayedUCB(features.dim, Bernoulli())
    definition = Definition("offers", policy, ConversionsOnly("7d"), features)
    context = {"age": 41, "country": "AT"}
    return Configuration(definition, {"context": context}, {"context": context, "actions": actions})


def plain() -> Configuration:
    rows = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    definition = Definition("offers", DelayedUCB(3, Bernoulli()), DefaultAfter("1d"))
    return Configuration(definition, {"rows": rows}, {"rows": rows})


class Recorder:
    """Records the files of the package whose functions are called during a call."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._is_active = False
        #: Number of calls by path, by the kind of call.
        self.paths: dict[str, Counter[tuple[str, ...]]] = {}

    def hook(self, frame: FrameType, event: str, argument: Any) -> None:
        """Record one function; this is a profile hook."""
        file = frame.f_code.co_filename
        if not (self._is_active and event == "call" and file.startswith(ROOT)):
            return
        if not any(word in threading.current_thread().name for word in BACKGROUND):
            self._files.add(file.removeprefix(ROOT))

    def record(self, kind: str, call: Callable[..., T], *arguments: Any) -> T:
        """Make a call and count its path."""
        self._files = set()
        self._is_active = True
        result = call(*arguments)
        self._is_active = False
        self.paths.setdefault(kind, Counter())[tuple(sorted(self._files))] += 1
        return result

    def repeat(self, decide: Callable[[], str], observe: Callable[[str], object]) -> None:
        """Warm up, then record decisions and their rewards."""
        for _ in range(WARM_UP):
            observe(decide())
        for _ in range(CALLS):
            id = self.record("decide", decide)
            self.record("reward", observe, id)


def embedded(configuration: Configuration) -> Recorder:
    """Record calls of a bandit in a program."""
    definition, recorder = configuration.definition, Recorder()
    with (
        tempfile.TemporaryDirectory() as folder,
        Bandit(
            policy=definition.policy,
            rewards=definition.rewards,
            features=definition.features,
            journal=f"sqlite:///{folder}/offers.db?bandit=offers",
        ) as bandit,
    ):
        sys.setprofile(recorder.hook)
        recorder.repeat(
            lambda: bandit.decide(**configuration.request).id, lambda id: bandit.observe(id, 1.0)
        )
        sys.setprofile(None)
    return recorder


def over_http(configuration: Configuration) -> Recorder:
    """Record requests to a service that learns in the same process, once it has a model."""
    recorder = Recorder()
    with tempfile.TemporaryDirectory() as folder:
        app = Service([configuration.definition], f"sqlite:///{folder}/offers.db", learn=True)
        listening = socket.create_server(("127.0.0.1", 0))
        server = Server(app, listening)
        threading.setprofile(recorder.hook)  # of the threads that start from now on
        thread = threading.Thread(target=server.run, name="server")
        thread.start()
        server.started.wait()
        threading.setprofile(None)
        connection = HTTPConnection("127.0.0.1", listening.getsockname()[1])

        def ask(method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
            connection.request(method, f"/v1/offers/decisions{path}", json.dumps(body), JSON)
            response = connection.getresponse()
            content: dict[str, Any] = json.loads(response.read())
            assert response.status in (201, 202), content
            return content

        while not ask("POST", "", configuration.body)["model"]:
            time.sleep(0.05)
        recorder.repeat(
            lambda: str(ask("POST", "", configuration.body)["id"]),
            lambda id: ask("PUT", f"/{id}/reward", {"value": 1.0}),
        )
        connection.close()
        server.stop()
        thread.join()
    return recorder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plain", action="store_true", help="list a bandit with plain rows too")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # rewards arrive within milliseconds here
    configurations = {"recommended": recommended()}
    if arguments.plain:
        configurations["plain rows"] = plain()
    counts = {}
    for name, configuration in configurations.items():
        for where, recorder in (
            ("embedded", embedded(configuration)),
            ("HTTP", over_http(configuration)),
        ):
            for kind, paths in recorder.paths.items():
                (files, calls), *_ = paths.most_common(1)
                title = f"{name}, {where} {kind}"
                counts[title] = len(files)
                print(f"{title}: {len(files)} files ({calls} of {CALLS} calls)")
                print(*(f"  {file}" for file in files), sep="\n")
    print()
    for title, count in counts.items():
        print(f"{title:<30} {count:3} files")


if __name__ == "__main__":
    main()
