"""What a process that died has left in its spool is delivered by any that lives."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from belated.exceptions import JournalUnavailable
from belated.journals import Journal, SpoolJournal
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


class OpensJournals(Protocol):
    """A store, or a session with one."""

    def journal(self, bandit: str) -> Journal:
        """Open the journal of a bandit."""


class SpoolRecovery:
    """Delivers the spool files of some bandits that no process holds.

    Args:
        folder: with the spools.
        store: of the journals.
        bandits: names of the bandits.
    """

    def __init__(self, folder: SpoolFolder, store: OpensJournals, bandits: Sequence[str]) -> None:
        self._folder = folder
        self._store = store
        self._bandits = bandits
        self._noted: dict[Path, str] = {}
        self._left: dict[str, dict[Path, int | Unreadable]] = {}
        self._folder_fails = False
        self._worker: Worker | None = None

    def left(self, bandit: str) -> LeftSpools:
        """What still waits of a bandit, as of the last look."""
        found = list(self._left.get(bandit, {}).values())
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
            left = {bandit: self._folder.left(bandit) for bandit in self._bandits}
        except Exception as error:  # of the folder; what is known of its files stays
            self._folder_fails = True
            self._note(self._folder.path, str(error))
            return SWEEP
        self._folder_fails = False
        self._noted.pop(self._folder.path, None)
        self._left = left
        for bandit, files in left.items():
            for path in list(files):
                try:
                    self._deliver(bandit, path)
                    self._noted.pop(path, None)
                    del files[path]
                except Exception as error:
                    self._note(path, str(error), bandit)
        return SWEEP

    def _deliver(self, bandit: str, path: Path) -> None:
        journal = self._store.journal(bandit)
        try:  # without a thread: nobody waits for this one
            spool = SpoolJournal(journal, path, limit=self._folder.limit, wait=None)
        except BaseException:
            journal.close()
            raise
        with spool:  # as it was opened it has delivered what it could
            status = spool.status
        if status.queued:
            raise JournalUnavailable(f"{status.queued} events still wait: {status.error}")
        extra = {"bandit": bandit, "file": str(path), "events": status.forwarded}
        log.info("events that a process had left were delivered", extra=extra)

    def _note(self, path: Path, why: str, bandit: str = "*") -> None:
        """Once, while it stays the same."""
        if self._noted.get(path) != why:
            self._noted[path] = why
            extra = {"bandit": bandit, "file": str(path), "why": why}
            log.warning("events that a process has left cannot be delivered yet", extra=extra)
