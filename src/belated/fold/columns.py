"""Fold whole pages of records with a compiled kernel.

Pages are used to fold many records at once, with a single fit of the model at the end. The kernel
(:mod:`belated.model.kernels.pages`) handles common records, and the ledger folds all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from belated.core.events import SubjectReward, read_event
from belated.core.ids import subject_key
from belated.fold.adapter import LearnerAdapter
from belated.fold.ledger import Ledger
from belated.fold.rules import State
from belated.journals import Journal
from belated.journals.pages import ColumnLog, ColumnPage
from belated.model.kernels import MAX_WEIGHT, PageKernels, page_kernels, pages as kernel

if TYPE_CHECKING:
    from belated.fold.fold import Fold

#: Minimum lag, in positions, for which it is worth waiting for kernels to load from the cache.
FAR = 50_000
#: Maximum width of rows that are folded in pages; a page of wider rows would take too much memory.
WIDE = 4_096
#: Maximum number of consecutive records that the ledger folds before the kernel is tried again.
RARE = 64
#: A time that is never reached.
NEVER = 1 << 62


def kernels_for(fold: Fold, journal: Journal) -> PageKernels | None:
    """Return the kernels for folding a journal; None if it must be folded record by record."""
    policy = fold.policy
    if (
        policy.family.number is None
        or policy.row_width > WIDE
        or not isinstance(journal, ColumnLog)
        or fold.outcomes is not None  # the kernel does not report each change
    ):
        return None
    if fold.ledgers[fold.folded[0]].withholds or not fold.learner.weighting.takes_pages:
        return None
    kernels = page_kernels()
    if kernels is None:
        lags = (journal.end(partition) - fold.positions[partition] for partition in fold.folded)
        kernels = page_kernels(wait=any(lag >= FAR for lag in lags))
    return kernels


class PageFolder:
    """Folds a page of records in columnar form.

    Args:
        ledger: the ledger of the partition.
        adapter: the adapter between the ledger and the learner.
        page: the records.
        kernels: the compiled kernels.
    """

    def __init__(
        self, ledger: Ledger, adapter: LearnerAdapter, page: ColumnPage, kernels: PageKernels
    ) -> None:
        self._ledger, self._adapter = ledger, adapter
        self._page, self._kernels = page, kernels
        self._crcs = _crcs(page)
        dim = adapter.learner.policy.row_width
        self._rows = np.empty((len(page), dim), dtype=np.float32)
        self._learned = np.empty((len(page), 3))
        self._times = np.empty((len(page), 2), dtype=np.int64)
        self._noted = np.empty((len(page), 4), dtype=np.int64)
        self._burst = 1

    def take_plain(self, first: int) -> int:
        """Fold records from index ``first`` up to the next uncommon record; return its index."""
        ledger, adapter, page = self._ledger, self._adapter, self._page
        if ledger.undone is not None or not ledger._index.is_narrow:
            return first
        learner, count = adapter.learner, len(page) - first
        table, index, rows = ledger._table, ledger._index, adapter._rows
        if table.copies is not None:
            table.copies.take_all()  # before any entry changes
        table.reserve(count)
        index.reserve(count)
        rows.reserve(count)
        family = learner.policy.family
        assert family.number is not None
        state = np.array(
            [
                len(table), table.base, *index.constants, 0,
                rows.used, rows.n_free, learner.policy.blocks or 0,
                learner.next_handle(adapter.partition), family.number,
                -1 if ledger._window is None else ledger._window, ledger.watermark,
                min(ledger._window or NEVER, ledger._retention or NEVER), 0, 0,
                0, ledger._subjects.rewards > 0,
            ],
            dtype=np.int64,
        )  # fmt: skip
        numbers = np.array([learner.model.dispersion, MAX_WEIGHT, ledger._least, ledger._most])
        before, first_block = len(table), table.base >> kernel.BLOCK
        changed = np.zeros((table.next + count >> kernel.BLOCK) - first_block + 1, dtype=np.uint8)
        stop: int = self._kernels.fold_page(
            page.data, page.ends, page.positions, page.recorded, self._crcs, first,
            table.cells, table.cells.view(np.float64), index.places, rows.data,
            rows.data.view(np.uint8), rows.places, state, numbers, ledger._unmatched.seen,
            self._rows, self._learned, self._times, changed,
            np.frombuffer(adapter.encoder.names, dtype=np.uint8), self._noted,
        )  # fmt: skip
        decided, rewarded = int(state[kernel.DECIDED]), int(state[kernel.REWARDED])
        table.changed.update((first_block + np.flatnonzero(changed)).tolist())
        table.grew_by(decided)
        index.took(int(state[kernel.PLACES_TAKEN]))
        rows.used, rows.n_free = int(state[kernel.STORED]), int(state[kernel.FREE])
        ledger.counts[State.PENDING] += decided - rewarded
        ledger.counts[State.REWARDED] += rewarded
        if decided:
            ledger.counters["decided"] += decided
            ledger.expect(table.recorded[before])
        if rewarded:
            ledger.counters["rewarded"] += rewarded
        if stop > first:
            values, weights, old = self._learned[:rewarded].T
            rewarded_rows, times = self._rows[:rewarded], self._times[:rewarded]
            adapter.learn_page(before, rewarded_rows, values, weights, old > 0.0, times)
            self._fold_noted(self._noted[: state[kernel.NOTED]])
            adapter.finish(int(page.recorded[stop - 1]))
        return stop

    def _fold_noted(self, noted: NDArray[np.int64]) -> None:
        """Fold the subject records that the kernel set aside, in order."""
        ledger, page, learn_all = self._ledger, self._page, self._adapter.learn_all
        base, data, index = ledger._table.base, page.data.data, ledger._subjects
        credited: list[int] = []  # credited decisions not yet reported to the learner
        stamps, new = page.recorded[noted[:, 0]].tolist(), 0
        for (place, line, start, stop), recorded in zip(noted.tolist(), stamps, strict=True):
            subject = subject_key(data[start:stop])
            history = index.histories.get(subject)
            if line >= 0 and history is None:
                index.begin(subject, base + line)
                new += 1
                continue
            ledger._recorded = recorded
            if line >= 0:
                if credited and history is not None and ledger.rewarded_since(history, base + line):
                    learn_all(credited)  # before one of their rewards is credited elsewhere
                    credited = []
                status = ledger.assign(base + line, subject)
            else:
                event = read_event(page.event(place))
                assert isinstance(event, SubjectReward)
                number = ledger.credit_plainly(event, history)
                if number >= 0:
                    credited.append(number)
                    status = "credited"
                else:
                    if credited and history is not None and history.rewards:
                        learn_all(credited)
                        credited = []
                    status = ledger._subject_rewarded(event)
            ledger.counters[status] += 1
        if new:
            ledger.counters["assigned"] += new
        if credited:
            learn_all(credited)

    def burst(self, taken: int) -> int:
        """Return how many records the ledger should fold next.

        Args:
            taken: number of records that the kernel has just folded.
        """
        self._burst = 1 if taken > self._burst else min(2 * self._burst, RARE)
        return self._burst


def _crcs(page: ColumnPage) -> NDArray[np.int64]:
    """Return the checksums by which the ledger distinguishes decisions with the same id."""
    if page.digests.shape[1]:
        first = np.ascontiguousarray(page.digests[:, :4]).view(">u4")
        return first.reshape(-1).astype(np.int64)
    return page.crcs(np.zeros(len(page), dtype=np.int64))
