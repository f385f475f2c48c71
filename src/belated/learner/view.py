"""What a fold that follows a journal knows, for people to read."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from threading import RLock

import msgspec

from belated.estimators import Estimate
from belated.events import Decision
from belated.exceptions import JournalUnavailable
from belated.features import Features
from belated.ids import check_id, key_of, partition_of
from belated.journals import Journal
from belated.learner.fold import Fold
from belated.learner.follower import Follower
from belated.learner.pending import Pending
from belated.ledger import DecisionStatus, KeptRequest


class FoldView:
    """The readings of a :class:`~belated.Bandit`.

    Each reads first what other processes wrote; while the journal cannot be reached, it says what
    was known before. Threads take turns.
    """

    journal: Journal
    features: Features | None
    _fold: Fold
    _follower: Follower
    _lock: RLock
    _read_only: bool

    @property
    def mode(self) -> str:
        """How the bandit decides: ``learn``, ``freeze``, ``baseline`` or ``off``."""
        with self._lock, self._follower:
            self._read_new()
            return self._fold.mode

    @property
    def pending(self) -> Pending:
        """The pending decisions."""
        with self._lock, self._follower:
            self._read_new()
            return Pending(self._follower, self._fold.model.pending, self._lock)

    @property
    def estimate(self) -> Estimate:
        """A converged fit of all that has arrived: a function of the set of rewards alone."""
        with self._lock, self._follower:
            self._read_new()
            estimate = self._fold.learner.estimate
            names = None if self.features is None else self.features.names
            return estimate if names is None else replace(estimate, names=tuple(names))

    @property
    def mean_reward(self) -> float | None:
        """Mean of all rewards and defaults learned so far; None before the first.

        What is pending is not in it, so it is too high while only good outcomes have arrived.
        """
        with self._lock, self._follower:
            self._read_new()
            seen = self._fold.learner.observed
            return seen.total / seen.n if seen.n else None

    @property
    def decision_counts(self) -> dict[str, int]:
        """Decisions by state; they add up to all decisions ever made."""
        with self._lock, self._follower:
            self._read_new()
            return self._fold.counts

    @property
    def event_counts(self) -> dict[str, int]:
        """Events by what they meant; they add up to all events."""
        with self._lock, self._follower:
            self._read_new()
            return self._fold.counters

    @property
    def refused_counts(self) -> dict[str, int]:
        """Events that this process was told and has not appended; ``event_counts`` has the others.

        ``duplicate``: the journal has the same. ``conflict``: it has another value for that part
        and revision, and :class:`RewardConflict` was raised.
        """
        with self._lock:
            return {status: self._follower.refused[status] for status in ("duplicate", "conflict")}

    @property
    def digest(self) -> str:
        """Names the state of every decision: equal for equal journals, however they are split."""
        with self._lock, self._follower:
            self._read_new()
            return self._fold.digest

    def _read_new(self) -> None:
        if not self._read_only:
            with suppress(JournalUnavailable):
                if self._follower.behind:
                    self._follower.follow()
                else:
                    self._follower.catch_up()

    def entry(self, id: str | Decision) -> DecisionStatus:
        """All that is known of one decision.

        Of one whose record was trimmed, what it has come to is known, and not what it was.
        """
        id = check_id(id)
        with self._lock, self._follower:
            self._read_new()
            status = self._fold.entry(id)
            if status is None:
                return DecisionStatus(id, "unknown")
            decision, request = self._decision(status), self._request(status)
            return msgspec.structs.replace(status, decision=decision, request=request)

    def _request(self, status: DecisionStatus) -> KeptRequest | None:
        """What a decision was chosen from, if that was kept."""
        partition = partition_of(key_of(status.id), self.journal.partitions)
        data = self.journal.requests(partition, [status.position]).get(status.position)
        return None if data is None else KeptRequest.read(data)

    def _decision(self, status: DecisionStatus) -> Decision | None:
        """A decision that is remembered, as it was made; None if its record was trimmed."""
        partition = partition_of(key_of(status.id), self.journal.partitions)
        if status.position <= self.journal.start(partition).position:
            return None
        record = self.journal.read(partition, status.position - 1, 1)[0]
        assert isinstance(record.event, Decision)
        return record.event
