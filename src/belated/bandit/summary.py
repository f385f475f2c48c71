"""A bandit at a glance, for a prompt and a notebook."""

from __future__ import annotations

from belated.learner import FoldView
from belated.results import html_table

#: Coefficients that are shown: those furthest from zero by their standard deviations.
TOP = 8


def in_a_line(bandit: FoldView) -> str:
    """Return its name and what it has done so far."""
    counts, mean = bandit.decision_counts, bandit.mean_reward
    total = sum(counts.values())
    made = f"{total:,} decision{'' if total == 1 else 's'}"
    reward = "" if mean is None else f", mean reward {mean:.4g}"
    return f"Bandit {bandit.journal.bandit!r}: {made}, {counts['pending']:,} pending{reward}"


def as_html(bandit: FoldView) -> str:
    """Return the same with its strongest coefficients."""
    found = bandit.estimate.coefficients()
    found.sort(key=lambda one: abs(one["mean"]) / one["sd"], reverse=True)
    rows: list[list[object]] = [list(one.values()) for one in found[:TOP]]
    return html_table(in_a_line(bandit), ["coefficient", "mean", "sd", "low", "high"], rows)
