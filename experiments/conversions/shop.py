"""A shop as in the README, where purchases are reported days later: its predictions over time.

Two offers, and the age and country of the visitor: eight rows in all. 2,000 decisions per day; 6 to
30 % buy within 7 days, most within three. After 7, 10 and 14 days: predicted over true means of the
rows that were chosen 2,000 times or more, by the meaning of missing rewards. Prints the mean with
its standard error over the bandits, and the share within 10 %. Writes ``shop.md``.

Run: python -m experiments.conversions.shop [--seeds 10]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import math
import warnings
from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import product
from pathlib import Path

import numpy as np

from belated import Bandit, Category, ConversionsOnly, DefaultAfter, Number, PerArm
from belated.core.rewards import Rewards

HERE = Path(__file__).parent
FIRST, DAY, WINDOW, A_DAY = 95_000, 86_400_000_000, 7, 2_000
LOOKS, LEAST, WITHIN = (7, 10, 14), 2_000, 0.10
OFFERS = ("blue", "red")
VISITORS = [{"age": age, "country": country} for age, country in product((25, 60), ("AT", "DE"))]
WAYS: dict[str, Callable[[], Rewards]] = {
    "ConversionsOnly": lambda: ConversionsOnly(f"{WINDOW}d"),
    "DefaultAfter": lambda: DefaultAfter(f"{WINDOW}d"),
}


def chance(visitor: int, offer: int) -> float:
    """Return the probability of a purchase within the window, by visitor and offer."""
    logit = -2.4 + 0.5 * (visitor % 2) + (0.8, -0.4)[offer] * (1.0 if visitor < 2 else -0.6)
    return 1.0 / (1.0 + math.exp(-logit))


def run(rewards: Rewards, seed: int) -> dict[int, list[float]]:
    """Return predicted over true means of the rows that were chosen often, by day."""
    rng, now = np.random.default_rng([seed, 70]), 19_700 * DAY
    features = PerArm(
        list(OFFERS), context={"age": Number(18, 90), "country": Category(["AT", "DE"])}
    )
    bandit = Bandit(features, rewards=rewards, floor=0, clock=lambda: now, seed=seed)
    out: list[tuple[int, int, str]] = []
    chosen: Counter[tuple[int, int]] = Counter()
    ratios: dict[int, list[float]] = {}
    for n in range(1, LOOKS[-1] * A_DAY + 1):
        now += DAY // A_DAY
        while out and out[0][0] <= now:
            bandit.observe(heappop(out)[2], 1.0)
        visitor = int(rng.integers(len(VISITORS)))
        decision = bandit.decide(VISITORS[visitor])
        offer = OFFERS.index(str(decision.action))
        chosen[visitor, offer] += 1
        if rng.random() < chance(visitor, offer):
            # Exponential with a mean of two days, cut off at the window.
            share = rng.random() * -math.expm1(-WINDOW / 2.0)
            heappush(out, (now - int(2.0 * math.log1p(-share) * DAY), n, decision.id))
        if n in [day * A_DAY for day in LOOKS]:
            ratios[n // A_DAY] = [
                bandit.score(VISITORS[v]).actions[o].mean / chance(v, o)
                for (v, o), count in sorted(chosen.items())
                if count >= LEAST
            ]
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    seeds = range(FIRST, FIRST + parser.parse_args().seeds)
    warnings.simplefilter("ignore")
    lines = [
        "| shop | days | bandits | rows | predicted / true | within 10 % | goal | reached |",
        "|---|--:|--:|--:|--:|--:|---|---|",
    ]
    for name, rewards in WAYS.items():
        runs = [run(rewards(), seed) for seed in seeds]
        for day in LOOKS:
            daily = [ratios for days in runs if (ratios := days[day])]
            if not daily:
                continue
            means, rows = np.array([np.mean(ratios) for ratios in daily]), np.concatenate(daily)
            mean, error = means.mean(), means.std() / math.sqrt(len(means))
            near = float((np.abs(rows - 1.0) <= WITHIN).mean())
            has_goal = name == "ConversionsOnly"
            goal = f"1 ± {WITHIN:.2f}" if has_goal else ""
            holds = ("yes" if abs(mean - 1.0) <= WITHIN else "no") if has_goal else ""
            cells = f"{len(daily)} | {len(rows)} | {mean:.3f} ± {error:.3f} | {near:.0%}"
            lines.append(f"| {name} | {day} | {cells} | {goal} | {holds} |")
            print(lines[-1], flush=True)
    (HERE / "shop.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
