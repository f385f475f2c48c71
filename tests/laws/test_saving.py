"""A snapshot is of the moment when it began, whatever is folded until it is written."""

from __future__ import annotations

import random

import pytest

from belated import Bernoulli, DelayedUCB
from belated.core.events import Decision, Reward, Settled
from belated.core.rewards import DefaultAfter, Explicit, Rewards
from belated.core.tuning import Tuning
from belated.fold import fold as folds, table
from belated.fold.fold import Fold
from belated.journals import MemoryJournal
from belated.model.kernels import PageKernels, pages
from tests.laws.column_runs import DIM, PLAIN, Clock, check_same, history


@pytest.fixture
def seeds(request: pytest.FixtureRequest) -> range:
    """Few by default."""
    return range(1_000 if request.config.getoption("--full") else 30)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of eight lines, so that a short history has many."""
    for module in (table, pages, folds):
        monkeypatch.setattr(module, "BLOCK", 3)


class Run:
    """A random history, folded and saved again and again."""

    def __init__(self, seed: int) -> None:
        self.rng, self.clock = random.Random(seed), Clock()
        self.journal = MemoryJournal(clock=self.clock)
        self.policy = self.rng.choice(
            [DelayedUCB(DIM, Bernoulli()), DelayedUCB(DIM, Bernoulli(), learn_after=20)]
        )
        meanings: list[Rewards] = [Explicit("1000us"), DefaultAfter("1000us"), Explicit()]
        self.rewards = self.rng.choice(meanings)
        self.retention = self.rng.choice([None, 1_500])
        self.events = history(self.rng, 150)
        self.ids = {event.id for event in self.events if isinstance(event, Decision | Reward)}
        self.fold = self.empty()
        #: Pieces that were not written again.
        self.kept = 0

    def empty(self) -> Fold:
        """A new fold."""
        tuning = Tuning(page=self.rng.choice([3, 50]), bulk=1, dropped=4)
        return Fold(self.policy, self.rewards, retention=self.retention, tuning=tuning)

    def fold_some(self) -> None:
        """More events, in bulk or one by one."""
        count = self.rng.randrange(1, 60)
        self.clock.now += self.rng.randrange(600)
        settled = [Settled(0, self.clock.now)] * (self.rng.random() < 0.5)
        self.journal.append([*self.events[:count], *settled])
        del self.events[:count]
        if self.rng.random() < 0.5:
            self.fold.catch_up(self.journal)
        else:
            self.fold.follow(self.journal, 0, 1_000)

    def save(self) -> None:
        """Begin, go on folding, and write."""
        fold, chance = self.fold, self.rng.random()
        saving = fold.begin_save(self.journal)
        self.fold_some()
        if chance < 0.2:  # it was not written
            fold.end_save(saving)
            return
        if chance < 0.3:  # another process was faster
            successor = self.empty()
            successor.load(self.journal)
            successor.catch_up(self.journal)
            successor.save(MemoryJournal.sharing(self.journal._facts, "bandit", self.clock))
            fold.end_save(saving)
            fold.save(self.journal)
        else:
            saving.write(self.journal)
            self.kept += len(saving.parts[0].unchanged)
            fold.end_save(saving)
        self.check()

    def check(self) -> None:
        """Load what was saved, and compare it with a fold of the records up to there."""
        stored = self.journal.load(0)
        assert stored is not None
        loaded, expected = self.empty(), self.empty()
        loaded.load(self.journal)
        with expected.learner.bulk():
            for record in self.journal.read(0, 0, stored.position):
                expected.take(record)
        assert loaded.positions == [stored.position]
        check_same(loaded, expected, self.ids, near=0.02)
        if self.rng.random() < 0.2:  # as after a restart
            self.fold = loaded


@pytest.mark.parametrize("kernels", [None, PLAIN], ids=["records", "columns"])
def test_what_is_saved_is_what_was_known_when_the_saving_began(
    seeds: range, kernels: PageKernels | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With savings that fail, and others that save too."""
    runs_kept = 0
    for seed in seeds:
        run = Run(seed)
        chosen = kernels if run.policy.learns_after is None else None
        monkeypatch.setattr(folds, "kernels_for", lambda *_, found=chosen: found)
        while run.events:
            run.fold_some()
            run.save()
        runs_kept += run.kept
    assert runs_kept > len(seeds)
