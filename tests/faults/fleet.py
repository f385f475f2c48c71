"""A service of several processes, replaced one by one while it serves."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

from tests.faults.releases import Release
from tests.faults.town import write_config
from tests.integration.processes import Process, later
from tests.ports import free_port

#: Seconds for which a decider goes on when it is told to stop.
DRAIN = 2


class Fleet:
    """Two deciders and a learner.

    Args:
        dsn: address of the database, which has tables.
        folder: for their files.
        release: the release that they run at first.
        bandit: more lines for its configuration.

    Attributes:
        file: their configuration.
        ports: of the deciders.
    """

    def __init__(
        self, dsn: str, folder: Path, release: Release, bandit: Sequence[str] = ()
    ) -> None:
        self.ports = [free_port(), free_port()]
        self._folder = folder
        self._started: list[Process] = []
        server = ('lease_ttl = "60s"', f'drain = "{DRAIN}s"', f'spool_dir = "{folder}/spool"')
        self.file = write_config(folder, dsn, *server, bandit=bandit)
        try:
            self.learner = self.start_learner(release)
            self.deciders = [self._start_decider(release, port) for port in self.ports]
            for decider in self.deciders:
                _wait_until_ready(decider)
        except BaseException:
            self.close()
            raise

    def start_learner(self, release: Release) -> Process:
        """Start another learner."""
        return self._start(release, "learn")

    def replace_learner(self, release: Release) -> None:
        """Replace the learner by one that stood by."""
        successor = self.start_learner(release)
        successor.heard("this learner is on standby")
        self.stop_learner()
        self.learner = successor
        successor.heard("this learner leads")

    def replace_deciders(self, release: Release) -> None:
        """Replace the deciders one after the other, at the same ports."""
        for index, port in enumerate(self.ports):
            _stop(self.deciders[index])
            self.deciders[index] = self._start_decider(release, port)
            _wait_until_ready(self.deciders[index])

    def stop_learner(self) -> None:
        """Stop the learner, which saves its state."""
        _stop(self.learner)

    def close(self) -> None:
        """End all remaining processes."""
        for process in self._started:
            process.kill()

    def _start_decider(self, release: Release, port: int) -> Process:
        return self._start(release, "serve", "--port", str(port))

    def _start(self, release: Release, command: str, *options: str) -> Process:
        log = self._folder / f"log {len(self._started)}"
        process = release.start(log, command, self.file, *options)
        self._started.append(process)
        return process


def _stop(process: Process) -> None:
    process.send(signal.SIGTERM)
    assert process.ended() == 0


def _wait_until_ready(decider: Process) -> None:
    later(lambda: decider.ask("GET", "/readyz")[0] == 200)
