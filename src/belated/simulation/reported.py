"""Rounds in which only some outcomes are reported: the real ledger says what silence means."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from belated.events import Decision, Event, Record, Reward, Settled
from belated.inputs import Vector
from belated.kernels import Kernels
from belated.learner import Fold
from belated.models import Model
from belated.policies import Choice, Policy
from belated.rewards import Rewards

#: Microseconds between two rounds: a second.
ROUND_US = 1_000_000


@dataclass(eq=False)
class ReportedRounds:
    """A fold that is told of decisions and rewards, a second a round.

    A reward that is what silence means is not reported, unless every reward is.

    Args:
        policy: whose model is learned.
        meaning: what a missing reward means; its times are a second a round.
        kernels: to use.

    Attributes:
        rows: what was chosen in each round.
        rewards: of the chosen rows.
    """

    policy: Policy
    meaning: Rewards
    kernels: Kernels
    rows: list[Vector] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.fold = Fold(self.policy, self.meaning, kernels=self.kernels)
        self._ledger = self.fold.ledgers[0]
        self._silent = self.meaning.default if self.meaning.on_timeout == "defaulted" else None
        self._position = self._now = 0

    @property
    def model(self) -> Model:
        """As it stands."""
        return self.fold.learner.model

    def begin(self, t: int) -> None:
        """A round begins."""
        self._now = ROUND_US * (t + 1)

    def settle(self) -> None:
        """All that is known by now has arrived: what is due is settled."""
        if self._ledger.is_due(self._now):
            self._take(Settled(0, self._now))

    def arrived(self, s: int) -> None:
        """The reward of a round is known."""
        if self.rewards[s] != self._silent:
            self._take(Reward(f"round {s}", self._now, self.rewards[s]))

    def decided(self, x: Vector, y: float, choice: Choice) -> None:
        """A row was chosen."""
        s = len(self.rows)
        self.rows.append(x)
        self.rewards.append(y)
        row = x.astype(np.float32)
        index, mean = choice.index, choice.mean
        self._take(Decision(f"round {s}", self._now, index, index, row, mean, choice.propensity, 0))

    def _take(self, event: Event) -> None:
        self._position += 1
        self._ledger.fold(Record(0, self._position, self._now, event))
