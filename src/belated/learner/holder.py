"""Who counts decisions that are durable before they are folded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from belated.events import Decision


class Holder(Protocol):
    """Counts decisions that are durable and cannot be folded yet: see :class:`Decider`."""

    def hold(self, decision: Decision) -> None:
        """Count it as pending."""

    def release(self, id: str) -> None:
        """It is folded now."""

    def release_all(self) -> None:
        """All of them are."""

    def release_known(self, known: Callable[[str], bool]) -> None:
        """Those that are known by their ids are folded."""

    def count_again(self) -> None:
        """Count them in a fold that has begun anew."""

    @property
    def holds(self) -> bool:
        """Whether there are any."""
