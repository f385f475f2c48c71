"""Runs the checks, and gives each warning once."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from belated.advice.checks import CHECKS
from belated.advice.evidence import DelayDependence, Evidence, look_number
from belated.exceptions import AdviceWarning

#: Records before the first look, and between two looks at most.
SOONEST, LATEST = 100, 8_192


@dataclass(frozen=True)
class Advice:
    """A finding of a check.

    Attributes:
        name: of the check.
        said: what was found.
        remedy: what to do about it.
    """

    name: str
    said: str
    remedy: str

    @property
    def message(self) -> str:
        """What was found, what to do, and where to read more."""
        return f"{self.said}: {self.remedy}. See docs/howto/warnings.md#{self.name}"


def advise(seen: Evidence, skip: Collection[str] = ()) -> list[Advice]:
    """Return the findings of the checks, in their order.

    Args:
        seen: the evidence.
        skip: names of checks to leave out.
    """
    found = []
    for name, check in CHECKS.items():
        words = None if name in skip else check.find(seen)
        if words is not None:
            found.append(Advice(name, *words))
    return found


def warn(advice: Advice) -> None:
    """Warn whoever called the library, from however deep within."""
    level, frame = 2, sys._getframe(1)
    while (caller := frame.f_back) is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame, level = caller, level + 1
    category = CHECKS[advice.name].category or AdviceWarning
    warnings.warn(advice.message, category, stacklevel=level)


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "belated"


class Adviser:
    """Looks again when enough has been recorded, and says each thing once.

    Attributes:
        current: names of the checks that had something to say at the last look.
        dependence: of rewards on their delays, at the last look for it; these looks are few, so
            that they are right at all times.
        next: how many records there will be at the next look.

    >>> adviser = Adviser()
    >>> adviser.is_due(99), adviser.is_due(100), adviser.is_due(150), adviser.is_due(200)
    (False, True, False, True)
    """

    def __init__(self) -> None:
        self.current: frozenset[str] = frozenset()
        self.dependence: DelayDependence | None = None
        self._depends: list[Advice] = []
        self._looks = 0
        self._given: set[str] = set()
        self.next = SOONEST

    def is_due(self, version: int) -> bool:
        """Whether to look now: whenever records have doubled, or some thousands have come."""
        if version < self.next:
            return False
        self.next = version + min(version, LATEST)
        return True

    def look(self, seen: Evidence) -> Iterator[Advice]:
        """All that there is to say now and was not said before; it is said once it is taken."""
        looks = look_number(seen.rewards)
        if looks > self._looks:
            depends = advise(seen, skip=CHECKS.keys() - {"dependence"})
            self._looks, self.dependence, self._depends = looks, seen.dependence, depends
        found = advise(seen, skip={"dependence"}) + self._depends
        self.current = frozenset(one.name for one in found)
        for one in found:
            if one.name not in self._given:
                self._given.add(one.name)
                yield one
