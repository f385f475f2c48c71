"""What counting pending decisions and √G_t bring, as a table and a picture, from ``table.csv``.

Mean regret after 10,000 rounds ± standard error in every cell, and beside each variant how many
standard errors it is above the default on the same seeds (paired t; positive: worse).

Run: python -m experiments.pending.analysis
"""

from __future__ import annotations

from pathlib import Path

from experiments import panels, tables
from experiments.figures import save
from experiments.pending.variants import DEFAULT, DELAYS, VARIANTS, WORLDS
from experiments.runs import publish, read

TITLE = "Pending decisions should count as explored, and √G should not widen"
ABOUT = "DelayedUCB with one width, and what it makes of pending decisions; G is their number."


def main() -> None:
    table, path = read(__doc__, Path(__file__).parent)
    publish(tables.by_delay(table, WORLDS, DELAYS, list(VARIANTS), DEFAULT), path)
    save(panels.multiples(table, WORLDS, list(DELAYS), list(VARIANTS), TITLE, ABOUT), path)


if __name__ == "__main__":
    main()
