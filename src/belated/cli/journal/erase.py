"""``belated journal erase``: make decisions count as if they had never been made.

The erasure is recorded with a hash of the id. When learners read this record, they fold the journal
again without anything recorded under that id.

Once a learner has saved a snapshot without the decision, the stored bytes are no longer needed.
``--overwrite`` destroys the bytes of everything recorded under the id. Positions, timestamps and
digests remain, so that the journal can still be verified. The command is idempotent.
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

#: Number of records to read at a time, in journals without an index of ids.
PAGE = 10_000

EXAMPLE = """belated journal erase sqlite:///offers.db order-17 --reason "asked for"
  belated journal erase sqlite:///offers.db --subject user-17 --reason "left"
  belated journal erase sqlite:///offers.db --overwrite"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_address(parser)
    parser.add_argument("ids", metavar="ID", nargs="*", help="decision ids")
    about = "instead of IDs: erase all of this subject's decisions and rewards"
    add_option(parser, "--subject", about, metavar="SUBJECT")
    add_reason(parser, required=False)
    about = "instead of IDs: destroy the stored bytes of all erased decisions"
    add_option(parser, "--overwrite", about, action="store_true")


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    if options.overwrite:
        if options.ids or options.subject:
            message = "--overwrite applies to all erased decisions: run it without IDs or --subject"
            raise InvalidInput(message, options.ids)
        return _overwrite(options.address)
    if bool(options.ids) == bool(options.subject) or not options.reason:
        message = "pass decision IDs or --subject, together with --reason; or pass --overwrite"
        raise InvalidInput(message, None)
    if options.subject:
        return _erase_subject(options.address, check_id(options.subject, "the subject"), options)
    ids = list(dict.fromkeys(map(check_id, options.ids)))
    with opened(options.address) as (journal, _):
        starts = starts_of(journal)
        # Decisions in a base cannot be erased, even if their records have not been dropped yet.
        stored_keys = {
            erased_key_in(record.event)
            for record in journal.records_of(ids)
            if record.position > starts[record.partition].position
        }
        unknown = [id for id in ids if erased_key_of(id) not in stored_keys]
        if unknown:
            message = f"{journal.bandit} has no record of {', '.join(map(repr, unknown))}"
            if any(start.position for start in starts):
                message += " (old records were trimmed)"
            raise InvalidInput(f"{message}: nothing was erased", unknown)
        now, operator = journal.now(), actor()
        journal.append([Erased(erased_key_of(id), now, options.reason, operator) for id in ids])
        print(f"{several(len(ids), 'decision')} of {journal.bandit} erased")
    return 0


def _erase_subject(address: str, subject: str, options: argparse.Namespace) -> int:
    with opened(address) as (journal, _):
        records = _records_of(journal, subject)
        if not records:
            message = f"{journal.bandit} has no record of the subject {subject!r}"
            raise InvalidInput(f"{message}: nothing was erased", subject)
        now, operator = journal.now(), actor()
        events = erasure_of_subject(records, subject, now, options.reason, operator)
        journal.append(events)
        decisions = several(len(events) - 1, "decision")
        print(f"1 subject of {journal.bandit} erased, with {decisions}")
    return 0


def _records_of(journal: Journal, subject: str) -> list[Record]:
    """Return all records of a subject. Without an index, this reads the whole partition."""
    if finds_by_id(journal):
        return journal.records_of([subject_id(subject)])
    home = slot_of_subject(subject) % journal.partitions
    records: list[Record] = []
    after = journal.start(home).position
    while page := journal.read(home, after, PAGE):
        records += [record for record in page if getattr(record.event, "subject", None) == subject]
        after = page[-1].position
    return records


def _overwrite(address: str) -> int:
    with opened(address) as (journal, bandit):
        saved = {snapshot.partition: snapshot.position for snapshot in bandit.snapshots}
        keys: list[bytes] = []
        waiting = 0
        for partition in range(journal.partitions):
            for record in journal.undone(partition):
                if isinstance(record.event, Erased):
                    # Snapshots that are older than the erasure still contain the row.
                    if saved.get(partition, record.position) >= record.position:
                        keys.append(record.event.key)
                    else:
                        waiting += 1
        count = journal.overwrite(keys)
        print(f"{several(count, 'event')} of erased decisions overwritten in {journal.bandit}")
    if waiting:
        message = (
            f"{several(waiting, 'decision')} cannot be overwritten yet: the last snapshot is older "
            "than the erasure. Run this again once the learner has saved a newer snapshot"
        )
        print(wrapped(message, ""))
    return int(waiting > 0)
