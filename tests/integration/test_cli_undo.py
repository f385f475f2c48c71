"""``belated journal retract`` and ``erase``, on both stores."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import numpy as np
import pytest

from belated import Bandit, Bernoulli, DelayedUCB, Explicit
from belated.cli.main import main
from belated.events import Erased, Retracted, Reward
from belated.ids import key_of
from belated.journals import Store
from tests.command_line import Command

ROWS = np.eye(2, dtype=np.float32)


@pytest.fixture
def used(store: Store, bandit: str) -> Iterator[Bandit]:
    """Three decisions, each with a reward by a feed."""
    made = Bandit(
        policy=DelayedUCB(2, Bernoulli()),
        rewards=Explicit(),
        journal=store.journal(bandit, partitions=2),
        seed=7,
    )
    for n in range(3):
        made.decide(ROWS, id=f"order-{n}")
        made.journal.append([Reward(f"order-{n}", 10**15, 1.0, reporter="crm")])
    made.observe("order-2", 0.0, part="own")
    yield made
    made.close()


@pytest.fixture
def named(address: str, bandit: str) -> str:
    """Its address."""
    return f"{address}?bandit={quote(bandit)}"


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command says."""
    return Command("journal").said(capsys, *arguments)


def times(hours: float) -> list[str]:
    """A span that ends now."""
    now = datetime.now(UTC)
    start, end = now - timedelta(hours=hours), now - timedelta(milliseconds=1)
    return ["--from", start.isoformat(), "--to", end.isoformat()]


def test_a_feed_is_retracted_and_restored(
    used: Bandit, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bandit that has learned it goes on as if it had not come; who did it is in the journal."""
    assert used.estimate.n == 3
    before = used.digest
    time.sleep(0.01)
    span = [named, "--key", "crm", *times(1), "--reason", "wrong currency"]
    assert f"3 rewards by crm in {used.journal.bandit} count no longer" in said(
        capsys, "retract", *span
    )
    assert used.estimate.n == 1
    assert used.entry("order-0").state == "pending"
    assert used.event_counts["retracted"] == 3
    told = [one.event for p in range(2) for one in used.journal.undone(p)]
    assert [type(one) for one in told] == [Retracted, Retracted]
    assert isinstance(told[0], Retracted)
    assert told[0].reason == "wrong currency"
    assert "@" in told[0].actor
    assert f"3 rewards by crm in {used.journal.bandit} count again" in said(
        capsys, "retract", *span, "--restore"
    )
    assert used.digest == before


def test_what_cannot_be_retracted_is_refused(
    used: Bandit, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A span that ends before it begins, one that has not come, a time without a zone."""
    command = Command("journal")
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    rest = ["--key", "crm", "--reason", "why"]
    wrong = {
        "is not before": ["--from", later, "--to", "2026-01-01T00:00Z"],
        "has not come yet": ["--from", "2026-01-01T00:00Z", "--to", later],
        "has no time zone": ["--from", "2026-01-01", "--to", later],
        "is no time": ["--from", "yesterday", "--to", later],
    }
    for message, span in wrong.items():
        assert message in command.complaint(capsys, "retract", named, *rest, *span)
    assert used.journal.undone(0) == []


def test_a_decision_is_erased(used: Bandit, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It counts no longer, and nothing of it is told; an unknown id erases nothing."""
    command = Command("journal")
    refused = command.complaint(capsys, "erase", named, "order-1", "nobody", "--reason", "why")
    assert "no record of 'nobody'" in refused
    assert used.decision_counts["rewarded"] == 3
    assert f"1 decision of {used.journal.bandit} erased" in said(
        capsys, "erase", named, "order-1", "--reason", "asked by the customer"
    )
    assert used.decision_counts["rewarded"] == 2
    assert used.observe("order-1", 1.0).status == "erased"
    events = [one.event for p in range(2) for one in used.journal.undone(p)]
    assert [one.key for one in events if isinstance(one, Erased)] == [key_of("order-1")]
    assert main(["journal", "show", "order-1", named]) == 1
    assert "no record of order-1" in capsys.readouterr().out
