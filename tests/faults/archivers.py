"""A process that archives a journal, to be killed at any moment."""

from __future__ import annotations

import sys

from belated.evaluation.archiving import archive_journal
from belated.journals import open_journal
from belated.journals.archive import Archive
from belated.rewards import retention_us
from tests.integration.archived import RETENTION, REWARDS


def main(address: str, folder: str) -> None:
    """Archive all that is final; says when it begins, and when it has ended."""
    with open_journal(address) as journal:
        archive = Archive(folder, journal.bandit)
        print("begins", flush=True)
        archive_journal(
            journal, archive, rewards=REWARDS, retention=retention_us(RETENTION, REWARDS)
        )
        print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
