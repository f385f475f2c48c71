"""What was undone, in a live bandit: it comes to the same as a journal that never had it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from belated import Bandit, Bernoulli, DefaultAfter, DelayedUCB, Explicit
from belated.core.events import Decision, Erased, Event, Record, Retracted, Reward, Settled, Void
from belated.core.ids import erased_key_of
from belated.core.rewards import Rewards
from belated.fold.fold import same_sums
from belated.journals import MemoryJournal
from belated.testing import ManualClock

HOUR = 3_600_000_000
START = 1_700_000_000_000_000
POLICY = DelayedUCB(2, Bernoulli())
DAY = timedelta(hours=24)
SEMANTICS: list[Rewards] = [Explicit(DAY), DefaultAfter(DAY), Explicit()]


def happened(rng: np.random.Generator, count: int = 60) -> list[tuple[int, Event]]:
    """Decisions, and what two feeds say of them: in parts, again, corrected, contradicted."""
    events: list[tuple[int, Event]] = []
    for n in range(count):
        now = START + n * HOUR
        kind, id = rng.random(), f"order-{rng.integers(count // 3)}"
        x = rng.normal(size=2).astype(np.float32)
        if kind < 0.4:
            events.append((now, Decision(f"order-{n // 3}", now, 0, 0, x, 0.5, 1.0, 0)))
        elif kind < 0.9:
            part, revision = rng.choice(["", "", "b"]), int(rng.integers(3))
            value, feed = float(rng.integers(2)), str(rng.choice(["crm", "web"]))
            events.append((now, Reward(id, now, value, str(part), revision, feed)))
        elif kind < 0.93:
            events.append((now, Void(id, now)))
        else:
            events.append((now, Settled(0, now)))
    return events


def journal_of(events: list[tuple[int, Event]]) -> MemoryJournal:
    """A journal with these stamps."""
    journal = MemoryJournal(clock=ManualClock(START + 10_000 * HOUR))
    journal.import_records([Record(0, 0, at, event) for at, event in events])
    return journal


def live(journal: MemoryJournal, rewards: Rewards, retention: timedelta | None) -> Bandit:
    """A bandit that has folded all of it."""
    clock = ManualClock(START)
    return Bandit(
        policy=POLICY, rewards=rewards, journal=journal, retention=retention, clock=clock, seed=1
    )


def check_same(bandit: Bandit, other: Bandit) -> None:
    """Digest, counts, sums and estimate."""
    assert bandit.decision_counts == other.decision_counts
    assert bandit.digest == other.digest
    assert same_sums(bandit._fold, other._fold)
    np.testing.assert_allclose(bandit.estimate.theta, other.estimate.theta, atol=1e-8)
    assert bandit.pending.count == other.pending.count


@pytest.fixture
def seeds(full: Any) -> range:
    """1,000 at full size."""
    return range(1_000 if full else 40)


def test_a_retraction_equals_a_journal_that_never_had_it(seeds: range) -> None:
    """In a bandit that had learned it, in one that opens later; and what is restored is back."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        events = happened(rng)
        rewards = SEMANTICS[seed % 3]
        retention = [None, timedelta(hours=36)][seed % 2]
        first, last = sorted(int(draw) for draw in rng.integers(0, 61, size=2))
        start, end = START + first * HOUR, START + (last + 1) * HOUR
        journal = journal_of(events)
        bandit = live(journal, rewards, retention)
        before = bandit.digest
        if seed % 4 == 0:
            bandit.save()  # a snapshot that is of no use afterwards
        journal.append([Retracted(0, 0, start, end, "crm", reason="wrong currency", actor="me")])
        remaining = [
            (at, event)
            for at, event in events
            if not (isinstance(event, Reward) and event.reporter == "crm" and start <= at < end)
        ]
        reference = live(journal_of(remaining), rewards, retention)
        check_same(bandit, reference)
        check_same(live(journal, rewards, retention), reference)
        assert bandit.event_counts.get("retracted", 0) == len(events) - len(remaining)
        journal.append([Retracted(0, 0, start, end, "crm", restored=True)])
        assert bandit.digest == before


def test_an_erased_decision_equals_one_that_was_never_made(seeds: range) -> None:
    """With all that was said of it; whatever comes later changes nothing."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        events = happened(rng)
        ids = {f"order-{n}" for n in rng.integers(20, size=3)}
        journal = journal_of(events)
        bandit = live(journal, Explicit(DAY), None)
        journal.append([Erased(erased_key_of(id), 0) for id in sorted(ids)])
        remaining = [(at, event) for at, event in events if getattr(event, "id", "") not in ids]
        reference = live(journal_of(remaining), Explicit(DAY), None)
        check_same(bandit, reference)
        for id in ids:
            assert bandit.entry(id).state == "unknown"
            assert bandit.observe(id, 1.0).status == "erased"
        check_same(bandit, reference)


def test_what_was_erased_is_gone_from_every_past() -> None:
    """Also from before the erasure: its bytes may be gone."""
    clock = ManualClock(START)
    journal = MemoryJournal(clock=clock)
    bandit = Bandit(policy=POLICY, rewards=Explicit(), journal=journal, clock=clock, seed=1)
    bandit.decide(rows=[[1.0, 0.0]], id="a")
    bandit.observe("a", 1.0)
    clock.now += HOUR
    journal.append([Erased(erased_key_of("a"), clock.now)])
    assert bandit.estimate.n == 0
    assert bandit.as_of(clock.now - 1).estimate.n == 0
    assert bandit.as_of(clock.now).estimate.n == 0
