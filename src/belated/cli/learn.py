"""``belated learn``: learn the bandits that others serve.

For services whose configuration says ``learn = false``. Start it on several machines: one learner
leads, the others stand by, and one of them takes over when it dies.
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
    """What the command takes."""
    add_config(parser)
    add_option(parser, "--metrics", "where Prometheus may ask for metrics", metavar="[HOST:]PORT")


def run(options: argparse.Namespace) -> None:
    """Run the command, until SIGTERM or SIGINT."""
    config = prepared(options)

    from belated.service.console.reports import Reports
    from belated.service.learning.learners import learners_of

    told: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: told.append(number))
    learners = learners_of(config.bandits, config.store, lease=config.server.lease)
    reports = Reports(config.store, {one.name: one.actions for one in config.bandits})
    stop_metrics = None
    if options.metrics is not None:
        stop_metrics = _tell_metrics(options.metrics, learners, reports)
    learners.start()
    log.info("learning", extra={"bandits": [one.name for one in config.bandits]})
    while not told:
        time.sleep(0.1)
    log.info("stopping: what was learned is saved first")
    learners.stop()
    if stop_metrics is not None:
        stop_metrics()
    reports.close()
    log.info("stopped")


def _tell_metrics(where: str, learners: Learners, reports: Reports) -> Callable[[], None]:
    from belated.service.operating.metrics import Metrics

    host, _, port = where.rpartition(":")
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
        raise InvalidInput(f"--metrics is {where!r}: a port was expected, as in 9090")
    return Metrics({}, learners, {}, reports=reports).listen(int(port), host or "127.0.0.1")
