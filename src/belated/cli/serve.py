"""``belated serve``: serve bandits over HTTP.

The configuration file defines the bandits and their store. `belated init` writes an example.
Requires the extra ``service``, and ``postgres`` for journals in PostgreSQL.
"""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from belated.cli.address import add_config, config_file, extras, prepared
from belated.cli.options import add_option, count
from belated.cli.text import pairs, several
from belated.exceptions import BelatedError, InvalidConfig, InvalidInput
from belated.journals import Store

if TYPE_CHECKING:
    from belated.service.operating.config import Config

EXAMPLE = "belated serve belated.toml --port 8080"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_config(parser)
    parser.add_argument("--host", help="address to bind (overrides server.host)")
    parser.add_argument("--port", type=int, help="port to bind (overrides server.port; 0 = any)")
    about = "processes that serve the port; auto: one per core, or one on SQLite"
    add_option(parser, "--processes", about, _processes, 1, metavar="N")
    # A supervisor passes these to its processes: a number, and the files that they inherit.
    parser.add_argument("--supervised", nargs=4, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help="validate the config file and exit")


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    if options.check:
        return _check(options.file)

    from belated.service import Service
    from belated.service.access.authorizer import auth_at
    from belated.service.http.processes import Supervised, Supervisor
    from belated.service.http.server import listen, serve

    config = prepared(options)
    server = config.server
    host = server.host if options.host is None else options.host
    processes, supervised = 1, None
    if options.supervised is None:
        processes = _process_count(options.processes, config.store)
        listening = listen(host, server.port if options.port is None else options.port)
    else:
        number, file, polls, scrapes = options.supervised
        listening, supervised = socket.socket(fileno=file), Supervised(polls, scrapes)
        server = replace(server, learn=server.learn and number == 0)  # only one process learns
    app = Service.from_config(replace(config, server=server), auth=auth_at(host, server.auth))
    if processes > 1:  # the service was created here only to report mistakes once
        command = [sys.executable, "-m", "belated", "serve", options.file, "--host", host]
        command += ["--log-level", options.log_level, "--supervised"]
        return Supervisor(command, processes, listening).run()
    return serve(app, listening, drain=server.drain, limits=server.limits, supervised=supervised)


def _processes(text: str) -> int | None:
    """Parse a number of processes; None means one per core."""
    return None if text == "auto" else count(text)


def _process_count(requested: int | None, store: Store) -> int:
    """Return the number of processes to start, after checking that the store supports it."""
    from belated.service.http.processes import cores

    if requested is None:
        return cores() if store.concurrent_appends else 1
    if requested > 1 and not store.concurrent_appends:
        message = f"--processes is {requested}, but only one process at a time can write to"
        reason = f"{message} {store.place}, so the processes would wait for each other"
        raise InvalidInput(f"{reason}: use --processes 1, or a store in PostgreSQL", requested)
    return requested


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
        print(f"WRONG: the service cannot start, for {several(len(findings), 'reason')}")
        return 1
    print(f"OK: {several(len(config.bandits), 'bandit')}")
    return 0
