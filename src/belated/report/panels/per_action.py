"""Reward per decision of each action, in the bandit's decisions and in the holdout."""

from __future__ import annotations

from typing import Any

from belated.evaluation.lifts import earned
from belated.report.facts import ACTIONS, Facts, around, code_of, if_known
from belated.report.panel import BAND, Panel, Said
from belated.report.text import Data, amount
from belated.report.vega import (
    RANGE,
    Spec,
    arm_tips,
    arms,
    axis_format,
    layer,
    names,
    number,
    point,
    spec,
    value_format,
    y,
)


def collect(facts: Facts) -> list[dict[str, Any]]:
    """Compute the reward per decision of each action, for the bandit and the holdout."""
    rows = []
    for name in facts.actions[:ACTIONS]:
        here = facts.table.action == code_of(facts, name)
        for arm, mask in facts.arms:
            estimate = if_known(earned, facts.table.select(mask & here), name)
            if estimate is not None:
                value = around(estimate.value, estimate.error, facts.bounds)
                rows.append({"action": name, "arm": arm, **value, "n": estimate.decisions})
    return rows


def chart(data: Spec) -> Spec:
    """Return the chart of reward per decision by action."""
    rows, form = data["per_action"], value_format(data)
    first = "Bandit" if any(row["arm"] == "Bandit" for row in rows) else "Holdout"
    ranked = sorted((row for row in rows if row["arm"] == first), key=lambda row: -row["p"])
    order = [row["action"] for row in ranked]
    up = names("action", order, labelFontSize=12, labelLimit=130)
    offset = {"field": "arm", "scale": {"domain": ["Bandit", "Holdout"]}}
    high, low = max(row["hi"] for row in rows), min(0.0, *(row["lo"] for row in rows))
    scale = {"domain": [low, high + 0.25 * (high - low)], "nice": False}
    across = y("lo", axis_format(data), axis={"grid": True}, scale=scale)
    tip = arm_tips(("action", "Action", None), form)
    at = number("p")
    where = {"y": up, "yOffset": offset}
    inner = layer(None, point(22, fill="$card"), x=at, **where)
    return spec(
        [
            layer(None, RANGE, x=across, x2={"field": "hi"}, color=arms(), tooltip=tip, **where),
            layer(None, point(70), x=at, color=arms(), tooltip=tip, **where),
            {"transform": [{"filter": "datum.arm=='Holdout'"}], **inner},
            layer(
                None, {"type": "text", "align": "left", "dx": 8},
                x=number("hi"), text={"field": "p", "format": form},
                color=arms(), **where,
            ),
        ],
        max(250, 44 * len(order)),
        data={"values": rows},
    )  # fmt: skip


def words(data: Data) -> Said:
    """Return the title, which names the action that earns the most, and the caption."""
    rows = data["per_action"]
    own = {row["action"]: row["p"] for row in rows if row["arm"] == "Bandit"}
    holdout = {row["action"]: row["p"] for row in rows if row["arm"] == "Holdout"}
    title = "No action has enough rewards yet where the bandit shows it"
    if own:
        best = max(own, key=lambda name: own[name])
        title = f"{best} earns the most, {amount(data, own[best])}"
    shared = [name for name in own if name in holdout]
    if shared and (gains := max(shared, key=lambda name: own[name] - holdout[name])):
        gain = own[gains] - holdout[gains]
        if gain > 0 and len(shared) > 1:
            lead = ", and" if gains == best else f"; {gains}"
            title += f"{lead} gains the most from being targeted"
    where = (
        "The bandit shows each action where it expects the action to do well; the holdout does not."
        if holdout
        else "The bandit shows each action where it expects the action to do well; what the action "
        "would earn elsewhere is not known without a holdout."
    )
    return Said(title, f"Reward per decision by action, with 95% intervals. {where}")


def _legend(data: Data) -> list[tuple[str, str, str]]:
    if not any(row["arm"] == "Holdout" for row in data["per_action"]):
        return []
    return [("accent", "where the bandit shows it", ""), ("ring", "in the holdout", "")]


PER_ACTION = Panel(
    "per_action", "Reward by action", collect, chart, words, legend=_legend,
    columns={"action": "action", "arm": "decisions of", **BAND, "n": "decisions"},
    none="No action has 10 rewards yet.",
)  # fmt: skip
