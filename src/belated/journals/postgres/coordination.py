"""The lease, the published model and the workers of a bandit, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from belated.core.ids import check_id
from belated.exceptions import OwnerFenced
from belated.journals.postgres import open_session
from belated.journals.shelf import Leader
from belated.journals.stored import no_such_bandit
from belated.journals.workers import Claim, Known, SentSums, claimed

if TYPE_CHECKING:
    from belated.journals.postgres.session import PostgresSession, Talk


class PostgresCoordinationStore:
    """Where learners agree on who leads, and deciders find the model.

    It has a connection of its own, so that no one who uses it waits for an append. Leases end by
    the server's clock.

    Args:
        dsn: where the database is; its tables are those of the journal.
        bandit: the name of the bandit, which a journal has opened before.
        wait: how many seconds to wait for the server.
    """

    #: Of Kafka, if the records are there.
    _topic: str | None
    _generation: int | None = None
    _last_number: int

    def __init__(self, dsn: str | PostgresSession, *, bandit: str, wait: float = 10.0) -> None:
        self._bandit = check_id(bandit, "the bandit's name")
        self._session = open_session(dsn, wait)
        try:
            _ = self._number
        except BaseException:
            self._session.close()
            raise

    @property
    def _number(self) -> int:
        """The number of the bandit, looked up again whenever the database may be another."""
        generation = self._session.generation
        if self._generation != generation:
            found = self._session.run_query("find", name=self._bandit)
            if not found:
                raise no_such_bandit(self._bandit, self._session.place)
            self._last_number, _, self._topic = found[0]
            self._generation = generation
        return self._last_number

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

    def claim(self, worker: str, seconds: float) -> Claim:
        """Be one of the workers; see :meth:`CoordinationStore.claim`."""

        def work(talk: Talk) -> Claim:
            ((partitions,),) = talk.run_registered("lock_workers", bandit=self._number)
            talk.run_query("end_sessions", bandit=self._number, worker=worker)
            held: dict[str, list[int]] = dict(talk.run_query("workers", bandit=self._number))
            claim = claimed(held.pop(worker, ()), list(held.values()), partitions)
            talk.run_query(
                "renew_session", bandit=self._number, worker=worker, seconds=seconds,
                partitions=list(claim.partitions),
            )  # fmt: skip
            return claim

        return self._session.transact(work)

    def give_back(self, worker: str, partitions: Collection[int]) -> None:
        """Leave partitions to other workers."""
        given = {"worker": worker, "partitions": list(partitions)}
        self._session.run_query("give_back", bandit=self._number, **given)

    def leave(self, worker: str) -> None:
        """End the session of this worker now."""
        self._session.run_query("leave", bandit=self._number, worker=worker)

    def send(self, sums: Sequence[SentSums]) -> list[int]:
        """Store sums; see :meth:`CoordinationStore.send`."""
        held = self._session.run_query(
            "send",
            bandit=self._number,
            partitions=[one.partition for one in sums],
            epochs=[one.epoch for one in sums],
            positions=[one.position for one in sums],
            centers=[one.center for one in sums],
            data=[one.data for one in sums],
        )
        return sorted({one.partition for one in sums} - {partition for (partition,) in held})

    def sent(self, known: Known) -> list[SentSums]:
        """Return the last sums of each partition, but for those that are known."""
        found = self._session.run_query(
            "sent",
            bandit=self._number,
            partitions=list(known),
            epochs=[epoch for epoch, _, _ in known.values()],
            positions=[position for _, position, _ in known.values()],
            centers=[center for _, _, center in known.values()],
        )
        return [
            SentSums(partition, epoch, position, center, bytes(data))
            for partition, epoch, position, center, data in found
        ]

    def close(self) -> None:
        """Close the connection."""
        self._session.close()
