"""A journal explains itself: nobody who reads it has to ask the program that wrote it."""

from __future__ import annotations

import numpy as np
import pytest

from belated import Bandit, Bernoulli, DefaultAfter, DelayedUCB, Holdout, MemoryJournal, PerArm
from belated.evaluation.journal import JournalLog
from belated.evaluation.sources import read_journal
from belated.evaluation.table import SOURCES
from belated.exceptions import RewardConflict
from belated.fold.requests import KeptRequest
from belated.journals.identity import semantics_of

HOUR = 3_600_000_000


class Failing(DelayedUCB):
    """A policy that cannot choose."""

    def choose(self, *arguments: object) -> None:  # type: ignore[override]
        """Fail."""
        raise RuntimeError("no")


def test_it_says_what_its_bandit_is() -> None:
    """Rewards, window, retention, policy, feature names, actions; anew when one changes."""
    journal = MemoryJournal()
    features = PerArm(["red", "blue"], context=["age"])
    policy = DelayedUCB(features.dim, Bernoulli(), floor=0.05)
    settings = {"journal": journal, "features": features}
    Bandit(policy=policy, rewards=DefaultAfter("7d", value=0.25), retention="30d", **settings)  # type: ignore[arg-type]
    configured = journal.configured()
    assert configured is not None
    description = configured.settings
    assert description["policy"].startswith("DelayedUCB(")
    assert "floor=0.05" in description["policy"]
    assert description["names"] == "red: intercept, red: age, blue: intercept, blue: age"
    assert description["actions"] == "red, blue"
    rewards, retention = semantics_of(description)
    assert rewards == DefaultAfter("7d", value=0.25)
    assert retention == 30 * 24 * HOUR
    evaluation = JournalLog.of_journal(journal)
    assert evaluation.features == features
    Bandit(policy=policy, rewards=DefaultAfter("7d", value=0.25), retention="40d", **settings)  # type: ignore[arg-type]
    configured = journal.configured()
    assert configured is not None
    assert configured.settings["retention"] == "40d"


def test_a_decision_says_who_made_it_and_keeps_its_request() -> None:
    """The policy, a holdout, the baseline, or the baseline because the policy failed."""
    journal = MemoryJournal()
    rewards = DefaultAfter("7d")
    policy = DelayedUCB(2, Bernoulli(), floor=0.1)
    bandit = Bandit(
        policy=policy, rewards=rewards, journal=journal, holdout=Holdout(0.3, "uniform"), seed=1
    )
    for n in range(40):
        bandit.decide(rows=np.eye(2), actions=["red", "blue"], id=f"d{n}")
    bandit.change_mode("baseline")
    bandit.decide(rows=np.eye(2), actions=["red", "blue"], id="baseline")
    bandit.change_mode("learn")
    failing = Bandit(policy=Failing(2, Bernoulli()), rewards=rewards, journal=journal, seed=1)
    with pytest.warns(match="no"):
        failing.decide(rows=np.eye(2), actions=["red", "blue"], id="fallback")
    table = read_journal(journal)
    sources = {id: SOURCES[table.source[n]] for n, id in enumerate(table.ids)}
    assert {*sources.values()} == {*SOURCES}
    assert (sources["baseline"], sources["fallback"]) == ("baseline", "fallback")
    holdout = [n for n, id in enumerate(table.ids) if sources[id] == "holdout"]
    assert {table.groups[table.group[n]] for n in holdout} == {"holdout"}
    requests = journal.requests(0, table.position.tolist())
    assert len(requests) == len(table)
    assert {tuple(KeptRequest.read(data).actions or ()) for data in requests.values()} == {
        ("red", "blue")
    }


def test_what_is_refused_is_counted_and_what_is_too_late_is_told() -> None:
    """Duplicates and conflicts that were not appended; rewards beyond the retention."""
    now = [1_790_000_000_000_000]
    journal = MemoryJournal(clock=lambda: now[0])
    bandit = Bandit(
        policy=DelayedUCB(2, Bernoulli()),
        rewards=DefaultAfter("1h"),
        retention="1d",
        journal=journal,
        clock=lambda: now[0],
    )
    first = bandit.decide(rows=np.eye(2))
    bandit.observe(first.id, 1.0)
    assert bandit.observe(first.id, 1.0).status == "duplicate"
    with pytest.raises(RewardConflict):
        bandit.observe(first.id, 0.0)
    assert bandit.refused_counts == {"duplicate": 1, "conflict": 1}
    second = bandit.decide(rows=np.eye(2))
    now[0] += 25 * HOUR
    assert bandit.observe(second.id, 1.0).status == "unmatched"  # its decision was forgotten
    assert bandit.event_counts["unmatched"] == 1
