"""All checks, and what gives each warning once."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from belated.advice import delays, outcomes, rows
from belated.advice.dependence import DelayDependence, look_number
from belated.advice.evidence import Evidence
from belated.exceptions import (
    AdviceWarning,
    DelayWarning,
    DuplicateWarning,
    InterceptWarning,
    MissingRewardWarning,
    ScaleWarning,
    WindowWarning,
)

#: Records before the first look, and between two looks at most.
SOONEST, LATEST = 100, 8_192


@dataclass(frozen=True)
class Check:
    """What is looked for.

    Attributes:
        find: gives the message, if there is something to say.
        category: of the warning.
        link: where the documentation says more.
    """

    find: Callable[[Evidence], str | None]
    category: type[AdviceWarning]
    link: str


#: By the name that metrics and logs use.
CHECKS = {
    "alike": Check(outcomes.alike, MissingRewardWarning, "missing-rewards.md"),
    "missing": Check(outcomes.missing, DelayWarning, "warnings.md#missing"),
    "silence": Check(outcomes.silence, MissingRewardWarning, "warnings.md#silence"),
    "dependence": Check(delays.dependence, DelayWarning, "warnings.md#dependence"),
    "clock": Check(delays.clock, WindowWarning, "warnings.md#clock"),
    "window": Check(delays.window, WindowWarning, "warnings.md#window"),
    "scale": Check(rows.scale, ScaleWarning, "warnings.md#scale"),
    "intercept": Check(rows.intercept, InterceptWarning, "warnings.md#intercept"),
    "duplicates": Check(outcomes.duplicates, DuplicateWarning, "warnings.md#duplicates"),
}


@dataclass(frozen=True)
class Advice:
    """One warning.

    Attributes:
        name: of the check.
        category: of the warning.
        message: what was seen, what to do, and where to read more.
    """

    name: str
    category: type[AdviceWarning]
    message: str


def advise(seen: Evidence, skip: Collection[str] = ()) -> list[Advice]:
    """What there is to say, in the order of the checks.

    Args:
        seen: the evidence.
        skip: names of checks that are not asked.
    """
    found = []
    for name, check in CHECKS.items():
        message = None if name in skip else check.find(seen)
        if message is not None:
            link = f"See docs/howto/{check.link}"
            found.append(Advice(name, check.category, f"{message}. {link}"))
    return found


def warn(advice: Advice) -> None:
    """Warn whoever called the library, from however deep within."""
    level, frame = 2, sys._getframe(1)
    while (caller := frame.f_back) is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame, level = caller, level + 1
    warnings.warn(advice.message, advice.category, stacklevel=level)


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
