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
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import msgspec

from belated.cli.journal.address import PAGE, add_address, configured, opened
from belated.cli.journal.heads import Heads
from belated.cli.journal.identity import dim_of, family_of
from belated.cli.options import add_json, add_semantics, semantics
from belated.cli.progress import Progress
from belated.cli.text import pairs, several, wrapped
from belated.events import Opaque, Record
from belated.exceptions import CorruptEvent, CorruptJournal, InvalidInput, SnapshotWarning
from belated.journals import Journal, StoredBandit
from belated.journals.stored import StoredJournal
from belated.learner import Fold, same_sums
from belated.policies import Greedy
from belated.rewards import Rewards

EXAMPLE = "belated journal verify sqlite:///offers.db --window 7d"

#: Damaged places that are named before it is enough.
MANY = 10
#: What an account knows of decisions beside the sums, and what it means if it differs.
PIECES = {
    "account rows": "rows: those of decisions that wait for a reward are others",
    "account weight": "weights: those of decisions that wait for a reward are others",
    "account handle": "handles: rewards are taken for those of other decisions",
}
#: By how many posterior standard deviations the estimates may differ.
DEVIATIONS = 1e-6


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
        print(_text(report))
    return {"ok": 0, "differs": 1, "damaged": 1, "not compared": 2}[report.status]


@dataclass
class Report:
    """What was found.

    Attributes:
        bandit: its name.
        records: how many were read.
        damage: records that were changed or are missing.
        differences: between all records, and the snapshots with the records behind them.
        not_compared: why they could not be compared.
        notes: what else is worth knowing.
        compared: how many snapshots were compared.
        counts: decisions by state.
        digest: of all decisions.
        head: of the journal, names all its records.
        heads: of each partition.
    """

    bandit: str
    records: int = 0
    damage: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    not_compared: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    compared: int = 0
    counts: dict[str, int] | None = None
    digest: str | None = None
    head: str = ""
    heads: list[str] = field(default_factory=list)

    @property
    def status(self) -> str:
        """The worst of it."""
        if self.damage:
            return "damaged"
        if self.differences:
            return "differs"
        return "not compared" if self.not_compared else "ok"

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return {"status": self.status, **vars(self)}


def verify(
    journal: Journal,
    bandit: StoredBandit,
    rewards: Rewards,
    retention: int | None,
    expected: Sequence[str] = (),
) -> Report:
    """Read it all, and compare."""
    report = Report(bandit.name)
    heads = Heads(journal.partitions, expected)
    if isinstance(journal, StoredJournal):
        journal.checks_digests = True
    folds: _Folds | None = None
    if bandit.identity is None:
        report.notes.append("no bandit has used this journal yet: only its records were checked")
    else:
        try:
            policy = Greedy(dim_of(bandit.identity), family_of(bandit.identity))
        except InvalidInput as error:
            report.not_compared.append(str(error))
        else:
            whole, short = (
                Fold(policy, rewards, partitions=journal.partitions, retention=retention)
                for _ in range(2)
            )
            folds = _Folds(whole, short, report)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        if folds is not None:
            folds.start(journal, bandit)
        # After the snapshots were loaded: no snapshot is beyond these ends.
        ends = [journal.end(partition) for partition in range(journal.partitions)]
        held: AbstractContextManager[None] = nullcontext() if folds is None else folds.held()
        with Progress("verified", sum(ends)) as progress, held:
            for partition, end in enumerate(ends):
                _read(journal, partition, end, folds, heads, report, progress)
        report.damage += heads.differences()
        report.head, report.heads = heads.whole, heads.each
        if folds is not None and not report.damage:
            folds.compare()
    report.differences += [
        str(one.message) for one in warned if issubclass(one.category, SnapshotWarning)
    ]
    return report


def _read(
    journal: Journal,
    partition: int,
    end: int,
    folds: _Folds | None,
    heads: Heads,
    report: Report,
    progress: Progress,
) -> None:
    """Read a partition, past damaged places too, and fold it as long as there are none."""
    position, step = 0, PAGE
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


class _Folds:
    """The same records twice: all of them, and a snapshot with those behind it."""

    def __init__(self, whole: Fold, short: Fold, report: Report) -> None:
        self.whole = whole
        self.short = short
        self.report = report
        self._broken = False  # whether the snapshots led nowhere
        self._halted = [False] * len(whole.ledgers)

    def start(self, journal: Journal, bandit: StoredBandit) -> None:
        """Load what snapshots there are."""
        report = self.report
        useless = [
            one.partition
            for one in bandit.snapshots
            if one.position and one.fingerprint != self.short.fingerprint
        ]
        if useless:
            which = ", ".join(map(str, useless[:MANY])) + (", …" if len(useless) > MANY else "")
            report.not_compared.append(
                f"the snapshot of partition {which} was made with other settings, or by another "
                "release: give --window, --default, --retention, --reduce and --bounds as the "
                "bandit has them"
            )
        report.compared = sum(one.fingerprint == self.short.fingerprint for one in bandit.snapshots)
        try:
            self.short.load(journal)
        except Exception as error:  # whatever a wrong snapshot leads to
            self._break(error)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Fit once, at the end."""
        short = ExitStack()
        if not self._broken:
            short.enter_context(self.short.learner.bulk())
        with self.whole.learner.bulk():
            yield
        try:
            short.close()
        except Exception as error:  # whatever a wrong snapshot leads to
            self._break(error)

    def take(self, record: Record) -> None:
        """Fold one record twice, unless the snapshot has it."""
        partition = record.partition
        if isinstance(record.event, Opaque) and not self._halted[partition]:
            self._halted[partition] = True
            place = f"partition {partition}, position {record.position}"
            if self.short.positions[partition] >= record.position:
                why = f"the snapshot has an event this release cannot read, at {place}"
                self.report.not_compared.append(f"{why}: upgrade belated")
            else:
                what = f"at {place} is an event this release cannot read"
                self.report.notes.append(f"{what}: compared up to there")
        if self._halted[partition]:
            return
        self.whole.take(record)
        if not self._broken and record.position > self.short.positions[partition]:
            try:
                self.short.take(record)
            except Exception as error:  # whatever a wrong snapshot leads to
                self._break(error)

    def compare(self) -> None:
        """Write down what differs."""
        report = self.report
        report.counts, report.digest = self.whole.counts, self.whole.digest
        if self._broken or report.not_compared:
            return
        try:
            self._compare()
        except Exception as error:  # whatever a wrong snapshot leads to
            self._break(error)

    def _compare(self) -> None:
        report, whole, short = self.report, self.whole, self.short
        for state, count in whole.counts.items():
            if (other := short.counts[state]) != count:
                report.differences.append(
                    f"{state}: {other:,} by the snapshots, {count:,} by the records"
                )
        if not report.differences:  # else they differ too
            if whole.digest != short.digest:
                report.differences.append("digest: the states of some decisions are others")
            if not same_sums(whole, short):
                report.differences.append("sums: the rewards or rows learned from are others")
            for piece, what in PIECES.items():
                if any(
                    one.pack()[piece] != other.pack()[piece]
                    for one, other in zip(whole.adapters, short.adapters, strict=True)
                ):
                    report.differences.append(what)
        if not report.differences:
            self._compare_estimates()

    def _compare_estimates(self) -> None:
        one, other = self.whole.learner.estimate, self.short.learner.estimate
        apart = one.theta - other.theta
        deviations = math.sqrt(max(0.0, float(apart @ one.precision @ apart)))
        if not deviations <= DEVIATIONS:
            self.report.differences.append(f"estimate: {deviations:.2g} standard deviations apart")

    def _break(self, error: Exception) -> None:
        if not self._broken:
            self._broken = True
            what = f"{type(error).__name__}: {error}"
            self.report.differences.append(f"the snapshots cannot be gone on from ({what})")


def _text(report: Report) -> str:
    items = [("bandit", report.bandit), ("records", f"{report.records:,}")]
    if report.counts is not None:
        states = [f"{count:,} {state}" for state, count in report.counts.items() if count]
        total = f"{sum(report.counts.values()):,}"
        items.append(("decisions", f"{total}: {', '.join(states)}" if states else total))
        items.append(("digest", report.digest or ""))
    items.append(("head", report.head))
    if len(report.heads) > 1:
        items += [("", one) for one in report.heads]
    lines = [pairs(items), *(wrapped(f"note: {note}", "  ") for note in report.notes)]
    found = report.damage or report.differences or report.not_compared
    heads = {
        "damaged": "DAMAGED: records were changed or are missing; restore a backup",
        "differs": "DIFFERS: the snapshots are wrong; the records count",
        "not compared": "NOT COMPARED: every record is intact, but",
        "ok": "OK: every record is intact; there is no snapshot to compare",
    }
    head = heads[report.status]
    if report.status == "ok" and report.compared:
        head = f"OK: every record is intact, and {several(report.compared, 'snapshot')} agree"
    if report.status == "ok" and report.compared == 1:
        head += "s"
    lines += [head, *(wrapped(f"  {one}", "    ") for one in found)]
    return "\n".join(lines)
