"""``belated journal archive``: write final decisions to Parquet files, day by day.

A decision is final when its retention period has ended. When all decisions of a day are final, the
day is written once, with the decisions' rewards, records and stored requests. If the command is
interrupted, run it again. It continues after the last complete day.

Archived records can be trimmed (``belated journal trim --archived``). Together, a trimmed journal
and its archive are equivalent to the untrimmed journal.
"""

from __future__ import annotations

import argparse

from belated.cli.address import add_address, configured, ends_of, opened
from belated.cli.options import add_option, add_semantics, semantics
from belated.cli.text import Progress, several
from belated.evaluation.archiving import archive_journal
from belated.exceptions import InvalidInput
from belated.expressions import family_in
from belated.journals.archive import Archive

EXAMPLE = "belated journal archive sqlite:///offers.db s3://company/decisions"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_address(parser)
    about = "path of a folder, or an fsspec address: s3://…, gs://…"
    add_option(parser, "folder", about, metavar="FOLDER")
    add_semantics(parser)


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    with opened(options.address) as (journal, bandit):
        if bandit.identity is None:
            message = f"no bandit has used the journal of {bandit.name!r} yet"
            raise InvalidInput(f"{message}: open it with a Bandit or a service first")
        rewards, retention = semantics(options, configured(journal))
        archive = Archive(options.folder, bandit.name)
        with Progress("read", sum(ends_of(journal))) as progress:
            archived = archive_journal(
                journal,
                archive,
                rewards=rewards,
                retention=retention,
                support=family_in(bandit.identity.get("family", "")).support,
                step=progress.step,
            )
    if not archived:
        print(f"no further days of {bandit.name} are final")
        return
    days = sorted({day.day for day in archived})
    count = several(sum(day.decisions for day in archived), "decision")
    print(f"{count} of {bandit.name} archived, {days[0]} to {days[-1]}")
