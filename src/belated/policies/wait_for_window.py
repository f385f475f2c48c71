"""The industry's way: nothing is learned of a decision until its window is over."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from belated.core.inputs import as_rounds
from belated.exceptions import InvalidInput
from belated.policies.blind import BlindUCB


@dataclass(frozen=True)
class WaitForWindow(BlindUCB):
    """UCB that learns a decision's reward when its window ends, and drops what comes later.

    The reward is what has come by then; nothing is learned of a decision that had none. This is
    what a join with a fixed window does.

    Args:
        window: decisions that follow before a reward is learned.

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
            message = f"learn_after is {self.learn_after!r}: WaitForWindow learns after its window"
            raise InvalidInput(f"{message}; use DelayedUCB(learn_after=...)", self.learn_after)

    @property
    def learns_after(self) -> int:
        """The window."""
        return self.window

    @property
    def learns_late(self) -> bool:
        """What comes later is dropped."""
        return False
