"""The report of a bandit, made by a process of its own while somebody looks at it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from urllib.parse import quote

from belated.journals import Store

#: Seconds before a report is made anew, and how many times as long as it took: of one processor it
#: takes a fiftieth at most.
EVERY, SHARE = 60.0, 50.0
#: Seconds after which it is given up.
LONGEST = 600.0

_locked = threading.Lock()


class BanditReport:
    """Makes the report of one bandit when it is asked for, and not more often than is worth it.

    Args:
        store: of the journal.
        bandit: its name.
    """

    def __init__(self, store: Store, bandit: str) -> None:
        self._address = journal_address(store, bandit)
        self._due = 0.0
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        #: The last report as JSON; None before the first.
        self.page: bytes | None = None
        #: Why there is none, or no newer one.
        self.error = ""
        if self._address is None:
            self.error = "the store is in memory, and no other process can read it"

    def look(self) -> bytes | None:
        """Return the last report, and have a newer one made if it is time for that."""
        with _locked:
            idle = self._thread is None or not self._thread.is_alive()
            if self._address is not None and idle and time.monotonic() >= self._due:
                self._thread = threading.Thread(
                    target=self._make, name="belated report", daemon=True
                )
                self._thread.start()
        return self.page

    def close(self) -> None:
        """End what is under way."""
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
                    found, told = process.communicate(f"{self._address}\n".encode(), LONGEST)
                except subprocess.TimeoutExpired:
                    process.kill()
                    found, told = b"", b"it took too long"
        except OSError as error:
            found, told = b"", str(error).encode()
        self._process = None
        if found and process.returncode == 0:
            self.page, self.error = found, ""
        else:
            lines = told.decode(errors="replace").strip().splitlines()
            self.error = lines[-1] if lines else "the process that makes it has ended"
        self._due = time.monotonic() + max(EVERY, SHARE * (time.monotonic() - start))


def journal_address(store: Store, bandit: str) -> str | None:
    """Return the address of a journal, with its password; None if no other process can open it."""
    address: str | None = getattr(store, "address", None)
    if address is None:
        return None
    return f"{address}{'&' if '?' in address else '?'}bandit={quote(bandit, safe='')}"
