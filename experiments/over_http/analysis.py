"""Regret over HTTP beside that within a process, from ``table.csv``.

Mean regret ± standard error, and how many standard errors the service is above the same policy
within a process, on the same contexts, luck and delays (paired t; positive: the service is worse).

Run: python -m experiments.over_http.analysis
"""

from __future__ import annotations

from pathlib import Path

from experiments import tables
from experiments.over_http.worlds import DELAYS, EMBEDDED, HORIZON, SERVED, WORLDS
from experiments.runs import publish, read


def main() -> None:
    table, path = read(__doc__, Path(__file__).parent)
    seeds = table["seed"].nunique()
    head = (
        f"Regret after {HORIZON:,} rounds of 10 ms, {seeds} seeds: mean ± standard error (t).\n\n"
    )
    publish(head + tables.by_delay(table, WORLDS, DELAYS, [EMBEDDED, SERVED], EMBEDDED), path)


if __name__ == "__main__":
    main()
