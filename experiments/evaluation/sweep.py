"""Do the intervals hold? Off-policy values, lift, delay curves and forecasts against the truth.

Every part appends its finished runs to ``runs.jsonl``, from which it goes on, and all are put
together in ``table.csv``: a line for each cell and measure, with mean, spread and number of runs.
The parts: ``values`` (500 logs a cell, some 50 minutes of one core), ``floorless`` (every log is to
be refused), ``lift`` and ``looks`` (2,000 runs each), ``curves`` and ``conversions`` (2,000 each).

Run: python -m experiments.evaluation.sweep [--only values] [--runs 500]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import itertools
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from tqdm import tqdm

from experiments.evaluation import curves, lifts, values
from experiments.evaluation.logs import DELAYS, POLICIES, WITHOUT_FLOOR

HERE = Path(__file__).parent
#: What a cell is, among the columns of its lines; all others are measured.
CELL = ["part", "policy", "delay", "rewards", "target", "case", "design_at_least"]


class Part(NamedTuple):
    """Some cells, and what measures one run of them."""

    measure: Callable[..., list[dict[str, Any]]]
    cells: Iterable[tuple[Any, ...]]
    runs: int


PARTS = {
    "values": Part(values.measure, tuple(itertools.product(POLICIES, DELAYS)), 500),
    "floorless": Part(values.measure, tuple(itertools.product(WITHOUT_FLOOR, ["20 %"])), 100),
    "lift": Part(lifts.measure, tuple((case,) for case in lifts.CASES), 2_000),
    "looks": Part(lifts.look, tuple((look,) for look in lifts.LOOKS), 2_000),
    "curves": Part(curves.measure, tuple((case,) for case in curves.CASES), 2_000),
    "conversions": Part(curves.measure_conversions, tuple((rate,) for rate in curves.RATES), 2_000),
    "dependence": Part(curves.measure_dependence, tuple((test,) for test in curves.TESTS), 2_000),
}


def run(name: str, runs: int | None, finished: Path) -> None:
    """Measure what is missing of a part; all cells grow alike, so that one can stop early."""
    part = PARTS[name]
    finished_keys = {(line["part"], *line["key"]) for line in _lines(finished)}
    cells = list(part.cells)
    with finished.open("a") as file:
        for seed in tqdm(range(runs or part.runs), unit="run", desc=name, mininterval=30):
            for cell in cells:
                key = (*cell, seed)
                if (name, *key) in finished_keys:
                    continue
                lines = part.measure(*cell, seed)
                print(json.dumps({"part": name, "key": key, "lines": lines}), file=file, flush=True)


def _lines(path: Path) -> Iterable[dict[str, Any]]:
    if path.exists():
        with path.open() as file:
            for line in file:
                yield json.loads(line)


def summary(path: Path) -> pd.DataFrame:
    """Mean and spread of every measure of every cell."""
    rows = [{"part": entry["part"], **line} for entry in _lines(path) for line in entry["lines"]]
    table = pd.DataFrame(rows).drop(columns="seed")
    if "design" in table:
        table["design_at_least"] = pd.cut(
            table["design"], [20, 60, 200, float("inf")], labels=["20", "60", "200"], right=False
        ).astype(object)
    keys = [name for name in CELL if name in table]
    table[keys] = table[keys].fillna("")
    lines = []
    for key, group in table.groupby(keys, sort=False):
        for measure in group.columns.difference(keys):
            numbers = group[measure].dropna().astype(float)
            if len(numbers):
                line = dict(zip(keys, key, strict=True))
                line |= {"measure": measure, "runs": len(numbers)}
                lines.append(line | {"mean": numbers.mean(), "sd": numbers.std(ddof=0)})
    return pd.DataFrame(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--runs", type=int, help="instead of the usual number")
    parser.add_argument("--output", type=Path, default=HERE / "table.csv")
    options = parser.parse_args()
    finished = options.output.with_name("runs.jsonl")
    for name in options.only:
        run(name, options.runs, finished)
    summary(finished).to_csv(options.output, index=False, float_format="%.5f")


if __name__ == "__main__":
    main()
