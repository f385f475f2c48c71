"""A shop of thirty days, written to a real journal by a real bandit: offers suit some visitors.

Purchases come days after the offer, some are reported twice, corrected or contradicted, and for 22
hours the feed of purchases is down. ``python -m experiments.report.shop FILE.db`` writes it.
"""

from __future__ import annotations

import heapq
import math
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from belated import Bandit, Bernoulli, DefaultAfter, DelayedThompson, Holdout, PerArm, SQLiteJournal
from belated.exceptions import RewardConflict

SECOND, HOUR, DAY = 1_000_000, 3_600_000_000, 86_400_000_000
START = int(datetime(2026, 6, 1, tzinfo=UTC).timestamp()) * SECOND
OFFERS = ("Free shipping", "10% off", "Bundle deal", "Gift card", "Loyalty points")
CONTEXT = ("new customer", "mobile", "basket", "recency")
#: Log-odds of a purchase by offer: an intercept, and the context.
TRUTH = np.array([
    [-2.75, 0.00, 0.75, -0.40, 0.00],
    [-2.90, 1.05, -0.30, -0.20, 0.20],
    [-2.95, -0.60, -0.40, 0.70, 0.00],
    [-3.15, 0.10, 0.10, 0.10, 0.55],
    [-2.85, -1.20, 0.30, 0.10, -0.30],
])  # fmt: skip
#: When no purchase reaches the journal.
DOWN, UP = START + 19 * DAY + 9 * HOUR, START + 20 * DAY + 7 * HOUR


@dataclass
class Shop:
    """A month of a shop.

    Attributes:
        worth: of each decision, by its id: the chance of a purchase, and that of an offer drawn
            uniformly.
    """

    journal: Any
    seed: int = 20260601
    days: int = 30
    daily: float = 1_000.0
    outage: bool = True
    holdout: float = 0.05
    worth: dict[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.now = START
        self._rng = np.random.default_rng(self.seed)
        self._queue: list[tuple[int, int, Any]] = []
        self._number = count()

    def clock(self) -> int:
        """Now."""
        return self.now

    def run(self) -> Bandit:
        """Play all days; the bandit is left open."""
        features = PerArm(OFFERS, context=CONTEXT)
        self.bandit = Bandit(
            policy=DelayedThompson(features.dim, Bernoulli(), floor=0.02),
            rewards=DefaultAfter("7d"),
            journal=self.journal(self.clock),
            features=features,
            retention="14d",
            holdout=Holdout(self.holdout, "uniform"),
            seed=self.seed,
            clock=self.clock,
        )
        hours = 0.25 + np.clip(np.sin((np.arange(24) - 7) / 24 * 2 * np.pi) + 0.55, 0, None)
        for day in range(self.days):
            week = (1.0, 0.95, 0.95, 1.0, 1.15, 1.35, 1.25)[day % 7]
            many = int(
                max(self._rng.normal(0.95 * week * (1 + 0.012 * day), 0.09), 0.3) * self.daily
            )
            at = self._rng.choice(24, many, p=hours / hours.sum()) + self._rng.random(many)
            for when in START + day * DAY + (at * HOUR):
                self._later(when, self._decide)
        if self.outage:
            self._later(DOWN + 2 * HOUR, partial(self._mode, "freeze", "the reward feed is down"))
            self._later(UP + 3 * HOUR, partial(self._mode, "learn", "the feed is back"))
        end = START + self.days * DAY
        while self._queue and self._queue[0][0] < end:
            self.now, _, action = heapq.heappop(self._queue)
            action()
        self.now = end
        self.bandit.settle()
        return self.bandit

    def _later(self, when: float, action: Any) -> None:
        heapq.heappush(self._queue, (int(when), next(self._number), action))

    def _mode(self, mode: Any, reason: str) -> None:
        self.bandit.change_mode(mode, reason)

    def _decide(self) -> None:
        rng = self._rng
        new, mobile = float(rng.random() < 0.42), float(rng.random() < 0.58)
        numbers = (
            new,
            mobile,
            round(rng.normal() * 0.9, 3),
            round(rng.exponential(0.6) * (1 - new), 3),
        )
        decision = self.bandit.decide(
            dict(zip(CONTEXT, numbers, strict=True)), id=f"visit-{next(self._number)}"
        )
        chances = 1.0 / (1.0 + np.exp(-TRUTH @ np.array([1.0, *numbers])))
        chance = float(chances[OFFERS.index(str(decision.action))])
        self.worth[decision.id] = chance, float(chances.mean())
        day = (self.now - START) // DAY
        if day == 7 and 14 * HOUR <= (self.now - START) % DAY < 15 * HOUR:
            self._later(self.now + 600 * SECOND, partial(self.bandit.void, decision.id))
            return
        if rng.random() < chance:
            self._bought(decision.id)
        if rng.random() < 0.0008:
            self._later(
                self.now + HOUR, partial(self._report, f"cart-{next(self._number)}", 1.0, self.now)
            )

    def _bought(self, id: str) -> None:
        rng = self._rng
        happened = int(self.now + rng.lognormal(math.log(1.8), 0.8) * DAY)
        reached = self._reaches(happened)
        self._later(reached, partial(self._report, id, 1.0, happened))
        fate = rng.random()
        if fate < 0.018:  # told again by another system, which does not ask the journal first
            self._later(
                reached + rng.exponential(600) * SECOND, partial(self._report, id, 1.0, happened)
            )
        elif fate < 0.030:
            self._later(self._reaches(happened + DAY), partial(self._report, id, 0.0, happened, 1))

    def _reaches(self, happened: int) -> int:
        when = int(happened + self._rng.lognormal(math.log(180), 0.9) * SECOND)
        if self.outage and DOWN <= when < UP:
            return int(UP + self._rng.random() * HOUR)
        return when

    def _report(self, id: str, value: float, happened: int, revision: int = 0) -> None:
        when = datetime.fromtimestamp(happened / SECOND, UTC)
        with suppress(RewardConflict):
            self.bandit.observe(id, value, at=when, revision=revision)


def shop_journal(path: Path | str, **settings: Any) -> Shop:
    """Write the journal of a shop to a file."""
    shop = Shop(lambda clock: SQLiteJournal(path, bandit="shop-offers", clock=clock), **settings)
    shop.run().close()
    return shop


if __name__ == "__main__":
    shop_journal(sys.argv[1])
