"""A policy that learns from rewards only at the end of a fixed window, as is common practice."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from belated.core.inputs import as_rounds
from belated.exceptions import InvalidInput
from belated.policies.blind import BlindUCB


@dataclass(frozen=True)
class WaitForWindow(BlindUCB):
    """UCB that learns from a decision's reward when the window ends, and ignores later rewards.

    If no reward has arrived by then, the decision is ignored. This corresponds to joining decisions
    and rewards with a fixed window.

    Args:
        window: number of further decisions before the policy learns from a reward.

    >>> from belated import Bernoulli
    >>> WaitForWindow(2, Bernoulli(), window=100).learns_after
    100
    """

    _: KW_ONLY
    window: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        as_rounds(self.window, "window")
        if self.learn_after is not None:
            message = "WaitForWindow learns after its window and does not accept learn_after"
            raise InvalidInput(
                f"{message}: use DelayedUCB(learn_after={self.learn_after!r})", self.learn_after
            )

    @property
    def learns_after(self) -> int:
        """The window, in decisions."""
        return self.window

    @property
    def learns_late(self) -> bool:
        """Always false: later rewards are ignored."""
        return False
