"""Decide for a data frame of customers, and report a data frame of purchases a week later.

Each week, one job chooses a mailing for each customer of that week, in one call. About a week
later, another job reports who has bought. The only state that the jobs share is the journal, an
SQLite file that each job opens. Customers and purchases are simulated.

Requires pandas. Run: python examples/pandas_batch.py [--weeks 8] [--customers 300]
"""

from __future__ import annotations

import argparse
import tempfile
from datetime import timedelta
from pathlib import Path

import numpy as np
import pandas as pd

from belated import Bandit, ConversionsOnly, PerArm
from belated.journals import SQLiteJournal

DAY = 86_400_000_000  # microseconds
ACTIONS = ["discount", "news", "nothing"]
#: Terms of the log-odds of a purchase, by action: constant, age, country, membership.
EFFECTS = {
    "discount": (-1.5, -1.2, {"AT": 0.5, "DE": 0.0, "FR": -0.5}, 0.0),
    "news": (-1.5, 1.2, {"AT": -0.5, "DE": 0.0, "FR": 0.5}, 0.6),
    "nothing": (-2.0, 0.0, {}, 0.0),
}


class Calendar:
    """A simulated clock. In production, omit ``clock=``."""

    now = 1_760_000_000_000_000

    def __call__(self) -> int:
        """Return the simulated time in microseconds since 1970."""
        return self.now


def customers_of(week: int, count: int) -> pd.DataFrame:
    """Return the customers of a week; some have no country."""
    rng = np.random.default_rng([week, 1])
    return pd.DataFrame(
        {
            "customer": [f"week {week}, customer {n}" for n in range(count)],
            "age": rng.integers(18, 91, count),
            "country": rng.choice(["AT", "DE", "FR", None], count, p=[0.5, 0.3, 0.15, 0.05]),
            "member": rng.random(count) < 0.3,
        }
    )


def share_of(customers: pd.DataFrame, action: str) -> pd.Series:
    """Return the probability that each customer buys after ``action``."""
    middle, by_age, by_country, member = EFFECTS[action]
    logit = middle + by_age * (customers["age"] - 54) / 36
    logit = logit + customers["country"].map(by_country).astype(float).fillna(0.0)
    return 1.0 / (1.0 + np.exp(-(logit + member * customers["member"])))


def decide(bandit: Bandit, customers: pd.DataFrame) -> pd.DataFrame:
    """Run the first job: return the customers with a column that says what to send."""
    decisions = bandit.decide_many(customers, ids="customer")  # a retry gets the same decisions
    return customers.assign(action=[decision.action for decision in decisions])


def report(bandit: Bandit, bought: pd.DataFrame) -> None:
    """Run the second job, about a week later: report who has bought, by decision id."""
    receipts = bandit.observe_many(bought[["id", "value"]])
    assert all(receipt.status == "rewarded" for receipt in receipts), receipts


def purchases(decided: pd.DataFrame, week: int) -> pd.DataFrame:
    """Simulate the purchases after the decisions; customers who do not buy are not reported."""
    shares = pd.concat([share_of(decided, action) for action in ACTIONS], axis=1, keys=ACTIONS)
    share = shares.to_numpy()[np.arange(len(decided)), decided["action"].map(ACTIONS.index)]
    luck = np.random.default_rng([week, 2]).random(len(decided))
    buyers = decided[luck < share]
    return pd.DataFrame({"id": buyers["customer"], "value": 1.0})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weeks", type=int, default=8)
    parser.add_argument("--customers", type=int, default=300)
    arguments = parser.parse_args()

    # Choose ranges and countries from a sample, once. They are part of the bandit: copy the output
    # of repr(features) into your program, so that every job uses the same features.
    sample = customers_of(0, 1_000)
    features = PerArm(ACTIONS, context=["age", "country", "member"]).fit(sample)
    print(features)

    clock = Calendar()
    with tempfile.TemporaryDirectory() as folder:
        for week in range(1, arguments.weeks + 1):
            # In production, use journal="sqlite:///mails.db?bandit=mails".
            with Bandit(
                features,
                rewards=ConversionsOnly(timedelta(days=7)),  # only purchases are reported
                journal=SQLiteJournal(Path(folder, "mails.db"), bandit="mails", clock=clock),
                clock=clock,
                seed=1,
            ) as bandit:
                decided = decide(bandit, customers_of(week, arguments.customers))
                clock.now += 6 * DAY
                report(bandit, purchases(decided, week))
                clock.now += 2 * DAY
                bandit.sync()  # settle decisions whose window has ended
                counts = bandit.decision_counts
            best = pd.concat([share_of(decided, one) for one in ACTIONS], axis=1, keys=ACTIONS)
            right = (best.idxmax(axis=1) == decided["action"]).mean()
            print(
                f"week {week}: best action for {right:.0%},"
                f" {counts['rewarded']} bought, {counts['defaulted']} did not"
            )


if __name__ == "__main__":
    main()
