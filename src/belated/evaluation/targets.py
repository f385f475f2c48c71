"""Evaluation targets: the probability that a target gives to each action of each decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Vector
from belated.evaluation.columns import column_of, names_of, numbers
from belated.evaluation.requests import Offers
from belated.exceptions import InvalidInput, NotEvaluable
from belated.model.model import Model
from belated.policies import Policy

#: A function of the context (or the rows, if there is no context) and the names of the offered
#: actions, which returns the probability of each action, or the name of one action.
Rule = Callable[[Any, Sequence[int | str]], Any]
#: Anything that can be evaluated: a name, a policy, a rule, or a matrix of probabilities.
Target = Policy | Rule | NDArray[Any] | Mapping[Any, Any] | int | str

#: A floor too small to change any probability. With a floor, a policy reports the probabilities of
#: all actions.
_NONE = 1e-300
#: Tolerance for the sum of a decision's probabilities.
NEAR = 1e-6


def shares_of_name(name: int | str, offers: Offers) -> Vector:
    """Return the shares of ``uniform``, ``first``, or a target that always chooses one action."""
    if name == "uniform":
        return np.repeat(1.0 / offers.counts, offers.counts)
    if name == "first":
        shares = np.zeros(len(offers.rows))
        shares[offers.starts] = 1.0
        return shares
    shares = np.array([str(action) == str(name) for action in offers.actions.tolist()], np.float64)
    absent = np.flatnonzero(offers.sums(shares) == 0.0)
    if len(absent):
        start, count = offers.starts[absent[0]], offers.counts[absent[0]]
        actions = offers.actions[start : start + count].tolist()
        message = f"a request does not offer the action {name!r}, only {actions!r}"
        raise InvalidInput(f"{message}: evaluate an action that every request offers", name)
    return shares


def shares_of_policy(policy: Policy, model: Model, offers: Offers) -> Vector:
    """Return the shares of a policy with a fixed model."""
    floored = replace(policy, floor=policy.floor or _NONE)
    rng = np.random.default_rng(0)
    frozen = copy(model)
    frozen.derived = dict(model.derived)
    shares = np.zeros(len(offers.rows))
    for start, end in offers.spans():
        choice = floored.choose(frozen, offers.rows[start:end].astype(np.float64), rng)
        if choice.shares is not None:
            shares[start:end] = choice.shares
        elif choice.propensity < 1.0:
            name = type(policy).__name__
            message = f"{name} does not report the probability of every action: evaluate a policy"
            raise NotEvaluable(f"{message} that does")
        else:
            shares[start + choice.index] = 1.0
    return shares


def shares_of_rule(rule: Rule, contexts: Mapping[int, Any], offers: Offers) -> Vector:
    """Return the shares of a function of the context and the names of the actions.

    Args:
        rule: the function.
        contexts: contexts by decision number; without a context, the function gets the rows.
        offers: the actions offered in the decisions.
    """
    shares = np.zeros(len(offers.rows))
    actions = offers.actions.tolist()
    chosen: list[int] = []
    for n, (start, end) in enumerate(offers.spans()):
        names = actions[start:end]
        context = contexts[n] if n in contexts else offers.rows[start:end].astype(np.float64)
        answer = rule(context, names)
        if isinstance(answer, int | str) and not isinstance(answer, bool):
            if answer not in names:
                message = f"the policy returned {answer!r}, but the offered actions are {names!r}"
                raise InvalidInput(f"{message}: return one of these, or one probability per action")
            chosen.append(start + names.index(answer))
        else:
            shares[start:end] = _checked(answer, end - start)
    shares[chosen] = 1.0
    return shares


def _checked(given: Any, count: int) -> Vector:
    shares = np.asarray(given, np.float64)
    fits = shares.shape == (count,) and (shares >= 0.0).all()
    if not fits or abs(shares.sum() - 1.0) > NEAR:
        message = f"the policy returned {given!r} for {count} actions: return one probability per"
        raise InvalidInput(f"{message} action, with a sum of 1", given)
    return shares


def shares_of_matrix(
    given: Any, offers: Offers, lines: NDArray[np.int64], total: int, names: Sequence[Any] | None
) -> Vector:
    """Return the shares from a matrix with a row for each decision in the log.

    Args:
        given: an array, or a data frame with a column for each action.
        offers: the actions offered in the decisions.
        lines: the row of each decision in the matrix.
        total: the number of rows that the matrix must have.
        names: names of the columns of an array.
    """
    if not isinstance(given, np.ndarray | list):
        names = names_of(given)
        given = np.column_stack([numbers(column_of(given, name, name), name) for name in names])
    matrix = np.asarray(given, np.float64)
    if names is None or matrix.shape != (total, len(names)):
        columns = "each action" if names is None else ", ".join(map(repr, names))
        message = f"the probabilities have the shape {matrix.shape}: pass {total:,} rows"
        raise InvalidInput(
            f"{message}, one for each decision of the log, with a column for {columns}; or pass a"
            " data frame whose columns are named after the actions",
            given,
        )
    places = {str(name): place for place, name in enumerate(names)}
    if unknown := {*map(str, offers.actions.tolist())} - set(places):
        message = f"the probabilities have no column for the actions {sorted(unknown)!r}"
        raise InvalidInput(f"{message}: add them, with 0 for actions that are never chosen", given)
    chosen = np.array([places[str(name)] for name in offers.actions.tolist()])
    shares: Vector = matrix[np.repeat(lines, offers.counts), chosen]
    wrong = np.flatnonzero(~(np.abs(offers.sums(shares) - 1.0) <= NEAR))
    if len(wrong) or (shares < 0.0).any():
        line = int(lines[wrong[0]]) if len(wrong) else 0
        message = f"row {line} of the probabilities is {matrix[line].tolist()!r}"
        raise InvalidInput(
            f"{message}: entries must be at least 0 and add up to 1 over the offered actions", given
        )
    return shares
