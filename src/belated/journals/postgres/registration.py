"""The number of a bandit in the database: looked up by name, and again after each reconnect."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from belated.exceptions import JournalMismatch
from belated.journals.bandits import Registration, check_wanted, find_bandit, register_as
from belated.journals.postgres.cells import PostgresCells
from belated.journals.snapshots import CellShelf

if TYPE_CHECKING:
    from belated.journals.postgres.session import PostgresSession

#: Beyond the largest number of a bandit.
_NUMBERS = 1 << 31


class RegisteredBandit(CellShelf):
    """A bandit whose records are in the database, under a number.

    The number is valid only in the database it was read from. Whenever that may be another one
    (after a reconnect, a restore or a failover), the name is resolved again, and registered again
    if the database has lost it. Numbers are drawn at random, so that the number of a lost bandit
    is practically never given to another one: with a sequence, a database that was restored to an
    earlier state, or a standby that lacks the last commits, would do so, and processes that
    remember the number would write into the wrong journal.
    """

    _session: PostgresSession
    _registration: Registration
    _generation: int

    @property
    def number(self) -> int:
        """The number of the bandit in the database."""
        return self.registration.number

    @property
    def registration(self) -> Registration:
        """The bandit, as the database has it."""
        if self._generation != self._session.generation:
            self._register(self._registration, self._partitions)
        return self._registration

    def _update_identity(
        self, change: Callable[[dict[str, str] | None], dict[str, str]]
    ) -> dict[str, str]:
        assert self.number
        identity = super()._update_identity(change)
        self._registration = msgspec.structs.replace(self._registration, identity=identity)
        return identity

    def _open_registered(self, session: PostgresSession, wanted: int | None) -> None:
        self._session = session
        self._place = session.place
        self._open_shelf(PostgresCells(session))
        self._register(Registration(self._bandit, 0, wanted or 1), wanted)
        self._partitions = self._registration.partitions

    def _register(self, new: Registration, wanted: int | None) -> None:
        """Find the bandit in the database; make it if it is new, or if the database has lost it."""
        generation = self._session.generation
        _, found = find_bandit(self.cells, self._bandit)
        while found is None:
            found = register_as(self.cells, self._draft(new))
        check_wanted(self._bandit, self._place, wanted, found.partitions)
        self._registration = found
        if self._registration.topic is not None:
            where = f"in the topic {self._registration.topic!r} of Kafka"
            message = f"the records of bandit {self._bandit!r} of {self._place} are {where}"
            cure = "open it by its address that begins with `kafka:`, or choose another name"
            raise JournalMismatch(f"{message}: {cure}")
        self._generation = generation

    def _draft(self, new: Registration) -> Registration:
        """Make the rows that appends lock, before the cell: so it is never without them."""
        made = msgspec.structs.replace(new, number=1 + secrets.randbelow(_NUMBERS - 1))
        values = {"bandit": made.number, "partitions": made.partitions}
        self._session.run_query("make_partitions", **values)
        return made

    def _whose(self, partition: int) -> dict[str, int]:
        return {"bandit": self.number, "partition": partition}
