"""``belated journal erase``: let decisions count as if they had never been made.

A record says so, under a hash of the id. Learners read it and fold the journal again without all
that was recorded under that id.

Once a learner has saved a snapshot without the decision, nothing needs its bytes any more:
``--overwrite`` destroys them, with those of all that was recorded under its id. Positions, stamps
and digests stay, so that the journal verifies as before. It may be run at any time, and again.
"""

from __future__ import annotations

import argparse

from belated.cli.address import add_address, opened, starts_of
from belated.cli.options import actor, add_option, add_reason
from belated.cli.text import several, wrapped
from belated.core.events import Erased, Record
from belated.core.ids import check_id, erased_key_of, slot_of_subject, subject_id
from belated.exceptions import InvalidInput
from belated.journals import Journal
from belated.journals.arrivals import erased_key_in, erasure_of_subject
from belated.journals.log import finds_by_id

#: Records that are read at a time where none are indexed.
PAGE = 10_000

EXAMPLE = """belated journal erase sqlite:///offers.db order-17 --reason "asked for"
  belated journal erase sqlite:///offers.db --subject user-17 --reason "left"
  belated journal erase sqlite:///offers.db --overwrite"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_address(parser)
    parser.add_argument("ids", metavar="ID", nargs="*", help="decision ids")
    about = "instead of IDs: erase all decisions made for this subject, and all its rewards"
    add_option(parser, "--subject", about, metavar="SUBJECT")
    add_reason(parser, required=False)
    about = "instead of IDs: destroy the stored bytes of all decisions that were erased"
    add_option(parser, "--overwrite", about, action="store_true")


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    if options.overwrite:
        if options.ids or options.subject:
            message = "--overwrite is for decisions that were erased before: run it without IDs"
            raise InvalidInput(message, options.ids)
        return _overwrite(options.address)
    if bool(options.ids) == bool(options.subject) or not options.reason:
        message = "IDs of decisions (or a --subject) and a --reason are needed, or --overwrite"
        raise InvalidInput(message, None)
    if options.subject:
        return _erase_subject(options.address, check_id(options.subject, "the subject"), options)
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


def _erase_subject(address: str, subject: str, options: argparse.Namespace) -> int:
    with opened(address) as (journal, _):
        records = _records_of(journal, subject)
        if not records:
            message = f"{journal.bandit} has no record of the subject {subject!r}"
            raise InvalidInput(f"{message}: nothing was erased", subject)
        now, who = journal.now(), actor()
        events = erasure_of_subject(records, subject, now, options.reason, who)
        journal.append(events)
        made = several(len(events) - 1, "decision")
        print(f"the subject of {journal.bandit} erased, with {made}")
    return 0


def _records_of(journal: Journal, subject: str) -> list[Record]:
    """Return all records of a subject; where none are indexed, by reading its partition."""
    if finds_by_id(journal):
        return journal.records_of([subject_id(subject)])
    home = slot_of_subject(subject) % journal.partitions
    records: list[Record] = []
    after = journal.start(home).position
    while page := journal.read(home, after, PAGE):
        records += [one for one in page if getattr(one.event, "subject", None) == subject]
        after = page[-1].position
    return records


def _overwrite(address: str) -> int:
    with opened(address) as (journal, bandit):
        saved = {one.partition: one.position for one in bandit.snapshots}
        ready: list[bytes] = []
        waiting = 0
        for partition in range(journal.partitions):
            for record in journal.undone(partition):
                if isinstance(record.event, Erased):
                    # A snapshot from before it still has the row.
                    if saved.get(partition, record.position) >= record.position:
                        ready.append(record.event.key)
                    else:
                        waiting += 1
        count = journal.overwrite(ready)
        print(f"{several(count, 'event')} of erased decisions overwritten in {journal.bandit}")
    if waiting:
        message = (
            f"{several(waiting, 'decision')} must wait: the last snapshot is from before the "
            "erasure. Run this again once the learner has saved one, or the bandit was closed"
        )
        print(wrapped(message, ""))
    return int(waiting > 0)
