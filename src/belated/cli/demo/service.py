"""The service of the demo: ``belated serve`` on SQLite, in a process that is gone at the end."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

from belated.cli.demo.shop import OFFERS, WINDOW
from belated.exceptions import ServiceUnavailable

#: The bandit that knows what is pending, and its twin that does not.
AWARE, BLIND = "shop", "shop_blind"
#: Share of visitors that get an offer at random.
HOLDOUT = 0.1
#: Seconds to wait for its start, and for its end.
PATIENCE = 30.0

_CONFIG = """\
[store]
address = "sqlite:///{file}"

[server]
host = "127.0.0.1"
port = 0
drain = "0s"

[bandits.{aware}]
features = "PerArm({offers}, context=['returning', 'phone'])"
policy = "DelayedUCB(dim={dim}, family=Bernoulli(), floor=0.02)"
rewards = "DefaultAfter('{window}')"

[bandits.{aware}.holdout]
share = {holdout}

[bandits.{blind}]
features = "PerArm({offers}, context=['returning', 'phone'])"
policy = "BlindUCB(dim={dim}, family=Bernoulli(), floor=0.02)"
rewards = "DefaultAfter('{window}')"

[bandits.{blind}.holdout]
share = {holdout}
"""


class Running(NamedTuple):
    """A service that is ready.

    Attributes:
        port: on this machine.
        store: address of its store.
    """

    port: int
    store: str


@contextmanager
def running(day: float) -> Iterator[Running]:
    """A service while the block lasts; its files are removed, however it ends.

    Args:
        day: how many seconds a day of the shop takes.
    """
    with tempfile.TemporaryDirectory(prefix="belated-demo-") as folder:
        file = Path(folder) / "shop.db"
        config = Path(folder) / "belated.toml"
        text = _CONFIG.format(
            file=file,
            aware=AWARE,
            blind=BLIND,
            offers=list(OFFERS),
            dim=3 * len(OFFERS),
            window=f"{max(1, round(WINDOW * day))}s",
            holdout=HOLDOUT,
        )
        config.write_text(text, encoding="utf-8")
        log = Path(folder) / "log"
        with log.open("wb") as output:
            # In a session of its own: Ctrl-C is for this process, which then stops that one.
            process = subprocess.Popen(
                [sys.executable, "-m", "belated", "serve", str(config)],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            port = _port_of(process, log)
            yield Running(port, f"sqlite:///{file}")
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _port_of(process: subprocess.Popen[bytes], log: Path) -> int:
    """The port of a service, once all its bandits have a model."""
    until = time.monotonic() + PATIENCE
    port = 0
    while time.monotonic() < until and process.poll() is None:
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
            if '"serving"' in line:
                port = int(json.loads(line)["port"])
        if port:
            caller = Caller(port)
            try:
                if caller.ask("GET", "/readyz")[0] == 200:
                    return port
            finally:
                caller.close()
        time.sleep(0.1)
    last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
    raise ServiceUnavailable(f"the demo's service did not start: {''.join(last) or 'no word'}")


class Caller:
    """Asks a service, over one connection that is kept."""

    def __init__(self, port: int) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Return the status, and what was answered."""
        data = None if body is None else json.dumps(body)
        self._connection.request(method, path, data, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        text = answer.read()
        known = answer.headers.get_content_type().endswith("json")
        return answer.status, json.loads(text) if known else text

    def tell(self, path: str, body: object) -> Any:
        """Return what was answered to a POST, which must be no refusal."""
        status, found = self.ask("POST", path, body)
        if status >= 300:
            raise ServiceUnavailable(f"the demo's service answered {path} with {status}: {found}")
        return found

    def close(self) -> None:
        """End the connection."""
        self._connection.close()
