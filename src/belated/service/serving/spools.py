"""Spools: files on a local disk that store events while the store is unavailable.

For each bandit, a process uses the first spool file that is not in use and contains no events. If a
process stops before it has delivered its events, any other process delivers them.
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

#: Seconds to wait for the store before writing events to the local disk.
PATIENCE = 0.35
#: Default maximum size of a spool file in bytes, enough for about five million events.
LIMIT = 1 << 30

#: Interval between searches for the spools of stopped processes, in seconds.
SWEEP = 2.0
#: Timeout of a store with a spool, in seconds. If the store does not respond, events are spooled.
WAIT = 2.0

log = logging.getLogger("belated.service")

#: Reasons why a spool file cannot be read: the file belongs to another user, cannot be read from
#: disk, or is damaged.
Unreadable = Literal["not_permitted", "unreadable", "damaged"]


class Recovery(Protocol):
    """Delivers the spools of stopped processes."""

    def left(self, bandit: str) -> LeftSpools:
        """Return the status of events that have not been delivered yet."""

    def stop(self, seconds: float | None = None) -> None:
        """Stop delivering, and wait up to ``seconds`` for a delivery in progress."""


class Spools(Protocol):
    """Opens a spool for each served bandit. See :class:`SpoolFolder`."""

    def forwarder(self) -> Forwarder:
        """Create the forwarder thread that the spools of a process share."""

    def open(self, journal: Journal, delivered: Delivered, forwarder: Forwarder) -> SpoolJournal:
        """Open a spool in front of a journal."""

    def recover(self, store: OpensJournals, bandits: Sequence[str], runtime: Runtime) -> Recovery:
        """Start delivering the spools of stopped processes."""


@dataclass(frozen=True)
class SpoolFolder:
    """A folder with the spool files of all bandits.

    Args:
        path: Path of the folder, on a local disk. The folder is created if it does not exist.
        limit: Maximum size of each file in bytes.
    """

    path: Path
    limit: int = LIMIT

    def forwarder(self) -> Forwarder:
        """Create the forwarder thread that the spools of a process share."""
        return Forwarder(PATIENCE)

    def open(
        self,
        journal: Journal,
        delivered: Delivered | None = None,
        forwarder: Forwarder | None = None,
    ) -> SpoolJournal:
        """Open a spool in front of a journal, in a file that no other process uses.

        Raises:
            JournalUnavailable: the file cannot be created.
            SpoolNotPermitted: this user may not create files in the folder.
        """
        self._create()
        for number in count():
            path = self.path / f"{quote(journal.bandit, safe='')}.{number}.spool"
            try:
                store = DiskStore(path)
            except SpoolInUse:
                continue
            except SpoolNotPermitted:
                if not path.exists():  # the folder is not writable
                    raise
                continue  # the file belongs to another user
            if self._undelivered(store, journal.bandit) == 0:
                return SpoolJournal(
                    journal, store, limit=self.limit, delivered=delivered, forwarder=forwarder
                )
            store.close()  # a SpoolRecovery delivers its events
        raise AssertionError("there are infinitely many numbers")

    def recover(self, store: OpensJournals, bandits: Sequence[str], runtime: Runtime) -> Recovery:
        """Start delivering the spools of stopped processes."""
        recovery = SpoolRecovery(self, store, bandits)
        recovery.start(runtime)
        return recovery

    def files(self, bandit: str) -> list[Path]:
        """Return a bandit's spool files, including those in use."""
        name = re.compile(rf"{re.escape(quote(bandit, safe=''))}\.\d+\.spool")
        return sorted(path for path in self.path.glob("*.spool") if name.fullmatch(path.name))

    def left(self, bandit: str) -> dict[Path, int | Unreadable]:
        """Return, for each file, the number of undelivered events or why the file is unreadable.

        Files in use are not included, because the processes that use them deliver the events.
        """
        files = {path: self._left_in(path, bandit) for path in self.files(bandit)}
        return {path: events for path, events in files.items() if events}

    def _left_in(self, path: Path, bandit: str) -> int | Unreadable:
        try:
            if path.stat().st_size <= len(beginning_of(bandit)):
                return 0
            store = DiskStore(path)
        except (FileNotFoundError, SpoolInUse):  # already delivered, or in use
            return 0
        except (PermissionError, SpoolNotPermitted):
            return "not_permitted"
        except OSError:  # other files can still be delivered
            return "unreadable"
        try:
            return self._undelivered(store, bandit)
        finally:
            store.close()

    def _undelivered(self, store: DiskStore, bandit: str) -> int | Unreadable:
        try:
            return SpoolFile(store, bandit=bandit, limit=self.limit).waiting
        except JournalUnavailable:
            return "unreadable"
        except JournalError:  # damaged, or not a spool of this bandit
            return "damaged"

    def _create(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"cannot create the spool folder {str(self.path)!r}"
            raise JournalUnavailable(f"{message}: {error.strerror}") from error


@dataclass(frozen=True)
class LeftSpools:
    """Undelivered events in the spools of stopped processes.

    Attributes:
        files: Number of files that contain events or cannot be read.
        events: Number of events in the readable files.
        unreadable: Number of unreadable files by reason: ``not_permitted``, ``unreadable`` or
            ``damaged``. The value for ``folder`` is 1 if the folder itself cannot be listed.
    """

    files: int
    events: int
    unreadable: Mapping[str, int] = field(default_factory=dict)


class OpensJournals(Protocol):
    """A store or a store session."""

    def journal(self, bandit: str) -> Journal:
        """Open the journal of a bandit."""


@dataclass(eq=False)
class SpoolRecovery:
    """Delivers the events in spool files that no process uses.

    Args:
        folder: Folder with the spools.
        store: Store that contains the journals.
        bandits: Names of the bandits.
    """

    folder: SpoolFolder
    store: OpensJournals
    bandits: Sequence[str]

    def __post_init__(self) -> None:
        self._logged: dict[Path, str] = {}  # last logged reason by file
        self._left: dict[str, dict[Path, int | Unreadable]] = {}
        self._folder_fails = False
        self._worker: Worker | None = None

    def left(self, bandit: str) -> LeftSpools:
        """Return the undelivered events of a bandit, as of the last search."""
        files = list(self._left.get(bandit, {}).values())
        events = sum(count for count in files if isinstance(count, int))
        unreadable: Counter[str] = Counter(reason for reason in files if isinstance(reason, str))
        if self._folder_fails:
            unreadable["folder"] = 1
        return LeftSpools(len(files), events, unreadable)

    def start(self, runtime: Runtime) -> None:
        """Search for spools now, and then every `SWEEP` seconds."""
        self._worker = runtime.start_worker("belated spool recovery", self.step)

    def stop(self, seconds: float | None = None) -> None:
        """Stop searching, and wait up to ``seconds`` for a delivery in progress."""
        if self._worker is not None:
            self._worker.stop(seconds)

    def step(self) -> float:
        """Try to deliver each file once, without raising; return the seconds until the next try."""
        try:
            leftovers = {bandit: self.folder.left(bandit) for bandit in self.bandits}
        except Exception as error:  # the folder cannot be listed: keep the last result
            self._folder_fails = True
            self._log_failure(self.folder.path, str(error))
            return SWEEP
        self._folder_fails = False
        self._logged.pop(self.folder.path, None)
        self._left = leftovers
        for bandit, files in leftovers.items():
            for path in list(files):
                try:
                    self._deliver(bandit, path)
                    self._logged.pop(path, None)
                    del files[path]
                except Exception as error:
                    self._log_failure(path, str(error), bandit)
        return SWEEP

    def _deliver(self, bandit: str, path: Path) -> None:
        journal = self.store.journal(bandit)
        try:  # without a separate thread, because no caller is waiting
            spool = SpoolJournal(journal, path, limit=self.folder.limit, wait=None)
        except BaseException:
            journal.close()
            raise
        with spool:  # opening the spool has delivered as many events as possible
            status = spool.status
        if status.queued:
            raise JournalUnavailable(
                f"could not deliver all events ({status.queued} left): {status.error}"
            )
        extra = {"bandit": bandit, "file": str(path), "events": status.forwarded}
        log.info("delivered the events in the spool of a stopped process", extra=extra)

    def _log_failure(self, path: Path, why: str, bandit: str = "*") -> None:
        """Log why a file cannot be delivered, but each reason only once."""
        if self._logged.get(path) != why:
            self._logged[path] = why
            extra = {"bandit": bandit, "file": str(path), "why": why}
            log.warning("cannot deliver the events in the spool of a stopped process", extra=extra)
