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
    never = delays.Mixture(never=0.5, base=delays.Constant(2))
    trace = simulate(DelayedUCB(world.dim, Bernoulli()), world, never, horizon=50)
    return [decision, receipt, scores, scores.actions[0], bandit.estimate, trace]


@pytest.mark.parametrize("result", results(), ids=lambda one: type(one).__name__)
def test_every_result_can_be_passed_on(result: Result) -> None:
    """As JSON by the standard library and by msgspec, as a dict, and shown in a short line."""
    plain = result.to_dict()
    assert json.loads(json.dumps(plain)) == msgspec.json.decode(msgspec.json.encode(plain)) == plain
    assert dict(result) == plain
    assert len(repr(result)) < 250
    assert "\n" not in repr(result)


@pytest.mark.parametrize("result", results(), ids=lambda one: type(one).__name__)
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
    plain = opened().decide({"age": 0.5}, ["red", "blue"], id="order-17").to_dict()
    assert plain["id"] == "order-17"
    assert plain["action"] in ("red", "blue")
    assert plain["at"].endswith("+00:00")
    assert len(plain["x"]) == 1 + FEATURES.block


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
    assert [one["name"] for one in simulated().coefficients()][:2] == ["x[0]", "x[1]"]


def simulated() -> Any:
    """An estimate whose coefficients nobody has named."""
    world = environments.fixed(seed=1)
    policy = DelayedUCB(world.dim, Bernoulli())
    return simulate(policy, world, delays.Constant(2), horizon=50).learner.estimate


def test_a_bandit_at_a_glance() -> None:
    """A line at the prompt; in a notebook with its strongest coefficients, by name."""
    bandit = opened(journal="memory:?bandit=offers")
    assert repr(bandit) == "<Bandit 'offers': 0 decisions, 0 pending>"
    made = [bandit.decide({"age": 0.5}, ["red", "blue"]) for _ in range(4)]
    for decision, value in zip(made, (1.0, 0.0, 0.0), strict=False):
        bandit.observe(decision.id, value)
    scores = {one.action: one.mean for one in bandit.score({"age": 0.5}, ["red", "blue"]).actions}
    said = f"predicted mean {np.mean([scores[one.action] for one in made]):.4g}"
    assert repr(bandit) == f"<Bandit 'offers': 4 decisions, 1 pending, {said}>"
    page = bandit._repr_html_()
    assert said in page
    assert all(name in page for name in FEATURES.names or ())


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
    asked, unasked = opened(policy), opened(policy)
    for n in range(20):
        scores = asked.score({"age": 0.3}, ["red", "blue"])
        assert [one.action for one in scores.actions] == ["red", "blue"]
        one = asked.decide({"age": 0.3}, ["red", "blue"], id=str(n))
        other = unasked.decide({"age": 0.3}, ["red", "blue"], id=str(n))
        assert (one.action, one.propensity) == (other.action, other.propensity)
        score = scores.actions[one.index]
        assert score.mean == pytest.approx(one.mean)
        assert score.low < score.mean < score.high
        known = [one.propensity for one in scores.actions if one.propensity is not None]
        assert known
        assert len(known) == 1 or sum(known) == pytest.approx(1.0)
        for bandit in (asked, unasked):
            bandit.observe(str(n), float(n % 3 == 0))
    assert asked.decision_counts == unasked.decision_counts
    assert list(scores.frame().index) == ["red", "blue"]
    assert "blue" in scores._repr_html_()


def test_scores_obey_the_mode() -> None:
    """The baseline says what it would choose; who is off says nothing."""
    bandit = opened(baseline="blue")
    bandit.change_mode("baseline")
    scores = bandit.score({"age": 0.3}, ["red", "blue"])
    assert scores.choice == "blue"
    assert [one.propensity for one in scores.actions] == [0.0, 1.0]
    bandit.change_mode("off")
    with pytest.raises(BanditOff):
        bandit.score({"age": 0.3}, ["red", "blue"])
