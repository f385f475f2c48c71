"""The shop with one bandit in charge of the offers."""

from __future__ import annotations

import heapq

from belated import Bandit, Bernoulli, Holdout, MemoryJournal, PerArm
from belated.cli.demo.shop import OFFERS, Shop
from belated.policies import Policy
from belated.rewards import Rewards

#: Visitors per day.
VISITORS = 500
#: Share of the visitors who get a random offer.
HOLDOUT = 0.1
DAY = 86_400_000_000  # in microseconds


class Branch:
    """Shows offers to visitors and reports their purchases, on a clock of its own.

    Args:
        policy: chooses the offers.
        rewards: what a missing reward means.
        seed: of the shop and of the policy. Branches with the same seed get the same visitors, who
            respond alike to the same offer, and hold out the same ones.
        start: of the first day, in microseconds since 1970.

    Attributes:
        visitors: who were shown an offer.
        purchases: reported so far.
        expected: purchases that the offers lead to on average.
        best: purchases that the best offer for each visitor would lead to on average.
    """

    def __init__(self, policy: type[Policy], rewards: Rewards, *, seed: int, start: int) -> None:
        self._shop, self._start, self._now = Shop(seed), start, start
        self._upcoming: list[tuple[float, str]] = []  # when, decision id
        self.visitors = self.purchases = 0
        self.expected = self.best = 0.0
        features = PerArm(OFFERS, context=["returning", "phone"])
        self.bandit = Bandit(
            policy(features.dim, Bernoulli(), floor=0.02),
            rewards=rewards,
            journal=MemoryJournal(bandit="shop", clock=lambda: self._now),
            features=features,
            seed=seed,
            clock=lambda: self._now,
            holdout=Holdout(HOLDOUT),
        )

    @property
    def upcoming(self) -> int:
        """Purchases that are still to be reported."""
        return len(self._upcoming)

    def open_for_a_day(self) -> None:
        """Serve the visitors of the next day, and report the purchases of that day."""
        for _ in range(VISITORS):
            self._report_until(self.visitors / VISITORS)
            self._serve_visitor()
        self._report_until(self.visitors / VISITORS)

    def _serve_visitor(self) -> None:
        visitor, day = self._shop.visitor(), self.visitors / VISITORS
        decision = self.bandit.decide(visitor, id=f"visitor-{self.visitors}")
        chances = self._shop.chances(visitor)
        self.visitors += 1
        self.expected += float(chances[decision.index])
        self.best += float(chances.max())
        delay = self._shop.purchase(visitor, decision.index)
        if delay is not None:
            heapq.heappush(self._upcoming, (day + delay, decision.id))

    def _report_until(self, day: float) -> None:
        """Report the purchases up to a moment, each at its own time, and set the clock to it."""
        while self._upcoming and self._upcoming[0][0] <= day:
            when, id = heapq.heappop(self._upcoming)
            self._now = self._start + round(when * DAY)
            self.bandit.observe(id, 1.0)
            self.purchases += 1
        self._now = self._start + round(day * DAY)
