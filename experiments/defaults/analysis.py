"""The candidates' regret relative to the default's, problem by problem and over all.

Each cell is the ratio of mean regrets to that of the reference, with the paired t of the difference
(positive: worse). The last line is the geometric mean of the ratios with a 95 % interval from
resampling seeds.

Run: python -m experiments.defaults.analysis [--table table.csv] [--reference "UCB .95"]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.defaults.candidates import CANDIDATES
from experiments.defaults.worlds import LONG, WORLDS

HERE = Path(__file__).parent
RESAMPLES = 500


def overall(cells: dict[str, pd.DataFrame], name: str, reference: str) -> str:
    """The geometric mean over problems of the ratio of means, and its interval."""
    rng = np.random.default_rng(0)
    logs = []
    for resample in range(RESAMPLES + 1):
        ratios = []
        for wide in cells.values():
            seeds = np.arange(len(wide))
            chosen = seeds if resample == 0 else rng.choice(seeds, len(seeds))
            regrets = wide[[name, reference]].to_numpy()[chosen].mean(axis=0)
            ratios.append(np.log(regrets[0] / regrets[1]))
        logs.append(float(np.mean(ratios)))
    low, high = np.exp(np.quantile(logs[1:], [0.025, 0.975]))
    return f"**{np.exp(logs[0]):.2f}** [{low:.2f}, {high:.2f}]"


def cell(wide: pd.DataFrame, name: str, reference: str) -> str:
    if name == reference:
        return f"{wide[name].mean():.0f}±{wide[name].sem():.0f}"
    difference = wide[name] - wide[reference]
    if not difference.any():
        return "same"
    ratio = wide[name].mean() / wide[reference].mean()
    return f"{ratio:.2f} ({difference.mean() / difference.sem():+.1f})"


def markdown(table: pd.DataFrame, reference: str) -> str:
    names = [name for name in CANDIDATES if name in set(table["policy"])]
    names.remove(reference)
    names.insert(0, reference)
    worlds = [world for world in (*WORLDS, *LONG) if world in set(table["environment"])]
    cells = {
        world: table[table["environment"] == world].pivot_table("regret", "seed", "policy").dropna()
        for world in worlds
    }
    lines = ["| problem | " + " | ".join(names) + " |", "|---|" + "--:|" * len(names)]
    for world, wide in cells.items():
        row = [cell(wide, name, reference) for name in names]
        lines.append(f"| {world} | " + " | ".join(row) + " |")
    summary = ["1", *(overall(cells, name, reference) for name in names[1:])]
    lines.append("| **all, geometric mean** | " + " | ".join(summary) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", type=Path, default=HERE / "table.csv")
    parser.add_argument("--reference", default="UCB .95")
    arguments = parser.parse_args()
    text = markdown(pd.read_csv(arguments.table), arguments.reference)
    print(text)
    arguments.table.with_suffix(".md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
