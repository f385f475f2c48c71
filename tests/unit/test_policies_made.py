"""What policies are made of: settings, defaults, priors, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest

from belated import (
    BlindThompson,
    BlindUCB,
    DelayedThompson,
    DelayedUCB,
    EpsilonGreedy,
    Greedy,
    Uniform,
    WaitForWindow,
    paper_dts,
    paper_dts_lcb,
    paper_ducb,
)
from belated.exceptions import InvalidInput
from belated.fold.learner import Learner
from belated.model.priors import Prior
from belated.policies import Policy, Warmup
from tests.unit.policy_examples import MAKE, B, every_policy, rng

WRONG: list[tuple[Callable[[], Policy], str]] = [
    (lambda: DelayedUCB(-1, B), "`dim` must be .*got -1"),
    (lambda: DelayedUCB(2.5, B), r"`dim` must be .*got 2\.5"),  # type: ignore[arg-type]
    (lambda: Uniform(-3, B), "`dim` must be .*got -3"),
    (lambda: DelayedUCB(2, B, ridge=0.0), r"`ridge` must be .*got 0\.0"),
    (lambda: DelayedUCB(2, B, ridge=-1.0), r"`ridge` must be .*got -1\.0"),
    (lambda: DelayedUCB(2, B, ridge="some"), "`ridge` must be .*got 'some'"),  # type: ignore[arg-type]
    (lambda: DelayedUCB(2, B, prior=Prior.ridge(3)), "the prior has 3 coefficients, but rows"),
    (lambda: DelayedUCB(2, B, pending_weight=-0.1), r"`pending_weight` must be .*got -0\.1"),
    (lambda: DelayedUCB(2, B, pending_weight=1.5), r"`pending_weight` must be .*got 1\.5"),
    (lambda: DelayedThompson(2, B, pending_weight=math.nan), "`pending_weight` must be .*got nan"),
    (lambda: Greedy(2, B, floor=-0.5), r"`floor` must be .*got -0\.5"),
    (lambda: EpsilonGreedy(2, B, floor=1.01), r"`floor` must be .*got 1\.01"),
    (lambda: DelayedUCB(2, B, floor=math.nan), "`floor` must be .*got nan"),
    (lambda: DelayedUCB(2, B, metric="other"), "`metric` must be .*got 'other'"),  # type: ignore[arg-type]
    (lambda: DelayedUCB(2, B, alpha=-0.2), r"`alpha` must be .*got -0\.2"),
    (lambda: DelayedUCB(2, B, alpha=math.nan), "`alpha` must be .*got nan"),
    (lambda: DelayedThompson(2, B, scale=-0.3), r"scale=-0\.3"),
    (lambda: DelayedThompson(2, B, scale=math.nan), "scale=nan"),
    (lambda: DelayedThompson(2, B, draws=1), "draws=1"),
    (lambda: BlindThompson(2, B, refresh=-0.4), r"refresh=-0\.4"),
    (lambda: WaitForWindow(2, B, window=-7), "`window` must be .*got -7"),
    (lambda: DelayedUCB(2, B, learn_after=-1), "`learn_after` must be .*got -1"),
    (lambda: WaitForWindow(2, B, learn_after=5), "learns after its window"),
    (lambda: WaitForWindow(2, B, window=2.5), r"2\.5"),  # type: ignore[arg-type]
    (lambda: DelayedThompson(2, B, draws=2.5), r"2\.5"),  # type: ignore[arg-type]
    (lambda: paper_ducb(2, B, 0.0), r"`norm_bound` must be .*got 0\.0"),
    (lambda: paper_ducb(2, B, 1.0, ridge=0.0), r"`ridge` must be .*got 0\.0"),
    (lambda: paper_ducb(2, B, 1.0, delta=0.0), r"`delta` must be .*got 0\.0"),
    (lambda: paper_ducb(2, B, 1.0, delta=1.5), r"`delta` must be .*got 1\.5"),
    (lambda: paper_ducb(2, B, 1.0, delta=1.5, warmup=10), r"`delta` must be .*got 1\.5"),
    (lambda: paper_dts(2, B, ridge=-2.0), r"`ridge` must be .*got -2\.0"),
    (lambda: paper_dts_lcb(2, noise=0.0), r"`noise` must be .*got 0\.0"),
    (lambda: paper_dts_lcb(2, noise=-1.0), r"`noise` must be .*got -1\.0"),
    (lambda: paper_dts_lcb(2, a=0.0), r"0\.0"),
]


@pytest.mark.parametrize(("make", "message"), WRONG, ids=[message for _, message in WRONG])
def test_what_makes_no_sense_is_refused_by_its_name(
    make: Callable[[], Policy], message: str
) -> None:
    """InvalidInput names the argument and its value."""
    with pytest.raises(InvalidInput, match=message):
        make()


def test_defaults_are_the_ones_that_work() -> None:
    """α .95, or .85 if randomized; scale .7; ridge 1; pending counted, no floor."""
    ucb, thompson = DelayedUCB(2, B), DelayedThompson(2, B)
    assert (ucb.alpha, ucb.metric) == (0.95, "hessian")
    assert DelayedUCB(2, B, randomized=True).alpha == 0.85
    assert DelayedUCB(2, B, randomized=True, alpha=0.3).alpha == 0.3
    assert (thompson.scale, thompson.pending_weight, thompson.floor) == (0.7, 1.0, 0.0)
    assert ucb.start.precision.tolist() == np.eye(2).tolist()
    assert BlindUCB(2, B).pending_weight == BlindThompson(2, B).pending_weight == 0.0
    assert WaitForWindow(2, B).pending_weight == 0.0
    assert EpsilonGreedy(2, B).floor == 0.05


MEANINGLESS: list[tuple[type[Policy], str, Any]] = [
    (Greedy, "alpha", 3.0),
    (Greedy, "randomized", True),
    (Greedy, "pending_weight", 0.5),
    (EpsilonGreedy, "metric", "gram"),
    (BlindUCB, "pending_weight", 1.0),
    (BlindThompson, "pending_weight", 1.0),
    (WaitForWindow, "pending_weight", 1.0),
    (Uniform, "floor", 0.1),
    (Uniform, "pending_weight", 1.0),
    (Uniform, "metric", "gram"),
    (Warmup, "floor", 0.1),
]


@pytest.mark.parametrize(("kind", "name", "value"), MEANINGLESS)
def test_what_would_mean_nothing_cannot_be_given(
    kind: type[Policy], name: str, value: object
) -> None:
    """A policy takes the arguments that it heeds, and says which one it does not know."""
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
        kind(2, B, **{name: value})  # type: ignore[arg-type]


def test_options_have_names() -> None:
    """Only the width of a row and the family go by place."""
    with pytest.raises(TypeError):
        DelayedUCB(2, B, 1.0)  # type: ignore[call-arg]


@every_policy
def test_a_policy_cannot_be_changed(name: str) -> None:
    """It is a frozen value."""
    with pytest.raises(FrozenInstanceError):
        MAKE[name]().floor = 0.5  # type: ignore[misc]


def test_the_same_arguments_make_equal_policies() -> None:
    """A policy is what it is, not which object."""
    assert all(make() == make() for make in MAKE.values())


def test_a_changed_ridge_changes_the_prior() -> None:
    """dataclasses.replace(policy, ridge=4) starts from precision 4."""
    changed = replace(DelayedUCB(2, B), ridge=4.0)
    assert changed.start.precision.tolist() == (4.0 * np.eye(2)).tolist()


def test_a_prior_takes_the_place_of_the_ridge() -> None:
    """θ̂ starts at its mean, and both roots at its precision."""
    prior = Prior.normal([0.5, -1.0], [[4.0, 1.0], [1.0, 2.0]])
    learner = Learner(Greedy(2, B, prior=prior))
    model = learner.model
    assert model.theta.tolist() == [0.5, -1.0]
    for root in (model.observed, model.decided):
        np.testing.assert_allclose(root @ root.T @ prior.precision, np.eye(2), atol=1e-12)
    choice = learner.policy.choose(model, -np.eye(2), rng())
    assert choice.index == 1
    assert choice.mean == pytest.approx(1.0 / (1.0 + math.exp(-1.0)))


def test_an_estimated_ridge_starts_at_one() -> None:
    """ridge="auto" is adaptive, and so are the fits it starts."""
    start = DelayedUCB(2, B, ridge="auto").start
    assert start.adaptive
    assert start.precision.tolist() == np.eye(2).tolist()
