"""``belated report``: write a report on what a bandit earns as a single HTML file.

The file is self-contained. It requires neither a network nor a server, and can be sent by email.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from belated.cli.address import add_address, log_at
from belated.cli.options import add_json, add_option
from belated.cli.text import size
from belated.report import Report
from belated.report.report import learned

EXAMPLE = "belated report sqlite:///offers.db --output report.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_address(parser)
    parser.add_argument(
        "--output", metavar="FILE", default="report.html", help="default: report.html"
    )
    about = "also write each chart as PNG (requires the `report` extra)"
    add_option(parser, "--charts", about, metavar="FOLDER")
    about = "what one reward is called, in the singular, such as purchase"
    add_option(parser, "--unit", about, default="reward")
    about = "currency of the rewards, such as EUR; default: none"
    add_option(parser, "--currency", about, metavar="CODE")
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    with log_at(options.address) as log:
        report = Report.of(log, *learned(log))
    report = report.with_units(options.unit, options.currency or "")
    if options.charts:
        report.save_charts(options.charts)
    if options.json:
        print(msgspec.json.encode(report.data).decode())
        return
    report.save(options.output)
    print(f"{options.output}: {size(Path(options.output).stat().st_size)}")
