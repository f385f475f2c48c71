"""Pages of records folded as columns: what the kernel takes, and what the rules take.

See :mod:`belated.model.kernels.pages`. It is for folding many records at once, where the model
stands still and is fitted at the end.
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

#: From so many positions on it is worth waiting for kernels that are in the cache.
FAR = 50_000
#: Rows that are wider than this are read one by one: a page of them is no small value.
WIDE = 4_096
#: Records that the rules take in a row, at most, before the kernel is tried again.
RARE = 64
#: In place of a time that never comes.
NEVER = 1 << 62


def kernels_for(fold: Fold, journal: Journal) -> PageKernels | None:
    """Return the kernels for a fold of a journal; None if it goes record by record."""
    policy = fold.policy
    if (
        policy.family.number is None
        or policy.row_width > WIDE
        or not isinstance(journal, ColumnLog)
    ):
        return None
    if fold.ledgers[fold.folded[0]].withholds or not fold.learner.weighting.takes_pages:
        return None
    found = page_kernels()
    if found is None:
        ends = (journal.end(one) - fold.positions[one] for one in fold.folded)
        found = page_kernels(wait=any(behind >= FAR for behind in ends))
    return found


class PageFolder:
    """Folds the columns of one page.

    Args:
        ledger: of the partition.
        adapter: between it and the learner.
        page: the records.
        kernels: compiled.
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
        """Take plain records from one on; returns the place of the first that is not."""
        ledger, adapter, page = self._ledger, self._adapter, self._page
        if ledger.undone is not None or not ledger._index.is_narrow:
            return first
        learner, count = adapter.learner, len(page) - first
        table, index, rows = ledger._table, ledger._index, adapter._rows
        if table.copies is not None:
            table.copies.take_all()  # before a line changes
        table.reserve(count)
        index.reserve(count)
        rows.reserve(count)
        family = learner.policy.family
        assert family.number is not None
        told = np.array(
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
            rows.data.view(np.uint8), rows.places, told, numbers, ledger._unmatched.seen,
            self._rows, self._learned, self._times, changed,
            np.frombuffer(adapter.encoder.names, dtype=np.uint8), self._noted,
        )  # fmt: skip
        decided, rewarded = int(told[kernel.DECIDED]), int(told[kernel.REWARDED])
        table.changed.update((first_block + np.flatnonzero(changed)).tolist())
        table.grew_by(decided)
        index.took(int(told[kernel.PLACES_TAKEN]))
        rows.used, rows.n_free = int(told[kernel.STORED]), int(told[kernel.FREE])
        ledger.counts[State.PENDING] += decided - rewarded
        ledger.counts[State.REWARDED] += rewarded
        if decided:
            ledger.counters["decided"] += decided
            ledger.expect(table.recorded[before])
        if rewarded:
            ledger.counters["rewarded"] += rewarded
        if stop > first:
            values, weights, old = self._learned[:rewarded].T
            came, times = self._rows[:rewarded], self._times[:rewarded]
            adapter.learn_page(before, came, values, weights, old > 0.0, times)
            self._fold_noted(self._noted[: told[kernel.NOTED]])
            adapter.finish(int(page.recorded[stop - 1]))
        return stop

    def _fold_noted(self, noted: NDArray[np.int64]) -> None:
        """Fold the records of subjects that the kernel has noted, in order."""
        ledger, page, learn_all = self._ledger, self._page, self._adapter.learn_all
        base, data, index = ledger._table.base, page.data.data, ledger._subjects
        credited: list[int] = []  # that the learner is not told of yet
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
                    learn_all(credited)  # before one of them is credited elsewhere
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
        """How many records the rules take next, by how many the kernel took before them."""
        self._burst = 1 if taken > self._burst else min(2 * self._burst, RARE)
        return self._burst


def _crcs(page: ColumnPage) -> NDArray[np.int64]:
    """What tells two decisions under one id apart, as the ledger makes it."""
    if page.digests.shape[1]:
        first = np.ascontiguousarray(page.digests[:, :4]).view(">u4")
        return first.reshape(-1).astype(np.int64)
    return page.crcs(np.zeros(len(page), dtype=np.int64))
