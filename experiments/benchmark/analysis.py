"""The results of the benchmark as a page of tables and one figure.

First the cells in which another library is better than our defaults. Then, for each problem, the
mean regret ± standard error of every entry, and in brackets by how many standard errors it is above
our defaults on the same files (negative: better); then CPU time and settings.

Run: python experiments/benchmark/analysis.py
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2]))  # for `experiments`

import numpy as np
import pandas as pd
from install import HERE
from protocol import DELAYS, ENTRIES, HORIZON, PROTOCOL, problems_of
from run import RESULTS, TUNING, best_settings
from tasks import read

from experiments.figures import columns, save
from experiments.tables import by_delay, rule

DEFAULT = next(iter(ENTRIES))
OURS = [name for name, entry in ENTRIES.items() if entry.library == "belated"]
#: Paired standard errors beyond which a difference is called one.
CLEAR = 2.0


def better(table: pd.DataFrame) -> list[str]:
    """Return the cells in which another library is clearly better than the defaults."""
    wide = table.pivot_table("regret", ["environment", "delay", "seed"], "policy")
    rows = []
    for (problem, delay), cell in wide.groupby(["environment", "delay"], sort=False):
        for name in [name for name in ENTRIES if name not in OURS]:
            difference = cell[name] - cell[DEFAULT]
            t = difference.mean() / difference.sem()
            if t < -CLEAR:
                means = f"{cell[name].mean():.0f} | {cell[DEFAULT].mean():.0f}"
                rows.append(f"| {problem} | {delay} | {name} | {means} | {t:+.1f} |")
    cells = wide.groupby(["environment", "delay"]).ngroups * (len(ENTRIES) - len(OURS))
    lines = [
        f"**Where another library has less regret than `{DEFAULT}`** by more than {CLEAR:.0f} "
        f"standard errors: {len(rows)} of {cells} comparisons (by chance alone, about "
        f"{0.023 * cells:.0f}).",
        "",
    ]
    if rows:
        lines += [
            "| problem | delay | entry | its regret | ours | t |",
            "|---|---|---|--:|--:|--:|",
        ]
    return [*lines, *rows, ""]


def times(table: pd.DataFrame) -> list[str]:
    """Return the CPU time of a round."""
    problems = list(problems_of("reporting"))
    wide = table.assign(micros=table["cpu_seconds"] / HORIZON * 1e6).pivot_table(
        "micros", "policy", "environment", aggfunc="median"
    )
    lines = ["**CPU µs per round**, the median over delays and seeds", "", *rule("entry", problems)]
    for name in ENTRIES:
        cells = [f"{wide.loc[name, problem]:,.0f}" for problem in problems]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def settings() -> list[str]:
    """Return the version and the settings behind each row."""
    kinds = list(PROTOCOL["reporting"]["problems"])
    tuning = list(read(TUNING))
    lines = ["**Settings**, by kind of problem", ""]
    lines += ["| entry | version | " + " | ".join(kinds) + " |", "|---|---|" + "---|" * len(kinds)]
    for name, entry in ENTRIES.items():
        cells = [_words(best_settings(tuning, name, kind)) for kind in kinds]
        lines.append(f"| {name} | {_version(entry.library)} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def _words(settings: dict[str, object]) -> str:
    return ", ".join(f"`{name} {value}`" for name, value in settings.items()) or "defaults"


def _version(library: str) -> str:
    if library == "belated":
        return "this one"
    pins = (HERE / "requirements" / f"{library}.txt").read_text(encoding="utf-8").split()
    return dict(pin.split("==") for pin in pins)[library]


def draw(table: pd.DataFrame) -> None:
    """Draw each entry's regret as a multiple of the defaults', a column for each delay law."""
    seeds = table["seed"].nunique()
    about = (
        f"Regret after {HORIZON:,} rounds as a multiple of that of `{DEFAULT}`: a dot for each of "
        f"the {table['environment'].nunique()} problems, a line at their geometric mean, {seeds} "
        "seeds each. Problems, seeds and settings were fixed before the runs (protocol.toml)."
    )
    title = "Regret of other libraries on problems that nobody tuned on"
    rivals = list(ENTRIES)[1:]
    chart, axes = columns(title, about, DELAYS, rivals, row=0.3)
    means = table.pivot_table("regret", ["delay", "environment"], "policy")
    for axis, delay in zip(axes, DELAYS, strict=True):
        for row, name in enumerate(rivals):
            ratios = (means.loc[delay, name] / means.loc[delay, DEFAULT]).to_numpy()
            colour = "#0072B2" if name in OURS else "#666666"
            axis.plot(ratios, np.full(len(ratios), row), "o", ms=3, color=colour, alpha=0.5)
            axis.plot([np.exp(np.log(ratios).mean())] * 2, [row - 0.35, row + 0.35], color=colour)
        axis.axvline(1.0, color="#999999", lw=0.8, zorder=1)
        axis.set_xscale("log")
        axis.set_xticks([0.5, 1, 2, 5, 10], ["½", "1", "2", "5", "10"])
        axis.minorticks_off()
    save(chart, HERE / "results.svg")


def main() -> None:
    runs = pd.DataFrame(list(read(RESULTS)))
    table = runs.rename(columns={"problem": "environment", "entry": "policy"})
    problems = list(problems_of("reporting"))
    lines = better(table)
    lines.append(by_delay(table, problems, DELAYS, list(ENTRIES), DEFAULT))
    text = "\n".join([*lines, *times(table), *settings()])
    print(text)
    (HERE / "results.md").write_text(text, encoding="utf-8")
    draw(table)


if __name__ == "__main__":
    main()
