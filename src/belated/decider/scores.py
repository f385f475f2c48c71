"""Scores show which action a bandit would choose and why, without making a decision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from belated.core.inputs import Matrix
from belated.core.results import Result, frame_of, html_table
from belated.model.blocks import predictors, spread
from belated.model.estimators.estimate import Z
from belated.model.model import Model
from belated.policies import Choice


class ActionScore(msgspec.Struct, Result, frozen=True):
    """The current score of an action.

    Attributes:
        action: name of the action, or its index if it has none.
        mean: predicted mean reward.
        low: lower bound of the 95 % interval of the mean, from the rewards that have arrived.
        high: upper bound of the interval.
        propensity: the probability with which the action would be chosen; None if the policy does
            not report it.
    """

    action: int | str
    mean: float
    low: float
    high: float
    propensity: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return the score as plain data."""
        return msgspec.structs.asdict(self)


class Scores(msgspec.Struct, Result, frozen=True):
    """The action that a bandit would choose now, and the scores behind the choice.

    Attributes:
        choice: the action that would be chosen, for one random draw.
        actions: the scores of the offered actions, in order, except paused actions.
    """

    choice: int | str
    actions: list[ActionScore]

    def to_dict(self) -> dict[str, Any]:
        """Return all scores as plain data."""
        return {"choice": self.choice, "actions": [score.to_dict() for score in self.actions]}

    def frame(self) -> Any:
        """Return a pandas DataFrame with one row per action."""
        return frame_of([score.to_dict() for score in self.actions], "action")

    def __repr__(self) -> str:
        means = ", ".join(f"{score.action!r}: {score.mean:.4g}" for score in self.actions[:5])
        ellipsis = ", …" if len(self.actions) > 5 else ""
        return f"Scores(choice={self.choice!r}, means={{{means}{ellipsis}}})"

    def _repr_html_(self) -> str:
        head = ["action", "mean", "low", "high", "propensity"]
        rows: list[list[object]] = [list(score.to_dict().values()) for score in self.actions]
        return html_table(f"Would choose {self.choice}", head, rows)


def scores_of(
    model: Model, rows: Matrix, actions: Sequence[int | str] | None, choice: Choice
) -> Scores:
    """Return the scores of actions from a model and a choice.

    Args:
        model: the model that chose.
        rows: one row per action.
        actions: names of the actions; None if actions are identified by index.
        choice: the choice.
    """
    names: Sequence[int | str] = range(len(rows)) if actions is None else actions
    eta = predictors(rows, model.theta)
    width = Z * np.linalg.norm(spread(rows, model.observed), axis=1)
    mean, low, high = (
        [model.family.mean_and_slope(float(point))[0] for point in points]
        for points in (eta, eta - width, eta + width)
    )
    shares: list[float | None] = [None] * len(rows)
    if choice.shares is not None:
        shares = list(choice.shares)
    elif choice.propensity == 1.0:
        shares = [0.0] * len(rows)
    shares[choice.index] = choice.propensity
    scores = [ActionScore(*line) for line in zip(names, mean, low, high, shares, strict=True)]
    return Scores(names[choice.index], scores)
