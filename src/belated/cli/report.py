"""``belated report``: write what a bandit earns into one HTML file.

The file needs no network and no server; it can be mailed.
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
    """What the command takes."""
    add_address(parser)
    parser.add_argument(
        "--output", metavar="FILE", default="report.html", help="default: report.html"
    )
    about = "also write each chart as PNG (extra `report`)"
    add_option(parser, "--charts", about, metavar="FOLDER")
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    with log_at(options.address) as log:
        found = Report.of(log, *learned(log))
    if options.charts:
        found.save_charts(options.charts)
    if options.json:
        print(msgspec.json.encode(found.data).decode())
        return
    found.save(options.output)
    print(f"{options.output}: {size(Path(options.output).stat().st_size)}")
