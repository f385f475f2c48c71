"""Decisions and rewards to measure with."""

from __future__ import annotations

import time

import numpy as np

from belated.decider import Decider, LoadedModel, ParsedRequest
from belated.decider.decider import Made
from belated.events import Decision, Reward
from belated.inputs import Row
from belated.policies import Policy

#: Slots of ids that are made.
_SLOTS = 4096


class Traffic:
    """Makes decisions as a service does, with their requests, and rewards of them.

    Args:
        policy: Chooses.
        actions: Rows of a request.
    """

    def __init__(self, policy: Policy, actions: int) -> None:
        self.policy = policy
        self.actions = actions
        self._decider = Decider(policy, LoadedModel(policy), partitions=1)
        self._rng = np.random.default_rng(0)

    def decide(self, count: int) -> Made:
        """Return decisions of one slot, as a service makes those of one commit on Kafka."""
        return self._choose(self._table(count), count)

    def reward(self, decisions: list[Decision]) -> list[Reward]:
        """Return a reward of each decision."""
        return [Reward(one.id, one.at_us, n % 2) for n, one in enumerate(decisions)]

    def choose_cost(self, count: int = 500) -> float:
        """Return the CPU of a choice, in seconds."""
        table = self._table(1)
        self._choose(table, 1)
        start = time.process_time()
        for _ in range(count):
            self._choose(table, 1)
        return (time.process_time() - start) / count

    def _table(self, count: int) -> Row:
        size = count * self.actions, self.policy.dim
        return self._rng.uniform(-1, 1, size).astype(np.float32)

    def _choose(self, table: Row, count: int) -> Made:
        self._decider.slot = int(self._rng.integers(_SLOTS))
        requests = [ParsedRequest(self.actions)] * count
        now = time.time_ns() // 1000
        made = self._decider.choose(requests, table, now=now, rng=self._rng, hold=True)
        self._decider.release_all()  # it is not to get slower, the more it has decided
        return made
