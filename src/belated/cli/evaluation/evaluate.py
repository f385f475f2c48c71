"""``belated evaluate``: say what another policy would have earned.

By the decisions of a journal whose requests were kept, and whose policy had a floor.
"""

from __future__ import annotations

import argparse

import msgspec

from belated.cli.evaluation.figure import Interval, add_figure, save_intervals
from belated.cli.evaluation.source import evaluation_of
from belated.cli.journal.address import add_address, add_archive
from belated.cli.options import add_json, duration
from belated.cli.simulation.checks import check_figure
from belated.cli.text import pairs, wrapped
from belated.evaluation import Value
from belated.expressions import as_whole_policy, load_modules
from belated.policies import Policy

EXAMPLE = "belated evaluate sqlite:///offers.db --policy uniform"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_address(parser)
    parser.add_argument(
        "--policy",
        required=True,
        help="uniform, first, the name of an action, or a policy as in "
        "'DelayedUCB(dim=8, family=Bernoulli())', which needs --since",
    )
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="evaluate decisions from then on, as in 2026-11-16T12:00:00Z; a policy learns from "
        "what was known then",
    )
    parser.add_argument(
        "--limit", type=duration, metavar="TIME", help="count rewards within this time only: 7d"
    )
    parser.add_argument(
        "--module",
        action="append",
        default=[],
        metavar="NAME",
        help="import a Python module that registers policies of your own; its code runs",
    )
    add_archive(parser)
    add_figure(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    check_figure(options.figure)
    load_modules(options.module)
    policy: Policy | str = options.policy
    if "(" in options.policy:
        policy = as_whole_policy(options.policy)
    with evaluation_of(options.address, options.archive) as evaluation:
        found = evaluation.evaluate(policy, since=options.since, limit=options.limit)
    if options.figure is not None:
        lines = [Interval(options.policy, found.value, found.low, found.high)]
        if found.always is not None:
            lines.append(Interval("at all times", found.value, *found.always))
        save_intervals(
            options.figure, f"{options.policy}: {found.value:.4g}", found.estimand, lines
        )
    if options.json:
        print(msgspec.json.encode(found.to_dict()).decode())
    else:
        print(_text(options.policy, found))
    return 0


def _text(policy: str, found: Value) -> str:
    always = "not known"
    if found.always is not None:
        always = f"{found.always[0]:.4g} to {found.always[1]:.4g}"
    lines = [
        f"{policy}: {found.value:.4g} ({found.low:.4g} to {found.high:.4g})",
        pairs(
            [
                ("value of", found.estimand),
                (f"{found.level:.0%}, at all times", always),
                ("decisions", f"{found.decisions:,}, outcome known of {found.arrived:,}"),
                ("worth", f"{found.design:,.0f} decisions of the policy's own"),
                ("model alone", f"{found.model_only:.4g}"),
            ],
            indent="  ",
        ),
    ]
    return "\n".join([*lines, *(wrapped(f"  note: {note}", "  ") for note in found.notes)])
