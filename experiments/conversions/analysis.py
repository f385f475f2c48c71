"""The results of the sweep for each way to learn from conversions, compared with the goals.

Prints and writes ``table.md``: the figure with its standard error over paired seeds, the goal, and
whether it is reached. Cells that were not run are left out. The figures of coverage.py, shop.py and
buckets.py are added, if they have been run.

Run: python -m experiments.conversions.analysis
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from experiments.conversions.problems import HORIZON, POLICIES, PROBLEMS

HERE = Path(__file__).parent
KNOWN = {"fresh500": 1.10, "fresh3000": 1.15, "fixed500": 1.15, "lomax": 1.20}
FLIP = {"fresh500": 0.90, "fresh3000": 0.85, "fixed500": 0.90}
DEFAULTS = ("default W/10", "default W/2", "default W")
#: At half a window, at its end, and at the end of the run: by how much predictions may be off.
OFF = {2: 0.20, 1: 0.05, 0: 0.02}


class Line(NamedTuple):
    """A figure and its goal."""

    what: str
    seeds: int
    found: str
    goal: str
    holds: str


class Cells:
    """Runs by cell, in the order of their seeds."""

    def __init__(self, table: pd.DataFrame) -> None:
        self._runs = {
            key: part.set_index("seed")
            for key, part in table.groupby(["problem", "way", "policy", "rounds"])
        }

    def both(self, problem: str, one: str, other: str, policy: str) -> pd.DataFrame | None:
        """Regrets of two ways on the seeds that both have."""
        runs = [self.of(problem, way, policy, HORIZON) for way in (one, other)]
        if runs[0] is None or runs[1] is None:
            return None
        paired = pd.concat([run["regret"] for run in runs], axis=1, keys=["one", "other"])
        paired = paired.dropna()
        return paired if len(paired) >= 2 else None

    def of(self, problem: str, way: str, policy: str, rounds: int) -> pd.DataFrame | None:
        return self._runs.get((problem, way, policy, rounds))


def main() -> None:
    cells = Cells(pd.read_csv(HERE / "table.csv"))
    lines = [*law(cells), *weight(cells), *flips(cells), *defaults(cells), *predictions(cells)]
    lines += coverage(cells)
    text = ["| what | seeds | found | goal | reached |", "|---|---|---|---|---|"]
    text += [f"| {' | '.join(map(str, line))} |" for line in lines]
    for name in ("coverage.md", "shop.md", "buckets.md"):
        if (HERE / name).exists():
            text += ["", (HERE / name).read_text(encoding="utf-8").rstrip()]
    text += ["", *_regrets(cells)]
    (HERE / "table.md").write_text("\n".join(text) + "\n", encoding="utf-8")
    print("\n".join(text))


def law(cells: Cells) -> Iterator[Line]:
    """The price of not knowing the law of the delays."""
    for problem, most in KNOWN.items():
        for policy in POLICIES:
            label = f"{problem}, {policy}: learned law / known law"
            yield from _ratio(label, cells.both(problem, "conversions", "known F", policy), most)


def weight(cells: Cells) -> Iterator[Line]:
    """Pending decisions in full, and batches."""
    label = "fixed500, ucb: full weight / weight F"
    yield from _ratio(label, cells.both("fixed500", "conversions", "F-weight", "ucb"), 0.80)
    yield from _mean(cells, "const1000", "conversions", 480.0)
    for way in ("known F, F-weight", "uncounted"):  # what counting them is worth
        yield from _mean(cells, "const1000", way, 1_000.0, above=True)
    for way in ("batches", "conversions"):
        yield from _mean(cells, "batch1000", way, 480.0)
    yield from _mean(cells, "batch1000", "single", math.inf)
    yield from _mean(cells, "batch1000", "hold", math.inf)


def flips(cells: Cells) -> Iterator[Line]:
    """A zero at once, which a conversion flips."""
    for problem, most in FLIP.items():
        runs = cells.both(problem, "conversions", "flip", "thompson")
        yield from _ratio(f"{problem}, thompson: conversions / zero then flip", runs, most)


def defaults(cells: Cells) -> Iterator[Line]:
    """DefaultAfter at its best window."""
    for problem, most in zip(PROBLEMS, (1.05, 1.05, 1.05, 0.80), strict=False):
        pairs = [cells.both(problem, "conversions", way, "ucb") for way in DEFAULTS]
        available = [
            (way, runs) for way, runs in zip(DEFAULTS, pairs, strict=True) if runs is not None
        ]
        if available:
            way, runs = min(available, key=lambda pair: float(pair[1]["other"].mean()))
            yield from _ratio(f"{problem}, ucb: conversions / best {way}", runs, most)


def predictions(cells: Cells) -> Iterator[Line]:
    """Predicted over true, of the rows chosen last."""
    for problem in ("fresh500", "fresh3000"):
        window = PROBLEMS[problem].window
        for part, off in OFF.items():
            rounds = window // part if part else HORIZON
            for way in ("conversions", "default W"):
                runs = cells.of(problem, way, "ucb", rounds)
                if runs is None or len(runs) < 2:
                    continue
                ratio = runs["predicted"].sum() / runs["true"].sum()
                differences = runs["predicted"] - ratio * runs["true"]
                error = differences.std() / math.sqrt(len(runs)) / runs["true"].mean()
                has_goal = way == "conversions"
                holds = ("yes" if abs(ratio - 1.0) <= off else "no") if has_goal else ""
                goal = f"1 ± {off:.2f}" if has_goal else ""
                label = f"{problem}, {way}: predicted / true after {rounds:,} rounds"
                yield Line(label, len(runs), f"{ratio:.3f} ± {error:.3f}", goal, holds)


def coverage(cells: Cells) -> Iterator[Line]:
    """Of the predictors of new rows, under the policy."""
    for problem in ("fresh500", "fresh3000"):
        window = PROBLEMS[problem].window
        for rounds, least in ((window, 0.90), (HORIZON, 0.93)):
            runs = cells.of(problem, "conversions", "ucb", rounds)
            covered = pd.Series(dtype=float) if runs is None else runs["covered"].dropna()
            if len(covered) < 2:
                continue
            cell = f"{covered.mean():.3f} ± {covered.std() / math.sqrt(len(covered)):.3f}"
            label = f"{problem}, ucb: coverage after {rounds:,} rounds"
            holds = "yes" if covered.mean() >= least else "no"
            yield Line(label, len(covered), cell, f"≥ {least:.2f}", holds)


def _ratio(what: str, runs: pd.DataFrame | None, most: float) -> Iterator[Line]:
    if runs is None:
        return
    ratio = float(runs["one"].mean() / runs["other"].mean())
    differences = runs["one"] - ratio * runs["other"]
    error = float(differences.std() / math.sqrt(len(runs)) / runs["other"].mean())
    holds = "yes" if ratio <= most else "no"
    yield Line(what, len(runs), f"{ratio:.2f} ± {error:.2f}", f"≤ {most:.2f}", holds)


def _mean(
    cells: Cells, problem: str, way: str, bound: float, *, above: bool = False
) -> Iterator[Line]:
    runs = cells.of(problem, way, "ucb", HORIZON)
    if runs is None or len(runs) < 2:
        return
    mean, error = runs["regret"].mean(), runs["regret"].std() / math.sqrt(len(runs))
    has_goal = math.isfinite(bound)
    goal = f"{'>' if above else '≤'} {bound:,.0f}" if has_goal else ""
    holds = ("yes" if (mean > bound) == above else "no") if has_goal else ""
    label = f"{problem}, ucb, {way}: regret"
    yield Line(label, len(runs), f"{mean:.0f} ± {error:.0f}", goal, holds)


def _regrets(cells: Cells) -> Iterator[str]:
    """Every cell."""
    yield "| problem | way | policy | rounds | seeds | regret |"
    yield "|---|---|---|---|---|---|"
    for (problem, way, policy, rounds), runs in cells._runs.items():
        error = runs["regret"].std() / math.sqrt(len(runs)) if len(runs) > 1 else math.nan
        shown = f"{runs['regret'].mean():.1f} ± {error:.1f}"
        yield f"| {problem} | {way} | {policy} | {rounds:,} | {len(runs)} | {shown} |"


if __name__ == "__main__":
    main()
