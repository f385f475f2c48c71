"""Many decisions and many rewards in one call."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from belated import Bandit, Bernoulli, DefaultAfter, DelayedThompson, DelayedUCB, Explicit, PerArm
from belated.core.tuning import Tuning
from belated.exceptions import InvalidInput, ReadOnly, RewardConflict
from belated.fold.fold import same_sums
from belated.journals import MemoryJournal
from belated.journals.log import AppendedAfter
from belated.testing import ManualClock

COLORS = ["blue", "red"]
FEATURES = PerArm(COLORS, context=["age"])
ROWS = [[1.0, 0.0], [0.0, 1.0]]
DAY = timedelta(days=1)


def opened(**settings: Any) -> Bandit:
    """A bandit with features, in memory."""
    defaults: dict[str, Any] = {
        "policy": DelayedUCB(FEATURES.dim, Bernoulli()),
        "rewards": DefaultAfter(DAY),
        "features": FEATURES,
        "seed": 3,
    }
    return Bandit(**(defaults | settings))


@pytest.mark.parametrize("policy", [DelayedUCB, DelayedThompson])
def test_shapes_decide_alike(policy: Any) -> None:
    """A frame, contexts, and pairs: the same choices, and the same requests are kept."""
    contexts = [{"age": age} for age in (0.1, 0.5, 0.9, 0.3)]
    choices = []
    for shape in (
        [(context, COLORS) for context in contexts],
        contexts,
        pd.DataFrame(contexts),
    ):
        bandit = opened(policy=policy(FEATURES.dim, Bernoulli()))
        actions = None if isinstance(shape, list) and isinstance(shape[0], tuple) else COLORS
        decisions = bandit.decide_many(shape, actions)
        choices.append(
            [(decision.action, decision.propensity, decision.x.tolist()) for decision in decisions]
        )
        assert bandit.entry(decisions[1].id).request.context == {"age": 0.5}  # type: ignore[union-attr]
    assert choices[0] == choices[1] == choices[2]


def test_row_tables_take_names() -> None:
    """The actions of all tables; one array of tables will do."""
    bandit = Bandit(policy=DelayedUCB(2, Bernoulli()), rewards=Explicit(DAY), seed=3)
    decisions = bandit.decide_many(rows=np.array([ROWS, ROWS]), actions=COLORS)
    assert {d.action for d in decisions} == set(COLORS)  # the first is pending for the second


def test_an_error_names_the_request() -> None:
    """One of many is wrong: nothing is decided, and its place is told."""
    bandit = opened()
    contexts: list[dict[str, Any]] = [{"age": 0.1}, {"age": 0.2}, {"aeg": 0.3}]
    with pytest.raises(InvalidInput, match=r"^contexts\[2\]: 'age' of the context is missing"):
        bandit.decide_many(contexts, COLORS)
    assert bandit.pending.count == 0


def test_ids_make_a_batch_safe_to_repeat() -> None:
    """The same ids return the same decisions, also if only some of them are known."""
    bandit = opened()
    contexts = [{"age": n / 10} for n in range(6)]
    ids = [f"c{n}" for n in range(6)]
    decision = bandit.decide(contexts[2], COLORS, id="c2")
    decisions = bandit.decide_many(contexts, COLORS, ids=ids)
    assert decisions[2] == decision
    assert [decision.id for decision in decisions] == ids
    end = bandit.journal.end(0)
    assert bandit.decide_many(contexts, COLORS, ids=ids) == decisions
    assert bandit.journal.end(0) == end
    with pytest.raises(InvalidInput, match="another decision"):
        bandit.decide_many([{"age": 0.9}, contexts[1]], COLORS, ids=["new", "c1"][::-1])
    assert bandit.journal.end(0) == end, "nothing is decided if one of them is refused"


def test_an_id_that_another_process_used_first(tmp_path: Path) -> None:
    """Both get the decision that was committed first."""
    address = f"sqlite:///{tmp_path}/b.db?bandit=b"
    with opened(journal=address) as first_bandit, opened(journal=address, seed=4) as second_bandit:
        first = first_bandit.decide_many([{"age": 0.5}] * 4, COLORS, ids=list("abcd"))
        second = second_bandit.decide_many([{"age": 0.5}] * 5, COLORS, ids=list("zabcd"))
        assert second[1:] == first
        assert first_bandit.digest == second_bandit.digest


def test_many_rewards_are_the_rewards_one_by_one() -> None:
    """Statuses, states and sums are the same; in bulk too."""
    for tuning in (Tuning(), Tuning(bulk=3), Tuning(page=4)):
        clock = ManualClock()
        rng = np.random.default_rng(0)
        single, batched = (
            opened(clock=clock, journal=MemoryJournal(clock=clock, partitions=4), tuning=tuning)
            for _ in range(2)
        )
        ids = [f"c{n}" for n in range(40)]
        for bandit in (single, batched):
            bandit.decide_many([{"age": n / 40} for n in range(40)], COLORS, ids=ids)
        single.void("c3")
        batched.void("c3")
        clock.now += 86_400_000_001  # everything is due
        rewards = [{"id": id, "value": float(rng.random() < 0.5)} for id in [*ids, "early", *ids]]
        rewards += [{"id": "c5", "value": 1.0, "part": "sale", "revision": 1}]
        expected = []
        for reward in rewards:
            try:
                expected.append(single.observe(**reward).status)  # type: ignore[arg-type]
            except RewardConflict:
                expected.append("conflict")
        receipts = batched.observe_many(rewards)
        assert [receipt.id for receipt in receipts] == [reward["id"] for reward in rewards]
        assert [receipt.status for receipt in receipts] == expected
        assert {"late", "duplicate", "conflict", "voided", "unmatched", "revised"} <= {*expected}
        assert single.digest == batched.digest
        assert same_sums(single._fold, batched._fold)
        assert single.refused_counts == batched.refused_counts
        assert single.estimate.theta == pytest.approx(batched.estimate.theta, abs=1e-8)


def test_a_bad_reward_stops_all_before_any_is_appended() -> None:
    """The error names its place; nothing has changed."""
    bandit = opened()
    decisions = bandit.decide_many([{"age": 0.5}] * 2, COLORS)
    before = bandit.journal.end(0), bandit.digest
    for entry, match in [
        ((decisions[1].id, 2.0), r"rewards\[1\]: the reward 2.0 is outside"),
        ((decisions[1].id, "x"), r"rewards\[1\]: the reward must be .*got 'x'"),
        ((17, 1.0), r"rewards\[1\]: .*must be text"),
        ({"id": "a", "value": 1.0, "revision": -1}, r"rewards\[1\]: `revision` must be .*got -1"),
    ]:
        with pytest.raises(InvalidInput, match=match):
            bandit.observe_many([(decisions[0].id, 1.0), entry])
    assert (bandit.journal.end(0), bandit.digest) == before
    assert bandit.observe_many([]) == []


def test_a_batch_is_one_append() -> None:
    """Whatever its size; and what is due is settled with it."""
    clock = ManualClock()
    journal = MemoryJournal(clock=clock)
    bandit = opened(clock=clock, journal=journal)
    decisions = bandit.decide_many([{"age": 0.5}] * 50, COLORS)
    sizes = []
    append = journal.append_after

    def counted(events: Any, *more: Any, **named: Any) -> AppendedAfter:
        sizes.append(len(events))
        return append(events, *more, **named)

    journal.append_after = counted  # type: ignore[method-assign]
    clock.now += 86_400_000_001
    bandit.observe_many((decision.id, 1.0) for decision in decisions)
    assert sizes == [51]
    assert bandit.decision_counts["rewarded"] == 50


def test_a_closed_bandit_takes_no_batch() -> None:
    """As it takes no single event."""
    bandit = opened()
    bandit.close()
    with pytest.raises(ReadOnly):
        bandit.observe_many([])


def test_a_batch_survives_reopening(tmp_path: Path) -> None:
    """What was decided and reported from frames is in the journal, exactly."""
    address = f"sqlite:///{tmp_path}/b.db?bandit=b"
    people = pd.DataFrame({"age": np.linspace(0.0, 1.0, 30), "who": [f"p{n}" for n in range(30)]})
    with opened(journal=address) as bandit:
        decisions = bandit.decide_many(people, COLORS, ids="who")
        rewards = pd.DataFrame({"id": people["who"], "value": [n % 2 for n in range(30)]})
        receipts = bandit.observe_many(rewards)
        assert {receipt.status for receipt in receipts} == {"rewarded"}
        digest, theta = bandit.digest, bandit.estimate.theta
    with opened(journal=address) as reopened:
        assert reopened.digest == digest
        assert reopened.estimate.theta == pytest.approx(theta, abs=1e-8)
        assert reopened.decide_many(people, COLORS, ids="who") == decisions
