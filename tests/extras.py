"""Test one extra alone: a script, not a test file.

Run ``python tests/extras.py service`` in an environment with only the base dependencies and that
extra. The features of the extra must work; features of other extras must raise an error that names
the extra they need.
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
    """Compile the kernels."""
    from belated.model import kernels

    kernels.compiled()


def postgres() -> None:
    """Load the PostgreSQL driver."""
    from belated.journals import open_journal

    with suppress(JournalUnavailable):  # no server is running
        open_journal("postgresql://nobody@127.0.0.1:1/none?bandit=b&connect_timeout=1")


def kafka() -> None:
    """Load the Kafka driver."""
    from belated.journals.kafka import client  # noqa: F401


def service() -> None:
    """Create a service."""
    from belated.journals import open_store
    from belated.service import Definition, Service

    policy = belated.DelayedUCB(2, belated.Bernoulli())
    Service([Definition("offers", policy, belated.Explicit())], open_store("memory:"))


def client() -> None:
    """Create a client."""
    from belated.client import Client

    Client("http://127.0.0.1:1", bandit="offers").close()


def _rewarded_bandit() -> belated.Bandit:
    bandit = belated.Bandit(
        policy=belated.DelayedUCB(2, belated.Bernoulli(), floor=0.2), rewards=belated.Explicit()
    )
    for n in range(40):
        decision = bandit.decide(rows=np.eye(2))
        bandit.observe(decision.id, float(n % 2))
    return bandit


def archive() -> None:
    """Write Parquet."""
    from belated.evaluation.files import write_parquet
    from belated.evaluation.journal import JournalLog

    with _rewarded_bandit() as bandit:
        table = JournalLog.of_journal(bandit.journal).table()
        write_parquet([table], None, io.BytesIO())


def report() -> None:
    """Render the charts of a report."""
    with tempfile.TemporaryDirectory() as folder, _rewarded_bandit() as bandit:
        bandit.report().save_charts(folder)


def experiments() -> None:
    """Create a data frame."""
    with _rewarded_bandit() as bandit:
        bandit.frame()


FEATURES: dict[str, Callable[[], None]] = {
    feature.__name__: feature
    for feature in (fast, postgres, kafka, service, client, archive, report, experiments)
}
#: Extras that another extra includes.
WITHIN = {"kafka": {"postgres"}}


def main() -> None:
    """Test the features of all extras."""
    installed = sys.argv[1]
    for name, use in FEATURES.items():
        try:
            use()
        except MissingExtra as error:
            print(f"{name}: {error}")
            if name == installed or error.extra != name:
                raise
        else:
            print(f"{name}: works")
            assert name == installed or name in WITHIN.get(installed, ()), (
                f"{name} works without its extra"
            )


if __name__ == "__main__":
    main()
