"""Logs that also store the outcomes of decisions, as messages for other programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from belated.core.events import Record
from belated.journals.log import Tail


class OutcomeMessage(NamedTuple):
    """A message about the outcome of a decision.

    Attributes:
        id: Id of the decision.
        version: Version of the outcome; the greatest counts.
        data: A :class:`~belated.core.outcomes.DecisionOutcome` as JSON.
    """

    id: str
    version: int
    data: bytes


@runtime_checkable
class OutcomeLog(Protocol):
    """A log that stores outcomes alongside its records."""

    def start(self, partition: int) -> Tail:
        """Return the tail of the dropped records; see :meth:`Log.start`."""

    def read_again(self, partition: int, after: int, limit: int) -> list[Record]:
        """Return the records after a position, which may be far behind the end of the log."""

    def put_outcomes(self, partition: int, outcomes: Sequence[OutcomeMessage]) -> None:
        """Store the outcomes of different decisions atomically and durably.

        An outcome is not stored, or is ignored by readers, if the decision already has an outcome
        with a greater version.

        Args:
            partition: Partition of the decisions.
            outcomes: Outcomes in the order of their versions.

        Raises:
            JournalUnavailable: the outcomes may not have been stored; send them again.
            OwnerFenced: another learner sends the outcomes of this partition.
        """
