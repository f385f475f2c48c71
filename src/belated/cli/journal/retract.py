"""``belated journal retract``: undo a bad feed: what one key reported in a span counts no longer.

Nothing is deleted. A record says what is retracted; learners read it, fold the journal anew without
those rewards, and publish a model that never saw them. ``--restore`` takes it back.
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
    """What the command takes."""
    add_address(parser)
    parser.add_argument("--key", required=True, metavar="NAME", help="of the key that reported")
    since = "ISO 8601 with a zone: from when on, by the time of the journal"
    add_option(parser, "--from", since, time, dest="start", required=True)
    add_option(parser, "--to", "until before when; default: until now", time, dest="end")
    parser.add_argument("--restore", action="store_true", help="let it count again")
    add_reason(parser)


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    with opened(options.address) as (journal, _):
        now = journal.now()
        start, end = options.start, now if options.end is None else options.end
        if start >= end:
            message = f"--from is {moment(start)}, which is not before --to, {moment(end)}"
            raise InvalidInput(message)
        if end > now:
            message = f"--to is {moment(end)}, and the journal's clock says {moment(now)}: "
            raise InvalidInput(f"{message}what has not come yet cannot be retracted")
        trimmed = max(one.stamp for one in starts_of(journal))
        if start <= trimmed:
            message = f"--from is {moment(start)}, and what came up to {moment(trimmed)} was "
            raise InvalidInput(f"{message}trimmed: it cannot be retracted or restored any more")
        count = _count(journal, options.key, start, end)
        act = (now, start, end, options.key, options.restore, options.reason, actor())
        journal.append([Retracted(partition, *act) for partition in range(journal.partitions)])
        verb = "count again" if options.restore else "count no longer"
        print(f"{several(count, 'reward')} by {options.key} in {journal.bandit} {verb}")


def _count(journal: Journal, key: str, start: int, end: int) -> int:
    """How many rewards that are."""
    count = 0
    ends = ends_of(journal)
    with Progress("read", sum(ends)) as progress:
        for partition, last in enumerate(ends):
            for page in pages(journal, partition, end=last):
                inside = (one.event for one in page if start <= one.recorded < end)
                count += sum(isinstance(one, Reward) and one.reporter == key for one in inside)
                progress.step(len(page))
    return count
