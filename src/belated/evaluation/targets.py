"""The policy that is evaluated, frozen: the probability it gives each action of a request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from belated.core.inputs import Matrix, Vector
from belated.evaluation.requests import Offers
from belated.exceptions import InvalidInput, NotEvaluable
from belated.model.model import Model
from belated.policies import Policy

#: Takes the rows of a request and the names of its actions; gives the probability of each.
Target = Callable[[Matrix, Sequence[int | str]], Any]

#: A floor that changes no probability; with it a policy says those of all actions.
_NONE = 1e-300


def frozen(policy: Policy, model: Model) -> Target:
    """A policy with a model that does not change."""
    telling = replace(policy, floor=policy.floor or _NONE)
    rng = np.random.default_rng(0)
    still = copy(model)
    still.derived = dict(model.derived)

    def shares(rows: Matrix, actions: Sequence[int | str]) -> Vector:
        choice = telling.choose(still, rows, rng)
        if choice.shares is not None:
            return np.array(choice.shares)
        if choice.propensity < 1.0:
            name = type(policy).__name__
            raise NotEvaluable(f"{name} does not say the probability of every action")
        return _only(choice.index, len(rows))

    return shares


def named(name: int | str) -> Target:
    """``uniform``, ``first``, or always the action of a name."""
    if name == "uniform":
        return lambda rows, actions: np.full(len(rows), 1.0 / len(rows))
    if name == "first":
        return lambda rows, actions: _only(0, len(rows))

    def only(rows: Matrix, actions: Sequence[int | str]) -> Vector:
        places = [place for place, one in enumerate(actions) if one == name or str(one) == name]
        if not places:
            message = f"a request does not offer the action {name!r}, but {list(actions)!r}"
            raise InvalidInput(f"{message}: evaluate one that is always offered", name)
        return _only(places[0], len(rows))

    return only


def _only(place: int, count: int) -> Vector:
    shares = np.zeros(count)
    shares[place] = 1.0
    return shares


def target_shares(target: Target, offers: Offers) -> Vector:
    """Return the probability that a policy gives every row.

    Args:
        target: the policy.
        offers: what decisions were chosen from.

    Raises:
        InvalidInput: it gives no probabilities.
    """
    shares = np.empty(len(offers.rows))
    ends = offers.starts + offers.counts
    actions = offers.actions.tolist()
    for start, end in zip(offers.starts.tolist(), ends.tolist(), strict=True):
        given = np.asarray(
            target(offers.rows[start:end].astype(np.float64), actions[start:end]), np.float64
        )
        fits = given.shape == (end - start,) and (given >= 0.0).all()
        if not fits or abs(given.sum() - 1.0) > 1e-6:
            message = f"the policy returned {given!r} for {end - start} actions"
            raise InvalidInput(f"{message}: one probability for each was expected", given)
        shares[start:end] = given
    return shares
