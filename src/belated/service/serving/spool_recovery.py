"""What a process that died has left in its spool is delivered by any that lives."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from belated.exceptions import JournalUnavailable
from belated.journals import SpoolJournal, Store

if TYPE_CHECKING:
    from belated.service.serving.spools import SpoolFolder

#: Seconds between two looks, and to wait for the store.
SWEEP, WAIT = 2.0, 2.0

log = logging.getLogger("belated.service")


class SpoolRecovery:
    """Delivers the spool files of one bandit that no process holds.

    Args:
        folder: with the spools.
        store: of the journal.
        bandit: name of the bandit.
    """

    def __init__(self, folder: SpoolFolder, store: Store, bandit: str) -> None:
        self._folder = folder
        self._store = store
        self._bandit = bandit
        self._noted: dict[Path, str] = {}

    def step(self) -> float:
        """Try each file once; returns when to look again. It never raises: it must live on."""
        try:
            left = self._folder.left(self._bandit)
        except OSError as error:  # of the folder, or of a file that has just gone
            self._note(self._folder.path, str(error))
            return SWEEP
        for path in left:
            try:
                self._deliver(path)
                self._noted.pop(path, None)
            except Exception as error:
                self._note(path, str(error))
        return SWEEP

    def _deliver(self, path: Path) -> None:
        journal = self._store.journal(self._bandit, wait=WAIT)
        try:
            spool = SpoolJournal(journal, path, limit=self._folder.limit)
        except BaseException:
            journal.close()
            raise
        with spool:  # as it was opened it has delivered what it could
            status = spool.status
        if status.waiting:
            raise JournalUnavailable(f"{status.waiting} events still wait: {status.error}")
        extra = {"bandit": self._bandit, "file": str(path), "events": status.forwarded}
        log.info("events that a process had left were delivered", extra=extra)

    def _note(self, path: Path, why: str) -> None:
        """Once, while it stays the same."""
        if self._noted.get(path) != why:
            self._noted[path] = why
            extra = {"bandit": self._bandit, "file": str(path), "why": why}
            log.warning("events that a process has left cannot be delivered yet", extra=extra)
