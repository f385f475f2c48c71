"""How often intervals hold, as text, from ``table.csv``.

Every number has its Monte Carlo error, one standard error, in brackets. Bias, coverage and widths
of off-policy values are over the targets of a cell that were not refused.

Run: python -m experiments.evaluation.analysis
"""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd

from experiments.runs import publish, read
from experiments.tables import rule

#: For each part: its title, what tells its lines apart, and what is shown.
PARTS = {
    "values": (
        "Off-policy values, by delay and policy",
        ["policy", "delay", "rewards"],
        ["error", "covered", "width", "normal_covered", "normal_width", "always", "refused"],
    ),
    "floorless": ("Logs without a floor", ["policy"], ["refused"]),
    "lift": (
        "Lift over a holdout",
        ["case"],
        ["error", "covered", "rejected", "width", "plain_rejected"],
    ),
    "looks": ("Lift, looked at every day", ["case"], ["alarm", "peeking_alarm"]),
    "curves": ("Delay curves and forecasts", ["case", "target"], ["error", "covered", "width"]),
    "conversions": (
        "Curves and forecasts of conversions",
        ["case", "target"],
        ["error", "covered"],
    ),
    "dependence": ("Tests of dependence at 5 %", ["case"], ["rejected"]),
}
TITLES = {
    "error": "bias",
    "covered": "coverage",
    "normal_covered": "normal: coverage",
    "normal_width": "width",
    "always": "at all times",
    "plain_rejected": "plain: rejected",
    "peeking_alarm": "peeking: alarm",
}


def pooled(lines: pd.DataFrame) -> tuple[float, float, int]:
    """Mean, its standard error and the runs of several lines together."""
    runs = lines["runs"].sum()
    mean = (lines["mean"] * lines["runs"]).sum() / runs
    square = ((lines["sd"] ** 2 + lines["mean"] ** 2) * lines["runs"]).sum() / runs
    return mean, math.sqrt(max(square - mean**2, 0.0) / runs), int(runs)


def section(table: pd.DataFrame, by: list[str], measures: list[str]) -> list[str]:
    head = [*by[1:], "runs", *(TITLES.get(name, name.replace("_", " ")) for name in measures)]
    out = rule(by[0], head)
    for key, group in table.groupby(by, sort=False):
        cells = [str(part) for part in (key if isinstance(key, tuple) else (key,))]
        runs = group[group["measure"].isin(["refused", *measures])].groupby("measure")["runs"].sum()
        cells.append(f"{runs.max():,}")
        for name in measures:
            lines = group[group["measure"] == name]
            if lines.empty:
                cells.append("")
                continue
            mean, error, _ = pooled(lines)
            cells.append(f"{mean:.4f} ({error:.4f})")
        out.append("| " + " | ".join(cells) + " |")
    return out


def markdown(table: pd.DataFrame) -> str:
    text = []
    for part, (title, columns, measures) in PARTS.items():
        here = table[table["part"] == part]
        if not here.empty:
            text += [f"**{title}**", "", *section(here, columns, measures), ""]
    values = table[table["part"] == "values"]
    if not values.empty:
        measures = ["error", "covered", "width", "normal_covered", "normal_width"]
        designs = values[values["design_at_least"] != ""]
        text += ["**Off-policy values, by effective decisions (design)**", ""]
        text += [*section(designs, ["design_at_least", "policy"], measures), ""]
    return "\n".join(text)


def main() -> None:
    table, path = read(__doc__, Path(__file__).parent)
    table = table.fillna({name: "" for name in table.columns if table[name].dtype == object})
    table["design_at_least"] = table["design_at_least"].map(
        lambda v: "" if v != v or v == "" else v
    )
    publish(markdown(table), path)


if __name__ == "__main__":
    main()
