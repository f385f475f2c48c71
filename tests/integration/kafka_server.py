"""A real Kafka for tests and benchmarks: on loopback, in a folder that is removed afterwards.

It downloads nothing: ``.ci/kafka`` does, and prints the folder of the jars, which this finds in
``KAFKA_LIBS`` or where that script puts them. Needs a Java of 17 or later.

Run as a script it prints the address of one broker (``--brokers 3`` for three), and stops them when
its input ends: ``python -m tests.integration.kafka_server``.
"""

from __future__ import annotations

import argparse
import atexit
import base64
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from tests.ports import free_port

#: Seconds in which a broker must have started or stopped.
_PATIENCE = 120.0
_MISSING = "no Kafka found: run .ci/kafka, and set KAFKA_LIBS to the folder it prints"


def find_jars() -> Path | None:
    """Return the folder with Kafka's jars, of the newest version; None if there is none."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    places = [Path(os.environ["KAFKA_LIBS"])] if "KAFKA_LIBS" in os.environ else []
    places += sorted(cache.glob("belated/kafka-*"), reverse=True)
    has_java = shutil.which("java") is not None
    return next((folder for folder in places if has_java and any(folder.glob("kafka_*.jar"))), None)


def require_jars() -> None:
    """Skip the test if Kafka is missing, except in CI."""
    import pytest  # as a script this file needs nothing but Python

    if find_jars() is None and not os.environ.get("CI"):
        pytest.skip(_MISSING)


class KafkaCluster:
    """Brokers that stop with this process at the latest.

    Args:
        brokers: Number of brokers; each is also a controller.
        compiled: Whether the brokers use the optimizing compiler, as for a measurement. Without it,
            they start faster.
        way: Given the port of a broker, the port by which clients reach it; itself if None. Brokers
            reach each other by ports of their own.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        compiled: bool = False,
        way: Callable[[int], int] | None = None,
    ) -> None:
        jars = find_jars()
        if jars is None:
            raise FileNotFoundError(_MISSING)
        self._jars = jars
        self._java = ["java", "-Xmx512m" if compiled else "-Xmx256m", "-XX:+UseSerialGC"]
        if not compiled:
            self._java.append("-XX:TieredStopAtLevel=1")
        self._java += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{jars}/*"]
        self._folder = Path(tempfile.mkdtemp(prefix="belated-kafka-"))
        self._starter = os.getpid()
        ports = [free_port() for _ in range(3 * brokers)]
        self._ports, self._controllers = ports[:brokers], ports[brokers : 2 * brokers]
        self._inner = ports[2 * brokers :]
        self._ways = [port if way is None else way(port) for port in self._ports]
        self._id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        atexit.register(self.stop)
        try:
            for broker in range(brokers):
                self._format(broker)
            for broker in range(brokers):
                self._launch(broker)
            for broker in range(brokers):
                self._wait(broker)
        except BaseException:
            self.stop()
            raise

    @property
    def address(self) -> str:
        """The addresses of the brokers: ``host:port`` of each, separated by commas."""
        return ",".join(f"127.0.0.1:{port}" for port in self._ways)

    @property
    def pids(self) -> list[int]:
        """The processes of the running brokers."""
        return [process.pid for process in self._processes.values() if process.poll() is None]

    def start(self, *brokers: int) -> None:
        """Restart brokers that were killed, and wait until they respond."""
        for broker in brokers:
            self._launch(broker)
        for broker in brokers:
            self._wait(broker)

    def kill(self, broker: int) -> None:
        """End a broker without warning."""
        self._processes[broker].kill()
        self._processes[broker].wait(_PATIENCE)

    def pause(self, broker: int, how: signal.Signals) -> None:
        """Pause a broker (SIGSTOP), or resume it (SIGCONT)."""
        self._processes[broker].send_signal(how)

    def stop(self) -> None:
        """End all brokers, and remove their folder."""
        if os.getpid() != self._starter:  # this is a fork of the process that started them
            return
        # What they hold is thrown away: they need not put it in order.
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait(_PATIENCE)
        shutil.rmtree(self._folder, ignore_errors=True)
        atexit.unregister(self.stop)

    def log(self, broker: int) -> str:
        """Return what a broker has logged so far."""
        path = self._folder / str(broker) / "log"
        return path.read_text(encoding="utf-8", errors="replace")

    def _format(self, broker: int) -> None:
        home = self._folder / str(broker)
        home.mkdir()
        copies = min(3, len(self._ports))
        voters = ",".join(f"{n}@127.0.0.1:{port}" for n, port in enumerate(self._controllers))
        inner = f"INNER://127.0.0.1:{self._inner[broker]}"
        protocols = [f"{name}:PLAINTEXT" for name in ("CONTROLLER", "INNER", "PLAINTEXT")]
        settings = {
            "process.roles": "broker,controller",
            "node.id": broker,
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://127.0.0.1:{self._ports[broker]},{inner},"
            f"CONTROLLER://127.0.0.1:{self._controllers[broker]}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self._ways[broker]},{inner}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "INNER",
            "listener.security.protocol.map": ",".join(protocols),
            "log.dirs": home / "data",
            "auto.create.topics.enable": "false",
            "default.replication.factor": copies,
            "min.insync.replicas": max(1, copies - 1),
            "offsets.topic.replication.factor": copies,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": max(1, copies - 1),
            "transaction.state.log.num.partitions": 4,
            "group.initial.rebalance.delay.ms": 0,
            "group.consumer.min.session.timeout.ms": 1_000,
            "group.consumer.min.heartbeat.interval.ms": 100,
            "log.index.size.max.bytes": 1 << 20,
        }
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        (home / "server.properties").write_text("".join(lines), encoding="utf-8")
        option = f"--cluster-id={self._id}"  # which may begin with a dash
        command = [*self._java, "kafka.tools.StorageTool", "format", option, "-c",
                   str(home / "server.properties")]  # fmt: skip
        result = subprocess.run(command, capture_output=True, check=False)
        if result.returncode:
            raise RuntimeError(f"Kafka's storage was not made: {result.stderr.decode()}")

    def _launch(self, broker: int) -> None:
        home = self._folder / str(broker)
        with (home / "log").open("ab") as log:
            self._processes[broker] = subprocess.Popen(
                [*self._java, "kafka.Kafka", str(home / "server.properties")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=home,
                start_new_session=True,  # Ctrl-C is for the tests
            )

    def _wait(self, broker: int) -> None:
        """Wait until a broker has opened its port, which it does once it has joined the cluster."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            if self._processes[broker].poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Kafka did not start:\n{self.log(broker)}")
            with socket.socket() as link:
                if link.connect_ex(("127.0.0.1", self._ports[broker])) == 0:
                    return
            time.sleep(0.05)


#: Starts so many brokers.
StartKafka = Callable[..., KafkaCluster]


def main() -> None:
    """Print the address; stop when the input ends, or at a signal."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--brokers", type=int, default=1, help="how many (default: 1)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    cluster = KafkaCluster(options.brokers)
    try:
        print(cluster.address, flush=True)
        sys.stdin.read()
    except KeyboardInterrupt:
        pass
    finally:
        cluster.stop()


if __name__ == "__main__":
    main()
