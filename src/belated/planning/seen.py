"""What a journal tells of how its bandit learns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from belated.evaluation import DecisionTable, JournalEvaluation, delay_curve
from belated.evaluation.lifts import earned
from belated.exceptions import InvalidInput, NotEvaluable
from belated.families import Bernoulli
from belated.planning.timed_delays import SeenDelay

#: The group of a holdout, which shows what is to be had without the bandit.
_HOLDOUT = "holdout"


@dataclass(frozen=True)
class SeenLearning:
    """What was seen.

    Attributes:
        rate: decisions a second.
        delay: of rewards.
        reward_share: mean reward, of the holdout if there is one.
        window: in seconds; None if the rewards have none.
        rewards: what a missing reward means.
        actions: that were chosen.
    """

    rate: float
    delay: SeenDelay
    reward_share: float
    window: float | None
    rewards: str
    actions: int


def seen_in(evaluation: JournalEvaluation) -> SeenLearning:
    """Return what a journal tells; it is read once.

    Raises:
        InvalidInput: its rewards are not 0 or 1.
        NotEvaluable: it has too few decisions or rewards.
    """
    if not isinstance(evaluation.family, Bernoulli):
        message = f"the journal has rewards of {evaluation.family}: a plan is for rewards of 0 or 1"
        raise InvalidInput(f"{message}; give --rate, --delay and --reward-share", None)
    table: DecisionTable = evaluation.table().live()
    span = float(np.ptp(table.made)) / 1e6 if len(table) else 0.0
    if span <= 0.0:
        message = f"{len(table)} decisions tell no rate: wait for more"
        raise NotEvaluable(f"{message}, or give --rate, --delay and --reward-share")
    held = table.groups.index(_HOLDOUT) if _HOLDOUT in table.groups else -1
    base = table.select(table.group == held) if held >= 0 else table
    window = table.rewards.window_us
    return SeenLearning(
        rate=(len(table) - 1) / span,
        delay=SeenDelay(delay_curve(table)),
        reward_share=earned(base, _HOLDOUT if held >= 0 else "all").value,
        window=None if window is None else window / 1e6,
        rewards=type(table.rewards).__name__,
        actions=len(table.actions),
    )
