"""Where events wait while the database is away: a folder on a local disk, a file for each process.

A process takes the first file of its bandit that nobody holds and in which nothing waits. What a
process that died has left in another one is handed over by any that lives, in a thread beside it.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from urllib.parse import quote

from belated.events import Event
from belated.exceptions import BelatedError, JournalError, JournalUnavailable
from belated.journals import PostgresJournal, SpoolJournal
from belated.journals.spool.disk import DiskStore
from belated.journals.spool.file import SpoolFile, beginning_of

#: How many bytes a process may leave there for each bandit: some five million events.
LIMIT = 1 << 30
#: Seconds to wait for a database that has a spool before it: as long as it hangs, it is not tried.
WAIT = 2.0
#: Seconds between two looks at what others have left.
SWEEP = 2.0

log = logging.getLogger("belated.service")


@dataclass(frozen=True)
class SpoolFolder:
    """A folder with the spools of some bandits.

    Args:
        path: of the folder, on a local disk; made if it is not there.
        limit: how many bytes each file may have.
    """

    path: Path
    limit: int = LIMIT

    def open(
        self,
        journal: PostgresJournal,
        delivered: Callable[[Sequence[Event], Sequence[int]], None] | None = None,
    ) -> SpoolJournal:
        """A spool before a journal, in a file of its own.

        Raises:
            JournalUnavailable: there can be no file.
        """
        self._make()
        for number in count():
            path = self.path / f"{quote(journal.bandit, safe='')}.{number}.spool"
            store = self._hold(path)
            if store is None:
                continue
            if self._waiting(store, path, journal.bandit) == 0:
                return SpoolJournal(journal, store, limit=self.limit, delivered=delivered)
            store.close()  # it is for those who hand over
        raise AssertionError("there are as many numbers as processes")

    def files(self, bandit: str) -> list[Path]:
        """The files of a bandit, whoever holds them."""
        name = re.compile(rf"{re.escape(quote(bandit, safe=''))}\.\d+\.spool")
        return sorted(path for path in self.path.glob("*.spool") if name.fullmatch(path.name))

    def left(self, bandit: str) -> dict[Path, int]:
        """How many events wait in files that nobody holds; -1 for one that cannot be read."""
        found = {}
        empty = len(beginning_of(bandit))
        for path in self.files(bandit):
            if path.stat().st_size <= empty:
                continue
            store = self._hold(path)
            if store is not None:
                waiting = self._waiting(store, path, bandit)
                store.close()
                if waiting:
                    found[path] = waiting
        return found

    def _hold(self, path: Path) -> DiskStore | None:
        try:
            return DiskStore(path)
        except JournalUnavailable:
            if path.exists():  # another process has it
                return None
            raise

    def _waiting(self, store: DiskStore, path: Path, bandit: str) -> int:
        try:
            return SpoolFile(store, repr(str(path)), bandit=bandit, limit=self.limit).waiting
        except JournalError:  # it is damaged, or something else
            return -1

    def _make(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"the folder of the spools, {str(self.path)!r}, cannot be made"
            raise JournalUnavailable(f"{message}: {error.strerror}") from error


class Leftovers:
    """A thread that hands over what other processes have left of a bandit.

    Args:
        folder: with the spools.
        dsn: of the database.
        bandit: the name of the bandit.
    """

    def __init__(self, folder: SpoolFolder, dsn: str, bandit: str) -> None:
        self._folder = folder
        self._dsn = dsn
        self._bandit = bandit
        self._told: dict[Path, str] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="belated leftovers", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop; what is under way is ended in a moment, or left as it is."""
        self._stopped.set()
        self._thread.join(2 * WAIT)

    def _run(self) -> None:
        while True:
            for path in self._folder.left(self._bandit):
                try:
                    self._hand_over(path)
                    self._told.pop(path, None)
                except BelatedError as error:
                    self._tell(path, str(error))
            if self._stopped.wait(SWEEP):
                return

    def _hand_over(self, path: Path) -> None:
        journal = PostgresJournal(self._dsn, bandit=self._bandit, wait=WAIT)
        try:
            spool = SpoolJournal(journal, path, limit=self._folder.limit)
        except BaseException:
            journal.close()
            raise
        with spool:  # as it was opened it has handed over what it could
            status = spool.status
        if status.waiting:
            raise JournalUnavailable(f"{status.waiting} events still wait: {status.error}")
        log.info(
            "what a process had left was handed over",
            extra={"bandit": self._bandit, "file": str(path), "events": status.forwarded},
        )

    def _tell(self, path: Path, why: str) -> None:
        """Once, while it stays the same."""
        if self._told.get(path) != why:
            self._told[path] = why
            extra = {"bandit": self._bandit, "file": str(path), "why": why}
            log.warning("what a process has left cannot be handed over yet", extra=extra)
