"""The acts of operators in a log that finds nothing by its content: PostgreSQL has them too.

A decider asks for the mode four times a second, and a fold must know what was undone before it
begins. So these few records are on the shelf as well, as they stand in the log.
"""

from __future__ import annotations

from collections.abc import Sequence

from belated.core.events import Configured, ModeChanged, Record, encode, read_event
from belated.exceptions import CorruptEvent
from belated.journals.arrivals import check_partition
from belated.journals.lookups import Subject
from belated.journals.postgres.arrivals import MARKS, beyond, check_of, mark_of
from belated.journals.postgres.registration import RegisteredBandit


class ShelvedActs(RegisteredBandit):
    """Keeps records of operators on the shelf, and finds them there."""

    #: Partition and position of those that are known to be there.
    _shelved: set[tuple[int, int]]

    def mode(self) -> ModeChanged | None:
        """Return the last event that changed the mode, None if there is none."""
        found = [one.event for one in self._acts(0, "mode", 1)]
        return found[0] if found and isinstance(found[0], ModeChanged) else None

    def configured(self) -> Configured | None:
        """Return the last event that says what the bandit is, None if there is none."""
        found = [one.event for one in self._acts(0, "configured", 1)]
        return found[0] if found and isinstance(found[0], Configured) else None

    def undone(self, partition: int) -> list[Record]:
        """Return all records of a partition that undo others, in order."""
        check_partition(partition, self._partitions)
        return self._acts(partition, "undone")

    def _keep_acts(self, acts: Sequence[Record]) -> None:
        for act in acts:
            place = act.partition, act.position
            if place in self._shelved:
                continue
            data = encode(act.event)
            self._session.run_registered(
                "keep_act", bandit=self.number, partition=act.partition, position=act.position,
                recorded=act.recorded, check=check_of(*place, act.recorded, data),
                mark=mark_of(act.event, act.digest), digest=act.digest, event=data,
            )  # fmt: skip
            self._shelved.add(place)

    def _acts(self, partition: int, subject: Subject, limit: int | None = None) -> list[Record]:
        mark = MARKS[subject]
        rows = self._session.run_query(
            "last_marked", bandit=self.number, partition=partition, least=mark,
            beyond=beyond(mark), limit=limit,
        )  # fmt: skip
        return [self._act(*row) for row in sorted(rows)]

    def _act(
        self, partition: int, position: int, recorded: int, check: int, digest: bytes, data: bytes
    ) -> Record:
        if check != check_of(partition, position, recorded, data):
            message = f"the act of an operator at partition {partition}, position {position}"
            cure = "restore a backup, or delete the row: it is written anew when the log is read"
            raise CorruptEvent(f"{message} was changed in {self._place}: {cure}")
        return Record(partition, position, recorded, read_event(data), digest)
