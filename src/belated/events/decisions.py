"""What happens to a decision: it is made, takes effect, is rewarded, or never carried out."""

from __future__ import annotations

from typing import Any, Literal

from belated.events.base import TimedEvent
from belated.inputs import Row
from belated.results import Result

#: Who made a decision.
Source = Literal["policy", "holdout", "baseline", "fallback"]


class Decision(TimedEvent, Result, tag=1, frozen=True):
    """An action was chosen; everything its reward will need is here.

    Attributes:
        id: the name under which the reward is reported.
        at_us: when, in microseconds since 1970 by the decider's clock; ``at`` is the same as a
            datetime.
        action: the chosen action, by the name the caller gave it.
        index: its place among the rows it was chosen from.
        x: its row, float32.
        mean: its predicted mean reward at the choice.
        propensity: the probability with which it was chosen. Off-policy estimates need it to be
            below 1 and not tiny: give the policy a ``floor``, or ``randomized=True``. A policy that
            takes the greatest bound has 1, and says nothing of other actions; Thompson sampling
            without a floor never shows its least likely ones, and an estimate that divides by
            this is then biased.
        model: the version of the model that chose.
        activated: False if the outcome clock starts only with an :class:`Activation`.
        source: who chose: the ``policy``; a ``holdout``; the ``baseline``, as the mode said; or the
            baseline as a ``fallback``, because the policy failed.
        group: of a holdout to which the decision belongs; empty without one.
        overall: the probability of the action over all groups of a holdout; None: ``propensity``.
        means: its predicted mean by models of other half-lives, where there are any.

    >>> import numpy as np
    >>> from belated.events import decode, encode
    >>> x = np.array([0.5, 1.0], dtype=np.float32)
    >>> decision = Decision("a1", 1_700_000_000_000_000, "blue", 0, x, 0.2, 1.0, 7)
    >>> decode(encode(decision)) == decision
    True
    """

    id: str
    at_us: int
    action: int | str
    index: int
    x: Row
    mean: float
    propensity: float
    model: int
    activated: bool = True
    source: Source = "policy"
    group: str = ""
    overall: float | None = None
    means: tuple[float, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the decision as plain data, its time as ISO 8601."""
        return {
            "id": self.id,
            "at": self.at.isoformat(),
            "action": self.action,
            "index": self.index,
            "propensity": self.propensity,
            "mean": self.mean,
            "model": self.model,
            "x": self.x.tolist(),
            "activated": self.activated,
            "source": self.source,
        }

    def __repr__(self) -> str:
        return (
            f"Decision(id={self.id!r}, action={self.action!r}, mean={self.mean:.4g},"
            f" propensity={self.propensity:.4g}, at={self.at.isoformat()!r})"
        )


class Activation(TimedEvent, tag=2, frozen=True):
    """The decision took effect (the mail was sent, the page was seen): its window starts."""

    id: str
    at_us: int


class Reward(TimedEvent, tag=3, frozen=True):
    """An outcome of a decision, or one part of it; a higher revision replaces a lower one.

    Attributes:
        id: of the decision.
        at_us: when it happened, in microseconds since 1970.
        value: the reward.
        part: of the reward, if it comes in several.
        revision: of this part.
        reporter: the name of the key that reported it; empty without one.
    """

    id: str
    at_us: int
    value: float
    part: str = ""
    revision: int = 0
    reporter: str = ""


class Void(TimedEvent, tag=4, frozen=True):
    """The decision was never carried out: nothing is to be learned from it."""

    id: str
    at_us: int
