"""``belated learn``: learn the bandits that others serve.

For services whose configuration says ``learn = false``. Start it on several machines: one learner
leads, the others stand by, and one of them takes over when it dies. It needs the extra ``service``.
"""

from __future__ import annotations

import argparse
import logging
import signal
import time
from functools import partial

from belated.cli.service import add_config, prepared

EXAMPLE = "belated learn belated.toml --create-tables"

log = logging.getLogger("belated.service")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_config(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command, until SIGTERM or SIGINT."""
    config = prepared(options, "belated learn")

    from belated.service.app import learning
    from belated.service.learners import Learners

    told: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: told.append(number))
    learners = Learners(
        {
            one.name: partial(learning, one, config.database.dsn, lease=config.server.lease)
            for one in config.bandits
        }
    )
    learners.start()
    log.info("learning", extra={"bandits": [one.name for one in config.bandits]})
    while not told:
        time.sleep(0.1)
    log.info("stopping: what was learned is saved first")
    learners.stop()
    log.info("stopped")
    return 0
