"""The reports of bandits, each made by its own process while someone views them."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Collection, Mapping
from urllib.parse import quote

import msgspec

from belated.journals import Store
from belated.report.gauges import Gauges

#: Seconds between two reports, and at least so many times as long as one took: reports use at most
#: a fiftieth of one processor.
EVERY, SHARE = 60.0, 50.0
#: Timeout in seconds.
LONGEST = 600.0


class _Made(msgspec.Struct):
    """The output of the process."""

    gauges: Gauges
    page: msgspec.Raw


class BanditReport:
    """Makes the report of one bandit on request, at a limited rate.

    Args:
        store: of the journal.
        bandit: its name.
        actions: those that the configuration names. Others are named by callers, who may be
            strangers: metrics must not have their words.

    Attributes:
        page: the last report as JSON; None before the first.
        gauges: its numbers.
        error: why there is none, or no newer one.
        made_at: when it was made, by the monotonic clock.
        tried_at: when that was last tried; 0 before the first time.
        took: seconds that took.
    """

    def __init__(self, store: Store, bandit: str, actions: Collection[str] = ()) -> None:
        self.actions = actions
        self._address = journal_address(store, bandit)
        self._locked = threading.Lock()
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.page: bytes | None = None
        self.gauges: Gauges | None = None
        self.error = ""
        self.made_at = self.tried_at = self.took = 0.0
        if self._address is None:
            self.error = "the store is in memory, and no other process can read it"

    @property
    def busy(self) -> bool:
        """Whether it is being made."""
        return self._thread is not None and self._thread.is_alive()

    def look(self) -> bytes | None:
        """Return the last report, and start making a newer one if it is due."""
        with self._locked:
            due = self.tried_at + max(EVERY, SHARE * self.took) if self.tried_at else 0.0
            if self._address is not None and not self.busy and time.monotonic() >= due:
                self._thread = threading.Thread(
                    target=self._make, name="belated report", daemon=True
                )
                self._thread.start()
        return self.page

    def close(self) -> None:
        """End the running process."""
        process = self._process
        if process is not None:
            process.kill()

    def _make(self) -> None:
        start = time.monotonic()
        command = [sys.executable, "-m", "belated.service.console.child"]
        pipe = subprocess.PIPE
        try:
            with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
                self._process = process
                try:
                    output, errors = process.communicate(f"{self._address}\n".encode(), LONGEST)
                except subprocess.TimeoutExpired:
                    process.kill()
                    output, errors = b"", b"it took too long"
        except OSError as error:
            output, errors = b"", str(error).encode()
        self._process = None
        if output and process.returncode == 0:
            made = msgspec.json.decode(output, type=_Made)
            self.page, self.gauges, self.error = bytes(made.page), made.gauges, ""
            self.made_at = time.monotonic()
        else:
            lines = errors.decode(errors="replace").strip().splitlines()
            self.error = lines[-1] if lines else "the process that makes it has ended"
        self.tried_at = time.monotonic()
        self.took = self.tried_at - start


class Reports(dict[str, BanditReport]):
    """Those of all bandits of a process, by their names.

    Args:
        store: of the journals.
        bandits: their names, each with the actions that the configuration names.
    """

    def __init__(self, store: Store, bandits: Mapping[str, Collection[str]]) -> None:
        super().__init__(
            (name, BanditReport(store, name, actions)) for name, actions in bandits.items()
        )

    def watch(self, bandits: Collection[str]) -> None:
        """Refresh the oldest of these reports, within the time that all together may take.

        One is made at a time, and of one processor all take a fiftieth: with a hundred bandits, a
        report is seldom newer than an hour.
        """
        if not bandits or any(one.busy for one in self.values()):
            return
        last = max(self.values(), key=lambda one: one.tried_at)
        if not last.tried_at or time.monotonic() >= last.tried_at + SHARE * last.took:
            min((self[name] for name in bandits), key=lambda one: one.tried_at).look()

    def close(self) -> None:
        """End the running process."""
        for one in self.values():
            one.close()


def journal_address(store: Store, bandit: str) -> str | None:
    """Return the address of a journal, with its password; None if no other process can open it."""
    address: str | None = getattr(store, "address", None)
    if address is None:
        return None
    return f"{address}{'&' if '?' in address else '?'}bandit={quote(bandit, safe='')}"
