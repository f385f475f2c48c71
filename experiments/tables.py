"""Tables of mean regrets, with the significance of differences from the default."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd


def cell(values: pd.Series, default: pd.Series) -> str:
    """Format mean ± standard error, with the paired t of the difference from the default."""
    text = f"{values.mean():.0f}±{values.sem():.0f}"
    difference = values - default
    if difference.abs().max() == 0:
        return text
    return f"{text} ({difference.mean() / difference.sem():+.1f})"


def rule(first: str, columns: Iterable[str]) -> list[str]:
    """Return the first two lines of a table."""
    columns = list(columns)
    return [f"| {first} | " + " | ".join(columns) + " |", "|---|" + "--:|" * len(columns)]


def by_delay(
    table: pd.DataFrame,
    worlds: Iterable[str],
    delays: Iterable[str],
    policies: Sequence[str],
    default: str,
) -> str:
    """Return a table per problem: a row per policy, a column per delay."""
    delays = list(delays)
    lines = []
    for world in worlds:
        lines += [f"**{world}**", "", *rule("policy", delays)]
        means = table[table["environment"] == world].pivot_table(
            "regret", ["delay", "seed"], "policy"
        )
        for policy in policies:
            cells = [cell(means.loc[delay, policy], means.loc[delay, default]) for delay in delays]
            lines.append(f"| {policy} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)
