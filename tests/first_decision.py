"""Time the first decision over HTTP with an installed package, on SQLite: a script.

`python tests/first_decision.py` runs without pytest in any environment with belated, see .ci/wheel.
It prints how many seconds the commands `belated init`, `belated serve` and `curl` took.
"""

from __future__ import annotations

import importlib.util
import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

#: The maximum total time in seconds, with cold caches.
MOST = 30.0
#: The request that `belated init` suggests.
BODY = '{"context": {"returning": 1}, "actions": ["blue", "red"]}'


def main() -> None:
    """Run the commands of a new user, and print how long they took."""
    driver = "with" if importlib.util.find_spec("psycopg") else "without"
    with tempfile.TemporaryDirectory() as folder:
        seconds, decision = first_decision(Path(folder))
    print(
        f"the first decision on SQLite, {driver} psycopg: {decision['action']} in {seconds:.1f} s"
    )


def first_decision(folder: Path) -> tuple[float, dict[str, Any]]:
    """Run the commands in a folder; return the seconds they took, and the decision."""
    start = time.monotonic()
    belated = [sys.executable, "-m", "belated"]
    subprocess.run([*belated, "init"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    port = free_port()
    command = [*belated, "serve", "belated.toml", "--port", str(port)]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as service:
        try:
            assert service.stderr is not None
            for line in service.stderr:
                if '"serving"' in line:
                    break
            else:
                raise RuntimeError("the service did not start")
            decision = ask(port)
            seconds = time.monotonic() - start
            assert decision["action"] in ("blue", "red"), decision
            assert (folder / "belated.db").exists()
            assert seconds < MOST, f"{seconds:.1f} s"
        finally:
            service.terminate()
            service.communicate(timeout=30)
    return seconds, decision


def ask(port: int) -> dict[str, Any]:
    """Send the request, like curl."""
    url = f"http://127.0.0.1:{port}/v1/offers/decisions"
    request = Request(url, BODY.encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=10) as response:
        decision: dict[str, Any] = json.loads(response.read())
    return decision


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


if __name__ == "__main__":
    main()
