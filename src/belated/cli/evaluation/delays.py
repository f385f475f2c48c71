"""``belated delays``: say when rewards come, and how many are still to come."""

from __future__ import annotations

import argparse
from datetime import timedelta
from typing import Any

import msgspec

from belated.cli.evaluation.figure import add_figure, save_curve
from belated.cli.evaluation.source import evaluation_of
from belated.cli.journal.address import add_address, add_archive
from belated.cli.options import add_json, duration
from belated.cli.simulation.checks import check_figure
from belated.cli.text import pairs, percent, several, span
from belated.evaluation import JournalTable, delay_curve, delay_depends, forecast
from belated.exceptions import InvalidInput

EXAMPLE = "belated delays sqlite:///offers.db --ahead 1d 7d"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_address(parser)
    parser.add_argument(
        "--ahead",
        type=duration,
        nargs="+",
        metavar="TIME",
        default=[timedelta(days=1), timedelta(days=7)],
        help="how far to look ahead; default: 1d 7d",
    )
    add_archive(parser)
    add_figure(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    check_figure(options.figure)
    with evaluation_of(options.address, options.archive) as evaluation:
        table = evaluation.table()
    if options.figure is not None:
        save_curve(options.figure, delay_curve(table))
    found = describe(table, options.ahead)
    print(msgspec.json.encode(found).decode() if options.json else _text(found))
    return 0


def describe(table: JournalTable, ahead: list[timedelta]) -> dict[str, Any]:
    """What is known of the delays; what too few rewards can tell is None."""
    found: dict[str, Any] = {"delays": delay_curve(table).to_dict()}
    found["forecast"] = _or_none(lambda: forecast(table, ahead).to_dict())
    for on in ("action", "reward"):
        found[f"depends_on_{on}"] = _or_none(lambda on=on: delay_depends(table, on).to_dict())
    return found


def _or_none(work: Any) -> Any:
    try:
        return work()
    except InvalidInput:
        return None


def _text(found: dict[str, Any]) -> str:
    curve = found["delays"]
    rows = [("rewards", f"{curve['rewards']:,}, {several(curve['missing'], 'decision')} without")]
    for name, share in (("p50", "half"), ("p90", "9 in 10"), ("p99", "99 in 100")):
        when = "not known" if curve[name] is None else f"after {span(round(1e6 * curve[name]))}"
        rows.append((f"{share} have come", when))
    if found["forecast"] is not None:
        for one in found["forecast"]["expected"]:
            within = span(round(1e6 * one["ahead"]))
            what = f"{one['mean']:,.0f} ({one['low']:,.0f} to {one['high']:,.0f})"
            rows.append((f"to come within {within}", what))
    for on in ("action", "reward"):
        test = found[f"depends_on_{on}"]
        said = "not known" if test is None else f"p = {test['p']:.2g}"
        if test is not None and test["p"] < 0.01:
            said += ", by " + ", ".join(
                f"{name} {'+' if share > 0 else ''}{percent(share)}"
                for name, share in list(test["sooner"].items())[:4]
            )
        rows.append((f"depend on the {on}", said))
    return pairs(rows)
