"""``belated journal verify``: check every record, and the snapshots against them.

Every record is read, which checks its checksum; its digest is made anew of its bytes; and all are
chained. The heads of the chains are printed: keep them elsewhere, and give them with ``--expect``
at any later time. Then also what was changed by someone who made the checksums anew is found.

Every record is folded from scratch. The same is done once
more from the snapshots on, with the records behind them: decisions by state, the digest of all of
them and what is waited for must be equal, sums equal to 1e-9, and the estimates within 1e-6
posterior standard deviations.

A snapshot is of use only to a bandit with the same window, default, retention, parts and bounds.
They are as the journal says it, unless options are given. Where they are not those of the snapshot
nothing can be compared, and the exit code is 2.

Where old records were trimmed, both begin with the base that stands for them; what it holds cannot
be checked any more, but that nobody has changed it since.

What was erased or retracted counts neither way. A snapshot from before that is of no use to anyone:
a note says so, and it is not compared.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import msgspec

from belated.cli.journal.address import (
    PAGE,
    add_address,
    configured,
    ends_of,
    opened,
    starts_of,
)
from belated.cli.journal.comparison import Comparison
from belated.cli.journal.heads import Heads
from belated.cli.journal.identity import empty_fold
from belated.cli.journal.report import Report, as_text
from belated.cli.options import add_json, add_semantics, semantics
from belated.cli.progress import Progress
from belated.cli.text import moment, several
from belated.exceptions import CorruptEvent, CorruptJournal, InvalidInput, SnapshotWarning
from belated.journals import Journal, StoredBandit
from belated.journals.chain import chain_behind
from belated.journals.stored import StoredJournal
from belated.rewards import Rewards

EXAMPLE = "belated journal verify sqlite:///offers.db --window 7d"

#: Damaged places that are named before it is enough.
MANY = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_address(parser)
    add_json(parser)
    add_semantics(parser)
    parser.add_argument(
        "--expect",
        metavar="HEAD",
        action="append",
        default=[],
        help="a head that an earlier `verify`, an export or a model told: the records up to it "
        "must still be those (repeatable)",
    )


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    with opened(options.address) as (journal, bandit):
        rewards, retention = semantics(options, configured(journal))
        report = verify(journal, bandit, rewards, retention, options.expect)
    if options.json:
        print(msgspec.json.encode(report.as_dict()).decode())
    else:
        print(as_text(report))
    return {"ok": 0, "differs": 1, "damaged": 1, "not compared": 2}[report.status]


def verify(
    journal: Journal,
    bandit: StoredBandit,
    rewards: Rewards,
    retention: int | None,
    expected: Sequence[str] = (),
) -> Report:
    """Read it all, and compare."""
    report = Report(bandit.name)
    try:
        ends = ends_of(journal)
    except CorruptJournal as error:  # where the records end is unknown
        report.damage.append(str(error))
        return report
    bases = map(journal.base, range(journal.partitions))
    heads = Heads([chain_behind(base) for base in bases], expected)
    _tell_trimmed(journal, report)
    if isinstance(journal, StoredJournal):
        journal.checks_digests = True
    folds: Comparison | None = None
    if bandit.identity is None:
        report.notes.append("no bandit has used this journal yet: only its records were checked")
    else:
        try:
            whole, short = (empty_fold(bandit, rewards, retention) for _ in range(2))
        except InvalidInput as error:
            report.not_compared.append(str(error))
        else:
            folds = Comparison(whole, short, report)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        if folds is not None:
            try:
                folds.start(journal, bandit)
            except (CorruptEvent, CorruptJournal):  # reading all of it tells where
                folds = None
        if folds is not None:
            ends = folds.ends
        held: AbstractContextManager[None] = nullcontext() if folds is None else folds.held()
        with Progress("verified", sum(ends)) as progress, held:
            for partition, end in enumerate(ends):
                _read(journal, partition, end, folds, heads, report, progress)
        report.damage += heads.differences()
        report.not_compared += heads.out_of_sight()
        report.head, report.heads = heads.whole, heads.each
        if folds is not None and not report.damage:
            folds.compare()
    report.differences += [
        str(one.message) for one in warned if issubclass(one.category, SnapshotWarning)
    ]
    return report


def _tell_trimmed(journal: Journal, report: Report) -> None:
    starts = starts_of(journal)
    if any(one.position for one in starts):
        upto = max(one.stamp for one in starts)
        count = sum(one.position for one in starts)
        report.notes.append(
            f"{several(count, 'record')} of before {moment(upto)} were trimmed: what they came to "
            "is taken as their base says"
        )


def _read(
    journal: Journal,
    partition: int,
    end: int,
    folds: Comparison | None,
    heads: Heads,
    report: Report,
    progress: Progress,
) -> None:
    """Read a partition, past damaged places too, and fold it as long as there are none."""
    position, step = journal.start(partition).position, PAGE
    while position < end and len(report.damage) < MANY:
        try:
            page = journal.read(partition, position, min(step, end - position))
        except (CorruptEvent, CorruptJournal) as error:
            if step > 1:
                step = 1  # find it
                continue
            if str(error) in report.damage:  # the file itself cannot be read
                return
            report.damage.append(str(error))
            position, step = position + 1, PAGE
            continue
        if not page:
            return
        heads.add(partition, page)
        if folds is not None and not report.damage:
            for record in page:
                folds.take(record)
        report.records += len(page)
        position = page[-1].position
        progress.step(len(page))
