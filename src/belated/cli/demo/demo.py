"""``belated demo``: watch a bandit earn in a simulated shop, in half a minute, with no setup.

Two bandits choose offers for the same visitors of a shop whose purchases are reported days later.
One counts pending decisions; the other waits for its attribution window to end, as most tools do.
The clock is the shop's: four weeks pass as fast as this machine computes them.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from belated import BlindThompson, ConversionsOnly, DefaultAfter, DelayedUCB
from belated.cli.demo.branch import DAY, HOLDOUT, VISITORS, Branch
from belated.cli.demo.shop import OFFERS, WINDOW
from belated.cli.progress import Progress
from belated.cli.text import pairs

EXAMPLE = "belated demo"

#: How long the shop is open.
WEEKS = 4
#: Where the report is written.
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
“Of the best possible” is what the offers bring on average, divided by what the best
offer for each visitor would bring. Only the simulation knows it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("--seed", type=int, default=7, help="of visitors and luck; default: 7")


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    window = f"{WINDOW}d"
    # The four weeks end with the last midnight, UTC.
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
    report = belated.bandit.report()
    print("From the journal of the first bandit, with 95% intervals:\n")
    print(pairs(_findings(report.data, belated), indent="  "))
    report.save(REPORT)
    print(f"\nThe report shows the same: {Path(REPORT).resolve()}")
    print("To run a bandit of your own: belated init")
    return 0


def _line(day: int, belated: Branch, waiting: Branch) -> str:
    lead = belated.purchases - waiting.purchases
    return (
        f"{day:3}  {belated.visitors:8,}  {belated.purchases:7,}  {waiting.purchases:7,}  "
        f"{lead:+4,}      {belated.expected / belated.best:7.0%}  "
        f"{waiting.expected / waiting.best:7.0%}"
    )


def _findings(data: dict[str, Any], branch: Branch) -> list[tuple[str, str]]:
    """Return numbers of the report, with the truth if only the simulation knows it."""
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
