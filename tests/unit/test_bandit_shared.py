"""One bandit in several threads, processes and modes."""

from __future__ import annotations

import multiprocessing
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from belated import Bandit, Bernoulli, DelayedUCB, Explicit
from belated.core.events import ModeChanged
from belated.core.inputs import Row
from belated.exceptions import BanditOff, FallbackWarning, InvalidInput
from belated.journals import Journal, MemoryJournal, SQLiteJournal
from belated.policies.policy import Choice
from belated.testing import ManualClock

ROWS: Row = np.eye(3, dtype=np.float32)


def opened(journal: Journal | None = None, **more: Any) -> Bandit:
    """A bandit with three actions."""
    defaults: dict[str, Any] = {
        "policy": DelayedUCB(3, Bernoulli()),
        "rewards": Explicit(timedelta(days=7)),
        "seed": 7,
    }
    return Bandit(journal=journal, **(defaults | more))


# --- threads and processes -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_threads_take_turns(kind: str, tmp_path: Path) -> None:
    """Every call succeeds, every decision and reward counts once, a replay agrees."""
    sqlite = SQLiteJournal(tmp_path / "offers.db", bandit="offers")
    journal: Journal = MemoryJournal() if kind == "memory" else sqlite
    bandit = opened(journal)
    rounds, failures = 60, []

    def work(number: int) -> None:
        try:
            for n in range(rounds):
                decision = bandit.decide(rows=ROWS, id=f"{number}-{n}" if n % 2 else None)
                (voided,) = bandit.decide_many(rows=[ROWS])
                assert bandit.observe(decision.id, float(n % 2)).status == "rewarded"
                assert bandit.entry(decision.id).state == "rewarded"
                bandit.void(voided.id)
                assert bandit.pending.count >= len(list(bandit.pending)) - 8
        except Exception as error:
            failures.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert failures == []
    assert bandit.decision_counts == opened(journal).decision_counts
    assert (bandit.decision_counts["rewarded"], bandit.decision_counts["voided"]) == (
        4 * rounds,
        4 * rounds,
    )
    assert bandit.digest == opened(journal).digest
    sqlite.close()


def _draws(bandit: Bandit, queue: Any) -> None:
    queue.put([bandit.decide(rows=ROWS).index for _ in range(60)])


def test_forked_processes_draw_different_numbers() -> None:
    """And none waits for a thread that only the parent has."""
    bandit = opened(policy=DelayedUCB(3, Bernoulli(), floor=1.0))
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    with bandit._lock:  # as if another thread of the parent were in a call
        children = [context.Process(target=_draws, args=(bandit, queue)) for _ in range(3)]
        for child in children:
            child.start()
        draws = [queue.get(timeout=30) for _ in children]
    for child in children:
        child.join()
    assert len({tuple(draw) for draw in draws}) == 3
    _draws(bandit, own_queue := multiprocessing.get_context("fork").SimpleQueue())
    assert own_queue.get() not in draws


def test_every_reading_sees_what_other_processes_wrote() -> None:
    """Without a call in between that writes."""
    journal = MemoryJournal()
    first, second = opened(journal), opened(journal)
    decision = first.decide(rows=ROWS)
    assert second.pending.count == 1
    assert second.entry(decision.id).state == "pending"
    first.observe(decision.id, 1.0)
    assert second.decision_counts["rewarded"] == 1
    assert second.estimate.n == 1
    assert second.event_counts["rewarded"] == 1
    first.void(first.decide(rows=ROWS).id)
    assert second.digest == first.digest


# --- modes ---------------------------------------------------------------------------------------


def test_a_bandit_obeys_the_mode_in_its_journal() -> None:
    """Whoever wrote it there, and also after it was opened anew."""
    journal = MemoryJournal()
    bandit, second = opened(journal, baseline="first"), opened(journal, baseline="first")
    bandit.change_mode("off", "a wrong price")
    for process in (bandit, second, opened(journal)):
        assert process.mode == "off"
        with pytest.raises(BanditOff, match="switched off"):
            process.decide(rows=ROWS)
        with pytest.raises(BanditOff):
            process.decide_many(rows=[ROWS])
    journal.append([ModeChanged(0, "baseline")])
    decisions = [second.decide(rows=ROWS) for _ in range(4)]
    assert [(decision.index, decision.propensity) for decision in decisions] == [(0, 1.0)] * 4
    second.change_mode("learn")
    assert len({bandit.decide(rows=ROWS).index for _ in range(3)}) > 1
    with pytest.raises(InvalidInput, match="one of learn, freeze"):
        bandit.change_mode("pause")  # type: ignore[arg-type]


@pytest.mark.parametrize("restart", ["live", "replay", "snapshot"])
def test_a_frozen_bandit_goes_on_with_the_model_of_that_moment(restart: str) -> None:
    """Rewards are learned meanwhile, and used when it is over; a restart finds that model."""
    clock = ManualClock()
    journal = MemoryJournal(clock=clock)
    bandit = opened(journal, clock=clock)
    for n in range(30):
        bandit.observe(bandit.decide(rows=ROWS).id, float(n % 2))
    bandit.change_mode("freeze")
    frozen = bandit.decide(rows=ROWS)
    theta = bandit._decider.model.theta.copy()
    for _ in range(30):
        decision = bandit.decide(rows=ROWS)
        assert (decision.index, decision.mean) == (frozen.index, frozen.mean)
        bandit.observe(decision.id, 0.0)
    if restart == "snapshot":
        bandit.save()
    if restart != "live":
        bandit = opened(journal, clock=clock)
    np.testing.assert_allclose(bandit._decider.model.theta, theta, rtol=0.2, atol=0.05)
    thawed = bandit.decide(rows=ROWS)
    assert thawed.index == frozen.index
    assert thawed.mean == pytest.approx(frozen.mean, abs=0.01)
    assert bandit.decision_counts["rewarded"] == 60
    bandit.change_mode("learn")
    assert bandit.decide(rows=ROWS).mean != pytest.approx(frozen.mean, abs=0.01)


class Broken(DelayedUCB):
    """A policy that cannot choose."""

    def choose(self, *_: Any) -> Choice:
        """It fails."""
        raise ZeroDivisionError("of a policy")


def test_a_policy_that_fails_leaves_the_choice_to_the_baseline() -> None:
    """Whoever asked gets a decision, and is warned."""
    bandit = opened(policy=Broken(3, Bernoulli()), baseline=2)
    with pytest.warns(FallbackWarning, match="ZeroDivisionError"):
        decision = bandit.decide(rows=ROWS)
    assert (decision.index, decision.propensity) == (2, 1.0)
    bandit.observe(decision.id, 1.0)
    assert bandit.decision_counts["rewarded"] == 1
