"""Holdouts: a baseline makes a share of the decisions, to measure the lift of the policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from belated.core.inputs import must_be
from belated.decider.baselines import FIRST, UNIFORM
from belated.exceptions import InvalidInput

#: Group of a decision, and its propensity over all groups.
Marks = tuple[str, float | None]
#: Names of the two groups.
BANDIT, HELD = "bandit", "holdout"


@dataclass(frozen=True)
class Holdout:
    """The share of decisions that a baseline makes.

    Args:
        share: the share of decisions in the holdout; with ``by``, the share of units.
        baseline: how you would choose without a bandit: the name of an action, ``"first"`` or
            ``"uniform"``.
        by: a field of the context, such as ``"customer"``; all decisions with the same value are in
            the same group. None means that each decision is assigned to a group by its id.

    >>> holdout = Holdout(0.1, "first")
    >>> sum(holdout.contains(f"order {n}") for n in range(10_000))
    1001
    """

    share: float
    baseline: int | str = ""  # required: __post_init__ raises an error without it
    by: str | None = None

    def __post_init__(self) -> None:
        number = isinstance(self.share, int | float) and not isinstance(self.share, bool)
        if not number or not 0.0 < self.share < 1.0:
            raise must_be("share", "a number between 0 and 1, such as 0.05", self.share)
        if type(self.baseline) not in (int, str) or self.baseline == "":
            value = "missing" if self.baseline == "" else repr(self.baseline)
            message = f"`baseline` is {value}: pass 'first', 'uniform' or the name of the action"
            raise InvalidInput(f"{message} to show without a bandit", self.baseline)
        field: Any = self.by
        if field is not None and not isinstance(field, str):
            raise must_be("by", "the name of a context field", field)

    def contains(self, unit: str) -> bool:
        """Return whether an id or unit is in the holdout; all processes get the same result."""
        draw = blake2b(unit.encode(), digest_size=8, person=b"belated.holdout").digest()
        return int.from_bytes(draw) < self.share * (1 << 64)

    def unit_of(self, context: Any) -> str | None:
        """Return the unit of a context; None without ``by``.

        Raises:
            InvalidInput: the context does not have the field.
        """
        if self.by is None:
            return None
        if not isinstance(context, Mapping) or context.get(self.by) is None:
            message = (
                f"the context has no field {self.by!r}, which assigns decisions to the holdout"
            )
            raise InvalidInput(f"{message}: send it, or omit `by` in the holdout", context)
        return str(context[self.by])

    def baseline_share(self, index: int, actions: Sequence[int | str] | None, count: int) -> float:
        """Return the probability with which the baseline chooses an action."""
        if self.baseline == UNIFORM:
            return 1.0 / count
        names = range(count) if actions is None else actions
        place = 0
        if self.baseline != FIRST:
            place = next((n for n, name in enumerate(names) if name == self.baseline), 0)
        return float(index == place)

    def overall(self, by_baseline: float, by_policy: float) -> float:
        """Return the probability of an action over both groups."""
        return self.share * by_baseline + (1.0 - self.share) * by_policy


def check_holdout(holdout: Any, features: object) -> Holdout | None:
    """Return ``holdout``; raise InvalidInput if it cannot be used with these features."""
    if holdout is None:
        return None
    if not isinstance(holdout, Holdout):
        message = f"`holdout` is {holdout!r}: pass Holdout(0.05, baseline='uniform')"
        raise InvalidInput(message, holdout)
    if holdout.by is not None and features is None:
        message = f"the holdout reads the context field {holdout.by!r}, but a bandit without"
        raise InvalidInput(
            f"{message} features receives no contexts: add features to the bandit, or omit `by`"
        )
    return holdout
