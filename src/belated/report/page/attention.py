"""What needs attention, in words."""

from __future__ import annotations

from belated.report.page import words
from belated.report.page.text import Data, day, several, signed, span


def needs(data: Data, item: Data) -> tuple[str, str]:
    """What needs attention, in a few words, and what it may come from."""
    kind = item["kind"]
    if kind == "calibration":
        said = f"Predictions are {item['ratio']:.2g} times what is observed"
        return said, words.calibration(data).why
    if kind == "outage":
        when = f"No rewards came for {span(item['hours'] / 24)} from {day(item['from'])}"
        return when, "they have come since"
    if kind == "silence":
        said = f"No reward has come for {span(item['hours'] / 24)}"
        return said, f"{several(item['expected'], 'reward')} should have come since"
    if kind == "slowed":
        said = f"{several(item['came'], 'reward')} since {day(item['since'])}"
        return said, f"{several(item['expected'], 'reward')} should have come"
    if kind == "exploration":
        said = f"{signed(item['share']).lstrip('+')} of recent decisions chose {item['action']}"
        return said, "little is learned of the other actions: a floor would try them"
    if kind == "mode":
        return f"The mode is {item['mode']}", "the bandit is not learning as usual"
    if kind == "fit":
        return "The last fit has not converged", "see whether features are out of scale"
    if kind == "dependence":
        said = "Delays depend on rewards"
        return said, f"chance of that by luck: {item['chance']:.1g}"
    name, what = words.KINDS[kind]
    return f"{name}: {signed(item['share']).lstrip('+')} of reward messages", what
