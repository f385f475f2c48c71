"""``belated learn``: run the learners of bandits that other processes serve.

Use this command with services configured with ``learn = false``. If you run it on several machines,
one learner leads and the others are standbys. If the leader dies, another learner takes over.
"""

from __future__ import annotations

import argparse
import logging
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from belated.cli.address import add_config, prepared
from belated.cli.options import add_option
from belated.exceptions import InvalidInput

if TYPE_CHECKING:
    from belated.service.console.reports import Reports
    from belated.service.learning.learners import Learners

EXAMPLE = "belated learn belated.toml --metrics 9090"

log = logging.getLogger("belated.service")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_config(parser)
    about = "address on which to serve Prometheus metrics"
    add_option(parser, "--metrics", about, metavar="[HOST:]PORT")


def run(options: argparse.Namespace) -> None:
    """Run the command until SIGTERM or SIGINT."""
    config = prepared(options)

    from belated.service.console.reports import Reports
    from belated.service.learning.learners import learners_of

    signals: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: signals.append(number))
    learners = learners_of(config.bandits, config.store, lease=config.server.lease)
    reports = Reports(config.store, {bandit.name: bandit.actions for bandit in config.bandits})
    stop_metrics = None
    if options.metrics is not None:
        stop_metrics = _serve_metrics(options.metrics, learners, reports)
    learners.start()
    log.info("learning", extra={"bandits": [bandit.name for bandit in config.bandits]})
    while not signals:
        time.sleep(0.1)
    log.info("stopping: saving what was learned")
    learners.stop()
    if stop_metrics is not None:
        stop_metrics()
    reports.close()
    log.info("stopped")


def _serve_metrics(where: str, learners: Learners, reports: Reports) -> Callable[[], None]:
    from belated.service.operating.metrics import Metrics

    host, _, port = where.rpartition(":")
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
        raise InvalidInput(f"--metrics is {where!r}: pass a port, such as 9090")
    return Metrics({}, learners, {}, reports=reports).listen(int(port), host or "127.0.0.1")
