"""The same records folded twice: all of them, and the snapshots with those behind them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from belated.cli.journal.address import ends_of, undoing_in
from belated.cli.journal.identity import OTHER_SETTINGS
from belated.cli.journal.report import Report
from belated.events import Opaque, Overwritten, Record
from belated.exceptions import HistoryChanged, HistoryUndone
from belated.journals import Journal, StoredBandit
from belated.learner import Fold, LearnerAdapter, same_sums

#: Partitions that are named before it is enough.
MANY = 10
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
            try:
                changed = self.short.load(journal)
            except Exception as error:  # whatever a wrong snapshot leads to
                self._break(error)
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
        try:
            self.whole.take(record)
        except HistoryUndone:
            if isinstance(record.event, Overwritten):
                what = "was overwritten, but no record says that its decision was erased"
            else:
                what = "undoes earlier ones, but the journal's index does not list it"
            where = f"the record at partition {partition}, position {record.position}"
            self.report.damage.append(f"{where} {what}")
            return
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
        deviations = math.sqrt(max(0.0, float(apart @ one.precision @ apart)))
        if not deviations <= DEVIATIONS:
            self.report.differences.append(f"estimate: {deviations:.2g} standard deviations apart")

    def _break(self, error: Exception) -> None:
        if not self._broken:
            self._broken = True
            what = f"{type(error).__name__}: {error}"
            self.report.differences.append(f"the snapshots cannot be gone on from ({what})")


def _other_history(error: HistoryChanged) -> str:
    return (
        f"the snapshot of partition {error.partition} was made of other records than the journal "
        f"has up to position {error.position}: did a failover or a restore lose some?"
    )


def _listed(partitions: Sequence[int]) -> str:
    return ", ".join(map(str, partitions[:MANY])) + (", …" if len(partitions) > MANY else "")
