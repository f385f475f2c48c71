"""What a decision request over HTTP may leave out."""

from __future__ import annotations

import pytest

from belated import Bernoulli, DelayedUCB, Explicit, Flag, PerArm, Shared
from belated.exceptions import InvalidInput
from belated.features import Features
from belated.service.http.parsing import parse_request
from belated.service.serving.definition import Definition
from belated.service.wire.requests import DecisionRequest


def defined(features: Features) -> Definition:
    """A bandit with these features."""
    return Definition("b", DelayedUCB(features.dim, Bernoulli()), Explicit(), features=features)


def test_features_that_know_the_actions_need_none_named() -> None:
    """And a bandit without contexts needs nothing at all."""
    colors = defined(PerArm(["blue", "red"]))
    parsed, rows = parse_request(DecisionRequest(), colors)
    assert (parsed.actions, parsed.n_rows) == (("blue", "red"), 2)
    assert rows == parse_request(DecisionRequest(actions=["blue", "red"]), colors)[1]
    members = defined(PerArm(["blue", "red"], context={"member": Flag()}))
    assert parse_request(DecisionRequest(context={"member": None}), members)[0].n_rows == 2


def test_other_features_need_them() -> None:
    """They cannot know what is on offer."""
    with pytest.raises(InvalidInput, match="send a context and actions"):
        parse_request(DecisionRequest(), defined(Shared(action=["price"])))
