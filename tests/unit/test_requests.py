"""What a decision was chosen from: kept beside its record, and read back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from belated import (
    Bandit,
    Bernoulli,
    DelayedThompson,
    DelayedUCB,
    Explicit,
    Hashed,
    PerArm,
)
from belated.core.events import Decision
from belated.core.inputs import Row
from belated.decider import Decider, LoadedModel, ParsedRequest
from belated.exceptions import CorruptEvent, InvalidInput, UnknownEvent
from belated.features import Features
from belated.fold.requests import WHOLE, KeptRequest, is_drawn, keep_request
from belated.journals import MemoryJournal
from belated.model.model import Model
from belated.policies import Choice, Policy, Uniform, Warmup

ROWS = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]], dtype=np.float32)


def bandit(policy: Policy | None = None, **more: Any) -> Bandit:
    """In memory."""
    policy = policy or DelayedUCB(2, Bernoulli())
    return Bandit(policy=policy, rewards=Explicit(), seed=7, **more)


def kept(one: Bandit, decision: Decision) -> KeptRequest:
    """What was kept of a decision, which is something."""
    request = one.entry(decision.id).request
    assert request is not None
    return request


def test_a_decision_keeps_its_rows_and_names() -> None:
    """All of them, also where others are decided with it."""
    instance = bandit()
    request = kept(instance, instance.decide(rows=ROWS, actions=["a", 5, "c"]))
    assert request.rows is not None
    np.testing.assert_array_equal(request.rows, ROWS)
    assert request.rows.dtype == np.float32
    assert (request.actions, request.share, request.context) == (["a", 5, "c"], 1.0, None)
    decisions = instance.decide_many(rows=[ROWS[:2], ROWS])
    assert [len(kept(instance, decision).rows) for decision in decisions] == [2, 3]  # type: ignore[arg-type]
    for decision, request in zip(
        decisions, [kept(instance, decision) for decision in decisions], strict=True
    ):
        assert request.rows is not None
        np.testing.assert_array_equal(request.rows[decision.index], decision.x)
        assert request.actions is None


def test_a_decision_under_ones_own_id_keeps_its_request_once() -> None:
    """A retry, which is given the decision that stands, keeps nothing further."""
    journal = MemoryJournal()
    instance = bandit(journal=journal)
    first = instance.decide(rows=ROWS, id="order-17")
    assert instance.decide(rows=ROWS, id="order-17") == first
    assert len(journal._facts.requests) == 1
    assert kept(instance, first) == kept(instance, first)


@pytest.mark.parametrize(
    ("features", "context", "actions", "records"),
    [
        (PerArm(["a", "b"], context=["age"]), {"age": 3.0}, ["a", "b"], None),
        (
            Hashed(dim=16),
            {"city": "Bonn", "new": np.bool_(True), "age": np.float32(0.5)},
            {"a": {"price": 3}, "b": None},
            [{"price": 3}, None],
        ),
    ],
)
def test_features_can_make_the_rows_again(
    features: Features, context: Any, actions: Any, records: Any
) -> None:
    """The context and the actions are kept as they were given, and no rows."""
    instance = bandit(DelayedUCB(features.dim, Bernoulli()), features=features)
    decision = instance.decide(context, actions)
    request = kept(instance, decision)
    assert (request.rows, request.actions) == (None, ["a", "b"])
    assert (request.context, request.records) == (context, records)
    offered = actions if records is None else dict(zip(actions, records, strict=True))
    np.testing.assert_array_equal(
        features.rows(request.context, offered)[decision.index], decision.x
    )


class Opened:
    """Features that read something that no codec knows."""

    dim, names, fingerprint = 2, None, "opened"

    def rows(self, context: Any, actions: Any) -> Row:
        """Whatever the context opens."""
        assert context.__class__ is object
        return ROWS[: len(actions)]

    def extends(self, older: Features | str) -> bool:
        """Never."""
        return False


def test_a_context_that_cannot_be_written_leaves_the_rows() -> None:
    """They are known in any case."""
    instance = bandit(features=Opened())
    request = kept(instance, instance.decide(object(), ["a", "b"]))
    assert request.rows is not None
    np.testing.assert_array_equal(request.rows, ROWS[:2])
    assert request.context is None


@pytest.mark.parametrize(
    "policy",
    [
        Uniform(2, Bernoulli()),
        DelayedUCB(2, Bernoulli(), floor=0.3),
        DelayedUCB(2, Bernoulli(), randomized=True),
        DelayedThompson(2, Bernoulli(), floor=0.1),
        Warmup(DelayedUCB(2, Bernoulli()), rounds=10),
    ],
)
def test_the_probability_of_every_action_is_kept(policy: Policy) -> None:
    """They add up to 1, and that of the chosen one is its propensity."""
    instance = bandit(policy)
    for decision in [instance.decide(rows=ROWS), *instance.decide_many(rows=[ROWS] * 3)]:
        shares = kept(instance, decision).propensities
        assert shares is not None
        assert len(shares) == len(ROWS)
        assert sum(shares) == pytest.approx(1.0, abs=1e-12)
        assert shares[decision.index] == decision.propensity


@pytest.mark.parametrize("policy", [DelayedUCB(2, Bernoulli()), DelayedThompson(2, Bernoulli())])
def test_what_a_policy_does_not_say_is_not_made_up(policy: Policy) -> None:
    """None for all is better than a guess for some."""
    instance = bandit(policy)
    assert kept(instance, instance.decide(rows=ROWS)).propensities is None


def test_a_baseline_says_its_probabilities() -> None:
    """Also as a fallback; a named action has them all."""
    for baseline, expected in [("uniform", [1 / 3] * 3), ("first", None)]:
        instance = bandit(baseline=baseline)
        instance.change_mode("baseline")
        assert kept(instance, instance.decide(rows=ROWS)).propensities == expected


@dataclass(frozen=True)
class Picky(DelayedUCB):
    """Fails at large numbers."""

    def choose(self, model: Model, rows: Any, rng: np.random.Generator) -> Choice:
        """Or not at all."""
        assert np.max(rows) < 1000.0
        return super().choose(model, rows, rng)


@pytest.mark.parametrize("fails", [[False, True, False], [True, True, True]])
def test_requests_follow_their_decisions_where_some_fall_back(fails: list[bool]) -> None:
    """Where the policy fails for one of a batch, each is decided by itself."""
    broken = np.full_like(ROWS, 1000.0)
    policy = Picky(2, Bernoulli())
    decider = Decider(policy, LoadedModel(policy), partitions=1)
    tables = [broken if fail else ROWS + n for n, fail in enumerate(fails)]
    decisions, requests = decider.choose(
        [ParsedRequest(3)] * 3, np.concatenate(tables), now=5, rng=np.random.default_rng(1),
        hold=True,
    )  # fmt: skip
    assert [decision.source == "fallback" for decision in decisions] == fails
    for n, table in enumerate(tables):
        request = KeptRequest.read(requests[n])
        assert request.rows is not None
        np.testing.assert_array_equal(request.rows, table)


def test_large_requests_are_kept_by_a_share_that_is_written_down() -> None:
    """Beyond 4 KiB so many that they take 4 KiB on average, whoever draws."""
    table = np.ones((400, 20), dtype=np.float32)
    stored = {
        id: data
        for id in (f"order {n}" for n in range(2_000))
        if (data := keep_request(id, "auto", 400, None, table)) is not None
    }
    (share,) = {KeptRequest.read(data).share for data in stored.values()}
    assert share == pytest.approx(WHOLE / table.nbytes, rel=0.01)
    assert len(stored) == pytest.approx(2_000 * share, rel=0.2)
    assert set(stored) == {f"order {n}" for n in range(2_000) if is_drawn(f"order {n}", share)}
    request = keep_request("a", "auto", 10, None, np.ones((10, 100), dtype=np.float32))
    assert request is not None
    assert KeptRequest.read(request).share == 1.0


def test_a_share_of_ones_own_holds_for_every_size() -> None:
    """0 keeps none, 1 keeps all."""
    table = np.ones((400, 20), dtype=np.float32)
    ids = [f"order {n}" for n in range(500)]
    for share in (0.0, 0.25, 1.0):
        stored = [data for id in ids if (data := keep_request(id, share, 400, None, table))]
        assert {KeptRequest.read(data).share for data in stored} <= {share}
        assert len(stored) == sum(is_drawn(id, share) for id in ids)
    instance = bandit(keep_requests=0)
    assert instance.entry(instance.decide(rows=ROWS).id).request is None
    assert instance.entry(instance.decide_many(rows=[ROWS])[0].id).request is None


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), "all", True, None])
def test_what_is_no_share_is_refused(share: Any) -> None:
    """With what was expected."""
    with pytest.raises(InvalidInput, match="'auto' or a share from 0 to 1"):
        bandit(keep_requests=share)


def test_bytes_that_are_no_request_are_refused() -> None:
    """One of a newer release says so; a damaged one too."""
    data = keep_request("a", 1.0, 3, None, ROWS)
    assert data is not None
    with pytest.raises(UnknownEvent):
        KeptRequest.read(bytes([99]) + data[1:])
    for damaged in (b"", data[:5], data[:-1], data[:9] + b"\xc1" + data[10:]):
        with pytest.raises(CorruptEvent):
            KeptRequest.read(damaged)
