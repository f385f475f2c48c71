"""``belated serve``: serve bandits over HTTP.

The configuration file defines the bandits and their store. `belated init` writes an example.
Requires the extra ``service``, and ``postgres`` for journals in PostgreSQL.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from belated.cli.address import add_config, config_file, extras, prepared
from belated.cli.text import pairs, several
from belated.exceptions import BelatedError, InvalidConfig

if TYPE_CHECKING:
    from belated.service.operating.config import Config

EXAMPLE = "belated serve belated.toml --port 8080"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_config(parser)
    parser.add_argument("--host", help="address to bind (overrides server.host)")
    parser.add_argument("--port", type=int, help="port to bind (overrides server.port; 0 = any)")
    parser.add_argument("--check", action="store_true", help="validate the config file and exit")


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    if options.check:
        return _check(options.file)

    from belated.service import Service
    from belated.service.access.authorizer import auth_at
    from belated.service.http.server import serve

    config = prepared(options)
    server = config.server
    host = server.host if options.host is None else options.host
    app = Service.from_config(config, auth=auth_at(host, server.auth))
    port = server.port if options.port is None else options.port
    return serve(app, host, port, drain=server.drain, limits=server.limits)


def _feature_changes(config: Config) -> Iterator[str]:
    """Yield descriptions of how changed features affect the journals."""
    from belated.service.operating.feature_changes import feature_changes

    for plan in feature_changes(config.store, config.bandits):
        if plan.changes:
            yield from plan.lines()


def _check(file: str) -> int:
    from belated.service.operating.config import read_config
    from belated.service.operating.doctor import lines, refusals

    try:
        config = read_config(config_file(file))
    except InvalidConfig as error:
        print("\n".join([*error.mistakes, f"WRONG: {several(len(error.mistakes), 'mistake')}"]))
        return 1
    print(pairs([(bandit.name, repr(bandit.policy)) for bandit in config.bandits]))
    findings = extras()
    try:
        findings += refusals(config)
        for line in _feature_changes(config):
            print(line)
    except BelatedError as error:
        print(f"the features could not be compared with those of the journals: {error}")
    for line in lines(findings):
        print(line)
    if findings:
        print(f"WRONG: it cannot start, for {several(len(findings), 'reason')}")
        return 1
    print(f"OK: {several(len(config.bandits), 'bandit')}")
    return 0
