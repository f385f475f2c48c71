"""Does the interval of a report's headline hold? Months of a small shop, each with its own luck.

``python -m experiments.report.months MONTHS [FIRST]`` plays that many months with a real bandit, 60
decisions a day, a fifth of them held out, and counts how often the interval of the rewards gained
covers the truth: the chance of a purchase by the offer that was shown, less that of an offer drawn
uniformly, summed over the bandit's decisions.
"""

from __future__ import annotations

import sys

import numpy as np

from belated import Bandit, MemoryJournal
from belated.evaluation import read_journal
from experiments.report.shop import Shop

DAILY, SHARE = 60.0, 0.2


def month(seed: int) -> tuple[float, float, float, float] | None:
    """The truth of a month, and what the report says: a number and its interval."""
    shop = Shop(
        lambda clock: MemoryJournal("shop", clock=clock), seed=seed, daily=DAILY, holdout=SHARE
    )
    bandit: Bandit = shop.run()
    found = bandit.report().data["headline"].get("extra")
    if found is None:  # too few rewards in the holdout
        return None
    table = read_journal(bandit.journal).live()
    ids = table.ids[table.group == table.groups.index("bandit")]
    truth = sum(shop.worth[one][0] - shop.worth[one][1] for one in ids)
    return truth, found["p"], found["lo"], found["hi"]


def main() -> None:
    months = int(sys.argv[1])
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    covered, errors, refused = [], [], 0
    for seed in range(first, first + months):
        one = month(seed)
        if one is None:
            refused += 1
            continue
        truth, said, low, high = one
        covered.append(low <= truth <= high)
        errors.append(said - truth)
        if (seed - first) % 10 == 9:
            share = float(np.mean(covered))
            spread = (share * (1 - share) / len(covered)) ** 0.5
            print(
                f"{len(covered)} months: covered {share:.3f} ± {spread:.3f},"
                f" mean error {np.mean(errors):+.1f} ± {np.std(errors) / len(errors) ** 0.5:.1f},"
                f" {refused} without an interval",
                flush=True,
            )


if __name__ == "__main__":
    main()
