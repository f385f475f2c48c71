"""``belated journal retract``: undo a bad feed by ignoring a key's rewards from a period.

Nothing is deleted. When learners read the retraction in the journal, they fold the journal again
without those rewards and publish a model that does not include them. ``--restore`` reverts a
retraction.
"""

from __future__ import annotations

import argparse

from belated.cli.address import add_address, ends_of, opened, starts_of
from belated.cli.options import actor, add_option, add_reason, time
from belated.cli.text import Progress, moment, several
from belated.core.events import Retracted, Reward
from belated.exceptions import InvalidInput
from belated.journals import Journal
from belated.journals.pages import pages

EXAMPLE = "belated journal retract $JOURNAL --key crm --from 2026-03-01T00Z --reason bad"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_address(parser)
    about = "name of the key that reported the rewards"
    parser.add_argument("--key", required=True, metavar="NAME", help=about)
    since = "start of the period, in journal time: ISO 8601 with a time zone"
    add_option(parser, "--from", since, time, dest="start", required=True)
    add_option(parser, "--to", "end of the period, exclusive; default: now", time, dest="end")
    parser.add_argument("--restore", action="store_true", help="count the rewards again")
    add_reason(parser)


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    with opened(options.address) as (journal, _):
        now = journal.now()
        start, end = options.start, now if options.end is None else options.end
        if start >= end:
            message = f"--from ({moment(start)}) must be before --to ({moment(end)})"
            raise InvalidInput(message)
        if end > now:
            message = f"--to is {moment(end)}, which is later than the journal's clock"
            raise InvalidInput(f"{message} ({moment(now)}): future rewards cannot be retracted")
        trimmed = max(start.stamp for start in starts_of(journal))
        if start <= trimmed:
            message = f"--from is {moment(start)}, but records up to {moment(trimmed)} were "
            raise InvalidInput(f"{message}trimmed: they can no longer be retracted or restored")
        count = _count(journal, options.key, start, end)
        act = (now, start, end, options.key, options.restore, options.reason, actor())
        journal.append([Retracted(partition, *act) for partition in range(journal.partitions)])
        verb = "count again" if options.restore else "no longer count"
        print(f"{several(count, 'reward')} by {options.key} in {journal.bandit} {verb}")


def _count(journal: Journal, key: str, start: int, end: int) -> int:
    """Return the number of rewards in the period."""
    count = 0
    ends = ends_of(journal)
    with Progress("read", sum(ends)) as progress:
        for partition, last in enumerate(ends):
            for page in pages(journal, partition, end=last):
                events = (record.event for record in page if start <= record.recorded < end)
                rewards = (event for event in events if isinstance(event, Reward))
                count += sum(reward.reporter == key for reward in rewards)
                progress.step(len(page))
    return count
