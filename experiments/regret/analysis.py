"""The regret table as text and as a picture, from ``table.csv``.

Mean final regret ± standard error in every cell, and beside each other policy how many standard
errors it is above the default on the same seeds (paired t; positive: worse than DelayedUCB).

Run: python -m experiments.regret.analysis
"""

from __future__ import annotations

from pathlib import Path

from experiments import panels, tables
from experiments.figures import save
from experiments.regret.policies import DELAYS, POLICIES, WORLDS
from experiments.runs import publish, read

DEFAULT = "DelayedUCB"
TITLE = "Blind or greedy policies fail somewhere; DelayedUCB stays low throughout"
ABOUT = "Rows: the same every round (fixed), those of a few users, or new ones every round (fresh)."


def main() -> None:
    table, path = read(__doc__, Path(__file__).parent)
    names = [name for name in POLICIES if name in set(table["policy"])]
    publish(tables.by_delay(table, WORLDS, DELAYS, names, DEFAULT), path)
    save(panels.multiples(table, WORLDS, list(DELAYS), names, TITLE, ABOUT), path)


if __name__ == "__main__":
    main()
