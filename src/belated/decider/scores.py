"""What a bandit would choose, and why, without deciding."""

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
    """One action, as the bandit sees it now.

    Attributes:
        action: its name, or its index if it has none.
        mean: predicted mean reward.
        low: lower end of the 95 % interval of that mean, by the rewards that have arrived.
        high: upper end.
        propensity: the probability with which it would be chosen; None if the policy does not say
            it for every action.
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
    """What a bandit would choose now, and why.

    Attributes:
        choice: the action that this draw would choose.
        actions: the score of each action, in the order offered; paused ones are left out.
    """

    choice: int | str
    actions: list[ActionScore]

    def to_dict(self) -> dict[str, Any]:
        """Return all scores as plain data."""
        return {"choice": self.choice, "actions": [one.to_dict() for one in self.actions]}

    def frame(self) -> Any:
        """Return a DataFrame of pandas, a line for each action."""
        return frame_of([one.to_dict() for one in self.actions], "action")

    def __repr__(self) -> str:
        means = ", ".join(f"{one.action!r}: {one.mean:.4g}" for one in self.actions[:5])
        more = ", …" if len(self.actions) > 5 else ""
        return f"Scores(choice={self.choice!r}, means={{{means}{more}}})"

    def _repr_html_(self) -> str:
        head = ["action", "mean", "low", "high", "propensity"]
        rows: list[list[object]] = [list(one.to_dict().values()) for one in self.actions]
        return html_table(f"Would choose {self.choice}", head, rows)


def scores_of(
    model: Model, rows: Matrix, actions: Sequence[int | str] | None, choice: Choice
) -> Scores:
    """Return what a model says of each action, and how one was chosen from them.

    Args:
        model: that chose.
        rows: one row per action.
        actions: their names; None: their indices.
        choice: what was chosen.
    """
    names: Sequence[int | str] = range(len(rows)) if actions is None else actions
    eta = predictors(rows, model.theta)
    width = Z * np.linalg.norm(spread(rows, model.observed), axis=1)
    mean, low, high = (
        [model.family.mean_and_slope(float(one))[0] for one in points]
        for points in (eta, eta - width, eta + width)
    )
    shares: list[float | None] = [None] * len(rows)
    if choice.shares is not None:
        shares = list(choice.shares)
    elif choice.propensity == 1.0:
        shares = [0.0] * len(rows)
    shares[choice.index] = choice.propensity
    scores = [ActionScore(*one) for one in zip(names, mean, low, high, shares, strict=True)]
    return Scores(names[choice.index], scores)
