"""Reading the journal for a request: beside the event loop, and never for long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from belated.events import Decision
from belated.exceptions import JournalAway
from belated.journals import PostgresJournal, SpoolJournal
from belated.service.decider import Decider

#: Seconds in which a journal with a spool before it must answer.
PATIENCE = 0.5

T = TypeVar("T")


class LookUps:
    """Looks things up in the journal, and what waits in the spool among one's own decisions.

    Args:
        journal: for reading alone, so that no look-up waits for a commit.
        decider: knows what was decided here a moment ago.
        spool: before the journal that is written to; None if there is none: then a look-up takes
            as long as the journal does.
    """

    def __init__(
        self, journal: PostgresJournal, decider: Decider, spool: SpoolJournal | None
    ) -> None:
        self._journal = journal
        self._decider = decider
        self._spool = spool

    async def decisions(self, ids: Sequence[str]) -> dict[str, Decision]:
        """The decision that counts under each of these ids, where one was made.

        Raises:
            JournalAway: that cannot be known now.
        """
        found = self._own(ids, waiting=True)
        rest = [id for id in ids if id not in found]
        if rest:
            try:
                found |= await self.ask(lambda journal: journal.decisions(rest))
            except JournalAway:
                found |= self._own(rest, waiting=False)
                if len(found) < len(ids):  # another process may have used the id
                    raise
        return found

    async def ask(self, work: Callable[[PostgresJournal], T]) -> T:
        """What the journal says.

        Raises:
            JournalAway: it says nothing.
        """
        if self._spool is None:
            return await asyncio.to_thread(work, self._journal)
        if self._spool.status.away:
            raise JournalAway("the journal is away: what is in it cannot be read until it is back")
        try:
            return await asyncio.wait_for(asyncio.to_thread(work, self._journal), PATIENCE)
        except TimeoutError:
            raise JournalAway(f"the journal has not answered for {PATIENCE:g} s") from None

    def _own(self, ids: Sequence[str], *, waiting: bool) -> dict[str, Decision]:
        if self._spool is None:
            return {}
        found = {id: self._decider.kept(id, waiting=waiting) for id in ids}
        return {id: one for id, one in found.items() if one is not None}
