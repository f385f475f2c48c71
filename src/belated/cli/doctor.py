"""``belated doctor``: check every setting that the service's guarantees depend on.

For each setting, the command prints a line with the result (ok, warning or wrong), the consequence
and a remedy. The exit code is 1 if anything is wrong. The command changes nothing.
"""

from __future__ import annotations

import argparse

import msgspec

from belated.cli.address import add_file, address_in, extras
from belated.cli.options import add_json
from belated.journals.postgres.rights import ROLES

EXAMPLE = "belated doctor belated.toml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_file(parser)
    parser.add_argument(
        "--role",
        choices=ROLES,
        help="check the PostgreSQL privileges of this role: decider (belated serve with learn = "
        "false), learner (belated learn), operator (keys, mode, action, import); default: the "
        "roles of belated serve",
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    from belated.service.operating.doctor import examine, examine_address, lines

    address = address_in(options.file)
    if address is None:
        findings = [*extras(), *examine(options.file, options.role)]
    else:
        findings = examine_address(address, options.role)
    sound = all(finding.state != "wrong" for finding in findings)
    report = {"ok": sound, "findings": findings}
    text = "\n".join(lines(findings))
    print(msgspec.json.encode(report).decode() if options.json else text)
    return 0 if sound else 1
