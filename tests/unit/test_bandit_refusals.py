"""What a bandit refuses: the error says what to do, and nothing has changed."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from belated import (
    Bandit,
    Bernoulli,
    ConversionsOnly,
    DefaultAfter,
    DelayedUCB,
    Explicit,
    Gaussian,
    PerArm,
    Poisson,
)
from belated.exceptions import (
    CorruptEvent,
    InvalidInput,
    JournalMismatch,
    NotAJournal,
    UnsupportedFormat,
)
from belated.journals import MemoryJournal, SQLiteJournal
from belated.model.estimators import Online, Thinned
from belated.policies import Policy
from tests.unit.small_bandits import DAY, ROWS, UCB, begun

# --- what a bandit is made of ------------------------------------------------------------------


def test_what_silence_means_must_be_said() -> None:
    """There is no default; the error shows two ways to say it."""
    with pytest.raises(InvalidInput, match=r"ConversionsOnly\('7d'\) if .*Explicit"):
        Bandit(policy=UCB)


def test_semantics_are_one_of_ours() -> None:
    """A window alone does not say what silence means."""
    with pytest.raises(InvalidInput, match="Explicit"):
        Bandit(policy=UCB, rewards=DAY)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("policy", "match"),
    [
        (DelayedUCB(2, Bernoulli(), half_life="auto"), r"half_life='auto', .*fixed one is allowed"),
        (DelayedUCB(2, Bernoulli(), metric="gram"), "combined with metric='gram'"),
        (DelayedUCB(2, Bernoulli(), learn_after=5), "combined with learn_after"),
        (DelayedUCB(2, Bernoulli(), estimator=Online()), r"the estimator Online\(\)"),
    ],
)
def test_what_conversions_cannot_be_combined_with(policy: Policy, match: str) -> None:
    """It is refused in words, with what to do instead."""
    with pytest.raises(InvalidInput, match=f"{match}.*DefaultAfter"):
        Bandit(policy=policy, rewards=ConversionsOnly(DAY))


def test_the_estimator_of_conversions_needs_conversions() -> None:
    """With other rewards it would not know what silence means."""
    policy = DelayedUCB(2, Bernoulli(), estimator=Thinned())  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"rewards=ConversionsOnly\(window\)"):
        Bandit(policy=policy, rewards=DefaultAfter(DAY))


@pytest.mark.parametrize(
    ("family", "value"), [(Bernoulli(), 5.0), (Bernoulli(), -0.5), (Poisson(), -1.0)]
)
def test_a_default_is_a_reward_of_the_family(family: Any, value: float) -> None:
    """A value that could not be learned is refused at once, not when a window ends."""
    with pytest.raises(InvalidInput, match="the default value must be within"):
        Bandit(policy=DelayedUCB(2, family), rewards=DefaultAfter(DAY, value=value))


def test_retention_is_at_least_the_window() -> None:
    """Rewards would expire before they are late."""
    with pytest.raises(InvalidInput, match="shorter than the window"):
        Bandit(policy=UCB, rewards=Explicit(DAY), retention=timedelta(hours=1))
    with pytest.raises(InvalidInput, match="must be a duration"):
        Bandit(policy=UCB, rewards=Explicit(DAY), retention=86_400)  # type: ignore[arg-type]


def test_features_are_as_wide_as_the_policy() -> None:
    """The error names both widths."""
    with pytest.raises(InvalidInput, match=r"policy.dim is 3, but rows have 2 numbers"):
        Bandit(
            policy=DelayedUCB(3, Bernoulli()), rewards=Explicit(), features=PerArm(["blue", "red"])
        )


def test_a_bandit_that_was_refused_leaves_no_identity() -> None:
    """A second try with other settings is not bound by the first."""
    journal = MemoryJournal()
    with pytest.raises(InvalidInput):
        Bandit(
            policy=DelayedUCB(9, Poisson()),
            rewards=Explicit(DAY),
            retention=timedelta(hours=1),
            journal=journal,
        )
    Bandit(policy=UCB, rewards=Explicit(DAY), journal=journal)


# --- journals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "match"),
    [
        (DelayedUCB(2, Poisson()), r"Bernoulli\(\), not Poisson\(\): use the original family"),
        (DelayedUCB(2, Gaussian()), "use the original family"),
        (DelayedUCB(3, Bernoulli()), "rows of 2 numbers, not 3: use the original settings"),
    ],
)
def test_a_journal_keeps_its_family_and_width(policy: Policy, match: str) -> None:
    """Another family or width is refused, and the first goes on."""
    bandit = begun()
    with pytest.raises(JournalMismatch, match=match):
        Bandit(policy=policy, rewards=Explicit(DAY), journal=bandit.journal)
    assert Bandit(policy=UCB, rewards=Explicit(DAY), journal=bandit.journal).digest == bandit.digest


def test_rows_of_callers_and_of_features_do_not_mix() -> None:
    """A journal keeps to one of the two."""
    journal = MemoryJournal()
    Bandit(["blue", "red"], rewards=Explicit(), journal=journal).decide()
    with pytest.raises(JournalMismatch, match="features, not with caller-supplied rows: use"):
        Bandit(policy=UCB, rewards=Explicit(), journal=journal)
    rows = begun().journal
    with pytest.raises(JournalMismatch, match="caller-supplied rows, not with features: use"):
        Bandit(["blue", "red"], rewards=Explicit(DAY), journal=rows)


def test_a_process_with_older_features_goes_on() -> None:
    """It learns nothing of a decision whose action it does not know."""
    journal, small = MemoryJournal(), PerArm(["blue", "red"])
    older = Bandit(small, rewards=Explicit(), journal=journal)
    newer = Bandit(small.with_actions(["green"]), rewards=Explicit(), journal=journal)
    newer.decide(None, ["green"])
    newer.decide(None, ["red"])
    older.sync()
    assert (older.decision_counts["pending"], older.pending.count) == (2, 1)


def test_a_file_of_a_newer_release_is_left_alone(tmp_path: Path) -> None:
    """It says to upgrade."""
    path = tmp_path / "offers.db"
    Bandit(policy=UCB, rewards=Explicit(), journal=SQLiteJournal(path, bandit="b")).close()
    _meddle(path, "PRAGMA user_version = 99")
    with pytest.raises(UnsupportedFormat, match="upgrade belated"):
        SQLiteJournal(path, bandit="b")


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    """It says to choose another file."""
    path = tmp_path / "offers.db"
    path.write_bytes(b"no database at all, but long enough to be taken for one" * 100)
    with pytest.raises(NotAJournal, match="choose another file"):
        SQLiteJournal(path, bandit="b")


def test_a_changed_record_stops_the_bandit_at_its_place(tmp_path: Path) -> None:
    """A record that was changed after it was written is never learned."""
    path = tmp_path / "offers.db"
    with Bandit(policy=UCB, rewards=Explicit(), journal=SQLiteJournal(path, bandit="b")) as bandit:
        bandit.observe(bandit.decide(rows=ROWS).id, 1.0)
        bandit.decide(rows=ROWS)
    _meddle(path, "DELETE FROM cell WHERE name LIKE 'snapshot%'")
    _meddle(path, f"UPDATE record SET recorded = recorded + 1 WHERE place % {1 << 40} = 1")
    with (
        SQLiteJournal(path, bandit="b") as journal,
        pytest.raises(CorruptEvent, match="position 1 "),
    ):
        Bandit(policy=UCB, rewards=Explicit(), journal=journal)


def _meddle(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement)
    connection.close()
