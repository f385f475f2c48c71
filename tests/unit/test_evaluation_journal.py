"""Evaluation from a journal agrees with the ledger about decisions, states and values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from belated import (
    Bandit,
    Bernoulli,
    DefaultAfter,
    DelayedThompson,
    DelayedUCB,
    Explicit,
    Greedy,
    Holdout,
    MemoryJournal,
    PerArm,
    SQLiteJournal,
)
from belated.evaluation.delays import delay_curve
from belated.evaluation.journal import JournalLog
from belated.evaluation.requests import read_offers
from belated.evaluation.sources import read_journal
from belated.exceptions import InvalidInput, NotEvaluable
from belated.fold.rules import State

HOUR = 3_600_000_000
START = 1_700_000_000_000_000


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        """Return the current time."""
        return self.now


def _bandit(clock: Clock, **settings: Any) -> Bandit:
    defaults: dict[str, Any] = {
        "policy": DelayedUCB(2, Bernoulli(), floor=0.2),
        "rewards": DefaultAfter("7d"),
        "journal": MemoryJournal(clock=clock),
    }
    return Bandit(**(defaults | settings), clock=clock, seed=3)


def _play(bandit: Bandit, clock: Clock, rounds: int = 240) -> None:
    """Reward every third decision a day later, some twice, in parts, too late or never."""
    rng = np.random.default_rng(1)
    pending: list[tuple[int, Callable[[], Any]]] = []
    for n in range(rounds):
        clock.now += HOUR
        for due, report in [task for task in pending if task[0] <= n]:
            report()
            pending.remove((due, report))
        id = f"d{n}"
        decision = bandit.decide(rows=[[1.0, 0.0], [0.0, 1.0]], actions=["red", "blue"], id=id)
        if n % 3 == 0:
            delay = 200 if n % 30 == 0 else 24
            value = float(rng.random() < (0.7 if decision.action == "red" else 0.3))
            pending.append((n + delay, partial(bandit.observe, id, value)))
        if n % 21 == 0:
            pending.append((n + 30, partial(bandit.observe, id, 1.0, part="more")))
        if n % 40 == 7:
            bandit.void(id)
        if n % 50 == 8:
            bandit.activate(id)
    bandit.observe("early", 1.0)
    clock.now += HOUR
    bandit.decide(rows=[[1.0, 0.0], [0.0, 1.0]], actions=["red", "blue"], id="early")
    bandit.sync()


@pytest.mark.parametrize("rewards", [DefaultAfter("7d"), Explicit("7d", reduce="sum")])
@pytest.mark.parametrize("partitions", [1, 4])
def test_a_line_says_what_the_ledger_says(rewards: Any, partitions: int) -> None:
    """Each line has the state and the value of the ledger's entry."""
    clock = Clock()
    journal = MemoryJournal(clock=clock, partitions=partitions)
    bandit = _bandit(clock, rewards=rewards, journal=journal)
    _play(bandit, clock)
    table = read_journal(bandit.journal)
    counts = {state.name.lower(): int((table.state == state).sum()) for state in State}
    assert counts == bandit.decision_counts
    assert (np.diff(table.recorded) >= 0).all()
    for n, id in enumerate(table.ids):
        entry = bandit.entry(id)
        assert State(table.state[n]).name.lower() == entry.state
        assert entry.decision is not None
        assert table.actions[table.action[n]] == entry.decision.action
        assert table.propensity[n] == entry.decision.propensity
        assert table.position[n] == entry.position
        assert (entry.late, entry.conflict) == (table.late[n], table.conflict[n])
        assert np.isnan(table.value[n]) if entry.value is None else table.value[n] == entry.value
        if entry.state == "rewarded" and id != "early":
            assert table.rewarded[n] == min(report.recorded_us for report in entry.reported)
    assert table.delay[list(table.ids).index("early")] == 0.0


def test_forgotten_decisions_are_evaluated_too() -> None:
    """Decisions that the ledger forgot remain in the table."""
    clock = Clock()
    bandit = _bandit(clock, retention="8d")
    _play(bandit, clock, rounds=400)
    assert bandit.entry("d0").state == "unknown"
    assert len(read_journal(bandit.journal)) == 401
    frame = bandit.frame()
    assert frame.loc["d0", "state"] == "rewarded"


def test_what_was_erased_or_came_later_is_not_there() -> None:
    """Records after the time of ``as_of`` are left out."""
    clock = Clock()
    bandit = _bandit(clock)
    _play(bandit, clock, rounds=100)
    past = bandit.as_of(START + 50 * HOUR)
    assert len(past.frame()) == 50
    assert past.delay_curve().rewards == sum(past.frame()["state"] == "rewarded")


def test_a_frame_has_times_and_requests() -> None:
    """Frames have timezone-aware times, and requests on demand."""
    clock = Clock()
    bandit = _bandit(clock)
    _play(bandit, clock, rounds=30)
    frame = bandit.frame(requests=True)
    assert str(frame["recorded"].dtype) == "datetime64[us, UTC]"
    assert frame.loc["d0", "request"]["actions"] == ["red", "blue"]
    assert frame.loc["d0", "source"] == "policy"
    assert frame["rewarded"].isna().sum() == (frame["state"] != "rewarded").sum()


def test_methods_are_the_functions_of_the_table() -> None:
    """Methods of a bandit return the functions' results."""
    clock = Clock()
    bandit = _bandit(clock)
    _play(bandit, clock)
    table = read_journal(bandit.journal, support=Bernoulli().support)
    assert bandit.delay_curve().to_dict() == delay_curve(table).to_dict()
    assert bandit.forecast("2d").missing > 0
    assert bandit.delay_depends().groups == 2
    with pytest.raises(NotEvaluable, match="holdout"):
        bandit.lift()


def test_policies_are_told_apart() -> None:
    """Values of a good, a bad and the uniform policy differ as expected."""
    clock = Clock()
    bandit = _bandit(clock, rewards=DefaultAfter("2d"))
    _play(bandit, clock, rounds=900)
    red, blue = bandit.evaluate("red"), bandit.evaluate("blue")
    uniform = bandit.evaluate(lambda rows, actions: [0.5, 0.5])
    assert red.value > uniform.value > blue.value
    assert uniform.to_dict() == bandit.evaluate("uniform").to_dict()
    middle = START + 400 * HOUR
    assert bandit.evaluate(Greedy(2, Bernoulli()), since=middle).decisions < 520
    assert bandit.evaluate(DelayedThompson(2, Bernoulli()), since=middle).value > blue.low


def test_what_cannot_be_evaluated_says_what_to_do() -> None:
    """Errors name the remedy."""
    clock = Clock()
    bandit = _bandit(clock)
    _play(bandit, clock, rounds=150)
    with pytest.raises(InvalidInput, match="pass `since`"):
        bandit.evaluate(Greedy(2, Bernoulli()))
    with pytest.raises(InvalidInput, match="does not offer the action 'green'"):
        bandit.evaluate("green")
    with pytest.raises(InvalidInput, match="return one probability per action"):
        bandit.evaluate(lambda rows, actions: [1.0, 1.0])
    clock = Clock()
    silent = _bandit(clock, keep_requests=0)
    _play(silent, clock, rounds=60)
    with pytest.raises(NotEvaluable, match="keep_requests"):
        silent.evaluate("uniform")


@pytest.mark.parametrize(
    "policy", [DelayedUCB(2, Bernoulli()), DelayedThompson(2, Bernoulli())], ids=["UCB", "Thompson"]
)
def test_a_journal_without_a_floor_is_refused(policy: Any) -> None:
    """Without a floor, propensities of other actions are unknown."""
    clock = Clock()
    bandit = _bandit(clock, policy=policy)
    _play(bandit, clock, rounds=200)
    with pytest.raises(NotEvaluable, match="floor"):
        bandit.evaluate("uniform")


@pytest.mark.parametrize(("baseline", "floor"), [("uniform", 0.0), ("first", 0.2), ("blue", 0.0)])
def test_decisions_of_the_holdout_count(baseline: str, floor: float) -> None:
    """They are weighted by the probability over both groups."""
    clock = Clock()
    policy = DelayedUCB(2, Bernoulli(), floor=floor)
    bandit = _bandit(
        clock, policy=policy, holdout=Holdout(0.2, baseline), rewards=DefaultAfter("2d")
    )
    _play(bandit, clock, rounds=400)
    table = read_journal(bandit.journal, support=Bernoulli().support).live()
    is_kept, offers = read_offers(bandit.journal, table, None)
    overall = offers.over_groups(table.select(is_kept))
    in_holdout = table.select(is_kept).source == 1
    base = {"uniform": [0.5, 0.5], "first": [1.0, 0.0], "blue": [0.0, 1.0]}[baseline]
    rows = overall.propensity.reshape(-1, 2)
    expected = 0.2 * np.array(base) + 0.8 * offers.propensity.reshape(-1, 2)
    assert rows[~in_holdout] == pytest.approx(expected[~in_holdout], nan_ok=True)
    assert overall.propensity[overall.chosen] == pytest.approx(table.overall[is_kept])
    assert np.isnan(rows[in_holdout]).sum() == in_holdout.sum()
    target: Any = baseline if baseline == "uniform" else "uniform" if floor else base
    if baseline == "uniform" or floor:
        estimate = bandit.evaluate(target)
        assert estimate.decisions == len(offers) > (~in_holdout).sum()
        assert estimate.low < 1 / 6 < estimate.high
        assert estimate.unsupported == 0.0
    else:
        with pytest.raises(NotEvaluable, match=r"% of this policy's choices were never tried"):
            bandit.evaluate("red" if baseline == "blue" else "blue")


def test_a_journal_at_an_address_explains_itself(tmp_path: Path) -> None:
    """A log can be opened from a journal's address alone."""
    clock = Clock()
    features = PerArm(["red", "blue"], context=["age"])
    journal = SQLiteJournal(tmp_path / "a.db", bandit="offers", clock=clock)
    policy = DelayedUCB(features.dim, Bernoulli(), floor=0.3)
    rng = np.random.default_rng(2)
    with _bandit(clock, policy=policy, features=features, journal=journal) as bandit:
        for n in range(300):
            clock.now += HOUR
            decision = bandit.decide({"age": rng.random()})
            if n % 2:
                bandit.observe(decision, float(decision.action == "red"))
        expected = bandit.evaluate("red")
        with SQLiteJournal(tmp_path / "a.db", bandit="offers") as reopened:
            estimate = JournalLog.of_journal(reopened).evaluate("red")
    assert estimate.to_dict() == expected.to_dict()
    assert estimate.value > 0.4


def test_rows_are_those_that_were_on_offer() -> None:
    """Rows equal the features' rows of the stored requests."""
    clock = Clock()
    bandit = _bandit(clock)
    _play(bandit, clock, rounds=20)
    table = read_journal(bandit.journal)
    is_kept, offers = read_offers(bandit.journal, table, None)
    assert is_kept.all()
    assert offers.rows[offers.chosen].argmax(axis=1).tolist() == table.index.tolist()
    assert offers.propensity[offers.chosen] == pytest.approx(table.propensity)
    assert offers.sums(offers.propensity) == pytest.approx(np.ones(21))
