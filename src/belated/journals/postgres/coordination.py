"""The lease and the published model of a bandit, in PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from belated.exceptions import OwnerFenced
from belated.ids import check_id
from belated.journals.postgres import open_session
from belated.journals.shelf import Leader
from belated.journals.stored import no_such_bandit

if TYPE_CHECKING:
    from belated.journals.postgres.session import PostgresSession


class PostgresCoordinationStore:
    """Where learners agree on who leads, and deciders find the model.

    It has a connection of its own, so that no one who uses it waits for an append. Leases end by
    the server's clock.

    Args:
        dsn: where the database is; its tables are those of the journal.
        bandit: the name of the bandit, which a journal has opened before.
        wait: how many seconds to wait for the server.
    """

    def __init__(self, dsn: str | PostgresSession, *, bandit: str, wait: float = 10.0) -> None:
        self._session = open_session(dsn, wait)
        try:
            found = self._session.run_query("find", name=check_id(bandit, "the bandit's name"))
            if not found:
                raise no_such_bandit(bandit, self._session.place)
            self._number = found[0][0]
        except BaseException:
            self._session.close()
            raise

    def acquire_lease(self, holder: str, seconds: float) -> int | None:
        """Become the leader, or stay it; see :meth:`CoordinationStore.acquire_lease`."""
        values = {"bandit": self._number, "holder": holder, "seconds": seconds}
        found = self._session.run_query("acquire_lease", **values)
        return found[0][0] if found else None

    def release_lease(self, holder: str) -> None:
        """End the lease of this holder now, so that another need not wait."""
        self._session.run_query("release_lease", bandit=self._number, holder=holder)

    def leader(self) -> Leader | None:
        """Return who leads now, None if no one does."""
        found = self._session.run_query("leader", bandit=self._number)
        return Leader(*found[0]) if found else None

    def publish(self, data: bytes, epoch: int) -> int:
        """Store a model in place of the last; see :meth:`CoordinationStore.publish`."""
        found = self._session.run_query("publish", bandit=self._number, epoch=epoch, data=data)
        if not found:
            raise OwnerFenced(None)
        return int(found[0][0])

    def published(self, after: int = 0) -> tuple[int, bytes] | None:
        """Return the last model and its number, None if that number is ``after``."""
        found = self._session.run_query("published", bandit=self._number, after=after)
        return (found[0][0], bytes(found[0][1])) if found else None

    def close(self) -> None:
        """Close the connection."""
        self._session.close()
