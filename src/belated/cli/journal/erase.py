"""``belated journal erase``: let decisions count as if they had never been made.

A record says so, under a hash of the id. Learners read it and fold the journal anew without all
that was recorded under that id.
"""

from __future__ import annotations

import argparse

from belated.cli.actor import actor, add_reason
from belated.cli.journal.address import add_address, opened, starts_of
from belated.cli.text import several
from belated.events import Erased
from belated.exceptions import InvalidInput
from belated.ids import check_id, erased_key_of
from belated.journals.lookups import erased_key_in

EXAMPLE = 'belated journal erase sqlite:///offers.db order-17 --reason "asked for"'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_address(parser)
    parser.add_argument("ids", metavar="ID", nargs="+", help="decision ids")
    add_reason(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    ids = list(dict.fromkeys(map(check_id, options.ids)))
    with opened(options.address) as (journal, _):
        starts = starts_of(journal)
        # What a base has cannot be erased, also while its records are still being dropped.
        known = {
            erased_key_in(one.event)
            for one in journal.records_of(ids)
            if one.position > starts[one.partition].position
        }
        unknown = [id for id in ids if erased_key_of(id) not in known]
        if unknown:
            message = f"{journal.bandit} has no record of {', '.join(map(repr, unknown))}"
            if any(one.position for one in starts):
                message += " (old ones were trimmed)"
            raise InvalidInput(f"{message}: nothing was erased", unknown)
        now, who = journal.now(), actor()
        journal.append([Erased(erased_key_of(id), now, options.reason, who) for id in ids])
        print(f"{several(len(ids), 'decision')} of {journal.bandit} erased")
    return 0
