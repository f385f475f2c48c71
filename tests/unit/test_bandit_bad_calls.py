"""Calls that a bandit refuses: the error says what to do, and nothing has changed."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any

import numpy as np
import pytest

from belated import (
    Bandit,
    DelayedUCB,
    Explicit,
    Gaussian,
    PerArm,
    Shared,
)
from belated.exceptions import (
    InvalidInput,
    JournalClosed,
    ReadOnly,
    RewardConflict,
)
from tests.unit.small_bandits import ROWS, UCB, begun


@pytest.fixture
def bandit() -> Bandit:
    """One with a pending and a rewarded decision."""
    return begun()


def assert_refused(bandit: Bandit, call: Callable[[], object], match: str) -> None:
    """The call raises, and neither the journal nor the state has changed."""
    model = bandit._fold.model
    before = (
        bandit.journal.end(0), bandit.digest, bandit.event_counts, model.pending, model.decisions,
    )  # fmt: skip
    roots = model.decided.copy()
    with pytest.raises(InvalidInput, match=match):
        call()
    assert before == (
        bandit.journal.end(0), bandit.digest, bandit.event_counts, model.pending, model.decisions,
    )  # fmt: skip
    np.testing.assert_allclose(model.decided, roots, rtol=1e-12)


# --- decisions ---------------------------------------------------------------------------------

BAD_ROWS: list[tuple[Any, str]] = [
    ([[1.0, 2.0, 3.0]], "must have 2 numbers per row .*got 3"),
    ([1.0, 2.0], "2 numbers"),
    (1.0, "2 numbers"),
    ([[[1.0, 0.0]]], "2 numbers"),
    ([], "2 numbers"),
    (np.empty((0, 2)), "at least one row"),
    ([[math.nan, 0.0], [0.0, 1.0]], "is nan: row values must be from"),
    ([[0.0, 1.0], [math.inf, 0.0]], "is inf: row values must be from"),
    ([[1e30, 0.0]], "must be from -1e\\+08 to 1e\\+08"),
    ([[1.0, 0.0], [1.0]], "different lengths"),
    ([["1.0", "0.0"]], "real numbers"),
    (np.array([["1.0", "0.0"]]), "real numbers"),
    ([[1j, 0.0]], "real numbers"),
    (None, "`rows` is missing: pass rows="),
    ({"age": 3}, "real numbers"),
]


@pytest.mark.parametrize(("rows", "match"), BAD_ROWS)
def test_rows_that_are_none(bandit: Bandit, rows: Any, match: str) -> None:
    """Another width, no numbers, or none at all: nothing is decided."""
    assert_refused(bandit, lambda: bandit.decide(rows=rows), match)
    assert_refused(bandit, lambda: bandit.decide_many(rows=[ROWS, rows, ROWS]), match)


@pytest.mark.parametrize(
    ("actions", "match"),
    [
        (["blue"], "1 actions for 2 rows"),
        (["blue", "blue"], "twice"),
        ([1.5, 2.5], "an action id must be text"),
    ],
)
def test_actions_are_one_for_each_row(bandit: Bandit, actions: Any, match: str) -> None:
    """Too few, the same twice, or no ids."""
    assert_refused(bandit, lambda: bandit.decide(rows=ROWS, actions=actions), match)


def test_features_need_actions() -> None:
    """Which are offered must be said, in a retry too; unless the features know all of them."""
    encoding = Bandit(policy=UCB, rewards=Explicit(), features=Shared(action=["price"]))
    encoding.decide(None, {"blue": [1.0], "red": [2.0]}, id="a")
    assert_refused(encoding, lambda: encoding.decide(None), "pass the offered actions")
    assert_refused(encoding, lambda: encoding.decide(None, id="a"), "pass the offered actions")
    encoding = Bandit(policy=UCB, rewards=Explicit(), features=PerArm(["blue", "red"]))
    decision = encoding.decide(None, id="a")
    assert decision == encoding.decide(None, ["blue", "red"], id="a")
    assert_refused(encoding, lambda: encoding.decide(None, ["green"]), "unknown action 'green'")


def test_a_decision_without_rows(bandit: Bandit) -> None:
    """Rows are needed without features, and the error says what else would do."""
    assert_refused(bandit, bandit.decide, r"`rows` is missing: .*Bandit\(\['blue', 'red'\]")


@pytest.mark.parametrize(
    ("context", "match"),
    [
        (ROWS, r"pass rows=\[\.\.\.\] with one row of numbers per action"),
        ({"age": 3}, r"add features, as in Bandit\(PerArm"),
        (["blue", "red"], r"name the actions once, as in Bandit\("),
        ("blue", "rows="),
    ],
)
def test_a_context_without_features(bandit: Bandit, context: Any, match: str) -> None:
    """Nobody knows how it becomes rows; the error says what to do with what was given."""
    assert_refused(bandit, lambda: bandit.decide(context), f"no features to encode it: .*{match}")
    batch = [context, context]
    assert_refused(bandit, lambda: bandit.decide_many(batch), r"contexts\[0\]: .*no features")


def test_rows_of_a_bandit_that_makes_them() -> None:
    """It encodes rows from contexts; the error says to pass these."""
    encoding = Bandit(["blue", "red"], rewards=Explicit())
    assert_refused(encoding, lambda: encoding.decide(rows=ROWS), "encodes rows from contexts")


BAD_IDS: list[tuple[Any, str]] = [
    ("", "must be text of 1 to 128 bytes, got ''"),
    ("x" * 129, "at most 128"),
    ("é" * 65, "at most 128"),
    (17, "must be text, such as decision.id, or '17'"),
    (b"order-17", "must be text"),
    ("a\0b", "NUL"),
    ("\ud800", "lone surrogate"),
]


@pytest.mark.parametrize(("id", "match"), BAD_IDS)
def test_ids_that_are_none(bandit: Bandit, id: Any, match: str) -> None:
    """Empty, too long, or not text: in every call."""
    calls: list[Callable[[], object]] = [
        lambda: bandit.decide(rows=ROWS, id=id),
        lambda: bandit.observe(id, 1.0),
        lambda: bandit.activate(id),
        lambda: bandit.void(id),
        lambda: bandit.entry(id),
    ]
    for call in calls:
        assert_refused(bandit, call, match)


def test_an_id_names_one_decision(bandit: Bandit) -> None:
    """The same id with other rows is refused; with the same rows the decision comes back."""
    rows = [[0.5, 0.5], [0.5, 0.5]]
    assert_refused(
        bandit, lambda: bandit.decide(rows=rows, id="a"), "use a new id for each decision"
    )
    end = bandit.journal.end(0)
    retry = bandit.decide(rows=ROWS, id="a")
    assert retry == bandit.entry("a").decision
    assert bandit.journal.end(0) == end


@pytest.mark.parametrize("activated", [1, None, "yes"])
def test_activated_is_a_boolean(bandit: Bandit, activated: Any) -> None:
    """Anything else could not be read back from a file."""
    assert_refused(bandit, lambda: bandit.decide(rows=ROWS, activated=activated), "True or False")


# --- rewards -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (math.nan, "nan"),
        (math.inf, "inf"),
        (-math.inf, "inf"),
        (1.5, r"outside \[0, 1\]"),
        (-0.1, r"outside \[0, 1\]"),
        (1e10, "1e\\+09"),
        (10**400, "must be a number"),
        ("1", "the reward must be .*got '1'"),
        (None, "must be a number"),
        ([1.0, 0.0], "must be a number"),
    ],
)
def test_rewards_that_are_none(bandit: Bandit, value: Any, match: str) -> None:
    """Not finite, outside the family's support, or no number."""
    assert_refused(bandit, lambda: bandit.observe("a", value), match)


def test_rewards_are_within_their_bounds() -> None:
    """As declared, within what the family allows."""
    bounded = Bandit(policy=DelayedUCB(2, Gaussian()), rewards=Explicit(bounds=(-1.0, 4.0)))
    bounded.decide(rows=ROWS, id="a")
    assert_refused(bounded, lambda: bounded.observe("a", 4.5), r"outside \[-1, 4\]")
    assert bounded.observe("a", 4.0).status == "rewarded"


@pytest.mark.parametrize("revision", [-1, 1.0, True, False, None, "1", 1 << 63, 0.0])
def test_revisions_are_whole_numbers(bandit: Bandit, revision: Any) -> None:
    """Anything else could not be read back from a file."""
    call = lambda: bandit.observe("a", 1.0, revision=revision)  # noqa: E731
    assert_refused(bandit, call, "`revision` must be a non-negative integer")


@pytest.mark.parametrize("part", [None, 0, b"", b"click", "x" * 129, [], "a\0"])
def test_parts_are_text(bandit: Bandit, part: Any) -> None:
    """Anything else could not be read back from a file."""
    assert_refused(bandit, lambda: bandit.observe("a", 1.0, part=part), "the part")


@pytest.mark.parametrize("at", [1.5, True, "now", datetime(2026, 1, 1), 5, 1 << 63, b"", [0]])
def test_times_have_a_zone(bandit: Bandit, at: Any) -> None:
    """What could mean two moments is refused before anything is written."""
    for call in (
        lambda: bandit.observe("a", 1.0, at=at),
        lambda: bandit.activate("a", at=at),
        lambda: bandit.void("a", at=at),
    ):
        assert_refused(bandit, call, "^`at` ")


def test_another_value_needs_a_higher_revision(bandit: Bandit) -> None:
    """The error says so, nothing is written; the higher revision goes through."""
    end = bandit.journal.end(0)
    with pytest.raises(RewardConflict, match="send a higher revision") as error:
        bandit.observe("b", 0.0)
    assert (error.value.id, error.value.value) == ("b", 0.0)
    assert bandit.journal.end(0) == end
    assert bandit.observe("b", 1.0).status == "duplicate"
    assert bandit.journal.end(0) == end
    assert bandit.observe("b", 0.0, revision=1).status == "revised"
    assert bandit.entry("b").value == 0.0
    bandit.observe("b", 0.5, part="click")
    with pytest.raises(RewardConflict, match="part 'click'"):
        bandit.observe("b", 0.6, part="click")


def test_what_is_refused_before_the_journal_is_counted(bandit: Bandit) -> None:
    """Beside the events, which still add up to those that are in the journal."""
    assert bandit.refused_counts == {"duplicate": 0, "conflict": 0}
    bandit.observe("b", 1.0)
    bandit.observe("b", 1.0)
    with pytest.raises(RewardConflict):
        bandit.observe("b", 0.0)
    assert bandit.refused_counts == {"duplicate": 2, "conflict": 1}
    assert sum(bandit.event_counts.values()) == bandit.journal.end(0)


# --- the past, and the end ---------------------------------------------------------------------


def _commands(bandit: Bandit) -> list[Callable[[], object]]:
    return [
        lambda: bandit.decide(rows=ROWS),
        lambda: bandit.decide(rows=ROWS, id="a"),
        lambda: bandit.decide_many(rows=[ROWS]),
        lambda: bandit.decide_many([]),
        lambda: bandit.observe("a", 1.0),
        lambda: bandit.activate("a"),
        lambda: bandit.void("a"),
        bandit.settle,
        bandit.sync,
        bandit.save,
    ]


def test_a_closed_bandit_takes_nothing(bandit: Bandit) -> None:
    """Every command raises; closing twice is no error."""
    bandit.close()
    bandit.close()
    for command in _commands(bandit):
        with pytest.raises(ReadOnly, match="closed"):
            command()
    with pytest.raises(JournalClosed):
        bandit.as_of("1970-01-01T00:00Z")


def test_the_past_takes_nothing(bandit: Bandit) -> None:
    """Every command raises, and closing a view leaves the bandit open."""
    past = bandit.as_of("9999-12-31T00:00Z")
    for command in _commands(past):
        with pytest.raises(ReadOnly, match="a historical view"):
            command()
    with past:
        pass
    assert bandit.observe("a", 0.0).status == "rewarded"
    assert past.pending.count == 1


@pytest.mark.parametrize(
    ("when", "match"),
    [
        (datetime(2026, 1, 1), "has no time zone: pass a datetime in UTC"),
        ("2026-01-01", "has no time zone"),
        (1.5, "`when` must be .*got 1.5"),
        (None, "must be a timezone-aware datetime"),
        (True, "must be a timezone-aware datetime"),
    ],
)
def test_moments_have_a_zone(bandit: Bandit, when: Any, match: str) -> None:
    """A naive datetime could be any of 38 moments."""
    with pytest.raises(InvalidInput, match=match):
        bandit.as_of(when)
