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

#: Damaged places, and partitions that differ, that are named before it is enough.
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
    print(msgspec.json.encode(report.as_dict()).decode() if options.json else as_text(report))
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
            except (CorruptEvent, CorruptJournal):  # reading all of it tells where
                folds = None
        if folds is not None:
            ends = folds.ends
        held: AbstractContextManager[None] = nullcontext() if folds is None else folds.held()
        with Progress("verified", sum(ends)) as progress, held:
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


def _intact_pages(
    journal: Journal, partition: int, stops: Sequence[int], damage: list[str]
) -> Iterator[list[Record]]:
    """Yield what can be read of a partition, and note damaged places until there are many.

    Args:
        journal: to read.
        partition: its number.
        stops: positions at which a page ends, in order; the last is where to stop reading.
        damage: where damaged places are noted.
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
                step = 1  # find it
                continue
            if str(error) in damage:  # the file itself cannot be read
                return
            damage.append(str(error))
            position, step = position + 1, PAGE


# --- what was found ------------------------------------------------------------------------------


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


def as_text(report: Report) -> str:
    """For people."""
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


# --- all records, and snapshots with the records behind them -------------------------------------

#: What it means if two folds differ in what they know of decisions beside the sums, and that.
KNOWN: dict[str, Callable[[LearnerAdapter], NDArray[Any]]] = {
    "rows: those of decisions that wait for a reward are others": lambda one: one.kept_rows(),
    "weights: those of decisions that wait for a reward are others": lambda one: one.table.column(
        "weight"
    ),
    "handles: rewards are taken for those of other decisions": lambda one: np.minimum(
        one.table.column("where"), 0
    ),
}
#: By how many posterior standard deviations the estimates may differ.
DEVIATIONS = 1e-6


class Comparison:
    """Folds a journal with and without its snapshots, and writes down what differs.

    Args:
        whole: a new fold, for all records.
        short: a new fold, for the snapshots and the records behind them.
        report: where it is written.

    Attributes:
        ends: how far to read each partition.
    """

    def __init__(self, whole: Fold, short: Fold, report: Report) -> None:
        self.whole = whole
        self.short = short
        self.report = report
        self.ends: list[int] = []
        self._broken = False  # whether the snapshots led nowhere
        self._halted = [False] * len(whole.ledgers)

    def start(self, journal: Journal, bandit: StoredBandit) -> None:
        """Learn what was undone, and load what snapshots there are.

        Raises:
            CorruptEvent: a record that undoes others is damaged.
        """
        known = undoing_in(journal)
        while True:
            changed: list[HistoryChanged] = []
            with self._snapshots():
                changed = self.short.load(journal)
            # After the snapshots were loaded: none of them is beyond these ends.
            self.ends = ends_of(journal)
            self.whole.begin(journal)
            if (now := undoing_in(journal)) == known:
                break
            known = now  # something was undone meanwhile, and both must know the same
            self.short.clear()
            self.whole.clear()
        self.report.differences += [_other_history(one) for one in changed]
        self._sort_out(bandit)

    def _sort_out(self, bandit: StoredBandit) -> None:
        """Count the snapshots that can be compared, and tell of the others."""
        report, settings = self.report, self.short.fingerprint
        useless, outdated = [], []
        for one in bandit.snapshots:
            if one.fingerprint == self.short.snapshot_fingerprint(one.partition):
                report.compared += 1
            elif one.fingerprint.startswith(settings):
                outdated.append(one.partition)
            elif one.position:
                useless.append(one.partition)
        if useless:
            report.not_compared.append(
                f"the snapshot of partition {_listed(useless)} {OTHER_SETTINGS}"
            )
        if outdated:
            report.notes.append(
                f"the snapshot of partition {_listed(outdated)} is from before something was "
                "undone, and was not compared: the next that is saved takes its place"
            )

    @contextmanager
    def held(self) -> Iterator[None]:
        """Fit once, at the end."""
        short = ExitStack()
        if not self._broken:
            short.enter_context(self.short.learner.bulk())
        with self.whole.learner.bulk():
            yield
        with self._snapshots():
            short.close()

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
        try:
            self.whole.take(record)
        except JournalMismatch as error:  # of features that cannot be made here
            self._halted[partition] = True
            self.report.not_compared.append(str(error))
            return
        except HistoryUndone:
            if isinstance(record.event, Overwritten):
                what = "was overwritten, but no record says that its decision was erased"
            else:
                what = "undoes earlier ones, but the journal's index does not list it"
            where = f"the record at partition {partition}, position {record.position}"
            self.report.damage.append(f"{where} {what}")
            return
        if not self._broken and record.position > self.short.positions[partition]:
            with self._snapshots():
                self.short.take(record)

    def compare(self) -> None:
        """Write down what differs."""
        report = self.report
        report.counts, report.digest = self.whole.counts, self.whole.digest
        if self._broken or report.not_compared:
            return
        with self._snapshots():
            self._compare()

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
            for what, known in KNOWN.items():
                if not all(
                    np.array_equal(known(one), known(other))
                    for one, other in zip(
                        whole.adapters.values(), short.adapters.values(), strict=True
                    )
                ):
                    report.differences.append(what)
        if not report.differences:
            self._compare_estimates()

    def _compare_estimates(self) -> None:
        one, other = self.whole.learner.estimate, self.short.learner.estimate
        apart = one.theta - other.theta
        deviations = math.sqrt(max(0.0, float(np.vdot(apart, product(one.precision, apart)))))
        if not deviations <= DEVIATIONS:
            self.report.differences.append(f"estimate: {deviations:.2g} standard deviations apart")

    @contextmanager
    def _snapshots(self) -> Iterator[None]:
        """Use the snapshots, unless they have led nowhere; a wrong one may raise anything."""
        try:
            yield
        except Exception as error:
            if not self._broken:
                what = f"{type(error).__name__}: {error}"
                self.report.differences.append(f"the snapshots cannot be gone on from ({what})")
            self._broken = True


def _other_history(error: HistoryChanged) -> str:
    return (
        f"the snapshot of partition {error.partition} was made of other records than the journal "
        f"has up to position {error.position}: did a failover or a restore lose some?"
    )


def _listed(partitions: Sequence[int]) -> str:
    return ", ".join(map(str, partitions[:MANY])) + (", …" if len(partitions) > MANY else "")


# --- heads ---------------------------------------------------------------------------------------


class Expected(NamedTuple):
    """A head that somebody kept: of the whole journal, or of one partition.

    Attributes:
        text: As it was given.
        positions: By partition, where it was taken.
        digest: What it names.
    """

    text: str
    positions: dict[int, int]
    digest: bytes

    @classmethod
    def parse(cls, text: str, partitions: int) -> Self:
        """Return what a text says; that of one partition begins with its number, as in ``3/``.

        Raises:
            InvalidInput: it is no head, or that of another journal.
        """
        number, slash, rest = text.strip().rpartition("/")
        head = Head.parse(rest)
        first = int(number) if number.isdecimal() else 0
        of = f"partition {number}" if slash else f"{len(head.positions)} partitions"
        whole = number.isdecimal() and first < partitions and len(head.positions) == 1
        if not (whole if slash else len(head.positions) == partitions):
            message = f"{text!r} is a head of {of}, and this journal has {partitions} partitions"
            raise InvalidInput(message, text)
        return cls(text, dict(enumerate(head.positions, start=first)), head.digest)


class Heads:
    """Chains all partitions, and finds what is not as expected.

    Args:
        chains: For each partition, of what was trimmed.
        expected: Heads that somebody kept.
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
        """Return the positions at which a page must end: those of expected heads, and the end."""
        places = {one.positions.get(partition, end) for one in self._expected}
        return sorted(place for place in {*places, end} if place <= end)

    @property
    def whole(self) -> str:
        """The head of the journal."""
        return str(Head.of(self._chains))

    @property
    def each(self) -> list[str]:
        """The heads of its partitions."""
        return [f"{number}/{Head.of([chain])}" for number, chain in enumerate(self._chains)]

    def differences(self) -> list[str]:
        """Return what is not as expected."""
        checked = [one for one in self._expected if not self._trimmed(one)]
        return [what for one in checked if (what := self._difference(one))]

    def out_of_sight(self) -> list[str]:
        """Return which heads cannot be checked, for the records they name were trimmed."""
        return [
            f"the head {one.text} is of records that were trimmed since"
            for one in self._expected
            if self._trimmed(one)
        ]

    def _trimmed(self, one: Expected) -> bool:
        return any(position < self._starts[p] for p, position in one.positions.items())

    def _difference(self, one: Expected) -> str:
        for partition, position in one.positions.items():
            end = self._chains[partition].position
            if end < position:
                return (
                    f"partition {partition} ends at position {end:,}, and the head {one.text} was "
                    f"taken at {position:,}: the records beyond {end:,} are lost"
                )
        heads = [self._found.get(place, b"") for place in one.positions.items()]
        if all(heads) and join_heads(heads) == one.digest:
            return ""
        where = [f"partition {p} up to position {n:,}" for p, n in one.positions.items() if n]
        return (
            f"the records are others than those the head {one.text} was taken of ("
            f"{', '.join(where) or 'none'}): some were changed, removed, added or swapped"
        )
