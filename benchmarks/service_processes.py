"""The processes that the benchmarks of the service start, and their resource usage."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Self
from urllib.request import urlopen

from resident_memory import resident

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))

from tests.ports import free_port  # noqa: E402


class Server:
    """An application of service_apps.py in a separate process; created once it responds.

    Args:
        app: the name of the application.
        dsn: the address of the database.
        pinned: whether all its threads stay on one core.
    """

    def __init__(self, app: str, dsn: str, *, pinned: bool = False) -> None:
        port = free_port()
        command = [sys.executable, "service_apps.py", app, str(port), dsn]
        if pinned:
            command = ["taskset", "--cpu-list", "0", *command]
        self._start(app, command, port)

    def _start(self, app: str, command: list[str], port: int) -> None:
        self.port = port
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
        self.process = subprocess.Popen(command, cwd=HERE, env=environment)
        deadline = time.monotonic() + 120
        while not self._answers():  # it accepts connections before it can respond
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError(f"{app} did not start")
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            urlopen(f"http://127.0.0.1:{self.port}/livez", timeout=120).close()
        except OSError:
            return False
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.terminate()
        self.process.wait(60)

    def cpu(self) -> float:
        """Return the CPU seconds used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident(self) -> int:
        """Return the resident memory in bytes."""
        return resident(self.process.pid)

    def threads(self) -> int:
        """Return the number of threads."""
        return len(list(Path(f"/proc/{self.process.pid}/task").iterdir()))

    def connections(self, port: int) -> int:
        """Return the number of its TCP connections to a port of this machine."""
        inodes = set()
        for path in Path(f"/proc/{self.process.pid}/fd").iterdir():
            try:
                match = re.fullmatch(r"socket:\[(\d+)\]", str(path.readlink()))
            except OSError:
                continue
            if match:
                inodes.add(match[1])
        rows = Path(f"/proc/{self.process.pid}/net/tcp").read_text().splitlines()[1:]
        fields = [row.split() for row in rows]
        return sum(
            row[2].endswith(f":{port:04X}") and row[3] == "01" and row[9] in inodes
            for row in fields
        )

    def metrics(self) -> dict[str, float]:
        """Return its Prometheus metrics, by name and labels in their text form."""
        with urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        return {name: float(value) for name, value in re.findall(r"^([^#]\S*) (\S+)$", text, re.M)}


class Command(Server):
    """`belated serve` with a number of processes.

    Args:
        config: the configuration file.
        processes: the number of processes.
    """

    def __init__(self, config: Path, processes: int) -> None:
        port = free_port()
        command = [sys.executable, "-m", "belated", "serve", str(config), "--log-level", "error"]
        command += ["--port", str(port), "--processes", str(processes)]
        self._start(f"belated serve --processes {processes}", command, port)
