"""A process that archives a journal, to be killed at any moment."""

from __future__ import annotations

import sys

from belated.core.rewards import retention_us
from belated.evaluation.archiving import archive_journal
from belated.journals import open_journal
from belated.journals.archive import Archive
from tests.integration.archived import RETENTION, REWARDS


def main(address: str, folder: str) -> None:
    """Archive everything that is final."""
    with open_journal(address) as journal:
        archive = Archive(folder, journal.bandit)
        archive_journal(
            journal, archive, rewards=REWARDS, retention=retention_us(RETENTION, REWARDS)
        )


if __name__ == "__main__":
    print("ready", flush=True)
    sys.stdin.readline()
    main(*sys.argv[1:])
    print("done", flush=True)
