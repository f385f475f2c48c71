"""What every journal of ours is: of one bandit, in so many partitions, and to be closed."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class NamedJournal:
    """The name of a bandit and its number of partitions, for as long as ``with`` lasts."""

    _bandit: str
    _partitions: int

    @property
    def bandit(self) -> str:
        """The name of the bandit."""
        return self._bandit

    @property
    def partitions(self) -> int:
        """How many partitions there are."""
        return self._partitions

    def close(self) -> None:
        """Let go of whatever is held."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
