"""``belated features diff``: print how changed features affect the journals.

Nothing is changed. The exit code is 1 if a journal cannot be opened with the configured features.
"""

from __future__ import annotations

import argparse

import msgspec

from belated.cli.address import add_file, read
from belated.cli.options import add_json

EXAMPLE = "belated features diff belated.toml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_file(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    from belated.service.operating.feature_changes import feature_changes

    config = read(options.file)
    plans = feature_changes(config.store, config.bandits)
    if options.json:
        print(msgspec.json.encode(plans).decode())
    else:
        print("\n".join(line for plan in plans for line in plan.lines()) or "no journals yet")
    return int(any(plan.refused for plan in plans))
