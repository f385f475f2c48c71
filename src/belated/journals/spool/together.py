"""One commit for several bandits, each with a spool before its journal."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from belated.exceptions import JournalClosed, JournalError, JournalUnavailable
from belated.journals.log import Appended
from belated.journals.spool.journal import SpoolJournal
from belated.journals.spool.line import Line
from belated.journals.store import Batch, BatchLog


class SpooledLog:
    """Appends to the store in one commit, and to the files of the spools where that fails.

    Args:
        log: opened the journals behind the spools.
        line: of the spools.
    """

    def __init__(self, log: BatchLog, line: Line) -> None:
        self._log = log
        self._line = line

    def append_all(self, batches: Sequence[Batch]) -> list[Appended]:
        """Append batches; they go to spools, and where these let them, to the store together."""
        if len(batches) == 1:
            return [batches[0].append()]
        found: dict[int, Appended] = {}
        direct = {n: one for n, one in enumerate(batches) if _is_direct(one)}
        behind = [replace(one, journal=_spool(one).behind) for one in direct.values()]
        if behind:
            try:
                appended = self._line.run(lambda: self._log.append_all(behind), self._line.wait)
                found = dict(zip(direct, appended, strict=True))
            except TimeoutError:
                self._line.leave(f"the journal has not answered for {self._line.wait:g} s")
            except JournalClosed:
                raise
            except JournalUnavailable as error:
                self._line.leave(error)
            except JournalError:
                pass  # of one of them: each is tried by itself
        return [found[n] if n in found else one.append() for n, one in enumerate(batches)]

    def close(self) -> None:
        """End the thread of the line, then close the store."""
        with suppress(JournalError):
            self._line.stop(self._log.close)


def _spool(batch: Batch) -> SpoolJournal:
    assert isinstance(batch.journal, SpoolJournal)
    return batch.journal


def _is_direct(batch: Batch) -> bool:
    """Whether nothing of the bandit waits that must come first."""
    spool = _spool(batch)
    return not (spool.away or spool.waits)
