"""A journal in front of another one: while that is away, events wait on the local disk."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from belated.core.events import Event, encode
from belated.exceptions import (
    BelatedError,
    JournalClosed,
    JournalError,
    JournalReadUnavailable,
    JournalUnavailable,
)
from belated.journals.arrivals import Clock, check_requests, route, stamps_for
from belated.journals.journal import Journal
from belated.journals.log import Appended, Requests
from belated.journals.passed_on import PAGE, PassedOn
from belated.journals.spool.delivery import Delivered, deliver
from belated.journals.spool.disk import DiskStore
from belated.journals.spool.file import Batch, SpoolFile, SpoolStorage
from belated.journals.spool.line import Line
from belated.journals.spool.status import SpoolStatus
from belated.journals.steady_clock import system_clock

#: Seconds for which closing hands over: what is left then waits for whoever opens the file next.
LAST = 5.0

T = TypeVar("T")


class SpoolJournal(PassedOn):
    """Takes events also while the journal behind it fails or hangs.

    Events go to the journal. If it fails with a :class:`JournalError`, or does not answer in time,
    it is *away*: then events go to a file, synced before they are acknowledged, and have no
    position yet, which is written 0. A thread tries the journal again and again, and hands over
    what waits, in order; until all of it is there, further events queue up behind. Whatever may
    have reached the journal before is handed over again: the same event twice counts once.

    Everything else, to read above all, is for the journal alone: while it is away, that is
    :class:`JournalReadUnavailable` at once. What waits is stamped when the journal takes it.

    The file belongs to this object alone: another process, or a fork, needs one of its own. What a
    process leaves in it is handed over when it is opened again. Losing the file loses what waits.

    Args:
        journal: the one behind; closed together with this one.
        path: the file, on a local disk; or a :class:`~belated.journals.spool.file.SpoolStorage`.
        limit: how many bytes the file may have; beyond, :class:`JournalUnavailable`.
        wait: how many seconds the journal has to answer an append or a read; a call may need both,
            so that its caller waits twice as long at worst. None to have no
            thread: calls wait as long as the journal does, :meth:`forward` is left to you, and
            only one of your threads may use it.
        clock: gives the time in microseconds since 1970; None for the system's.
        delivered: is told which events have left the file, and their positions, as soon as they
            have; by the thread that hands them over.
        line: the thread that talks to the store, shared with other spools before it; None for one
            of its own. It has a ``wait``, which then counts.

    >>> import tempfile
    >>> from belated.core.events import Void
    >>> from belated.journals import MemoryJournal
    >>> folder = tempfile.TemporaryDirectory()
    >>> with SpoolJournal(MemoryJournal(), f"{folder.name}/offers.spool") as journal:
    ...     journal.append([Void("a", 5), Void("b", 6)])
    ...     journal.status.queued
    [1, 2]
    0
    >>> folder.cleanup()
    """

    def __init__(
        self,
        journal: Journal,
        path: str | os.PathLike[str] | SpoolStorage,
        *,
        limit: int = 1 << 28,
        wait: float | None = 0.35,
        clock: Clock | None = None,
        delivered: Delivered | None = None,
        line: Line | None = None,
    ) -> None:
        self._journal = journal
        self._delivered = delivered
        self._bandit = journal.bandit
        self._partitions = journal.partitions
        self._clock = clock or system_clock
        self._pid = os.getpid()
        self._closed = False
        #: Why the journal refuses, though the store is there; None if it does not.
        self._refusal: str | None = None
        self._forwarded = 0
        self._lock = threading.Lock()  # one thread at a time has the file
        if isinstance(path, str | os.PathLike):
            store: SpoolStorage = DiskStore(path)
            self._place = repr(os.fspath(path))
        else:
            store = path
            self._place = repr(path)
        try:
            self._file = SpoolFile(store, self._place, bandit=self._bandit, limit=limit)
            self._owns_line = line is None
            self._line = Line(wait) if line is None else line
            self._line.join(self)
            self.forward()  # what an earlier process has left
        except BaseException:
            store.close()
            raise

    @property
    def status(self) -> SpoolStatus:
        """How it stands: for a metric, a probe, or to see whether it is safe to close."""
        self._check_open()
        # Without the lock: whoever asks must not wait for a disk.
        return SpoolStatus(
            journal_down=self.away,
            queued=self._file.waiting,
            size=self._file.size,
            oldest=self._file.oldest,
            error=self._refusal or self._line.error,
            forwarded=self._forwarded,
        )

    def append(
        self,
        events: Sequence[Event],
        *,
        recorded: Sequence[int] | None = None,
        requests: Requests | None = None,
    ) -> list[int]:
        """Keep events; see :meth:`Log.append`.

        Returns:
            The position of each event, or 0 for each: then they wait in the file. A call that is
            given positions says that nothing waits any longer.

        Raises:
            JournalUnavailable: the journal is away, and the file is full or cannot be written to.
        """
        self._check_open()
        events = list(events)  # they may be needed after the caller has gone on
        return self._keep(
            lambda: self._journal.append(events, recorded=recorded, requests=requests),
            lambda: self._spool(events, recorded, requests),
        )

    def append_unique(
        self,
        events: Sequence[Event],
        ids: Collection[str],
        requests: Requests | None = None,
    ) -> Appended:
        """Keep events, and no second decision; see :meth:`UniqueLog.append_unique`.

        While the journal is away nobody knows what others decide: then events wait in the file as
        they are, and of two decisions under one id the first that reaches the journal counts.
        """
        self._check_open()
        events = list(events)
        return self._keep(
            lambda: self._journal.append_unique(events, ids, requests),
            lambda: Appended(self._spool(events, None, requests), {}),
        )

    def _keep(self, append: Callable[[], T], spool: Callable[[], T]) -> T:
        """Append, or put into the file where the journal is away."""
        if not self.away and not self._file.waiting:
            try:
                return self._ask(append)
            except JournalReadUnavailable:
                pass
            except JournalClosed:
                raise
            except JournalError as error:  # it hardly goes by itself; events are safe meanwhile
                self._refusal = str(error)
                self._line.wake()
        return spool()

    def _spool(
        self, events: list[Event], recorded: Sequence[int] | None, requests: Requests | None
    ) -> list[int]:
        check_requests(events, requests)
        batch = Batch(
            self._clock(),
            [route(event, self._partitions) for event in events],
            [encode(event) for event in events],
            None if recorded is None else list(stamps_for(events, recorded, self._clock)),
            dict(requests or {}),
        )
        if events:
            with self._lock:
                self._file.put(batch)
            if not self.away:
                self._line.wake()
        return [0] * len(events)

    def forward(self) -> int:
        """Try the journal now, and hand over what waits; returns how many events that were.

        Without a thread this is all that brings the journal back after a failure.
        """
        self._check_open()
        return self._line.run(self._hand_over_all, None)

    def close(self) -> None:
        """Hand over what waits, for some seconds, unless the journal is away; close both."""
        if self._closed:
            return
        if self._pid != os.getpid():
            self._closed = True
            self._journal.close()
            return
        deadline = time.monotonic() + LAST
        try:
            while self._file.waiting and not self.away:
                self._line.run(self.hand_over, max(0.0, deadline - time.monotonic()))
        except TimeoutError:  # the other spools of the line need not wait as long
            self._line.leave(f"the journal has not answered for {LAST:g} s")
        self._closed = True
        self._line.part(self)
        if self._owns_line:
            self._line.stop(self._journal.close)
        else:
            self._journal.close()
        with self._lock:
            self._file.close()

    # --- who does it ---------------------------------------------------------------------------

    @property
    def behind(self) -> Journal:
        """The journal behind it."""
        return self._journal

    @property
    def away(self) -> bool:
        """Whether events go to the file."""
        return self._line.away or self.stuck

    @property
    def stuck(self) -> bool:
        """Whether the journal refuses, though the store is there."""
        return self._refusal is not None

    @property
    def waits(self) -> bool:
        """Whether anything is in the file."""
        return self._file.waiting > 0

    def _ask(self, work: Callable[[], T], *, patient: bool = False) -> T:
        """Have the journal do something, unless it is away."""
        self._check_open()
        if self.away:
            why = self._refusal or self._line.error
            message = (
                f"the journal is away ({why}): events are taken, and wait in the spool "
                f"{self._place}; anything else must wait until it is back"
            )
            raise JournalReadUnavailable(message)
        wait = None if patient else self._line.wait
        try:
            return self._line.run(work, wait)
        except TimeoutError:
            message = (
                f"the journal has not answered for {wait:g} s; nothing was acknowledged, and "
                "trying again is safe"
            )
            failure = JournalReadUnavailable(message)
        except JournalUnavailable as error:
            failure = JournalReadUnavailable(str(error))
            failure.__cause__ = error
        self._line.leave(failure)
        raise failure

    def _hand_over_all(self) -> int:
        total = 0
        while count := self.hand_over():
            total += count
        return total

    def hand_over(self) -> int:
        """Hand over the first page; if nothing waits, see whether the journal is back."""
        try:
            with self._lock:
                page = self._file.page(PAGE)
        except BelatedError as error:  # of the file, not of the store
            self._refusal = str(error)
            return 0
        try:
            if page.batches:
                deliver(page, self._journal, self._clock, self._delivered)
            elif self.away:
                self._journal.end(0)
        except JournalUnavailable as error:
            self._line.leave(error)
            return 0
        except BelatedError as error:
            self._refusal = str(error)
            return 0
        self._line.away, self._refusal = False, None
        if page.batches:
            with self._lock:
                self._file.drop(page)
                self._forwarded += page.count
        return page.count

    def _check_open(self) -> None:
        if self._closed:
            message = f"the journal with the spool {self._place} was closed: open it again"
            raise JournalClosed(message)
        if self._pid != os.getpid():
            message = (
                f"the spool {self._place} belongs to the process that this one was forked from: "
                "open another journal here, with a file of its own"
            )
            raise JournalError(message)
