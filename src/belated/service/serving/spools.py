"""Spools: a folder on a local disk where events wait while the store is unavailable.

A process uses the first file of its bandit that is not in use and holds no events. What a process
that died has left in a file is delivered by any other process.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Literal, Protocol
from urllib.parse import quote

from belated.exceptions import (
    JournalError,
    JournalUnavailable,
    SpoolInUse,
    SpoolNotPermitted,
)
from belated.journals import Journal, SpoolJournal
from belated.journals.spool.file import DiskStore, SpoolFile, beginning_of
from belated.journals.spool.journal import Delivered, Forwarder
from belated.service.runtime import Runtime, Worker

#: Seconds that the store has to answer before events go to the local disk.
PATIENCE = 0.35
#: How many bytes a process may leave there for each bandit: some five million events.
LIMIT = 1 << 30

#: Seconds between two looks at what others have left.
SWEEP = 2.0
#: Seconds to wait for a store that has a spool before it: as long as it hangs, it is not tried.
WAIT = 2.0

log = logging.getLogger("belated.service")

#: Why a file cannot be read: it is another user's, its disk fails, or it was changed.
Unreadable = Literal["not_permitted", "unreadable", "damaged"]


class Recovery(Protocol):
    """Delivers what other processes have left, again and again."""

    def left(self, bandit: str) -> LeftSpools:
        """What still waits."""

    def stop(self, seconds: float | None = None) -> None:
        """Stop delivering; wait for a running delivery, for so many seconds at most."""


class Spools(Protocol):
    """Gives each served bandit a spool: see :class:`SpoolFolder`."""

    def forwarder(self) -> Forwarder:
        """Make the thread that the spools of a process share."""

    def open(self, journal: Journal, delivered: Delivered, forwarder: Forwarder) -> SpoolJournal:
        """Put a spool before a journal."""

    def recover(self, store: OpensJournals, bandits: Sequence[str], runtime: Runtime) -> Recovery:
        """Deliver what other processes have left."""


@dataclass(frozen=True)
class SpoolFolder:
    """A folder with the spools of some bandits.

    Args:
        path: of the folder, on a local disk; made if it is not there.
        limit: how many bytes each file may have.
    """

    path: Path
    limit: int = LIMIT

    def forwarder(self) -> Forwarder:
        """Make the thread that the spools of a process share."""
        return Forwarder(PATIENCE)

    def open(
        self,
        journal: Journal,
        delivered: Delivered | None = None,
        forwarder: Forwarder | None = None,
    ) -> SpoolJournal:
        """A spool before a journal, in a file of its own.

        Raises:
            JournalUnavailable: there can be no file.
            SpoolNotPermitted: this user may make none in the folder.
        """
        self._make()
        for number in count():
            path = self.path / f"{quote(journal.bandit, safe='')}.{number}.spool"
            try:
                store = DiskStore(path)
            except SpoolInUse:
                continue
            except SpoolNotPermitted:
                if not path.exists():  # then it is the folder that may not be written to
                    raise
                continue  # the file is another user's
            if self._waiting(store, journal.bandit) == 0:
                return SpoolJournal(
                    journal, store, limit=self.limit, delivered=delivered, forwarder=forwarder
                )
            store.close()  # it is for those who deliver what others left
        raise AssertionError("there are as many numbers as processes")

    def recover(self, store: OpensJournals, bandits: Sequence[str], runtime: Runtime) -> Recovery:
        """Deliver what other processes have left, again and again."""
        recovery = SpoolRecovery(self, store, bandits)
        recovery.start(runtime)
        return recovery

    def files(self, bandit: str) -> list[Path]:
        """Return the files of a bandit, in use or not."""
        name = re.compile(rf"{re.escape(quote(bandit, safe=''))}\.\d+\.spool")
        return sorted(path for path in self.path.glob("*.spool") if name.fullmatch(path.name))

    def left(self, bandit: str) -> dict[Path, int | Unreadable]:
        """Return how many events wait in files that no process holds, or why that is unknown.

        A file that is in use is not among them: its process delivers it.
        """
        found = {path: self._left_in(path, bandit) for path in self.files(bandit)}
        return {path: waiting for path, waiting in found.items() if waiting}

    def _left_in(self, path: Path, bandit: str) -> int | Unreadable:
        try:
            if path.stat().st_size <= len(beginning_of(bandit)):
                return 0
            store = DiskStore(path)
        except (FileNotFoundError, SpoolInUse):  # it has just gone, or is looked after
            return 0
        except (PermissionError, SpoolNotPermitted):
            return "not_permitted"
        except OSError:  # whatever is wrong with this one, the others can be delivered
            return "unreadable"
        try:
            return self._waiting(store, bandit)
        finally:
            store.close()

    def _waiting(self, store: DiskStore, bandit: str) -> int | Unreadable:
        try:
            return SpoolFile(store, bandit=bandit, limit=self.limit).waiting
        except JournalUnavailable:
            return "unreadable"
        except JournalError:  # it is damaged, or something else
            return "damaged"

    def _make(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"the folder of the spools, {str(self.path)!r}, cannot be made"
            raise JournalUnavailable(f"{message}: {error.strerror}") from error


@dataclass(frozen=True)
class LeftSpools:
    """Undelivered events in the spools of processes that died.

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


@dataclass(eq=False)
class SpoolRecovery:
    """Delivers the spool files of some bandits that no process holds.

    Args:
        folder: with the spools.
        store: of the journals.
        bandits: names of the bandits.
    """

    folder: SpoolFolder
    store: OpensJournals
    bandits: Sequence[str]

    def __post_init__(self) -> None:
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
        """Stop; wait for a running delivery, for so many seconds at most."""
        if self._worker is not None:
            self._worker.stop(seconds)

    def step(self) -> float:
        """Try each file once; returns when to look again. It never raises: it must live on."""
        try:
            left = {bandit: self.folder.left(bandit) for bandit in self.bandits}
        except Exception as error:  # of the folder; what is known of its files stays
            self._folder_fails = True
            self._note(self.folder.path, str(error))
            return SWEEP
        self._folder_fails = False
        self._noted.pop(self.folder.path, None)
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
        journal = self.store.journal(bandit)
        try:  # without a thread: nobody waits for this one
            spool = SpoolJournal(journal, path, limit=self.folder.limit, wait=None)
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
        """Log why a file cannot be delivered, once per reason."""
        if self._noted.get(path) != why:
            self._noted[path] = why
            extra = {"bandit": bandit, "file": str(path), "why": why}
            log.warning("events that a process has left cannot be delivered yet", extra=extra)
