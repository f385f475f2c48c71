"""Days of the shop: the same visitors for both bandits, and purchases told when they come."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from belated.cli.demo.service import AWARE, BLIND, Caller
from belated.cli.demo.shop import OFFERS, Shop

#: Visitors who come at once, and how many a day.
TOGETHER, VISITORS = 10, 200


@dataclass
class Tally:
    """What one bandit has done so far.

    Attributes:
        visitors: who got an offer.
        purchases: that have come.
        promised: that its offers will come to on average, as only the shop knows.
        best: that the best offers would have.
    """

    visitors: int = 0
    purchases: int = 0
    promised: float = 0.0
    best: float = 0.0


@dataclass
class Play:
    """How far the shop is.

    Attributes:
        day: of the shop, with fractions.
        tallies: by bandit.
    """

    day: float = 0.0
    tallies: dict[str, Tally] = field(default_factory=lambda: {AWARE: Tally(), BLIND: Tally()})


def play(port: int, days: float, seconds: float, seed: int) -> Iterator[Play]:
    """Run the shop for some days that take so many seconds; gives how far it is, again and again.

    Args:
        port: of the service.
        days: of the shop.
        seconds: that they take.
        seed: of visitors and luck.
    """
    now, day = Play(), seconds / days
    shops = {name: Shop(seed) for name in now.tallies}
    coming: list[tuple[float, str, str]] = []  # when, of which bandit, decision id
    caller, start = Caller(port), time.monotonic()
    try:
        for turn in range(round(days * VISITORS / TOGETHER)):
            at = turn * TOGETHER / VISITORS
            time.sleep(max(0.0, start + at * day - time.monotonic()))
            now.day = at
            _tell(caller, coming, now)
            for name, shop in shops.items():
                _visit(caller, name, shop, now, coming)
            yield now
        now.day = days
        yield now
    finally:
        caller.close()


def _visit(
    caller: Caller, name: str, shop: Shop, now: Play, coming: list[tuple[float, str, str]]
) -> None:
    """Have some visitors come, and their purchases later."""
    visitors, tally = shop.visitors(TOGETHER), now.tallies[name]
    asked = [{"context": one, "actions": list(OFFERS)} for one in visitors]
    found = caller.tell(f"/v1/{name}/decisions/batch", {"requests": asked})["decisions"]
    for visitor, decision in zip(visitors, found, strict=True):
        chances = shop.chances(visitor)
        tally.visitors += 1
        tally.promised += float(chances[decision["index"]])
        tally.best += float(chances.max())
        days = shop.purchase(visitor, decision["index"])
        if days is not None:
            heapq.heappush(coming, (now.day + days, name, decision["id"]))


def _tell(caller: Caller, coming: list[tuple[float, str, str]], now: Play) -> None:
    """Report the purchases that have come by now."""
    due: dict[str, list[str]] = {}
    while coming and coming[0][0] <= now.day:
        _, name, id = heapq.heappop(coming)
        due.setdefault(name, []).append(id)
    for name, ids in due.items():
        rewards = [{"id": id, "value": 1.0} for id in ids]
        caller.tell(f"/v1/{name}/rewards/batch", {"rewards": rewards})
        now.tallies[name].purchases += len(ids)
