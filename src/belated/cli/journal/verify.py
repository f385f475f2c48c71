"""``belated journal verify``: verify every record, and the snapshots against the records.

The command reads every record and verifies the checksum, recomputes the digest from the stored
bytes, and chains all records. It prints the heads of the chains. If you store them elsewhere, you
can pass them to ``--expect`` at any later time. This also reveals modifications by someone who has
recomputed the checksums.

All records are folded from scratch, and a second time starting from the snapshots. The number of
decisions in each state, the digest of all decisions and the pending decisions must be equal. Sums
must agree within 1e-9, and estimates within 1e-6 posterior standard deviations.

A snapshot can be compared only with a fold that has the same window, default, retention, reduction
and bounds. By default, these settings are taken from the journal. If they differ from those of the
snapshot, nothing can be compared, and the exit code is 2.

If old records were trimmed, both folds start from the base that replaces them. The contents of the
base can no longer be verified, only that they have not changed since.

Erased and retracted events are ignored in both folds. A snapshot that is older than an erasure is
obsolete. It is not compared, and a note reports this.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from belated.cli.address import (
    OTHER_SETTINGS,
    add_address,
    configured,
    empty_fold,
    ends_of,
    opened,
    starts_of,
    undoing_in,
)
from belated.cli.options import add_json, add_semantics, semantics
from belated.cli.text import Progress, moment, pairs, several, wrapped
from belated.core.events import Opaque, Overwritten, Record
from belated.core.rewards import Rewards
from belated.exceptions import (
    CorruptEvent,
    CorruptJournal,
    HistoryChanged,
    HistoryUndone,
    InvalidInput,
    JournalMismatch,
    SnapshotWarning,
)
from belated.fold.adapter import LearnerAdapter
from belated.fold.fold import Fold, same_sums
from belated.journals import Journal
from belated.journals.chain import Chain, Head, chain_behind, join_heads
from belated.journals.indexed import StoredJournal
from belated.journals.pages import PAGE, pages
from belated.journals.store import StoredBandit
from belated.model.blocks import product

EXAMPLE = "belated journal verify sqlite:///offers.db --window 7d"

#: Maximum number of damaged records or differing partitions to list.
MANY = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_address(parser)
    add_json(parser)
    add_semantics(parser)
    parser.add_argument(
        "--expect",
        metavar="HEAD",
        action="append",
        default=[],
        help="a head from `verify`, an export or a model: fail if the records up to this head have "
        "changed (repeatable)",
    )


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    with opened(options.address) as (journal, bandit):
        rewards, retention = semantics(options, configured(journal))
        report = verify(journal, bandit, rewards, retention, options.expect)
    print(msgspec.json.encode(report.as_dict()).decode() if options.json else as_text(report))
    return {"ok": 0, "differs": 1, "damaged": 1, "not compared": 2}[report.status]


def verify(
    journal: Journal,
    bandit: StoredBandit,
    rewards: Rewards,
    retention: int | None,
    expected: Sequence[str] = (),
) -> Report:
    """Verify a journal and return the report."""
    report = Report(bandit.name)
    try:
        ends = ends_of(journal)
    except CorruptJournal as error:  # the number of records is unknown
        report.damage.append(str(error))
        return report
    bases = map(journal.base, range(journal.partitions))
    heads = Heads([chain_behind(base) for base in bases], expected)
    _note_trimmed(journal, report)
    if isinstance(journal, StoredJournal):
        journal.checks_digests = True
    folds: Comparison | None = None
    if bandit.identity is None:
        report.notes.append("no bandit has used this journal yet: only its records were verified")
    else:
        try:
            whole, short = (empty_fold(bandit, journal, rewards, retention) for _ in range(2))
        except InvalidInput as error:
            report.not_compared.append(str(error))
        else:
            folds = Comparison(whole, short, report)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        if folds is not None:
            try:
                folds.start(journal, bandit)
            except (CorruptEvent, CorruptJournal):  # reading the records locates the damage
                folds = None
        if folds is not None:
            ends = folds.ends
        hold: AbstractContextManager[None] = nullcontext() if folds is None else folds.held()
        with Progress("verified", sum(ends)) as progress, hold:
            for partition, end in enumerate(ends):
                stops = heads.stops(partition, end)
                for page in _intact_pages(journal, partition, stops, report.damage):
                    heads.add(partition, page)
                    if folds is not None and not report.damage:
                        for record in page:
                            folds.take(record)
                    report.records += len(page)
                    progress.step(len(page))
        report.damage += heads.differences()
        report.not_compared += heads.out_of_sight()
        report.head, report.heads = heads.whole, heads.each
        if folds is not None and not report.damage:
            folds.compare()
    report.differences += [
        str(warning.message) for warning in warned if issubclass(warning.category, SnapshotWarning)
    ]
    return report


def _note_trimmed(journal: Journal, report: Report) -> None:
    starts = starts_of(journal)
    if any(start.position for start in starts):
        upto = max(start.stamp for start in starts)
        count = sum(start.position for start in starts)
        report.notes.append(
            f"{several(count, 'record')} up to {moment(upto)} were trimmed: the base that replaces "
            "them is used without verification"
        )


def _intact_pages(
    journal: Journal, partition: int, stops: Sequence[int], damage: list[str]
) -> Iterator[list[Record]]:
    """Yield the readable pages of a partition, and collect a limited number of damaged positions.

    Args:
        journal: the journal.
        partition: the partition.
        stops: positions at which a page must end, in order. Reading stops at the last one.
        damage: list to which messages about damaged records are added.
    """
    position, step = journal.start(partition).position, PAGE
    while len(damage) < MANY:
        try:
            for stop in stops:
                for page in pages(journal, partition, position, stop, step):
                    yield page
                    position = page[-1].position
            return
        except (CorruptEvent, CorruptJournal) as error:
            if step > 1:
                step = 1  # locate the damaged record
                continue
            if str(error) in damage:  # the file itself cannot be read
                return
            damage.append(str(error))
            position, step = position + 1, PAGE


# --- the report ----------------------------------------------------------------------------------


@dataclass
class Report:
    """The result of a verification.

    Attributes:
        bandit: the name of the bandit.
        records: the number of records read.
        damage: messages about modified or missing records.
        differences: differences between a fold of all records and a fold from the snapshots.
        not_compared: reasons why the folds could not be compared.
        notes: remarks that do not affect the result.
        compared: the number of snapshots compared.
        counts: decisions by state.
        digest: the digest of all decisions.
        head: the head of the journal.
        heads: the head of each partition.
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
        """The most severe result: ``damaged``, ``differs``, ``not compared`` or ``ok``."""
        if self.damage:
            return "damaged"
        if self.differences:
            return "differs"
        return "not compared" if self.not_compared else "ok"

    def as_dict(self) -> dict[str, Any]:
        """Return the report as a dictionary."""
        return {"status": self.status, **vars(self)}


def as_text(report: Report) -> str:
    """Format the report as text."""
    items = [("bandit", report.bandit), ("records", f"{report.records:,}")]
    if report.counts is not None:
        states = [f"{count:,} {state}" for state, count in report.counts.items() if count]
        total = f"{sum(report.counts.values()):,}"
        items.append(("decisions", f"{total}: {', '.join(states)}" if states else total))
        items.append(("digest", report.digest or ""))
    items.append(("head", report.head))
    if len(report.heads) > 1:
        items += [("", head) for head in report.heads]
    lines = [pairs(items), *(wrapped(f"note: {note}", "  ") for note in report.notes)]
    problems = report.damage or report.differences or report.not_compared
    heads = {
        "damaged": "DAMAGED: records were changed or are missing; restore a backup",
        "differs": "DIFFERS: the snapshots are wrong; the records are authoritative",
        "not compared": "NOT COMPARED: every record is intact, but",
        "ok": "OK: every record is intact; there is no snapshot to compare",
    }
    head = heads[report.status]
    if report.status == "ok" and report.compared:
        head = f"OK: every record is intact, and {several(report.compared, 'snapshot')} agree"
    if report.status == "ok" and report.compared == 1:
        head += "s"
    lines += [head, *(wrapped(f"  {problem}", "    ") for problem in problems)]
    return "\n".join(lines)


# --- comparison of folds with and without snapshots ----------------------------------------------

#: State that must be equal, in addition to the sums, by the message to report if it differs.
KNOWN: dict[str, Callable[[LearnerAdapter], NDArray[Any]]] = {
    "rows: pending decisions differ in their rows": lambda adapter: adapter.kept_rows(),
    "weights: pending decisions differ in weight": lambda adapter: adapter.table.column("weight"),
    "handles: different decisions accept rewards": lambda adapter: np.minimum(
        adapter.table.column("where"), 0
    ),
}
#: Tolerance for the estimates, in posterior standard deviations.
DEVIATIONS = 1e-6


class Comparison:
    """Folds a journal with and without its snapshots, and reports differences.

    Args:
        whole: an empty fold, to which all records are added.
        short: an empty fold, which starts from the snapshots.
        report: the report to which the results are added.

    Attributes:
        ends: the position up to which each partition is read.
    """

    def __init__(self, whole: Fold, short: Fold, report: Report) -> None:
        self.whole = whole
        self.short = short
        self.report = report
        self.ends: list[int] = []
        self._broken = False  # whether the snapshots have proved unusable
        self._halted = [False] * len(whole.ledgers)

    def start(self, journal: Journal, bandit: StoredBandit) -> None:
        """Read the erasures and retractions and load the snapshots.

        Raises:
            CorruptEvent: the record of an erasure or retraction is damaged.
        """
        undoing = undoing_in(journal)
        while True:
            changed: list[HistoryChanged] = []
            with self._snapshots():
                changed = self.short.load(journal)
            # Read the ends after loading the snapshots, so that no snapshot is beyond them.
            self.ends = ends_of(journal)
            self.whole.begin(journal)
            if (latest := undoing_in(journal)) == undoing:
                break
            undoing = latest  # start again, so that both folds include new erasures and retractions
            self.short.clear()
            self.whole.clear()
        self.report.differences += [_other_history(error) for error in changed]
        self._sort_out(bandit)

    def _sort_out(self, bandit: StoredBandit) -> None:
        """Count the snapshots that can be compared, and report all others."""
        report, settings = self.report, self.short.fingerprint
        useless, outdated = [], []
        for snapshot in bandit.snapshots:
            if snapshot.fingerprint == self.short.snapshot_fingerprint(snapshot.partition):
                report.compared += 1
            elif snapshot.fingerprint.startswith(settings):
                outdated.append(snapshot.partition)
            elif snapshot.position:
                useless.append(snapshot.partition)
        if useless:
            report.not_compared.append(
                f"the snapshot of partition {_listed(useless)} {OTHER_SETTINGS}"
            )
        if outdated:
            report.notes.append(
                f"the snapshot of partition {_listed(outdated)} is older than an erasure or "
                "retraction, so it was not compared: the next snapshot replaces it"
            )

    @contextmanager
    def held(self) -> Iterator[None]:
        """Defer fitting until the end of the block."""
        short = ExitStack()
        if not self._broken:
            short.enter_context(self.short.learner.bulk())
        with self.whole.learner.bulk():
            yield
        with self._snapshots():
            short.close()

    def take(self, record: Record) -> None:
        """Add a record to both folds, or only to the first if the snapshot already includes it."""
        partition = record.partition
        if isinstance(record.event, Opaque) and not self._halted[partition]:
            self._halted[partition] = True
            place = f"partition {partition}, position {record.position}"
            if self.short.positions[partition] >= record.position:
                why = f"the snapshot includes an event this release cannot read, at {place}"
                self.report.not_compared.append(f"{why}: upgrade belated")
            else:
                fault = f"this release cannot read the event at {place}"
                self.report.notes.append(f"{fault}: only earlier records were compared")
        if self._halted[partition]:
            return
        try:
            self.whole.take(record)
        except JournalMismatch as error:  # custom features cannot be created here
            self._halted[partition] = True
            self.report.not_compared.append(str(error))
            return
        except HistoryUndone:
            if isinstance(record.event, Overwritten):
                fault = "was overwritten, but no record erases its decision"
            else:
                fault = "erases or retracts earlier records, but is missing in the journal's index"
            where = f"the record at partition {partition}, position {record.position}"
            self.report.damage.append(f"{where} {fault}")
            return
        if not self._broken and record.position > self.short.positions[partition]:
            with self._snapshots():
                self.short.take(record)

    def compare(self) -> None:
        """Compare the folds and report differences."""
        report = self.report
        report.counts, report.digest = self.whole.counts, self.whole.digest
        if self._broken or report.not_compared:
            return
        with self._snapshots():
            self._compare()

    def _compare(self) -> None:
        report, whole, short = self.report, self.whole, self.short
        for state, count in whole.counts.items():
            if (short_count := short.counts[state]) != count:
                report.differences.append(
                    f"{state}: {short_count:,} with the snapshots, {count:,} without"
                )
        if not report.differences:  # otherwise, the following differ, too
            if whole.digest != short.digest:
                report.differences.append("digest: the states of some decisions differ")
            if not same_sums(whole, short):
                report.differences.append("sums: the learned rewards or rows differ")
            for part, state_of in KNOWN.items():
                if not all(
                    np.array_equal(state_of(adapter), state_of(counterpart))
                    for adapter, counterpart in zip(
                        whole.adapters.values(), short.adapters.values(), strict=True
                    )
                ):
                    report.differences.append(part)

    def _compare_estimates(self) -> None:
        whole, short = self.whole.learner.estimate, self.short.learner.estimate
        difference = whole.theta - short.theta
        deviations = math.sqrt(
            max(0.0, float(np.vdot(difference, product(whole.precision, difference))))
        )
        if not deviations <= DEVIATIONS:
            self.report.differences.append(f"estimate: {deviations:.2g} standard deviations apart")

    @contextmanager
    def _snapshots(self) -> Iterator[None]:
        """Catch any error that an incorrect snapshot may cause, and stop using the snapshots."""
        try:
            yield
        except Exception as error:
            if not self._broken:
                problem = f"{type(error).__name__}: {error}"
                self.report.differences.append(f"folding from the snapshots failed ({problem})")
            self._broken = True


def _other_history(error: HistoryChanged) -> str:
    return (
        f"the snapshot of partition {error.partition} was made from different records than those "
        f"up to position {error.position}: did a failover or a restore lose records?"
    )


def _listed(partitions: Sequence[int]) -> str:
    return ", ".join(map(str, partitions[:MANY])) + (", …" if len(partitions) > MANY else "")


# --- heads ---------------------------------------------------------------------------------------


class Expected(NamedTuple):
    """The expected head of the whole journal or of a single partition.

    Attributes:
        text: the head as passed to the command.
        positions: the last position that the head includes, by partition.
        digest: the hash of the records up to these positions.
    """

    text: str
    positions: dict[int, int]
    digest: bytes

    @classmethod
    def parse(cls, text: str, partitions: int) -> Self:
        """Parse a head. The head of a single partition starts with its number, as in ``3/``.

        Raises:
            InvalidInput: the text is not a head, or is a head of a different journal.
        """
        number, slash, digest = text.strip().rpartition("/")
        head = Head.parse(digest)
        first = int(number) if number.isdecimal() else 0
        scope = f"partition {number}" if slash else f"{len(head.positions)} partitions"
        whole = number.isdecimal() and first < partitions and len(head.positions) == 1
        if not (whole if slash else len(head.positions) == partitions):
            message = (
                f"{text!r} is a head of {scope}, but this journal has {partitions} partitions:"
            )
            raise InvalidInput(f"{message} pass a head of this journal", text)
        return cls(text, dict(enumerate(head.positions, start=first)), head.digest)


class Heads:
    """Computes the chains of all partitions and compares them with expected heads.

    Args:
        chains: the chain of the trimmed records, by partition.
        expected: the expected heads, which were stored earlier.
    """

    def __init__(self, chains: Sequence[Chain], expected: Sequence[str] = ()) -> None:
        self._chains, partitions = list(chains), len(chains)
        self._starts = [chain.position for chain in chains]
        self._expected = [Expected.parse(text, partitions) for text in expected]
        self._found = {(p, chain.position): chain.head for p, chain in enumerate(self._chains)}

    def add(self, partition: int, page: Sequence[Record]) -> None:
        """Add the next records of a partition."""
        chain = self._chains[partition]
        chain.add(page)
        self._found[partition, chain.position] = chain.head

    def stops(self, partition: int, end: int) -> list[int]:
        """Return the positions at which a page must end: those of expected heads and the end."""
        places = {head.positions.get(partition, end) for head in self._expected}
        return sorted(place for place in {*places, end} if place <= end)

    @property
    def whole(self) -> str:
        """The head of the journal."""
        return str(Head.of(self._chains))

    @property
    def each(self) -> list[str]:
        """The head of each partition."""
        return [f"{number}/{Head.of([chain])}" for number, chain in enumerate(self._chains)]

    def differences(self) -> list[str]:
        """Return descriptions of how the records differ from the expected heads."""
        checked = [head for head in self._expected if not self._trimmed(head)]
        return [difference for head in checked if (difference := self._difference(head))]

    def out_of_sight(self) -> list[str]:
        """Return the heads that cannot be verified because their records were trimmed."""
        return [
            f"records of the head {head.text} have been trimmed since then"
            for head in self._expected
            if self._trimmed(head)
        ]

    def _trimmed(self, head: Expected) -> bool:
        return any(position < self._starts[p] for p, position in head.positions.items())

    def _difference(self, expected: Expected) -> str:
        for partition, position in expected.positions.items():
            end = self._chains[partition].position
            if end < position:
                return (
                    f"partition {partition} ends at position {end:,}, before {position:,}, the "
                    f"position of the head {expected.text}: the records after {end:,} are lost"
                )
        heads = [self._found.get(place, b"") for place in expected.positions.items()]
        if all(heads) and join_heads(heads) == expected.digest:
            return ""
        where = [f"partition {p} up to position {n:,}" for p, n in expected.positions.items() if n]
        return (
            f"the records do not match the head {expected.text} ({', '.join(where) or 'none'}): "
            "some were changed, removed, added or reordered"
        )
