"""A holdout: a share of decisions that the baseline makes, to see what the policy earns beyond."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from belated.decider.baselines import FIRST, UNIFORM
from belated.exceptions import InvalidInput

#: The group of a decision, and its propensity over all groups.
Marks = tuple[str, float | None]
#: Names of the two groups.
BANDIT, HELD = "bandit", "holdout"


@dataclass(frozen=True)
class Holdout:
    """A share of decisions goes to a baseline.

    Args:
        share: of the decisions, or of the units.
        baseline: what you would show without a bandit: the name of an action, ``"first"`` or
            ``"uniform"``.
        by: a field of the context, such as ``"customer"``: all decisions of one value are in the
            same group. None: each decision is drawn by its id.

    >>> holdout = Holdout(0.1, "first")
    >>> sum(holdout.holds(f"order {n}") for n in range(10_000))
    1001
    """

    share: float
    baseline: int | str = ""  # needed: an error asks for it
    by: str | None = None

    def __post_init__(self) -> None:
        number = isinstance(self.share, int | float) and not isinstance(self.share, bool)
        if not number or not 0.0 < self.share < 1.0:
            message = f"share is {self.share!r}: a number between 0 and 1 was expected"
            raise InvalidInput(f"{message}, such as 0.05", self.share)
        if type(self.baseline) not in (int, str) or self.baseline == "":
            given = "missing" if self.baseline == "" else repr(self.baseline)
            message = f"baseline is {given}: what would you show without a bandit?"
            message = f"{message} The name of an action, 'first' or 'uniform' was expected"
            raise InvalidInput(message, self.baseline)
        by: Any = self.by
        if by is not None and not isinstance(by, str):
            message = f"by is {by!r}: the name of a field of the context was expected"
            raise InvalidInput(message, by)

    def holds(self, unit: str) -> bool:
        """Whether an id or a unit is in the holdout, which is the same in every process."""
        draw = blake2b(unit.encode(), digest_size=8, person=b"belated.holdout").digest()
        return int.from_bytes(draw) < self.share * (1 << 64)

    def unit_of(self, context: Any) -> str | None:
        """The unit that a context belongs to; None if each decision is one.

        Raises:
            InvalidInput: the context does not have the field.
        """
        if self.by is None:
            return None
        if not isinstance(context, Mapping) or context.get(self.by) is None:
            message = f"the context has no {self.by!r}, by which the holdout is drawn"
            raise InvalidInput(f"{message}: send it, or make the holdout without `by`", context)
        return str(context[self.by])

    def baseline_share(self, index: int, actions: Sequence[int | str] | None, count: int) -> float:
        """The probability with which the baseline takes an action."""
        if self.baseline == UNIFORM:
            return 1.0 / count
        names = range(count) if actions is None else actions
        place = 0
        if self.baseline != FIRST:
            place = next((n for n, name in enumerate(names) if name == self.baseline), 0)
        return float(index == place)

    def overall(self, by_baseline: float, by_policy: float) -> float:
        """The probability of an action over both groups."""
        return self.share * by_baseline + (1.0 - self.share) * by_policy


def check_holdout(holdout: Any, features: object) -> Holdout | None:
    """Return a holdout, if it is one that can be drawn."""
    if holdout is None:
        return None
    if not isinstance(holdout, Holdout):
        message = f"holdout is {holdout!r}: pass Holdout(0.05, baseline='uniform')"
        raise InvalidInput(message, holdout)
    if holdout.by is not None and features is None:
        message = f"the holdout is drawn by {holdout.by!r}, and requests without features have no"
        raise InvalidInput(f"{message} context: give the bandit features, or leave `by` out")
    return holdout
