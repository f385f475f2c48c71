"""What calls return can be passed on: as JSON, to pydantic, to a notebook."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest

from belated import (
    Bandit,
    Bernoulli,
    ConversionsOnly,
    DefaultAfter,
    DelayedThompson,
    DelayedUCB,
    EpsilonGreedy,
    PerArm,
    Uniform,
    delays,
    environments,
    simulate,
)
from belated.core.results import Result
from belated.exceptions import BanditOff
from belated.policies import Policy

FEATURES = PerArm(["red", "blue"], context=["age"])


def opened(policy: Policy | None = None, **more: Any) -> Bandit:
    """A bandit with two actions and one number of context."""
    policy = policy or DelayedUCB(FEATURES.dim, Bernoulli(), floor=0.1)
    return Bandit(policy=policy, rewards=DefaultAfter("7d"), features=FEATURES, seed=7, **more)


def results() -> list[Result]:
    """One of each kind."""
    bandit = opened()
    decision = bandit.decide({"age": 0.5}, ["red", "blue"])
    receipt = bandit.observe(decision.id, 1.0)
    scores = bandit.score({"age": 0.5}, ["red", "blue"])
    world = environments.fixed(seed=1)
    delay = delays.Mixture(never=0.5, base=delays.Constant(2))
    trace = simulate(DelayedUCB(world.dim, Bernoulli()), world, delay, horizon=50)
    return [decision, receipt, scores, scores.actions[0], bandit.estimate, trace]


@pytest.mark.parametrize("result", results(), ids=lambda result: type(result).__name__)
def test_every_result_can_be_passed_on(result: Result) -> None:
    """As JSON by the standard library and by msgspec, as a dict, and shown in a short line."""
    content = result.to_dict()
    assert (
        json.loads(json.dumps(content))
        == msgspec.json.decode(msgspec.json.encode(content))
        == content
    )
    assert dict(result) == content
    assert len(repr(result)) < 250
    assert "\n" not in repr(result)


@pytest.mark.parametrize("result", results(), ids=lambda result: type(result).__name__)
def test_pydantic_takes_every_result(result: Result) -> None:
    """As the type of a field; another type is refused."""
    pydantic = pytest.importorskip("pydantic")
    kind: Any = pydantic.create_model("Answer", it=(type(result), ...))
    answer = kind(it=result)
    assert json.loads(answer.model_dump_json()) == {"it": result.to_dict()}
    assert kind.model_json_schema(mode="serialization")["properties"]["it"]["type"] == "object"
    with pytest.raises(pydantic.ValidationError):
        kind(it=5)


def test_a_decision_says_when_and_what() -> None:
    """In words that JSON has."""
    content = opened().decide({"age": 0.5}, ["red", "blue"], id="order-17").to_dict()
    assert content["id"] == "order-17"
    assert content["action"] in ("red", "blue")
    assert content["at"].endswith("+00:00")
    assert len(content["x"]) == 1 + FEATURES.block


def test_coefficients_have_names_and_intervals() -> None:
    """Those of the features; with pandas as a frame."""
    bandit = opened()
    for n in range(40):
        decision = bandit.decide({"age": 0.5}, ["red", "blue"], id=str(n))
        bandit.observe(decision.id, float(decision.action == "blue"))
    frame = bandit.estimate.frame()
    assert list(frame.index) == FEATURES.names
    assert list(frame.columns) == ["mean", "sd", "low", "high"]
    np.testing.assert_allclose(frame["mean"], bandit.estimate.mean.ravel())
    np.testing.assert_allclose(frame["high"] - frame["low"], 2 * 1.959964 * frame["sd"])
    assert [coefficient["name"] for coefficient in simulated().coefficients()][:2] == [
        "x[0]",
        "x[1]",
    ]


def simulated() -> Any:
    """An estimate whose coefficients nobody has named."""
    world = environments.fixed(seed=1)
    policy = DelayedUCB(world.dim, Bernoulli())
    return simulate(policy, world, delays.Constant(2), horizon=50).learner.estimate


def test_a_bandit_at_a_glance() -> None:
    """A line at the prompt; in a notebook with its strongest coefficients, by name."""
    bandit = opened(journal="memory:?bandit=offers")
    assert repr(bandit) == "<Bandit 'offers': 0 decisions, 0 pending, 0 rewarded>"
    decisions = [bandit.decide({"age": 0.5}, ["red", "blue"]) for _ in range(4)]
    for decision, value in zip(decisions, (1.0, 0.0, 0.0), strict=False):
        bandit.observe(decision.id, value)
    assert repr(bandit) == "<Bandit 'offers': 4 decisions, 1 pending, 3 rewarded>"
    page = bandit._repr_html_()
    assert "3 rewarded" in page
    assert all(name in page for name in FEATURES.names or ())


def test_a_bandit_of_a_few_actions_shows_what_it_predicts() -> None:
    """Not the mean of what has arrived, which is 1 if only conversions are reported."""
    bandit = Bandit(["red", "blue"], rewards=ConversionsOnly("7d"), seed=1)
    for n, decision in enumerate(bandit.decide_many([None] * 20)):
        if n % 5 == 0:
            bandit.observe(decision, 1.0)
    scores = bandit.score().actions
    means = ", ".join(f"{score.action} {score.mean:.4g}" for score in scores)
    counts = "20 decisions, 16 pending, 4 rewarded"
    assert repr(bandit) == f"<Bandit {bandit.journal.bandit!r}: {counts}; predicted {means}>"


@pytest.mark.parametrize(
    "policy",
    [
        DelayedUCB(FEATURES.dim, Bernoulli()),
        DelayedUCB(FEATURES.dim, Bernoulli(), randomized=True),
        DelayedThompson(FEATURES.dim, Bernoulli()),
        EpsilonGreedy(FEATURES.dim, Bernoulli()),
        Uniform(FEATURES.dim, Bernoulli()),
    ],
    ids=repr,
)
def test_scores_say_what_a_decision_would_be(policy: Policy) -> None:
    """Its mean and propensity; and asking for them changes neither state nor later choices."""
    scored, plain = opened(policy), opened(policy)
    for n in range(20):
        scores = scored.score({"age": 0.3}, ["red", "blue"])
        assert [action.action for action in scores.actions] == ["red", "blue"]
        decision = scored.decide({"age": 0.3}, ["red", "blue"], id=str(n))
        plain_decision = plain.decide({"age": 0.3}, ["red", "blue"], id=str(n))
        assert (decision.action, decision.propensity) == (
            plain_decision.action,
            plain_decision.propensity,
        )
        score = scores.actions[decision.index]
        assert score.mean == pytest.approx(decision.mean)
        assert score.low < score.mean < score.high
        propensities = [
            action.propensity for action in scores.actions if action.propensity is not None
        ]
        assert propensities
        assert len(propensities) == 1 or sum(propensities) == pytest.approx(1.0)
        for bandit in (scored, plain):
            bandit.observe(str(n), float(n % 3 == 0))
    assert scored.decision_counts == plain.decision_counts
    assert list(scores.frame().index) == ["red", "blue"]
    assert "blue" in scores._repr_html_()


def test_scores_obey_the_mode() -> None:
    """The baseline says what it would choose; who is off says nothing."""
    bandit = opened(baseline="blue")
    bandit.change_mode("baseline")
    scores = bandit.score({"age": 0.3}, ["red", "blue"])
    assert scores.choice == "blue"
    assert [action.propensity for action in scores.actions] == [0.0, 1.0]
    bandit.change_mode("off")
    with pytest.raises(BanditOff):
        bandit.score({"age": 0.3}, ["red", "blue"])
