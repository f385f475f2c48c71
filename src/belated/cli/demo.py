"""``belated demo``: watch a bandit earn in a simulated shop, in half a minute, with no setup.

Two bandits choose offers for the same visitors to a shop in which purchases are reported days
later. One counts pending decisions. The other waits until its attribution window has ended, as most
tools do. Time is simulated, so the four weeks pass as fast as this machine can compute them.
"""

from __future__ import annotations

import argparse
import heapq
import time
from pathlib import Path
from typing import Any

import numpy as np

from belated import (
    Bandit,
    BlindThompson,
    ConversionsOnly,
    DefaultAfter,
    DelayedUCB,
    Holdout,
    MemoryJournal,
    PerArm,
)
from belated.cli.text import Progress, pairs
from belated.core.inputs import Vector
from belated.core.rewards import Rewards
from belated.policies import Policy

EXAMPLE = "belated demo"

#: Duration of the simulation, in weeks.
WEEKS = 4
#: Visitors per day.
VISITORS = 500
#: Share of visitors who get a random offer.
HOLDOUT = 0.1
DAY = 86_400_000_000  # in microseconds
OFFERS = ("free shipping", "10% off", "gift", "bundle")
#: Days after which visitors no longer buy.
WINDOW = 7
#: File name of the report.
REPORT = "belated-demo.html"

_INTRODUCTION = f"""\
A simulated shop shows {VISITORS} visitors per day one of {len(OFFERS)} offers, for {WEEKS} weeks.
Which offer is best depends on the visitor. Purchases are reported up to {WINDOW} days
after the offer. Nobody reports that a visitor did not buy.

Two bandits choose offers for the same visitors:

  belated  counts pending decisions as explored, and learns from each by its age
           DelayedUCB, ConversionsOnly('{WINDOW}d')
  waiting  works like most tools: ignores pending decisions, and learns from each
           when its {WINDOW}-day window has ended
           BlindThompson, DefaultAfter('{WINDOW}d', learn='together')

Both show a random offer to {HOLDOUT:.0%} of the visitors, the holdout.

               purchases reported          of the best possible
day  visitors  belated  waiting  lead      belated  waiting"""

_NOTE = """
“Of the best possible” is the expected number of purchases with these offers, divided by that
with the best offer for each visitor. Only the simulation knows this number.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--seed", type=int, default=7, help="random seed; default: 7")


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    window = f"{WINDOW}d"
    # The four weeks end at the most recent midnight UTC.
    clock = {"seed": options.seed, "start": (time.time_ns() // 1000 // DAY - 7 * WEEKS) * DAY}
    belated = Branch(DelayedUCB, ConversionsOnly(window), **clock)
    waiting = Branch(BlindThompson, DefaultAfter(window, learn="together"), **clock)
    print(_INTRODUCTION)
    for week in range(1, WEEKS + 1):
        with Progress(f"week {week}: day", 7) as progress:
            for _ in range(7):
                belated.open_for_a_day()
                waiting.open_for_a_day()
                progress.step(1)
        print(_line(7 * week, belated, waiting), flush=True)
    print(_NOTE)
    report = belated.bandit.report().with_units("purchase")
    print("From the journal of the first bandit, with 95% intervals:\n")
    print(pairs(_findings(report.data, belated), indent="  "))
    report.save(REPORT)
    print(f"\nThe report shows the same: {Path(REPORT).resolve()}")
    print("To run a bandit of your own: belated init")


def _line(day: int, belated: Branch, waiting: Branch) -> str:
    lead = belated.purchases - waiting.purchases
    return (
        f"{day:3}  {belated.visitors:8,}  {belated.purchases:7,}  {waiting.purchases:7,}  "
        f"{lead:+4,}      {belated.expected / belated.best:7.0%}  "
        f"{waiting.expected / waiting.best:7.0%}"
    )


def _findings(data: dict[str, Any], branch: Branch) -> list[tuple[str, str]]:
    """Return results from the report, along with the number of purchases still to come."""
    head, delay, to_come = data["headline"], data["delay"], data["forecast"]["total"]
    lift, extra = head["lift"], head["extra"]
    return [
        ("purchases reported", f"{head['rewards']:,} of {head['decisions']:,} visitors"),
        (
            "still to come",
            f"{to_come['n']:,.0f} ({to_come['lo']:,.0f} to {to_come['hi']:,.0f}); "
            f"the simulation knows of {branch.upcoming:,}",
        ),
        (
            "delay",
            f"half within {delay['median']:.1f} days, 9 in 10 within {delay['p90']:.1f} days",
        ),
        (
            "lift",
            f"{lift['p']:+.0%} over the holdout ({lift['lo']:+.0%} to {lift['hi']:+.0%}), "
            f"or {extra['p']:,.0f} purchases ({extra['lo']:,.0f} to {extra['hi']:,.0f})",
        ),
    ]


# --- a bandit and its shop -----------------------------------------------------------------------


class Branch:
    """One of the two bandits and its simulated shop, with a separate clock.

    Args:
        policy: the policy of the bandit.
        rewards: the meaning of a missing reward.
        seed: the seed for the shop and the policy. Branches with the same seed get the same
            holdout and the same visitors, who respond in the same way to the same offer.
        start: the first day, in microseconds since 1970.

    Attributes:
        visitors: the number of visitors who have been shown an offer.
        purchases: the number of purchases reported so far.
        expected: the expected number of purchases with the offers shown.
        best: the expected number of purchases if each visitor had been shown the best offer.
    """

    def __init__(self, policy: type[Policy], rewards: Rewards, *, seed: int, start: int) -> None:
        self._shop, self._start, self._now = Shop(seed), start, start
        self._upcoming: list[tuple[float, str]] = []  # time in days, decision id
        self.visitors = self.purchases = 0
        self.expected = self.best = 0.0
        self.bandit = Bandit(
            PerArm(OFFERS, context=["returning", "phone"]),
            rewards=rewards,
            policy=policy(floor=0.02),
            journal=MemoryJournal(bandit="shop", clock=lambda: self._now),
            seed=seed,
            clock=lambda: self._now,
            holdout=Holdout(HOLDOUT, "uniform"),
        )

    @property
    def upcoming(self) -> int:
        """The number of purchases that have not been reported yet."""
        return len(self._upcoming)

    def open_for_a_day(self) -> None:
        """Serve the next day's visitors, and report the purchases due by the end of the day."""
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
        """Report all purchases up to a time in days, each at the right time, and set the clock."""
        while self._upcoming and self._upcoming[0][0] <= day:
            when, id = heapq.heappop(self._upcoming)
            self._now = self._start + round(when * DAY)
            self.bandit.observe(id, 1.0)
            self.purchases += 1
        self._now = self._start + round(day * DAY)


# --- the shop ------------------------------------------------------------------------------------

#: Purchase probability by offer, new or returning visitor, and computer or phone.
CHANCES = np.array(
    [
        [[0.06, 0.05], [0.08, 0.07]],
        [[0.14, 0.10], [0.05, 0.04]],
        [[0.05, 0.16], [0.06, 0.05]],
        [[0.04, 0.04], [0.15, 0.19]],
    ]
)
#: Mean number of days from an offer to the purchase, by offer.
DELAYS = np.array([1.0, 1.5, 2.0, 2.5])


class Shop:
    """Simulates visitors and their random behavior.

    Args:
        seed: the random seed.
    """

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def visitor(self) -> dict[str, Any]:
        """Return the next visitor's context."""
        returning, phone = self._rng.random(2) < (0.4, 0.5)
        return {"returning": int(returning), "phone": int(phone)}

    def chances(self, visitor: dict[str, Any]) -> Vector:
        """Return the probability that a visitor buys after seeing each offer."""
        chances: Vector = CHANCES[:, visitor["returning"], visitor["phone"]]
        return chances

    def purchase(self, visitor: dict[str, Any], offer: int) -> float | None:
        """Return the number of days after which a visitor buys; None if the visitor does not buy.

        The number of random draws is always the same, so that shops with the same seed stay
        synchronized regardless of the offers.
        """
        buys = self._rng.random() < self.chances(visitor)[offer]
        days = float(self._rng.exponential(DELAYS[offer]))
        return days if buys and days < WINDOW else None
