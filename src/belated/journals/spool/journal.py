"""A journal that spools events to the local disk while the wrapped journal is down."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import msgspec

from belated.core.events import Event, Opaque, Record, encode, read_event
from belated.exceptions import (
    BelatedError,
    JournalClosed,
    JournalError,
    JournalReadUnavailable,
    JournalUnavailable,
)
from belated.journals.arrivals import Clock, check_requests, gather, route, stamps_for
from belated.journals.journal import PAGE, DelegatingJournal, Journal
from belated.journals.log import Appended, Requests
from belated.journals.spool.file import DiskStore, Page, SpooledBatch, SpoolFile, SpoolStorage
from belated.journals.steady_clock import system_clock
from belated.journals.store import Batch, BatchLog

#: Time between attempts to reach a journal that is down, in seconds.
RETRY = 0.25
#: Flush timeout on close, in seconds; remaining events are forwarded when the file is reopened.
FLUSH_TIMEOUT = 5.0

#: Called with forwarded events and their positions.
Delivered = Callable[[Sequence[Event], Sequence[int]], None]
T = TypeVar("T")


class SpoolStatus(msgspec.Struct, frozen=True):
    """The state of a spool.

    Attributes:
        journal_down: Whether the last call of the wrapped journal failed.
        queued: Number of pending events.
        size: Size of the pending events in bytes.
        oldest: Time of the oldest pending event, in microseconds since 1970; None if there is none.
        error: Last error of the journal; None if it has not failed.
        forwarded: Number of events forwarded since this spool was opened.
    """

    journal_down: bool
    queued: int
    size: int
    oldest: int | None
    error: str | None
    forwarded: int


class Forwarder:
    """A thread that calls one store for all of its spools.

    Calls run in this thread, so that callers can time out. If the store is down, so are all of its
    spools.

    Args:
        wait: Timeout of calls, in seconds. None means that there is no separate thread: calls run
            in the caller's thread, and events are not forwarded automatically.
    """

    def __init__(self, wait: float | None) -> None:
        self.wait = wait
        self.down = False
        #: The last error of the store.
        self.error: str | None = None
        self._spools: list[SpoolJournal] = []
        self._next = 0
        self._retry_at = 0.0
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        if wait is not None:
            # A daemon, so that a hanging journal does not keep the process alive.
            threading.Thread(target=self._loop, name="belated spool", daemon=True).start()

    def add(self, spool: SpoolJournal) -> None:
        """Start forwarding the events of a spool."""
        self._spools.append(spool)

    def remove(self, spool: SpoolJournal) -> None:
        """Stop forwarding the events of a spool."""
        self._spools.remove(spool)

    def run(self, work: Callable[[], T], seconds: float | None) -> T:
        """Run ``work`` in the thread, and return its result.

        Raises:
            TimeoutError: after ``seconds``; work that has not started is cancelled.
        """
        if self.wait is None:
            return work()
        future = self._submit(work)
        try:
            return future.result(seconds)
        finally:
            future.cancel()

    def mark_down(self, error: Exception | str) -> None:
        """Mark the store as down until a call succeeds."""
        self.error = str(error)
        if not self.down:
            self.down = True
            self.wake()

    def wake(self) -> None:
        """Make the thread check for events to forward."""
        if self.wait is not None:
            self._jobs.put(lambda: None)

    def stop(self, last: Callable[[], None] = lambda: None) -> None:
        """Run ``last`` in the thread, then end the thread; wait no longer than the call timeout."""
        if self.wait is None:
            last()
            return
        future = self._submit(last)
        self._jobs.put(None)
        with suppress(TimeoutError):
            future.result(self.wait)

    def _submit(self, work: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        self._jobs.put(job)
        return future

    def _loop(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=self._due())
            except Empty:
                self._forward_pages()
                continue
            if job is None:
                return
            job()
            del job  # otherwise, its objects would stay alive until the next job
            if self._due() == 0:
                self._forward_pages()

    def _due(self) -> float | None:
        """Return the seconds until the next attempt to forward events; None if there are none."""
        if self.down:
            return RETRY
        if any(spool.has_backlog and not spool.stuck for spool in self._spools):
            return 0.0
        return RETRY if any(spool.stuck for spool in self._spools) else None

    def _forward_pages(self) -> None:
        """Forward a page from each spool; if the store is down, try one spool first."""
        spools = list(self._spools)
        if self.down and spools:
            self._next += 1
            self._try(spools[self._next % len(spools)])
        if self.down:
            return
        retry = time.monotonic() >= self._retry_at
        if retry:
            self._retry_at = time.monotonic() + RETRY
        for spool in spools:
            if (retry if spool.stuck else spool.has_backlog) and not self.down:
                self._try(spool)

    def _try(self, spool: SpoolJournal) -> None:
        try:
            spool.forward_page()
        except Exception as error:  # the thread must survive any error of the journal
            self.mark_down(error)


class SpoolJournal(DelegatingJournal):
    """A journal that accepts events while the wrapped journal fails or hangs.

    Events are appended to the wrapped journal. If it fails with a :class:`JournalError` or does not
    respond in time, it is *down*: events are then synced to a file before they are acknowledged,
    and get position 0. A thread retries the journal and forwards pending events in order; until all
    pending events are forwarded, new events are queued after them. Events that may have reached the
    journal are forwarded again, because a duplicate event counts only once.

    All other calls, such as reads, require the journal; while it is down, they immediately raise
    :class:`JournalReadUnavailable`. Pending events are stamped when the journal accepts them.

    The file must not be shared: every process, including a forked process, needs a separate file.
    Events left in the file are forwarded when it is opened again. If the file is lost, so are its
    pending events.

    Args:
        journal: Journal to wrap; closed together with this object.
        path: Path of the file, on a local disk, or a
            :class:`~belated.journals.spool.file.SpoolStorage`.
        limit: Maximum size of the file, in bytes; if it is exceeded, appends raise
            :class:`JournalUnavailable`.
        wait: Timeout of an append to the journal or a read, in seconds; a call that needs both may
            take twice as long. None means that there is no separate thread: calls have no timeout,
            you must call :meth:`forward` yourself, and only one thread may use the journal.
        clock: Returns the time in microseconds since 1970; by default, the system clock.
        delivered: Called by the forwarding thread with forwarded events and their positions.
        forwarder: Thread shared with other spools of the store, whose ``wait`` then applies; by
            default, a separate thread.

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
        forwarder: Forwarder | None = None,
    ) -> None:
        self._journal = journal
        self._delivered = delivered
        self._bandit = journal.bandit
        self._partitions = journal.partitions
        self._clock = clock or system_clock
        self._pid = os.getpid()
        self._closed = False
        #: Why the journal refuses events although the store is up; None if it does not.
        self._refusal: str | None = None
        self._forwarded = 0
        self._lock = threading.Lock()  # protects the file
        store = DiskStore(path) if isinstance(path, str | os.PathLike) else path
        self._place = repr(store)
        try:
            self._file = SpoolFile(store, bandit=self._bandit, limit=limit)
            self._owns_forwarder = forwarder is None
            self._forwarder = Forwarder(wait) if forwarder is None else forwarder
            self._forwarder.add(self)
            self.forward()  # events left by an earlier process
        except BaseException:
            store.close()
            raise

    @property
    def status(self) -> SpoolStatus:
        """The state of the spool, for metrics and probes."""
        self._check_open()
        # Do not take the lock, so that probes do not wait for the disk.
        return SpoolStatus(
            journal_down=self.down,
            queued=self._file.waiting,
            size=self._file.size,
            oldest=self._file.oldest,
            error=self._refusal or self._forwarder.error,
            forwarded=self._forwarded,
        )

    def append(
        self,
        events: Sequence[Event],
        *,
        recorded: Sequence[int] | None = None,
        requests: Requests | None = None,
    ) -> list[int]:
        """Append events; see :meth:`Log.append`.

        Returns:
            The position of each event, or 0 for all events if they are pending in the file. A
            nonzero position implies that no events are pending.

        Raises:
            JournalUnavailable: the journal is down, and the file is full or cannot be written.
        """
        self._check_open()
        events = list(events)  # the thread may need them after the call has timed out
        return self._append_or_spool(
            lambda: self._journal.append(events, recorded=recorded, requests=requests),
            lambda: self._spool(events, recorded, requests),
        )

    def append_unique(
        self, events: Sequence[Event], ids: Collection[str], requests: Requests | None = None
    ) -> Appended:
        """Append events, but no second decision per id; see :meth:`UniqueLog.append_unique`.

        While the journal is down, ids cannot be checked. All events are spooled; if two decisions
        have the same id, the first one to reach the journal counts.
        """
        self._check_open()
        events = list(events)
        return self._append_or_spool(
            lambda: self._journal.append_unique(events, ids, requests),
            lambda: Appended(self._spool(events, None, requests), {}),
        )

    def _append_or_spool(self, append: Callable[[], T], spool: Callable[[], T]) -> T:
        """Append to the journal, or to the file if the journal is down."""
        if not self.down and not self._file.waiting:
            try:
                return self._ask(append)
            except JournalReadUnavailable:
                pass
            except JournalClosed:
                raise
            except JournalError as error:  # unlikely to be temporary; the spool holds the events
                self._refusal = str(error)
                self._forwarder.wake()
        return spool()

    def _spool(
        self, events: list[Event], recorded: Sequence[int] | None, requests: Requests | None
    ) -> list[int]:
        check_requests(events, requests)
        batch = SpooledBatch(
            self._clock(),
            [route(event, self._partitions) for event in events],
            [encode(event) for event in events],
            None if recorded is None else list(stamps_for(events, recorded, self._clock)),
            dict(requests or {}),
        )
        if events:
            with self._lock:
                self._file.put(batch)
            if not self.down:
                self._forwarder.wake()
        return [0] * len(events)

    def forward(self) -> int:
        """Forward all pending events now; return their number.

        If there is no thread, only this method detects that the journal is up again.
        """
        self._check_open()
        return self._forwarder.run(self._forward_all, None)

    def close(self) -> None:
        """Forward pending events unless the journal is down; close the journal and the file."""
        if self._closed:
            return
        if self._pid != os.getpid():
            self._closed = True
            self._journal.close()
            return
        deadline = time.monotonic() + FLUSH_TIMEOUT
        try:
            while self._file.waiting and not self.down:
                self._forwarder.run(self.forward_page, max(0.0, deadline - time.monotonic()))
        except TimeoutError:  # do not let the other spools wait as long
            self._forwarder.mark_down(f"the journal did not respond within {FLUSH_TIMEOUT:g} s")
        self._closed = True
        self._forwarder.remove(self)
        if self._owns_forwarder:
            self._forwarder.stop(self._journal.close)
        else:
            self._journal.close()
        with self._lock:
            self._file.close()

    # --- the wrapped journal ------------------------------------------------------------------

    @property
    def wrapped(self) -> Journal:
        """The wrapped journal."""
        return self._journal

    @property
    def down(self) -> bool:
        """Whether events are spooled to the file."""
        return self._forwarder.down or self.stuck

    @property
    def stuck(self) -> bool:
        """Whether the journal refuses events although the store is up."""
        return self._refusal is not None

    @property
    def has_backlog(self) -> bool:
        """Whether events are pending in the file."""
        return self._file.waiting > 0

    def _ask(self, work: Callable[[], T], *, patient: bool = False) -> T:
        """Run a call to the journal, unless it is down."""
        self._check_open()
        if self.down:
            reason = self._refusal or self._forwarder.error
            message = (
                f"the journal is down ({reason}): events are accepted and stored in the spool "
                f"{self._place}; retry anything else when the journal is up"
            )
            raise JournalReadUnavailable(message)
        wait = None if patient else self._forwarder.wait
        try:
            return self._forwarder.run(work, wait)
        except TimeoutError:
            message = (
                f"the journal did not respond within {wait:g} s; nothing was acknowledged, so it "
                "is safe to retry"
            )
            failure = JournalReadUnavailable(message)
        except JournalUnavailable as error:
            failure = JournalReadUnavailable(str(error))
            failure.__cause__ = error
        self._forwarder.mark_down(failure)
        raise failure

    def _forward_all(self) -> int:
        total = 0
        while count := self.forward_page():
            total += count
        return total

    def forward_page(self) -> int:
        """Forward the first page; if no events are pending, check whether the journal is up."""
        try:
            with self._lock:
                page = self._file.page(PAGE)
        except BelatedError as error:  # an error of the file, not of the store
            self._refusal = str(error)
            return 0
        try:
            if page.batches:
                self._deliver(page)
            elif self.down:
                self._journal.end(0)
        except JournalUnavailable as error:
            self._forwarder.mark_down(error)
            return 0
        except BelatedError as error:
            self._refusal = str(error)
            return 0
        self._forwarder.down, self._refusal = False, None
        if page.batches:
            with self._lock:
                self._file.drop(page)
                self._forwarded += page.count
        return page.count

    def _deliver(self, page: Page) -> None:
        """Append the batches of a page in order, with as few calls as possible."""
        batches: list[tuple[SpooledBatch, list[Any]]] = [
            (batch, [*map(read_event, batch.events)]) for batch in page.batches
        ]
        for is_plain, group in groupby(batches, _is_plain):
            if is_plain:
                events, requests = gather((events, batch.requests) for batch, events in group)
                positions = self._journal.append(events, requests=requests)
                if self._delivered is not None:
                    self._delivered(events, positions)
                continue
            for batch, events in group:
                if _has_opaque(events):
                    self._import(batch, events)
                else:
                    self._journal.append(events, recorded=batch.recorded, requests=batch.requests)

    def _import(self, batch: SpooledBatch, events: Sequence[Event | Opaque]) -> None:
        """Append a batch with events from a newer release that was rolled back."""
        times = batch.recorded or [self._clock()] * len(events)
        records = []
        for event, partition, time_given in zip(events, batch.partitions, times, strict=True):
            stamp = max(time_given, self._journal.last_stamp(partition))
            records.append(Record(partition, 0, stamp, event))
        self._journal.import_records(records, requests=batch.requests)

    def _check_open(self) -> None:
        if self._closed:
            message = f"the journal with the spool {self._place} was closed: open it again"
            raise JournalClosed(message)
        if self._pid != os.getpid():
            message = (
                f"the spool {self._place} belongs to the parent of this forked process: open "
                "another journal here, with a file of its own"
            )
            raise JournalError(message)


def _is_plain(batch: tuple[SpooledBatch, Sequence[object]]) -> bool:
    """Return whether a batch has no explicit timestamps and all its events are readable."""
    return batch[0].recorded is None and not _has_opaque(batch[1])


def _has_opaque(events: Sequence[object]) -> bool:
    return any(isinstance(event, Opaque) for event in events)


class SpooledLog:
    """Appends to the store in one commit, or to the spools if that fails.

    Args:
        log: Session that opened the wrapped journals.
        forwarder: Forwarder of the spools.
    """

    def __init__(self, log: BatchLog, forwarder: Forwarder) -> None:
        self._log = log
        self._forwarder = forwarder

    def append_all(self, batches: Sequence[Batch]) -> list[Appended]:
        """Append batches together if their spool is not down, and the remaining ones separately."""
        if len(batches) == 1:
            return [batches[0].append()]
        results: dict[int, Appended] = {}
        wait = self._forwarder.wait
        direct = {n: batch for n, batch in enumerate(batches) if _is_direct(batch)}
        unwrapped = [replace(batch, journal=_spool(batch).wrapped) for batch in direct.values()]
        if unwrapped:
            try:
                appended = self._forwarder.run(lambda: self._log.append_all(unwrapped), wait)
                results = dict(zip(direct, appended, strict=True))
            except TimeoutError:
                self._forwarder.mark_down(f"the journal did not respond within {wait:g} s")
            except JournalClosed:
                raise
            except JournalUnavailable as error:
                self._forwarder.mark_down(error)
            except JournalError:
                pass  # one of the journals refuses; try each journal separately
        return [results[n] if n in results else b.append() for n, b in enumerate(batches)]

    def close(self) -> None:
        """Stop the spools' thread, and close the store."""
        with suppress(JournalError):
            self._forwarder.stop(self._log.close)


def _spool(batch: Batch) -> SpoolJournal:
    assert isinstance(batch.journal, SpoolJournal)
    return batch.journal


def _is_direct(batch: Batch) -> bool:
    """Return whether a batch may bypass the spool, because no earlier events are pending."""
    spool = _spool(batch)
    return not (spool.down or spool.has_backlog)
