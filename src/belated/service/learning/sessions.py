"""The connections and threads that the learners of a process share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from belated.journals import Store, StoreSession
from belated.journals.coordination import leaders
from belated.service.learning.lease import LeaseRenewal, new_holder
from belated.service.runtime import SharedThreads


class LearnerSessions:
    """Three connections, each opened when it is first needed, for any number of learners.

    One reads and folds, one holds leases and publishes, and one writes snapshots: so that no lease
    ends while a large snapshot is written.

    Args:
        store: of the journals.
        lease: seconds for which a lead is held without being renewed.
    """

    def __init__(self, store: Store, lease: float) -> None:
        self._store = store
        self._lease = lease
        #: Name under which all learners of the process hold their leases.
        self.holder = new_holder()
        #: For leases, fits and snapshots of all learners.
        self.threads = SharedThreads()

    @cached_property
    def reading(self) -> StoreSession:
        """For the folds."""
        return self._store.session()

    @cached_property
    def coordinating(self) -> StoreSession:
        """For leases and models."""
        return self._store.session()

    @cached_property
    def renewal(self) -> LeaseRenewal:
        """Of all leases at once."""
        return LeaseRenewal(self.coordinating.cells, self._lease, self.threads)

    @cached_property
    def saving(self) -> StoreSession:
        """For snapshots."""
        return self._store.session()

    def ends(self, bandits: Sequence[str]) -> dict[str, tuple[int, ...]]:
        """Return where the partitions of these bandits end, in one look."""
        return self.reading.ends(bandits)

    def led(self, bandits: Sequence[str]) -> set[str]:
        """Return those of these bandits that a learner leads."""
        return {*leaders(self.reading.cells, bandits)}

    def close(self) -> None:
        """End the threads and the connections, once all learners have stopped."""
        self.threads.stop()
        for name in ("reading", "coordinating", "saving"):
            if name in vars(self):
                getattr(self, name).close()
