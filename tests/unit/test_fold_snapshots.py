"""A snapshot writes only the pieces that have changed."""

from __future__ import annotations

import numpy as np
import pytest

from belated import Bernoulli, DelayedUCB, Explicit
from belated.core.events import Decision, Event, Reward, Void
from belated.core.ids import new_id
from belated.exceptions import JournalUnavailable
from belated.fold.fold import Fold, same_sums
from belated.journals import MemoryJournal
from belated.journals.snapshots import Snapshot

START = 1_700_000_000_000_000


class Counting(MemoryJournal):
    """A journal that records the names of the pieces of the last snapshot."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: set[str] = set()

    def save(self, snapshot: Snapshot) -> None:
        """Record the names and store the snapshot."""
        self.pieces = set(snapshot.pieces)
        super().save(snapshot)


def new_fold() -> Fold:
    """Return an empty fold."""
    return Fold(DelayedUCB(2, Bernoulli()), Explicit("7d"))


def test_only_changed_blocks_are_written_and_the_whole_state_is_restored() -> None:
    """20,000 decisions are three blocks; a reward, a void and a new decision change one each."""
    journal, fold = Counting(), new_fold()
    rng = np.random.default_rng(1)
    ids = [new_id(START + n) for n in range(20_000)]
    rows = rng.normal(size=(20_000, 2)).astype(np.float32)
    journal.append(
        [Decision(id, START, 0, 0, x, 0.5, 1.0, 1) for id, x in zip(ids, rows, strict=True)]
    )
    fold.catch_up(journal)
    fold.save(journal)
    all_blocks = {"lines 0", "lines 1", "lines 2", "rows-of-lines 0", "rows-of-lines 1"}
    assert all_blocks < journal.pieces
    steps: list[tuple[list[Event], set[str]]] = [
        ([Reward(ids[9_000], START, 1.0)], {"lines 1", "rows-of-lines 1"}),
        ([Void(ids[5], START)], {"lines 0"}),
        ([Decision(new_id(START), START, 0, 0, rows[0], 0.5, 1.0, 1)], {"lines 2"}),
    ]
    for events, changed in steps:
        journal.append(events)
        fold.catch_up(journal)
        fold.save(journal)
        blocks = {name for name in journal.pieces if "lines" in name}
        assert blocks - {"rows-of-lines 2"} == changed
        restored = new_fold()
        restored.load(journal)
        assert restored.version == fold.version
        assert (restored.digest, restored.counts, restored.counters) == (
            fold.digest, fold.counts, fold.counters,
        )  # fmt: skip
        assert same_sums(restored, fold)
        np.testing.assert_allclose(
            restored.learner.weighting.pending.matrix, fold.learner.weighting.pending.matrix
        )
    fold.save(journal)
    assert not {name for name in journal.pieces if "lines" in name}


def test_a_snapshot_pays_only_once_something_was_folded() -> None:
    """An idle journal is not written to, whichever process made its last snapshot."""
    journal, fold = MemoryJournal(), new_fold()
    assert not fold.save_pays()
    journal.append([Void("a", START)])
    fold.catch_up(journal)
    assert fold.save_pays()
    fold.save(journal)
    assert not fold.save_pays()
    restored = new_fold()
    restored.load(journal)
    assert not restored.save_pays()


def test_a_snapshot_that_was_not_written_pays_again() -> None:
    """It pays again even if no records follow."""

    class Unavailable(MemoryJournal):
        def save(self, snapshot: Snapshot) -> None:
            raise JournalUnavailable("unavailable")

    journal, fold = Unavailable(), new_fold()
    journal.append([Void("a", START)])
    fold.catch_up(journal)
    with pytest.raises(JournalUnavailable):
        fold.save(journal)
    assert fold.save_pays()
