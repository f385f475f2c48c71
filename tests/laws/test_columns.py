"""Pages folded as columns come to what the rules make of them, record by record."""

from __future__ import annotations

import random
from pathlib import Path
from typing import get_args
from unittest import mock

import numpy as np
import pytest

from belated import Bernoulli, DelayedUCB
from belated.core.events import (
    Decision,
    Event,
    Reward,
    Source,
    SubjectDecision,
    SubjectReward,
)
from belated.core.ids import new_id
from belated.core.rewards import Explicit
from belated.core.tuning import Tuning
from belated.exceptions import CorruptEvent
from belated.fold import fold as module
from belated.fold.fold import Fold
from belated.fold.ledger import Ledger
from belated.journals import MemoryJournal, SQLiteJournal
from belated.model.kernels import PageKernels, compiled_pages
from tests.laws.column_runs import DIM, PLAIN, START, Clock, run


@pytest.fixture(scope="module")
def compiled() -> PageKernels:
    """The kernels as they are used."""
    pytest.importorskip("numba")
    return compiled_pages()


@pytest.fixture
def seeds(request: pytest.FixtureRequest) -> range:
    """Few by default."""
    return range(1_000 if request.config.getoption("--full") else 40)


def test_columns_come_to_what_the_rules_make_of_them(seeds: range, compiled: PageKernels) -> None:
    """In memory: whatever the events, the family, the semantics and the pages."""
    counts: dict[str, int] = {}
    for seed in seeds:
        clock = Clock()
        columns = run(seed, MemoryJournal(clock=clock), compiled, clock)
        for status, count in columns.counters.items():
            counts[status] = counts.get(status, 0) + count
    expected = {"decided", "rewarded", "late", "revised", "unmatched", "duplicate", "voided"}
    expected |= {"conflict", "invalid", "expired", "switched", "activated"}
    assert expected | {"assigned", "credited", "orphaned"} <= set(counts)


def test_the_kernel_takes_what_is_plain(compiled: PageKernels) -> None:
    """Nearly everything in most journals, though it must leave much of these histories."""
    clock, rng = Clock(), random.Random(5)
    journal = MemoryJournal(clock=clock)
    events: list[Event] = []
    for t in range(300):
        x = np.array([rng.gauss(0, 1) for _ in range(DIM)], dtype=np.float32)
        id = new_id(START + t)
        source = get_args(Source)[t % 4]
        group, overall = [("", None), ("bandit", 0.4), ("holdout", 0.0)][t % 3]
        decision = Decision(
            id, START, "a", 0, x, 0.5, 1.0, t, source=source, group=group, overall=overall
        )
        events += [decision, Reward(id, START, 1.0)]
    journal.append(events)
    fold = Fold(DelayedUCB(DIM, Bernoulli()), Explicit("1d"), tuning=Tuning(bulk=1))
    with (
        mock.patch.object(module, "kernels_for", return_value=compiled),
        mock.patch.object(Ledger, "fold", side_effect=AssertionError),
    ):
        fold.catch_up(journal)
    assert fold.counters == {"decided": 300, "rewarded": 300}


def test_the_kernel_takes_plain_records_of_subjects(compiled: PageKernels) -> None:
    """Decisions for subjects, and rewards that are credited to one of which nothing else is known.

    The rules judge none of them.
    """
    journal, x = MemoryJournal(clock=Clock()), np.ones(DIM, dtype=np.float32)
    for t in range(300):
        decision = Decision(new_id(START + t), START + t, "a", 0, x, 0.5, 1.0, t)
        reward = SubjectReward(f"user-{t % 99}", START + t, 1.0, f"order-{t}")
        journal.append([decision, SubjectDecision(reward.subject, START + t, decision.id), reward])
    fold = Fold(DelayedUCB(DIM, Bernoulli()), Explicit("1d"), tuning=Tuning(bulk=1))
    with (
        mock.patch.object(module, "kernels_for", return_value=compiled),
        mock.patch.object(Ledger, "fold", side_effect=AssertionError),
        mock.patch.object(Ledger, "_review", side_effect=AssertionError),
    ):
        fold.catch_up(journal)
    assert fold.counters == {"decided": 300, "assigned": 300, "credited": 300}
    assert fold.counts["rewarded"] == fold.learner.model.n == 300


def test_a_source_that_is_not_known_is_left_to_the_rules(compiled: PageKernels) -> None:
    """They refuse it."""
    journal = MemoryJournal(clock=Clock())
    x = np.ones(DIM, dtype=np.float32)
    for source in ("policy", "polecat"):
        decision = Decision(new_id(START), START, "a", 0, x, 0.5, 1.0, 0, source=source)  # type: ignore[arg-type]
        journal.append([decision])
    fold = Fold(DelayedUCB(DIM, Bernoulli()), Explicit("1d"), tuning=Tuning(bulk=1))
    with (
        mock.patch.object(module, "kernels_for", return_value=compiled),
        pytest.raises(CorruptEvent),
    ):
        fold.catch_up(journal)
    assert fold.counters == {"decided": 1}


def test_columns_of_a_file(seeds: range, compiled: PageKernels, tmp_path: Path) -> None:
    """With digests, checksums and a chain."""
    for seed in seeds[: len(seeds) // 4]:
        clock = Clock()
        with SQLiteJournal(tmp_path / f"{seed}.db", bandit="b", clock=clock) as journal:
            run(1_000_000 + seed, journal, compiled, clock)


def test_the_kernel_is_the_same_plain(seeds: range) -> None:
    """As Python runs it."""
    for seed in seeds[: max(4, len(seeds) // 100)]:
        clock = Clock()
        run(2_000_000 + seed, MemoryJournal(clock=clock), PLAIN, clock)
