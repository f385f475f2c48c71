"""Journals to archive: days of decisions with every possible history."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from belated import Bernoulli, DefaultAfter, DelayedUCB
from belated.core.events import (
    Activation,
    Configured,
    Decision,
    Erased,
    Event,
    Reward,
    Settled,
    Void,
)
from belated.core.ids import erased_key_of
from belated.core.rewards import retention_us
from belated.fold.fold import Fold, same_sums
from belated.fold.requests import keep_request
from belated.journals import Journal
from belated.journals.archive import Archive, WholeJournal
from belated.journals.identity import identify, settings_of

POLICY = DelayedUCB(2, Bernoulli())
REWARDS = DefaultAfter(timedelta(hours=6))
RETENTION = timedelta(days=2)
HOUR = 3_600_000_000
DAY = 24 * HOUR
#: Midnight, nine days ago: what is filled in later may lie in the future.
START = (time.time_ns() // 1_000 // DAY - 9) * DAY


def begin(journal: Journal) -> None:
    """Record the settings of the bandit in a journal."""
    retention = retention_us(RETENTION, REWARDS)
    identify(journal, family="Bernoulli()", dim=2)
    settings = settings_of(POLICY, REWARDS, retention, None)
    journal.append([Configured(START, settings)], recorded=[START - DAY])


def live(journal: Journal) -> Fold:
    """Return the live state of a bandit: the last snapshot or base, and later records."""
    fold = empty_fold(journal)
    fold.load(journal)
    fold.catch_up(journal)
    return fold


def rebuilt(journal: Journal, folder: str | Path) -> Fold:
    """Return the state rebuilt from the archive and the remaining journal."""
    whole_journal = WholeJournal(journal, Archive(folder, journal.bandit))
    fold = empty_fold(journal)
    fold.begin(whole_journal)
    fold.catch_up(whole_journal)
    return fold


def empty_fold(journal: Journal) -> Fold:
    """Return an empty fold."""
    retention = retention_us(RETENTION, REWARDS)
    return Fold(POLICY, REWARDS, partitions=journal.partitions, retention=retention)


def assert_same(fold: Fold, other: Fold) -> None:
    """Assert that two states are equal, to the last record."""
    assert fold.digest == other.digest
    assert same_sums(fold, other)
    assert fold.counters == other.counters
    assert fold.head == other.head


def fill(journal: Journal, first: int, days: int, each: int = 500, seed: int = 0) -> None:
    """Append days of decisions, from day one on, with every possible history."""
    rng = np.random.default_rng((seed, first))
    events: list[tuple[int, Event]] = []
    requests: dict[str, bytes] = {}
    for n in range(days * each):
        at = START + first * DAY + int(days * DAY * n / (days * each))
        id = f"order-{first}-{n}"
        x = rng.random(2, dtype=np.float32)
        decision = Decision(id, at, f"a{n % 3}", n % 3, x, 0.5, 0.4, n, activated=n % 7 != 0)
        events.append((at, decision))
        if n % 4:
            rows = np.stack([x, x + 1, x + 2]).astype(np.float32)
            blob = keep_request(id, 1.0, 3, ["a0", "a1", "a2"], rows, None, [0.4, 0.3, 0.3])
            assert blob is not None
            requests[id] = blob
        events += _later(id, at, n, decision, rng)
    for hour in range(days * 24 + 1):
        at = START + first * DAY + hour * HOUR
        events += [(at, Settled(partition, at)) for partition in range(journal.partitions)]
    events.sort(key=lambda entry: entry[0])
    end = START + (first + days) * DAY
    events = [entry for entry in events if entry[0] < end]
    for start in range(0, len(events), 500):
        page = events[start : start + 500]
        page_requests = {
            n: requests[event.id]
            for n, (_, event) in enumerate(page)
            if isinstance(event, Decision) and event.id in requests
        }
        journal.append(
            [event for _, event in page], recorded=[at for at, _ in page], requests=page_requests
        )


def _later(id: str, at: int, n: int, decision: Decision, rng: Any) -> list[tuple[int, Event]]:
    """Return the events of a decision, which may arrive late or before it."""
    wait = int(rng.exponential(5 * HOUR))
    value = float(rng.random() < 0.4)
    events: list[tuple[int, Event]] = []
    if n % 3:
        events.append((at + wait, Reward(id, at + wait, value)))
    if n % 11 == 0:
        events.append((at + 2 * HOUR, Activation(id, at + 2 * HOUR)))
    if n % 13 == 0:
        events.append((at + wait + HOUR, Reward(id, at + wait, 1.0 - value)))  # another value
    if n % 17 == 0:
        events.append((at + 9 * HOUR, Reward(id, at, 1.0, part="more")))
    if n % 19 == 0:
        events.append((at + HOUR, Void(id, at)))
    if n % 23 == 0:
        events.append((at - HOUR, Reward(id, at, 1.0)))  # before its decision
    if n % 29 == 0:
        events.append((at + 3 * DAY, Reward(id, at, 1.0)))  # beyond the retention
        events.append((at + 3 * DAY, Void(id, at)))
    if n % 31 == 0:
        events.append((at + HOUR, decision))  # again
    if n % 37 == 0:  # the id is used again, once the first was forgotten
        repeat = Decision(id, at + 4 * DAY, "a0", 0, decision.x, 0.5, 1.0, n)
        events.append((at + 4 * DAY, repeat))
        events.append((at + 4 * DAY + HOUR, Reward(id, at, 1.0)))
    if n % 41 == 0:
        events.append((at + HOUR, Reward(f"nobody-{n}", at, 1.0)))
    return events


def erase(journal: Journal, id: str) -> None:
    """Erase a decision."""
    journal.append([Erased(erased_key_of(id), journal.now(), "asked for", "me")])
