"""Decaying conversions on every store: live, replayed, from a snapshot, and trimmed."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from urllib.parse import quote

import numpy as np
import pytest

from belated import Bandit, Bernoulli, ConversionsOnly, DelayedUCB
from belated.cli.main import main
from belated.core.events import Decision, Event, Reward
from belated.journals import Store

HOUR = 3_600_000_000
PARTITIONS, COUNT, SPAN = 2, 3_000, 20 * 24 * HOUR
POLICY = DelayedUCB(2, Bernoulli(), half_life="10d")
REWARDS = ConversionsOnly(timedelta(days=1))


def opened(store: Store, bandit: str, policy: DelayedUCB = POLICY) -> Bandit:
    """Open the bandit, from its snapshot if there is one."""
    journal = store.journal(bandit, partitions=PARTITIONS)
    retention = timedelta(days=2)
    return Bandit(policy=policy, journal=journal, rewards=REWARDS, retention=retention, seed=7)


def counted(bandit: Bandit) -> float:
    """Return the decisions by their weight."""
    weight = bandit.estimate.effective_n
    assert weight is not None
    return weight


def written(store: Store, bandit: str) -> None:
    """Twenty days of decisions, every fifth with a conversion some hours later."""
    rng = np.random.default_rng(3)
    with closing(store.journal(bandit, partitions=PARTITIONS)) as journal:
        stamps = np.sort(rng.integers(SPAN, size=COUNT)) + journal.now() - SPAN - 48 * HOUR
        events: list[tuple[int, Event]] = []
        for n, stamp in enumerate(stamps.tolist()):
            x = rng.random(2, dtype=np.float32)
            events.append((stamp, Decision(f"order-{n}", stamp, 0, 0, x, 0.5, 1.0, 0)))
            if rng.random() < 0.2:
                reported_at = stamp + int(rng.exponential(6.0) * HOUR) + 1
                events.append((reported_at, Reward(f"order-{n}", reported_at, 1.0)))
        events.sort(key=lambda entry: entry[0])
        for start in range(0, len(events), 1_000):
            batch = events[start : start + 1_000]
            journal.append([event for _, event in batch], recorded=[stamp for stamp, _ in batch])


def test_what_fades_is_the_same_however_it_is_read(
    store: Store, bandit: str, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also trimmed; a half-life that is set later finds all it needs in the base."""
    written(store, bandit)
    with opened(store, bandit) as instance:
        instance.sync()
        instance.settle()
        decision = instance.decide(rows=np.eye(2))
        instance.observe(decision.id, 1.0)
        theta, weight, digest = instance.estimate.theta, counted(instance), instance.digest
        instance.save()
    with opened(store, bandit) as reopened:
        assert reopened.digest == digest
        np.testing.assert_allclose(reopened.estimate.theta, theta, atol=1e-6)
        assert counted(reopened) == pytest.approx(weight, rel=1e-9)
    assert weight < 0.7 * COUNT
    bandit_address = f"{address}?bandit={quote(bandit)}"
    assert main(["journal", "trim", bandit_address, "--older-than", "10d", "--reason", "old"]) == 0
    assert "dropped" in capsys.readouterr().out
    with opened(store, bandit) as trimmed_bandit:
        assert trimmed_bandit.digest == digest
        np.testing.assert_allclose(trimmed_bandit.estimate.theta, theta, atol=1e-5)
        # The record of the trimming came seconds later: all count for that much less.
        assert counted(trimmed_bandit) == pytest.approx(weight, rel=1e-4)
    with opened(store, bandit, DelayedUCB(2, Bernoulli(), half_life="5d")) as fading_bandit:
        assert counted(fading_bandit) < 0.7 * weight
    with opened(store, bandit, DelayedUCB(2, Bernoulli())) as plain_bandit:
        assert counted(plain_bandit) > 0.98 * COUNT
