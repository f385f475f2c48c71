"""``belated lift``: say what the bandit earns beyond its holdout."""

from __future__ import annotations

import argparse

import msgspec
from scipy.special import ndtri

from belated.cli.evaluation.figure import Interval, add_figure, save_intervals
from belated.cli.evaluation.source import evaluation_of
from belated.cli.journal.address import add_address, add_archive
from belated.cli.options import add_json, duration
from belated.cli.simulation.checks import check_figure
from belated.cli.text import pairs, percent
from belated.evaluation import Lift

EXAMPLE = "belated lift sqlite:///offers.db"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_address(parser)
    parser.add_argument(
        "--limit", type=duration, metavar="TIME", help="count rewards within this time only: 7d"
    )
    add_archive(parser)
    add_figure(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    check_figure(options.figure)
    with evaluation_of(options.address, options.archive) as evaluation:
        found = evaluation.lift(limit=options.limit)
    if options.figure is not None:
        save_intervals(
            options.figure, f"Lift {found.difference:+.4g}", found.estimand, _lines(found)
        )
    print(msgspec.json.encode(found.to_dict()).decode() if options.json else _text(found))
    return 0


def _lines(found: Lift) -> list[Interval]:
    """Both groups and their difference, for the picture."""
    wide = float(ndtri(0.5 + found.level / 2))
    groups = [
        Interval(one.name, one.value, one.value - wide * one.error, one.value + wide * one.error)
        for one in (found.bandit, found.holdout)
    ]
    return [*groups, Interval("difference", found.difference, found.low, found.high)]


def _text(found: Lift) -> str:
    relative = always = "not known"
    if found.relative is not None:
        relative = "{} ({} to {})".format(*map(percent, found.relative))
    if found.always is not None:
        always = "{:+.4g} ({:+.4g} to {:+.4g})".format(*found.always)
    rows = [(found.estimand, f"{found.difference:+.4g} ({found.low:+.4g} to {found.high:+.4g})")]
    for group in (found.bandit, found.holdout):
        what = f"{group.value:.4g} ± {group.error:.2g}"
        rows.append((group.name, f"{what}, {group.rewards:,} of {group.decisions:,} rewarded"))
    rows += [("relative", relative), ("at all times", always), ("p", f"{found.p:.2g}")]
    return pairs(rows)
