"""A journal in front of another one: while that is down, events wait on the local disk."""

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
from belated.journals.journal import PAGE, Journal, PassedOn
from belated.journals.log import Appended, Requests
from belated.journals.spool.file import DiskStore, Page, SpooledBatch, SpoolFile, SpoolStorage
from belated.journals.steady_clock import system_clock
from belated.journals.store import Batch, BatchLog

#: Seconds until a journal that is down is tried again.
RETRY = 0.25
#: Flush timeout on close, in seconds; what is left is forwarded when the file is opened again.
LAST = 5.0

#: Is called with the events that have left the spool, and their positions.
Delivered = Callable[[Sequence[Event], Sequence[int]], None]
T = TypeVar("T")


class SpoolStatus(msgspec.Struct, frozen=True):
    """The state of a spool.

    Attributes:
        journal_down: Whether the journal behind it failed when it was last asked.
        queued: Events that wait to be forwarded.
        size: Bytes they take.
        oldest: When the oldest of them came, in microseconds since 1970; None if none waits.
        error: What the journal last failed with; None if it never did.
        forwarded: Events forwarded since this spool was opened.
    """

    journal_down: bool
    queued: int
    size: int
    oldest: int | None
    error: str | None
    forwarded: int


class Forwarder:
    """One thread for all spools before one store: if the store is down, it is down for all of them.

    Callers have the thread do their work, so that they can give up waiting.

    Args:
        wait: Seconds that the store has to answer; None to have no thread: then work is done by
            its caller, and nothing is forwarded by itself.
    """

    def __init__(self, wait: float | None) -> None:
        self.wait = wait
        self.down = False
        #: The last error.
        self.error: str | None = None
        self._spools: list[SpoolJournal] = []
        self._next = 0
        self._retry_at = 0.0
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        if wait is not None:
            # A daemon: a journal that hangs must not keep the process alive.
            threading.Thread(target=self._loop, name="belated spool", daemon=True).start()

    def add(self, spool: SpoolJournal) -> None:
        """Forward the events of a spool, too."""
        self._spools.append(spool)

    def remove(self, spool: SpoolJournal) -> None:
        """Stop forwarding the events of a spool."""
        self._spools.remove(spool)

    def run(self, work: Callable[[], T], seconds: float | None) -> T:
        """Have the thread do something, and wait for it.

        Raises:
            TimeoutError: after so many seconds. Work that has not begun is then not done.
        """
        if self.wait is None:
            return work()
        answer = self._submit(work)
        try:
            return answer.result(seconds)
        finally:
            answer.cancel()

    def mark_down(self, error: Exception | str) -> None:
        """Take the store to be down, until it answers again."""
        self.error = str(error)
        if not self.down:
            self.down = True
            self.wake()

    def wake(self) -> None:
        """Have the thread see whether there is anything to forward."""
        if self.wait is not None:
            self._jobs.put(lambda: None)

    def stop(self, last: Callable[[], None] = lambda: None) -> None:
        """End the thread, once it has done one last thing; wait no longer than for an answer."""
        if self.wait is None:
            last()
            return
        answer = self._submit(last)
        self._jobs.put(None)
        with suppress(TimeoutError):
            answer.result(self.wait)

    def _submit(self, work: Callable[[], T]) -> Future[T]:
        answer: Future[T] = Future()

        def job() -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                answer.set_result(work())
            except BaseException as error:
                answer.set_exception(error)

        self._jobs.put(job)
        return answer

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
            del job  # or what it holds would live until the next one comes
            if self._due() == 0:
                self._forward_pages()

    def _due(self) -> float | None:
        """Return in how many seconds to try to forward something; None if there is nothing."""
        if self.down:
            return RETRY
        if any(spool.waits and not spool.stuck for spool in self._spools):
            return 0.0
        return RETRY if any(spool.stuck for spool in self._spools) else None

    def _forward_pages(self) -> None:
        """Forward a page of each spool; while the store is down, try one of them first."""
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
            if (retry if spool.stuck else spool.waits) and not self.down:
                self._try(spool)

    def _try(self, spool: SpoolJournal) -> None:
        try:
            spool.forward_page()
        except Exception as error:  # the thread must live on, whatever the journal does
            self.mark_down(error)


class SpoolJournal(PassedOn):
    """Takes events also while the journal behind it fails or hangs.

    Events go to the journal. If it fails with a :class:`JournalError`, or does not answer in time,
    it is *down*: then events go to a file, synced before they are acknowledged, and have no
    position yet, which is written 0. A thread tries the journal again and again, and forwards
    what waits, in order; until all of it is there, further events queue up behind. Whatever may
    have reached the journal before is forwarded again: the same event twice counts once.

    Everything else, to read above all, is for the journal alone: while it is down, that is
    :class:`JournalReadUnavailable` at once. What waits is stamped when the journal takes it.

    The file belongs to this object alone: another process, or a fork, needs one of its own. What a
    process leaves in it is forwarded when it is opened again. Losing the file loses what waits.

    Args:
        journal: the one behind; closed together with this one.
        path: the file, on a local disk; or a :class:`~belated.journals.spool.file.SpoolStorage`.
        limit: how many bytes the file may have; beyond, :class:`JournalUnavailable`.
        wait: how many seconds the journal has to answer an append or a read; a call may need both,
            so that its caller waits twice as long at worst. None to have no
            thread: calls wait as long as the journal does, :meth:`forward` is left to you, and
            only one of your threads may use it.
        clock: gives the time in microseconds since 1970; None for the system's.
        delivered: is called with the events that have left the file, and their positions, by the
            thread that forwards them.
        forwarder: the thread that talks to the store, shared with other spools before it; None
            for one of its own. Its ``wait`` then counts.

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
        #: Why the journal refuses, though the store is there; None if it does not.
        self._refusal: str | None = None
        self._forwarded = 0
        self._lock = threading.Lock()  # one thread at a time has the file
        store = DiskStore(path) if isinstance(path, str | os.PathLike) else path
        self._place = repr(store)
        try:
            self._file = SpoolFile(store, bandit=self._bandit, limit=limit)
            self._owns_forwarder = forwarder is None
            self._forwarder = Forwarder(wait) if forwarder is None else forwarder
            self._forwarder.add(self)
            self.forward()  # what an earlier process has left
        except BaseException:
            store.close()
            raise

    @property
    def status(self) -> SpoolStatus:
        """The state of the spool: for a metric, a probe, or to see whether it is safe to close."""
        self._check_open()
        # Without the lock: whoever asks must not wait for a disk.
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
        """Keep events; see :meth:`Log.append`.

        Returns:
            The position of each event, or 0 for each: then they wait in the file. A call that is
            given positions says that nothing waits any more.

        Raises:
            JournalUnavailable: the journal is down, and the file is full or cannot be written to.
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

        While the journal is down nobody knows what others decide: then events wait in the file as
        they are, and of two decisions under one id the first that reaches the journal counts.
        """
        self._check_open()
        events = list(events)
        return self._keep(
            lambda: self._journal.append_unique(events, ids, requests),
            lambda: Appended(self._spool(events, None, requests), {}),
        )

    def _keep(self, append: Callable[[], T], spool: Callable[[], T]) -> T:
        """Append, or write to the file while the journal is down."""
        if not self.down and not self._file.waiting:
            try:
                return self._ask(append)
            except JournalReadUnavailable:
                pass
            except JournalClosed:
                raise
            except JournalError as error:  # it hardly goes by itself; events are safe meanwhile
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
        """Try the journal now, and forward what waits; returns how many events that were.

        Without a thread this is all that brings the journal back after a failure.
        """
        self._check_open()
        return self._forwarder.run(self._forward_all, None)

    def close(self) -> None:
        """Forward what waits, for some seconds, unless the journal is down; close both."""
        if self._closed:
            return
        if self._pid != os.getpid():
            self._closed = True
            self._journal.close()
            return
        deadline = time.monotonic() + LAST
        try:
            while self._file.waiting and not self.down:
                self._forwarder.run(self.forward_page, max(0.0, deadline - time.monotonic()))
        except TimeoutError:  # the other spools need not wait as long
            self._forwarder.mark_down(f"the journal has not answered for {LAST:g} s")
        self._closed = True
        self._forwarder.remove(self)
        if self._owns_forwarder:
            self._forwarder.stop(self._journal.close)
        else:
            self._journal.close()
        with self._lock:
            self._file.close()

    # --- the journal behind -------------------------------------------------------------------

    @property
    def behind(self) -> Journal:
        """The journal behind it."""
        return self._journal

    @property
    def down(self) -> bool:
        """Whether events go to the file."""
        return self._forwarder.down or self.stuck

    @property
    def stuck(self) -> bool:
        """Whether the journal refuses, though the store is there."""
        return self._refusal is not None

    @property
    def waits(self) -> bool:
        """Whether anything is in the file."""
        return self._file.waiting > 0

    def _ask(self, work: Callable[[], T], *, patient: bool = False) -> T:
        """Have the journal do something, unless it is down."""
        self._check_open()
        if self.down:
            why = self._refusal or self._forwarder.error
            message = (
                f"the journal is down ({why}): events are accepted, and wait in the spool "
                f"{self._place}; anything else must wait until it is back"
            )
            raise JournalReadUnavailable(message)
        wait = None if patient else self._forwarder.wait
        try:
            return self._forwarder.run(work, wait)
        except TimeoutError:
            message = (
                f"the journal has not answered for {wait:g} s; nothing was acknowledged, and "
                "trying again is safe"
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
        """Forward the first page; if nothing waits, see whether the journal is back."""
        try:
            with self._lock:
                page = self._file.page(PAGE)
        except BelatedError as error:  # of the file, not of the store
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
        """Append the batches of a page in their order, in as few calls as they allow."""
        batches: list[tuple[SpooledBatch, list[Any]]] = [
            (batch, [*map(read_event, batch.events)]) for batch in page.batches
        ]
        for is_plain, group in groupby(batches, _is_plain):
            if is_plain:
                events, requests = gather((some, batch.requests) for batch, some in group)
                positions = self._journal.append(events, requests=requests)
                if self._delivered is not None:
                    self._delivered(events, positions)
                continue
            for batch, some in group:
                if _has_opaque(some):
                    self._import(batch, some)
                else:
                    self._journal.append(some, recorded=batch.recorded, requests=batch.requests)

    def _import(self, batch: SpooledBatch, events: Sequence[Event | Opaque]) -> None:
        """Append what a later release has left that was rolled back."""
        times = batch.recorded or [self._clock()] * len(events)
        records = []
        for event, partition, given in zip(events, batch.partitions, times, strict=True):
            stamp = max(given, self._journal.last_stamp(partition))
            records.append(Record(partition, 0, stamp, event))
        self._journal.import_records(records, requests=batch.requests)

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


def _is_plain(batch: tuple[SpooledBatch, Sequence[object]]) -> bool:
    """Whether a batch has no times of its own, and this release can read all of its events."""
    return batch[0].recorded is None and not _has_opaque(batch[1])


def _has_opaque(events: Sequence[object]) -> bool:
    return any(isinstance(event, Opaque) for event in events)


class SpooledLog:
    """Appends to the store in one commit, and to the files of the spools where that fails.

    Args:
        log: opened the journals behind the spools.
        forwarder: of the spools.
    """

    def __init__(self, log: BatchLog, forwarder: Forwarder) -> None:
        self._log = log
        self._forwarder = forwarder

    def append_all(self, batches: Sequence[Batch]) -> list[Appended]:
        """Append batches; they go to spools, and where these let them, to the store together."""
        if len(batches) == 1:
            return [batches[0].append()]
        found: dict[int, Appended] = {}
        wait = self._forwarder.wait
        direct = {n: one for n, one in enumerate(batches) if _is_direct(one)}
        behind = [replace(one, journal=_spool(one).behind) for one in direct.values()]
        if behind:
            try:
                appended = self._forwarder.run(lambda: self._log.append_all(behind), wait)
                found = dict(zip(direct, appended, strict=True))
            except TimeoutError:
                self._forwarder.mark_down(f"the journal has not answered for {wait:g} s")
            except JournalClosed:
                raise
            except JournalUnavailable as error:
                self._forwarder.mark_down(error)
            except JournalError:
                pass  # of one of them: each is tried by itself
        return [found[n] if n in found else one.append() for n, one in enumerate(batches)]

    def close(self) -> None:
        """End the thread of the spools, then close the store."""
        with suppress(JournalError):
            self._forwarder.stop(self._log.close)


def _spool(batch: Batch) -> SpoolJournal:
    assert isinstance(batch.journal, SpoolJournal)
    return batch.journal


def _is_direct(batch: Batch) -> bool:
    """Whether nothing of the bandit waits that must come first."""
    spool = _spool(batch)
    return not (spool.down or spool.waits)
