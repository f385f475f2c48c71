"""Reports on bandits, created on demand by child processes."""

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

#: Minimum interval between two reports: in seconds, and as a multiple of the time that the last
#: report took. The multiple limits reports to 2 % of one processor.
EVERY, SHARE = 60.0, 50.0
#: Timeout of a report in seconds.
TIMEOUT = 600.0


class _Output(msgspec.Struct):
    """The output of the child process."""

    gauges: Gauges
    page: msgspec.Raw


class BanditReport:
    """Creates the report on one bandit on demand, at a limited rate.

    Args:
        store: Store that contains the journal.
        bandit: Name of the bandit.
        actions: Actions named in the configuration. Other actions are omitted from the metrics,
            because callers choose their names.

    Attributes:
        page: The last report as JSON; None before the first report.
        gauges: Figures from the last report, for the metrics.
        error: Reason why there is no report or no newer report; otherwise empty.
        made_at: When the last report was created, by the monotonic clock.
        tried_at: When the last attempt ended, by the monotonic clock; 0 before the first attempt.
        took: Duration of the last attempt in seconds.
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
            self.error = (
                "the store is in memory, which the process that creates reports cannot read"
            )

    @property
    def busy(self) -> bool:
        """Whether a report is being created."""
        return self._thread is not None and self._thread.is_alive()

    def look(self) -> bytes | None:
        """Return the last report, and start creating a new one if it is due."""
        with self._locked:
            due = self.tried_at + max(EVERY, SHARE * self.took) if self.tried_at else 0.0
            if self._address is not None and not self.busy and time.monotonic() >= due:
                self._thread = threading.Thread(
                    target=self._make, name="belated report", daemon=True
                )
                self._thread.start()
        return self.page

    def close(self) -> None:
        """Kill the child process, if it is running."""
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
                    output, errors = process.communicate(f"{self._address}\n".encode(), TIMEOUT)
                except subprocess.TimeoutExpired:
                    process.kill()
                    output, errors = b"", b"the report timed out"
        except OSError as error:
            output, errors = b"", str(error).encode()
        self._process = None
        if output and process.returncode == 0:
            report = msgspec.json.decode(output, type=_Output)
            self.page, self.gauges, self.error = bytes(report.page), report.gauges, ""
            self.made_at = time.monotonic()
        else:
            lines = errors.decode(errors="replace").strip().splitlines()
            self.error = lines[-1] if lines else "the process that creates the report was killed"
        self.tried_at = time.monotonic()
        self.took = self.tried_at - start


class Reports(dict[str, BanditReport]):
    """The reports on all bandits of a process, by bandit.

    Args:
        store: Store that contains the journals.
        bandits: For each bandit, the actions named in the configuration.
    """

    def __init__(self, store: Store, bandits: Mapping[str, Collection[str]]) -> None:
        super().__init__(
            (name, BanditReport(store, name, actions)) for name, actions in bandits.items()
        )

    def watch(self, bandits: Collection[str]) -> None:
        """Refresh the oldest report on these bandits if the limit on processor time allows it.

        Only one report is created at a time, and all reports together use at most 2 % of one
        processor. With a hundred bandits, a report may be an hour old.
        """
        if not bandits or any(report.busy for report in self.values()):
            return
        last = max(self.values(), key=lambda report: report.tried_at)
        if not last.tried_at or time.monotonic() >= last.tried_at + SHARE * last.took:
            min((self[name] for name in bandits), key=lambda report: report.tried_at).look()

    def close(self) -> None:
        """Kill all running child processes."""
        for report in self.values():
            report.close()


def journal_address(store: Store, bandit: str) -> str | None:
    """Return a journal's address, with its password; None if other processes cannot open it."""
    address: str | None = getattr(store, "address", None)
    if address is None:
        return None
    return f"{address}{'&' if '?' in address else '?'}bandit={quote(bandit, safe='')}"
