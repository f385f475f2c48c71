"""Problems with single rewards and values are counted where users look for them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from belated import Bandit, Category, ConversionsOnly, DelayedUCB, Number, PerArm
from belated.advice.issues import Issue
from belated.core.events import Reward
from belated.core.times import as_datetime
from belated.exceptions import InvalidInput, RewardConflict

NOW = 1_794_830_400_000_000
HOUR = timedelta(hours=1)
FIELDS = {"age": Number(18, 90), "country": Category(["AT", "DE"])}


def made(**settings: object) -> Bandit:
    """Return a bandit whose clock stands still."""
    features = PerArm(["blue", "red"], context=FIELDS)
    arguments = {"clock": lambda: NOW, "features": features, "policy": DelayedUCB()} | settings
    return Bandit(rewards=ConversionsOnly("7d"), **arguments)  # type: ignore[arg-type]


def found(bandit: Bandit) -> dict[tuple[str, str], Issue]:
    """Return the issues by name and field."""
    return {(issue.name, issue.field): issue for issue in bandit.issues()}


def test_a_bandit_that_is_used_well_has_none() -> None:
    """Decisions, rewards and retries are not issues."""
    bandit = made()
    decision = bandit.decide({"age": 41, "country": "AT"})
    for _ in range(2):
        bandit.observe(decision, 1.0)
    assert bandit.issues() == []


def test_each_is_counted_from_the_first_one_on() -> None:
    """With its last time, an example and a remedy, the most frequent first."""
    bandit = made()
    decision = bandit.decide({"age": 400, "country": "FR"})
    bandit.decide({"age": float("inf"), "country": "AT"})
    bandit.observe("order-17", 1.0)
    bandit.observe("order-18", 1.0)
    bandit.observe("order-19", 1.0)
    bandit.observe(decision, 1.0)
    with pytest.raises(RewardConflict):
        bandit.observe(decision, 0.0)
    bandit.observe_many([(decision, 0.5)])
    with pytest.raises(InvalidInput, match=r"rewards\[0\]: the reward 41000.0 is outside"):
        bandit.observe_many([(decision, 41_000)])
    with pytest.raises(InvalidInput, match="1 hour ahead of this machine's clock"):
        bandit.void(decision, at=as_datetime(NOW) + HOUR)
    with pytest.raises(InvalidInput, match="1 hour before its decision at"):
        bandit.observe(decision, 1.0, at=as_datetime(NOW) - HOUR)
    issues = found(bandit)
    assert {name: (issue.count, issue.example) for name, issue in issues.items()} == {
        ("unmatched", ""): (3, "order-19"),
        ("conflict", ""): (2, decision.id),
        ("clipped", "age"): (2, "inf"),
        ("unknown", "country"): (1, "FR"),
        ("invalid", ""): (1, "41000.0"),
        ("future", ""): (1, str(as_datetime(NOW) + HOUR)),
        ("early", ""): (1, str(as_datetime(NOW) - HOUR)),
    }
    assert bandit.issues()[0].name == "unmatched"
    assert issues["unmatched", ""].last == as_datetime(NOW)
    assert issues["unmatched", ""].remedy.endswith("Report rewards under decision.id")
    assert issues["clipped", "age"].to_dict()["what"].startswith("values of 'age' are outside")


def test_clocks_may_differ_by_five_minutes_or_as_much_as_is_set() -> None:
    """This applies to rewards, activations, voids and subjects."""
    default, wide = made(), made(clock_skew="2h")
    for bandit, near, far in ((default, 300, 301), (wide, 7200, 7201)):
        decision = bandit.decide({"age": 41, "country": "AT"}, subject="user-1")
        for seconds in (near, -near):
            at = as_datetime(NOW) + timedelta(seconds=seconds)
            assert bandit.observe(decision, 1.0, at=at).status in ("rewarded", "duplicate")
        for seconds in (far, -far):
            at = as_datetime(NOW) + timedelta(seconds=seconds)
            with pytest.raises(InvalidInput):
                bandit.observe(decision, 1.0, part="late", at=at)
        after = as_datetime(NOW) + timedelta(seconds=far)
        for method in (bandit.activate, bandit.void):
            with pytest.raises(InvalidInput, match="ahead of this machine's clock"):
                method(decision, at=after)
        with pytest.raises(InvalidInput, match="ahead of this machine's clock"):
            bandit.observe_subjects([("user-1", 1.0, "order-1", after)])
        assert found(bandit)["future", ""].count == 4


def test_what_the_journal_has_is_counted_after_a_restart(tmp_path: Path) -> None:
    """Last time and example are only known from this process."""
    address = f"sqlite:///{tmp_path}/offers.db"
    with made(journal=address) as bandit:
        bandit.observe("order-17", 1.0)
        decision = bandit.decide({"age": 41, "country": "AT"}, id="order-1")
        bandit.journal.append([Reward(decision.id, NOW - 3_600_000_000, 1.0)])
        bandit.journal.append([Reward(decision.id, NOW, 0.0)])
    with made(journal=address) as bandit:
        issues = found(bandit)
        assert {name: issue.count for (name, _), issue in issues.items()} == {
            "unmatched": 1,
            "early": 1,
            "conflict": 1,
        }


def test_the_report_lists_them() -> None:
    """It lists rewards by day, and values of the last decisions."""
    bandit = made()
    decisions = [bandit.decide({"age": 400, "country": "FR"}, id=f"order-{n}") for n in range(3)]
    bandit.observe("unknown", 1.0)
    early = Reward(decisions[0].id, NOW - 3_600_000_000, 1.0)
    bandit.journal.append([early, Reward(decisions[1].id, NOW + 3_600_000_000, 1.0)])
    bandit.sync()
    report = bandit.report()
    quality = report.data["quality"]
    counts = {row["kind"]: row["n"] for row in quality["rows"] if row["n"]}
    assert counts == {"unmatched": 1, "early": 1, "future": 1}
    assert quality["fields"] == [
        {"kind": "clipped", "field": "age", "n": 3, "example": "400"},
        {"kind": "unknown", "field": "country", "n": 3, "example": "FR"},
    ]
    page = report.html()
    assert "age: clipped" in page
    assert "such as FR" in page


def test_bandits_with_the_same_features_count_their_own_values() -> None:
    """Each bandit counts only its own values."""
    features = PerArm(["mail"], context={"age": Number(18, 90)})
    first, second = (Bandit(features, rewards=ConversionsOnly("7d")) for _ in range(2))
    first.decide({"age": 400})
    assert [issue.name for issue in first.issues()] == ["clipped"]
    assert second.issues() == []
