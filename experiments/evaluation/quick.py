"""A few runs on other seeds, held against the committed table: fails if outside its intervals.

Prints the new mean, the table's and how many standard deviations they are apart. Takes half a
minute.

Run: python -m experiments.evaluation.quick
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import sys
from pathlib import Path

import pandas as pd

from experiments.checks import WIDTH
from experiments.evaluation.analysis import pooled
from experiments.evaluation.sweep import CELL, PARTS

SEEDS = range(100_000, 100_020)
#: For each part, how many of its cells, and the measures that are held.
HELD = {
    "lift": (2, ("error", "covered")),
    "curves": (2, ("error", "covered")),
    "conversions": (1, ("error", "covered")),
    "dependence": (2, ("rejected",)),
    "values": (1, ("error", "covered")),
}
#: Of the longer ones fewer runs.
FEW = {"values": 3}


def main() -> None:
    committed = pd.read_csv(Path(__file__).with_name("table.csv"), dtype=str, keep_default_na=False)
    for name in ("mean", "sd", "runs"):
        committed[name] = committed[name].astype(float)
    outside = 0
    for part, (cells, measures) in HELD.items():
        seeds = SEEDS[: FEW.get(part, len(SEEDS))]
        lines = [
            line
            for cell in list(PARTS[part].cells)[:cells]
            for seed in seeds
            for line in PARTS[part].measure(*cell, seed)
        ]
        new = pd.DataFrame(lines).fillna({name: "" for name in CELL})
        keys = [name for name in CELL if name in new and name != "design_at_least"]
        for key, group in new.groupby(keys):
            reference = committed[committed["part"] == part]
            for name, value in zip(keys, key, strict=True):
                reference = reference[reference[name] == str(value)]
            outside += sum(
                _is_outside(part, key, group, reference, measure) for measure in measures
            )
    if outside:
        sys.exit(f"{outside} cells are outside: run sweep.py and analysis.py, and see what changed")


def _is_outside(
    part: str, key: tuple[str, ...], group: pd.DataFrame, known: pd.DataFrame, measure: str
) -> bool:
    """Print a line, and say whether the new mean is too far from the table's."""
    table = known[known["measure"] == measure]
    if measure not in group or table.empty:
        return False
    values = group[measure].dropna().astype(float)
    if values.empty:
        return False
    mean, error, runs = pooled(table)
    spread = error * runs**0.5 * (1 / len(values) + 1 / runs) ** 0.5
    distance = (values.mean() - mean) / max(spread, 1e-12)
    name = ", ".join([part, *map(str, key), measure])
    print(f"{name:<64} {values.mean():9.4f} {mean:9.4f} {distance:+5.1f}")
    return abs(distance) > WIDTH


if __name__ == "__main__":
    main()
