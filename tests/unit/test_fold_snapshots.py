"""A snapshot writes what has changed, and what it leaves is what it was."""

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
    """Notes the names of what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.given: set[str] = set()

    def save(self, snapshot: Snapshot) -> None:
        """Store it."""
        self.given = set(snapshot.pieces)
        super().save(snapshot)


def folded() -> Fold:
    """An empty one."""
    return Fold(DelayedUCB(2, Bernoulli()), Explicit("7d"))


def test_only_what_changed_is_written_and_all_comes_back() -> None:
    """Of 20,000 decisions three blocks: a reward, a void and new decisions touch one each."""
    journal, fold = Counting(), folded()
    rng = np.random.default_rng(1)
    ids = [new_id(START + n) for n in range(20_000)]
    rows = rng.normal(size=(20_000, 2)).astype(np.float32)
    journal.append(
        [Decision(id, START, 0, 0, x, 0.5, 1.0, 1) for id, x in zip(ids, rows, strict=True)]
    )
    fold.catch_up(journal)
    fold.save(journal)
    everything = {"lines 0", "lines 1", "lines 2", "rows-of-lines 0", "rows-of-lines 1"}
    assert everything < journal.given
    steps: list[tuple[list[Event], set[str]]] = [
        ([Reward(ids[9_000], START, 1.0)], {"lines 1", "rows-of-lines 1"}),
        ([Void(ids[5], START)], {"lines 0"}),
        ([Decision(new_id(START), START, 0, 0, rows[0], 0.5, 1.0, 1)], {"lines 2"}),
    ]
    for events, changed in steps:
        journal.append(events)
        fold.catch_up(journal)
        fold.save(journal)
        blocks = {name for name in journal.given if "lines" in name}
        assert blocks - {"rows-of-lines 2"} == changed
        again = folded()
        again.load(journal)
        assert again.version == fold.version
        assert (again.digest, again.counts, again.counters) == (
            fold.digest, fold.counts, fold.counters,
        )  # fmt: skip
        assert same_sums(again, fold)
        one, other = (each.learner.weighting.pending.matrix for each in (again, fold))
        np.testing.assert_allclose(one, other)
    fold.save(journal)
    assert not {name for name in journal.given if "lines" in name}


def test_a_snapshot_pays_only_once_something_was_folded() -> None:
    """A journal that is idle is not written to, whoever has made its last snapshot."""
    journal, fold = MemoryJournal(), folded()
    assert not fold.save_pays()
    journal.append([Void("a", START)])
    fold.catch_up(journal)
    assert fold.save_pays()
    fold.save(journal)
    assert not fold.save_pays()
    again = folded()
    again.load(journal)
    assert not again.save_pays()


def test_a_snapshot_that_was_not_written_pays_again() -> None:
    """Also if nothing comes after it."""

    class Away(MemoryJournal):
        def save(self, snapshot: Snapshot) -> None:
            raise JournalUnavailable("away")

    journal, fold = Away(), folded()
    journal.append([Void("a", START)])
    fold.catch_up(journal)
    with pytest.raises(JournalUnavailable):
        fold.save(journal)
    assert fold.save_pays()
