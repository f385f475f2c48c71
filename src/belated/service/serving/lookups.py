"""Reading the journal for a request: beside the event loop, and never for long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import TypeVar

from belated.core.events import Decision
from belated.decider import Decider
from belated.exceptions import JournalReadUnavailable, NotIndexed
from belated.journals import Journal, SpoolJournal

#: Seconds in which a journal with a spool before it must answer.
PATIENCE = 0.5

T = TypeVar("T")


class LookUps:
    """Looks things up in the journal; what waits in the spool, among the decider's own decisions.

    Args:
        journal: for reading alone, so that no look-up waits for a commit.
        decider: knows what was decided here a moment ago.
        spool: before the journal that is written to; None if there is none: then a look-up takes
            as long as the journal does.
        loop: of the callers.
        threads: that read.
    """

    def __init__(
        self,
        journal: Journal,
        decider: Decider,
        spool: SpoolJournal | None,
        loop: asyncio.AbstractEventLoop,
        threads: Executor,
    ) -> None:
        self._journal = journal
        self._unapplied = decider.unapplied
        self._spool = spool
        self._loop = loop
        self._threads = threads

    async def decisions(self, ids: Sequence[str]) -> dict[str, Decision]:
        """Return the decision that stands under each of these ids, if one was made.

        Raises:
            JournalReadUnavailable: that cannot be known now.
            NotIndexed: the journal never knows, and it was not decided here a moment ago.
        """
        found = self._own(ids, spooled=True)
        rest = [id for id in ids if id not in found]
        if rest:
            try:
                found |= await self.ask(lambda journal: journal.decisions(rest))
            except (JournalReadUnavailable, NotIndexed):
                found |= self._made_here(rest, spooled=False)
                if len(found) < len(ids):  # another process may have used the id
                    raise
        return found

    async def ask(self, work: Callable[[Journal], T]) -> T:
        """Return what the journal says.

        Raises:
            JournalReadUnavailable: it says nothing.
        """
        if self._spool is None:
            return await self._loop.run_in_executor(self._threads, work, self._journal)
        if self._spool.status.journal_down:
            raise JournalReadUnavailable(
                "the journal is away: what is in it cannot be read until it is back"
            )
        try:
            asked = self._loop.run_in_executor(self._threads, work, self._journal)
            return await asyncio.wait_for(asked, PATIENCE)
        except TimeoutError:
            raise JournalReadUnavailable(
                f"the journal has not answered for {PATIENCE:g} s"
            ) from None

    def _own(self, ids: Sequence[str], *, spooled: bool) -> dict[str, Decision]:
        return {} if self._spool is None else self._made_here(ids, spooled=spooled)

    def _made_here(self, ids: Sequence[str], *, spooled: bool) -> dict[str, Decision]:
        found = {id: self._unapplied.find(id, spooled=spooled) for id in ids}
        return {id: one for id, one in found.items() if one is not None}
