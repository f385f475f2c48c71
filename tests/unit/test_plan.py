"""``belated plan``: what a delay costs, and how long until a lift is known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from belated import Bandit, ConversionsOnly, Explicit, Gaussian, Holdout
from belated.delays import NEVER, Constant, Exponential, Lomax, Mixture
from belated.evaluation import DelayCurve
from belated.evaluation.journal import JournalLog
from belated.evaluation.lifts import lift
from belated.evaluation.table import DecisionTable
from belated.exceptions import InvalidInput, NotEvaluable
from belated.journals import MemoryJournal, SQLiteJournal
from belated.model.families import Bernoulli
from belated.planning import (
    DAY,
    LEVEL,
    POWER,
    SHARES,
    Interval,
    Learning,
    RoundsDelay,
    SeenDelay,
    holdout_times,
    offers,
    plan_learning,
    quantiles,
    runs_of,
    seen_in,
)
from belated.testing import ManualClock
from tests.command_line import Command

SECOND = 1_000_000
SHOP = Learning(
    rate=500 / DAY, delay=Exponential(mean=2 * DAY), lift=1.0, actions=4, dim=3, period=20 * DAY
)


@pytest.mark.parametrize(
    ("base", "gain", "actions"), [(0.02, 1.0, 10), (0.1, 0.2, 3), (0.5, 0.3, 20)]
)
def test_there_is_as_much_to_gain_as_was_said(base: float, gain: float, actions: int) -> None:
    """In the mean over the rows that are drawn."""
    world = offers(base, gain, actions, 4, seed=1)
    means = np.array([mean for _, mean in world.rounds(20_000, np.random.default_rng(2))])
    assert means.mean() == pytest.approx(base, rel=0.03)
    assert means.max(axis=1).mean() / means.mean() == pytest.approx(1.0 + gain, rel=0.03)


def test_what_no_actions_can_bring_is_refused() -> None:
    """With what they can."""
    with pytest.raises(InvalidInput, match=r"the best of 2 actions cannot gain more than \d\d%"):
        offers(0.5, 0.9, 2, 3, seed=0)
    with pytest.raises(InvalidInput, match="at least 2 of each"):
        offers(0.5, 0.9, 1, 3, seed=0)


def test_delays_keep_their_part_of_the_time() -> None:
    """Whatever a round stands for; and what never comes does not."""
    law = Mixture(never=0.3, base=Exponential(mean=1_000))
    drawn = RoundsDelay(law, pace=0.01).sample(20_000, np.random.default_rng(0))
    arrived = drawn[drawn != NEVER]
    assert len(arrived) / len(drawn) == pytest.approx(0.7, abs=0.02)
    assert arrived.mean() == pytest.approx(10.0 + 0.5, rel=0.05)  # rounded up
    assert np.isinf(quantiles(law)).mean() == pytest.approx(0.3, abs=0.03)


def test_a_model_is_refreshed_now_and_then() -> None:
    """No reward is used before it comes, nor later than the next refresh."""
    plain, refreshed = (
        RoundsDelay(Lomax(shape=1.5, scale=3), 1.0, interval).sample(500, np.random.default_rng(1))
        for interval in (1, 7)
    )
    rounds_used = np.arange(500) + refreshed + 1
    assert (rounds_used % 7 == 0).all()
    assert ((refreshed >= plain) & (refreshed < plain + 7)).all()


def a_table(
    asked: Learning, share: float, seconds: float, rng: np.random.Generator
) -> DecisionTable:
    """A holdout and a bandit that has all of the lift."""
    n = round(asked.rate * seconds)
    now = 1_800_000_000 * SECOND
    decided_at = now - (seconds * SECOND * rng.random(n)).astype(np.int64)
    is_holdout = rng.random(n) < share
    chance = asked.reward_share * np.where(is_holdout, 1.0, 1.0 + asked.lift)
    rewarded_at = decided_at + SECOND * asked.delay.sample(n, rng)
    is_rewarded = (rng.random(n) < chance) & (rewarded_at <= now)
    return DecisionTable.of(
        made=decided_at,
        rewarded=[
            int(time) if rewarded else None
            for time, rewarded in zip(rewarded_at, is_rewarded, strict=True)
        ],
        value=np.where(is_rewarded, 1.0, np.nan),
        group=np.where(is_holdout, "holdout", "bandit"),
        rewards=ConversionsOnly("7d"),
        as_of=now,
    )


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_the_lift_is_known_when_the_plan_says(share: float, full: bool) -> None:
    """Four times in five, by the real evaluation of decisions some of which are pending."""
    scenario = replace(SHOP, rate=400 / DAY, lift=0.6, delay=Exponential(mean=DAY))
    planned = holdout_times(scenario)[SHARES.index(share)]
    rng, detected, runs = np.random.default_rng(5), 0, 1_000 if full else 150
    for _ in range(runs):
        table = a_table(scenario, share, planned.seconds, rng)
        detected += lift(table, limit="7d").low > 0.0
    # Until the first window has ended nothing is asked: then it is found even more often.
    upper = 1.0 if planned.seconds < 7.1 * DAY else POWER + 0.1
    assert POWER - 0.1 <= detected / runs <= upper


def test_looking_every_day_takes_longer_and_larger_holdouts_less_long() -> None:
    """And what they cost until then grows with the share."""
    times = holdout_times(replace(SHOP, lift=0.2))
    assert [holdout.share for holdout in times] == [*SHARES]
    for holdout in times:
        assert holdout.seconds_sequential > holdout.seconds
    waits = [holdout.seconds for holdout in times]
    assert waits == sorted(waits, reverse=True)
    costs = [holdout.rewards for holdout in times]
    assert costs == sorted(costs)


def test_the_always_interval_shows_the_lift_when_the_plan_says() -> None:
    """By decisions whose outcome is final."""
    scenario = replace(SHOP, rate=400 / DAY, lift=0.5, delay=Exponential(mean=DAY))
    planned = holdout_times(scenario)[SHARES.index(0.2)]
    rng, detected = np.random.default_rng(6), 0
    for _ in range(100):
        sequence = lift(
            a_table(scenario, 0.2, planned.seconds_sequential, rng), limit="7d"
        ).confidence_sequence
        detected += sequence is not None and sequence[1] > 0.0
    assert 0.68 <= detected / 100 <= 0.92


def test_a_longer_delay_costs_more_and_a_stale_model_too() -> None:
    """On the same problems and luck."""
    scenario = replace(SHOP, delay=Constant(round(6 * DAY)), rewards="Explicit")
    plan = plan_learning(scenario, seeds=4, rounds=500)
    assert [case.name for case in plan.cases] == [
        "every outcome known at once",
        "as planned",
        "window 1.8 d",
        "window 3.5 d",
        "window 14 d",
        "model refreshed every 1 d",
        "model refreshed every 7 d",
    ]
    immediate, planned = plan.cases[:2]
    assert immediate.change is not None
    assert immediate.change.low > 0.0
    assert planned.change is None
    assert planned.lost > immediate.lost > 0.0
    stale_change = plan.cases[-1].change
    assert stale_change is not None
    assert stale_change.mean < 0.0
    assert plan.decisions_a_round == pytest.approx(20.0)
    assert runs_of(scenario, 4, 500) == 28


def test_few_decisions_are_all_simulated() -> None:
    """A round is a decision then; what cannot be seen in so few rounds is left out."""
    plan = plan_learning(replace(SHOP, rate=10 / DAY), seeds=2)
    assert plan.rounds == 200
    assert plan.decisions_a_round == pytest.approx(1.0)
    assert "model refreshed every 1 h" not in [case.name for case in plan.cases]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"rate": 0.0}, "`rate` must be .*got 0.0"),
        ({"rate": 1e-9}, "at least 100 are needed"),
        ({"reward_share": 0.6}, "exceeds 100%"),
        ({"rewards": "Sometimes"}, "one of ConversionsOnly"),
    ],
)
def test_what_cannot_be_planned_is_refused(change: dict[str, float], match: str) -> None:
    """With the value, and what to do."""
    with pytest.raises(InvalidInput, match=match):
        replace(SHOP, **change)  # type: ignore[arg-type]


def test_an_interval_needs_two_seeds() -> None:
    """One problem tells nothing of others."""
    with pytest.raises(InvalidInput, match="at least 2"):
        plan_learning(SHOP, seeds=1)
    assert Interval.of(np.array([1.0, 1.0])).high == 1.0
    assert LEVEL == 0.95


# --- from a journal ------------------------------------------------------------------------------


def a_shop(journal: MemoryJournal | SQLiteJournal, clock: ManualClock) -> Bandit:
    """Twelve days of an offer an hour and more, with conversions after half a day in the mean."""
    bandit = Bandit(
        ["blue", "red", "green"],
        rewards=ConversionsOnly("3d"),
        journal=journal,
        holdout=Holdout(0.3, "uniform"),
        clock=clock,
        seed=1,
    )
    rng = np.random.default_rng(2)
    waiting: list[tuple[int, str]] = []
    for _ in range(1_500):
        clock.now += 700 * SECOND
        for due, id in [entry for entry in waiting if entry[0] <= clock.now]:
            bandit.observe(id, 1.0)
            waiting.remove((due, id))
        decision = bandit.decide()
        if rng.random() < 0.3:
            waiting.append((clock.now + int(rng.exponential(0.5 * DAY) * SECOND), decision.id))
    return bandit


def test_a_journal_tells_what_to_plan_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rate, delays, reward share, window and actions; options come first."""
    clock = ManualClock()
    file = tmp_path / "shop.db"
    with a_shop(SQLiteJournal(file, bandit="shop", clock=clock), clock) as bandit:
        settings = seen_in(JournalLog.of_journal(bandit.journal))
    assert settings["rate"] == pytest.approx(1 / 700, rel=0.01)
    assert settings["reward_share"] == pytest.approx(0.3, abs=0.06)
    assert (settings["window"], settings["rewards"], settings["actions"]) == (
        3 * DAY,
        "ConversionsOnly",
        3,
    )
    drawn = settings["delay"].sample(4_000, np.random.default_rng(0))
    assert drawn.mean() / DAY == pytest.approx(0.5, rel=0.2)
    output = planned(
        capsys, "--journal", f"sqlite:///{file}", "--dim", "3", "--lift", "0.5", "--window", "2d"
    )
    assert output["asked"]["rate"] == pytest.approx(settings["rate"])
    assert output["asked"]["window"] == 2 * DAY
    assert output["asked"]["actions"] == 3


def test_a_journal_that_tells_nothing() -> None:
    """Values, or no decisions."""
    clock = ManualClock()
    for family, error in ((Gaussian(), InvalidInput), (Bernoulli(), NotEvaluable)):
        journal = MemoryJournal(clock=clock)
        evaluation = JournalLog(journal, family, Explicit())
        with pytest.raises(error, match="pass --rate, --delay and --reward-share"):
            seen_in(evaluation)


def test_delays_of_a_curve_that_does_not_reach_all() -> None:
    """Where every decision is expected to have a reward, the others never come."""
    curve = DelayCurve(
        delays=np.array([1e6, 2e6]),
        share=np.array([0.25, 0.5]),
        low=np.zeros(2),
        high=np.ones(2),
        rewards=5,
        missing=5,
        level=0.95,
        conversions=False,
    )
    drawn = SeenDelay(curve).sample(4_000, np.random.default_rng(0))
    assert (drawn == NEVER).mean() == pytest.approx(0.5, abs=0.03)
    assert {*np.unique(drawn).tolist()} == {1, 2, NEVER}


# --- the command ---------------------------------------------------------------------------------

COMMAND = Command("plan")
SMALL = ("--seeds", 2, "--rounds", 100, "--dim", 3, "--actions", 3)


def planned(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """What a short plan says."""
    text = COMMAND.said(capsys, *SMALL[:4], *arguments, "--json")
    result: dict[str, Any] = json.loads(text)
    return result


def test_the_command_says_what_the_function_finds(capsys: pytest.CaptureFixture[str]) -> None:
    """Number for number, as JSON; infinite times are null."""
    output = planned(
        capsys,
        *("--rate", "500/d", "--delay", "2d", "--dim", 3, "--actions", 4, "--lift", 1),
        *("--period", "20d"),
    )
    expected = plan_learning(SHOP, seeds=2, rounds=100).to_dict()
    assert output["cases"] == expected["cases"]
    assert output["holdouts"] == expected["holdouts"]
    assert output["take"] == expected["take"]
    law = planned(
        capsys, "--rate", 2, "--delay", "Constant(c=3600)", "--lift", "1e-9", "--period", "1h"
    )
    assert law["asked"]["delay"] == "Constant(c=3600)"
    assert law["holdouts"][0]["seconds"] is None
    assert law["take"] is None


def test_the_command_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    """What is planned, what is kept, and what to hold out."""
    text = COMMAND.said(capsys, *SMALL, "--rate", "1000/d", "--delay", "2d", "--lift", 0.5)
    words = " ".join(text.split())
    assert "1,000 decisions/day for 30 d, 3 actions, 3 features; 10% rewards" in words
    assert "2 problems of 100 rounds, each for 300 decisions" in words
    assert "every outcome known at once" in words
    assert "Hold out 2%: the smallest of these shares" in words
    assert "`belated evaluate ADDRESS --lift --limit 7d`" in words
    output = COMMAND.said(capsys, *SMALL, "--rate", "100/d", "--delay", "2d", "--lift", 0.1)
    assert "None of these shares detects it within 30 d" in output


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("--rate", 5), "--delay is required, for example --delay 2d"),
        (("--delay", "2d"), "--rate is required, for example --rate 1000/d"),
        (("--rate", "5/week", "--delay", "2d"), "or 1000/d"),
        (("--rate", 5, "--delay", "soon"), "soon"),
        (("--rate", 5, "--delay", "Slow(3)"), "Slow"),
        (("--rate", -3, "--delay", "2d"), "not a positive number"),
    ],
)
def test_what_the_command_refuses(
    capsys: pytest.CaptureFixture[str], arguments: tuple[object, ...], match: str
) -> None:
    """In one line, with what to do."""
    assert match in COMMAND.complaint(capsys, *arguments)
