"""What a process that died has left in its spool is delivered by any that lives."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from belated.exceptions import JournalUnavailable
from belated.journals import SpoolJournal, Store
from belated.service.runtime import Runtime, Worker

if TYPE_CHECKING:
    from belated.service.serving.spools import SpoolFolder, Unreadable

#: Seconds between two looks at what others have left.
SWEEP = 2.0
#: Seconds to wait for a store that has a spool before it: as long as it hangs, it is not tried.
WAIT = 2.0

log = logging.getLogger("belated.service")


@dataclass(frozen=True)
class LeftSpools:
    """What processes that died have left in their spools, and nobody has delivered yet.

    Attributes:
        files: Files that hold events, or cannot be read.
        events: Events in those that can be read.
        unreadable: The others by why: ``not_permitted``, ``unreadable``, ``damaged``; and under
            ``folder`` 1 if the folder itself cannot be looked through.
    """

    files: int
    events: int
    unreadable: Mapping[str, int] = field(default_factory=dict)


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
        self._left: dict[Path, int | Unreadable] = {}
        self._folder_fails = False
        self._worker: Worker | None = None

    @property
    def left(self) -> LeftSpools:
        """What still waits, as of the last look."""
        found = list(self._left.values())
        unreadable: Counter[str] = Counter(one for one in found if isinstance(one, str))
        if self._folder_fails:
            unreadable["folder"] = 1
        return LeftSpools(len(found), sum(one for one in found if isinstance(one, int)), unreadable)

    def start(self, runtime: Runtime) -> None:
        """Look now, and then every few seconds."""
        self._worker = runtime.start_worker("belated spool recovery", self.step)

    def stop(self, seconds: float | None = None) -> None:
        """Look no more; wait for a delivery that is under way, but not for ever."""
        if self._worker is not None:
            self._worker.stop(seconds)

    def step(self) -> float:
        """Try each file once; returns when to look again. It never raises: it must live on."""
        try:
            left = self._folder.left(self._bandit)
        except Exception as error:  # of the folder; what is known of its files stays
            self._folder_fails = True
            self._note(self._folder.path, str(error))
            return SWEEP
        self._folder_fails = False
        self._noted.pop(self._folder.path, None)
        self._left = dict(left)
        for path in left:
            try:
                self._deliver(path)
                self._noted.pop(path, None)
                del self._left[path]
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
        if status.queued:
            raise JournalUnavailable(f"{status.queued} events still wait: {status.error}")
        extra = {"bandit": self._bandit, "file": str(path), "events": status.forwarded}
        log.info("events that a process had left were delivered", extra=extra)

    def _note(self, path: Path, why: str) -> None:
        """Once, while it stays the same."""
        if self._noted.get(path) != why:
            self._noted[path] = why
            extra = {"bandit": self._bandit, "file": str(path), "why": why}
            log.warning("events that a process has left cannot be delivered yet", extra=extra)
