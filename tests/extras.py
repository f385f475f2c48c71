"""Tries one extra alone: a script, not a test file.

``python tests/extras.py service`` runs where nothing but the base dependencies and that extra are
installed. What the extra is for works; whatever needs another extra raises an error that names it.
"""

import io
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress

import numpy as np

import belated
from belated.exceptions import JournalUnavailable, MissingExtra


def fast() -> None:
    """Kernels are compiled."""
    from belated.model import kernels

    kernels.compiled()


def postgres() -> None:
    """A driver is there."""
    from belated.journals import open_journal

    with suppress(JournalUnavailable):  # nobody is there
        open_journal("postgresql://nobody@127.0.0.1:1/none?bandit=b&connect_timeout=1")


def kafka() -> None:
    """So is Kafka's."""
    from belated.journals.kafka import client  # noqa: F401


def service() -> None:
    """A service can be made."""
    from belated.journals import open_store
    from belated.service import Definition, Service

    policy = belated.DelayedUCB(2, belated.Bernoulli())
    Service([Definition("offers", policy, belated.Explicit())], open_store("memory:"))


def client() -> None:
    """It can be asked."""
    from belated.client import Client

    Client("http://127.0.0.1:1", bandit="offers").close()


def _played() -> belated.Bandit:
    bandit = belated.Bandit(
        policy=belated.DelayedUCB(2, belated.Bernoulli(), floor=0.2), rewards=belated.Explicit()
    )
    for n in range(40):
        decision = bandit.decide(rows=np.eye(2))
        bandit.observe(decision.id, float(n % 2))
    return bandit


def archive() -> None:
    """Parquet can be written."""
    from belated.evaluation.files import write_parquet
    from belated.evaluation.journal import JournalLog

    with _played() as bandit:
        table = JournalLog.of_journal(bandit.journal).table()
        write_parquet([table], None, io.BytesIO())


def report() -> None:
    """A report can be drawn as a picture."""
    with tempfile.TemporaryDirectory() as folder, _played() as bandit:
        bandit.report().save_charts(folder)


def experiments() -> None:
    """Frames and pictures can be made."""
    with _played() as bandit:
        bandit.frame()


TRIED: dict[str, Callable[[], None]] = {
    one.__name__: one
    for one in (fast, postgres, kafka, service, client, archive, report, experiments)
}
#: Extras that an extra brings along.
WITHIN = {"kafka": {"postgres"}}


def main() -> None:
    """Try all of them."""
    given = sys.argv[1]
    for name, attempt in TRIED.items():
        try:
            attempt()
        except MissingExtra as error:
            print(f"{name}: {error}")
            if name == given or error.extra != name:
                raise
        else:
            print(f"{name}: works")
            assert name == given or name in WITHIN.get(given, ()), f"{name} works without its extra"


if __name__ == "__main__":
    main()
