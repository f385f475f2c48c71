"""A board in PostgreSQL: one learner at a time leads a bandit, and pins up its model."""

from __future__ import annotations

from typing import NamedTuple

from belated.exceptions import JournalError, OwnerSuperseded
from belated.ids import check_id
from belated.journals.postgres import open_session


class Leader(NamedTuple):
    """Who learns a bandit.

    Attributes:
        holder: its name.
        epoch: how many have led before, and this one.
        seconds: for how long it may go on without renewing.
    """

    holder: str
    epoch: int
    seconds: float


class PostgresBoard:
    """Where learners agree on who leads, and deciders find the model.

    It has a connection of its own, so that no one who looks at it waits for an append.

    Args:
        dsn: where the database is; its tables are those of the journal.
        bandit: the name of the bandit, which a journal has opened before.
        wait: how many seconds to wait for the server.
    """

    def __init__(self, dsn: str, *, bandit: str, wait: float = 10.0) -> None:
        self._session = open_session(dsn, wait)
        try:
            self._session.check_tables()
            found = self._session.ask("find", name=check_id(bandit, "the bandit's name"))
            if not found:
                message = f"there is no bandit {bandit!r} in {self._session.place} yet"
                raise JournalError(f"{message}: open its journal first")
            self._number = found[0][0]
        except BaseException:
            self._session.close()
            raise

    def lead(self, holder: str, seconds: float) -> int | None:
        """Become the leader, or stay it, for so many seconds by the server's clock.

        Returns:
            The epoch, which grows with every other leader; None while another one leads.
        """
        found = self._session.ask("lead", bandit=self._number, holder=holder, seconds=seconds)
        return found[0][0] if found else None

    def resign(self, holder: str) -> None:
        """Leave at once, so that another need not wait."""
        self._session.ask("resign", bandit=self._number, holder=holder)

    def leader(self) -> Leader | None:
        """Who leads now; None if no one does."""
        found = self._session.ask("leader", bandit=self._number)
        return Leader(*found[0]) if found else None

    def publish(self, data: bytes, epoch: int) -> int:
        """Pin up a model in place of the last; returns its number, which grows.

        Raises:
            OwnerSuperseded: another has led since.
        """
        found = self._session.ask("publish", bandit=self._number, epoch=epoch, data=data)
        if not found:
            raise OwnerSuperseded(None)
        return int(found[0][0])

    def published(self, after: int = 0) -> tuple[int, bytes] | None:
        """The model and its number, if that is another than ``after``: there is only the last."""
        found = self._session.ask("published", bandit=self._number, after=after)
        return (found[0][0], bytes(found[0][1])) if found else None

    def close(self) -> None:
        """Close the connection."""
        self._session.close()
