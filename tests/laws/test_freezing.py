"""Sums are the same whether old rows are frozen or kept, and whatever happens to them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from belated import DelayedUCB
from belated.core.events import Decision, Event, Reward, Settled, Void
from belated.core.tuning import Tuning
from belated.fold.fold import Fold, same_sums
from belated.journals import MemoryJournal
from tests.laws.column_runs import DIM, FAMILIES, START, Clock, history, undo


@pytest.fixture
def seeds(request: pytest.FixtureRequest) -> range:
    """Few by default."""
    return range(1_000 if request.config.getoption("--full") else 15)


def more_of(rng: random.Random, events: list[Event]) -> list[Event]:
    """Rewards that are revised, and decisions that were never carried out."""
    extra_events: list[Event] = []
    for event in events:
        if isinstance(event, Decision):
            extra_events += [Reward(event.id, START, 0.5, "", 2)] * (rng.random() < 0.3)
            extra_events += [Void(event.id, START)] * (rng.random() < 0.1)
    return extra_events


def test_frozen_rows_come_to_what_kept_rows_do(seeds: range) -> None:
    """Revised, voided, retracted, erased, forgotten; by pages, from a snapshot, one by one."""
    frozen_rows = dropped = 0
    for seed in seeds:
        rng, clock = random.Random(seed), Clock()
        journal = MemoryJournal(clock=clock)
        family, rewards = FAMILIES[seed % len(FAMILIES)]
        retention = rng.choice([None, 2_000])
        page, bulk = rng.choice([7, 10_000]), rng.choice([1, 10_000])

        def fold(exact: int, page: int = 10_000, bulk: int = 10_000) -> Fold:
            tuning = Tuning(exact=exact, block=5, batch=20, dropped=4, page=page, bulk=bulk)
            return Fold(DelayedUCB(DIM, family), rewards, retention=retention, tuning=tuning)  # noqa: B023

        kept, frozen = fold(10**9), fold(8, page=page, bulk=bulk)
        events = history(rng, 250)
        clock.now += 2 * 10**6  # so that all that is remembered here is forgotten at the end
        for start in range(0, len(events), 20):
            journal.append(events[start : start + 20])
        if rng.random() < 0.2:
            undo(rng, journal, events)
        for candidate in (kept, frozen):
            candidate.begin(journal)
            candidate.catch_up(journal)
        assert same_sums(kept, frozen)
        frozen.save(journal)
        reloaded = fold(8, page=page, bulk=bulk)
        reloaded.load(journal)
        assert same_sums(kept, reloaded)
        for _ in range(2):
            journal.append([*more_of(rng, events), *history(rng, 40)])
            clock.now += 10_000
            journal.append([Settled(0, clock.now)])
            for candidate in (kept, frozen, reloaded):
                candidate.catch_up(journal)
                assert (candidate.digest, candidate.counts) == (kept.digest, kept.counts)
                assert same_sums(kept, candidate)
                assert candidate.learner.model.n == kept.learner.model.n
                now, expected = (
                    folded.learner.weighting.pending.matrix for folded in (candidate, kept)
                )
                np.testing.assert_allclose(now, expected, atol=1e-9)
        sums = frozen.learner.observed.frozen
        frozen_rows += 0 if sums is None else sums.n
        pieces = [folded.learner.pack(0) for folded in (kept, frozen)]
        stored = [sum(len(p[name]) for name in p if name.startswith("y ")) for p in pieces]
        dropped += stored[0] > stored[1]
    assert frozen_rows > 50 * len(seeds)
    assert dropped > 0.2 * len(seeds)
