"""The number of a bandit in the database: looked up by name, and again after each reconnect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from belated.exceptions import JournalMismatch
from belated.journals.named import NamedJournal
from belated.journals.stored import check_wanted

if TYPE_CHECKING:
    from belated.journals.postgres.session import PostgresSession


class RegisteredBandit(NamedJournal):
    """A bandit with a row in the database.

    The number is valid only in the database it was read from. Whenever that may be another one
    (after a reconnect, a restore or a failover), the name is resolved again, and registered again
    if the database has lost it.
    """

    _session: PostgresSession
    _place: str
    #: Of Kafka, with the records; None if they are in the database.
    _topic: str | None
    #: What the bandit is, as JSON, once it was stored.
    _identity: str | None = None
    _last_number: int
    _generation: int

    @property
    def number(self) -> int:
        """The number of the bandit in the database."""
        if self._generation != self._session.generation:
            topic = self._topic
            self._register(self._partitions, topic)
            if self._topic != topic:
                message = f"bandit {self._bandit!r} of {self._place} was registered with the topic"
                raise JournalMismatch(f"{message} {self._topic!r}, not {topic!r}: open it again")
        return self._last_number

    def _register(self, wanted: int | None, topic: str | None) -> None:
        """Find the bandit in the database; make it if it is new, with its log in this topic.

        Args:
            wanted: Partitions; None for as many as there are, and 1 in a new one.
            topic: Of Kafka; None if the records of a new bandit are in the database.
        """
        generation = self._session.generation
        while not (found := self._session.run_query("find", name=self._bandit)):
            self._session.run_query(
                "register", name=self._bandit, partitions=wanted or 1, topic=topic
            )
        ((number, partitions, stored_topic),) = found
        if (topic is None) != (stored_topic is None):
            raise JournalMismatch(_other_log(self._bandit, self._place, stored_topic))
        check_wanted(self._bandit, self._place, wanted, partitions)
        if self._identity is not None:
            self._session.run_query("identify", bandit=number, identity=self._identity)
        self._last_number, self._partitions, self._topic = number, partitions, stored_topic
        self._generation = generation

    def _whose(self, partition: int) -> dict[str, int]:
        return {"bandit": self.number, "partition": partition}


def _other_log(bandit: str, place: str, topic: str | None) -> str:
    where = "there" if topic is None else f"in the topic {topic!r} of Kafka"
    scheme = "postgresql" if topic is None else "kafka"
    return (
        f"the records of bandit {bandit!r} of {place} are {where}: open it by its address that "
        f"begins with `{scheme}:`, or choose another name"
    )
