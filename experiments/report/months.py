"""Does the interval of a report's headline hold? Months of a small shop, each with its own luck.

``python -m experiments.report.months MONTHS [FIRST]`` plays that many months with a real bandit, 60
decisions a day, a fifth of them held out, and counts how often the interval of the rewards gained
covers the truth: the chance of a purchase by the offer that was shown, less that of an offer drawn
uniformly, summed over the bandit's decisions. Of 500 months it must be between 92 and 98 %.
"""

from __future__ import annotations

import sys

import numpy as np

from belated import Bandit, MemoryJournal
from belated.evaluation.sources import read_journal
from experiments.report.shop import Shop

DAILY, SHARE = 60.0, 0.2
#: Of so many months an interval of 95 % must cover the truth in about as many.
ENOUGH, BETWEEN = 500, (0.92, 0.98)


def month(seed: int) -> tuple[float, float, float, float] | None:
    """The truth of a month, and what the report says: a number and its interval."""
    shop = Shop(
        lambda clock: MemoryJournal("shop", clock=clock), seed=seed, daily=DAILY, holdout=SHARE
    )
    bandit: Bandit = shop.run()
    extra = bandit.report().data["headline"].get("extra")
    if extra is None:  # too few rewards in the holdout
        return None
    table = read_journal(bandit.journal).live()
    ids = table.ids[table.group == table.groups.index("bandit")]
    truth = sum(shop.worth[decision_id][0] - shop.worth[decision_id][1] for decision_id in ids)
    return truth, extra["p"], extra["lo"], extra["hi"]


def main() -> None:
    months = int(sys.argv[1])
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    covered: list[bool] = []
    errors: list[float] = []
    for played, seed in enumerate(range(first, first + months), 1):
        result = month(seed)
        if result is not None:
            truth, estimate, low, high = result
            covered.append(low <= truth <= high)
            errors.append(estimate - truth)
        if played % 10 == 0 or played == months:
            _say(played, covered, errors)
    low, high = BETWEEN
    if months >= ENOUGH and not low <= np.mean(covered) <= high:
        sys.exit(f"the interval covers the truth in {np.mean(covered):.1%} of the months")


def _say(played: int, covered: list[bool], errors: list[float]) -> None:
    share, count = float(np.mean(covered)), len(covered)
    spread = (share * (1.0 - share) / count) ** 0.5
    print(
        f"{played} months: covered {share:.3f} ± {spread:.3f},"
        f" mean error {np.mean(errors):+.1f} ± {np.std(errors) / count**0.5:.1f},"
        f" {played - count} without an interval",
        flush=True,
    )


if __name__ == "__main__":
    main()
