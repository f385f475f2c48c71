"""Run the checks, and issue each warning once."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from belated.advice.checks import CHECKS
from belated.advice.evidence import DelayDependence, Evidence, look_number
from belated.exceptions import AdviceWarning

#: Number of records before the first run of the checks; maximum number between runs.
SOONEST, LATEST = 100, 8_192


@dataclass(frozen=True)
class Advice:
    """A finding of a check.

    Attributes:
        name: name of the check.
        said: the finding.
        remedy: what to do about it.
    """

    name: str
    said: str
    remedy: str

    @property
    def message(self) -> str:
        """The finding, the remedy, and a link to the documentation."""
        return f"{self.said}: {self.remedy}. See docs/howto/warnings.md#{self.name}"


def advise(seen: Evidence, skip: Collection[str] = ()) -> list[Advice]:
    """Return the findings of the checks, in the order of the checks.

    Args:
        seen: the evidence.
        skip: names of checks to skip.
    """
    findings = []
    for name, check in CHECKS.items():
        words = None if name in skip else check.find(seen)
        if words is not None:
            findings.append(Advice(name, *words))
    return findings


def warn(advice: Advice) -> None:
    """Issue a warning that points to the line that called the library."""
    level, frame = 2, sys._getframe(1)
    while (caller := frame.f_back) is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame, level = caller, level + 1
    category = CHECKS[advice.name].category or AdviceWarning
    warnings.warn(advice.message, category, stacklevel=level)


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "belated"


class Adviser:
    """Runs the checks as records arrive, and reports each finding once.

    Attributes:
        current: names of the checks with findings in the last run.
        dependence: dependence of rewards on their delays, from the last test; there are few tests,
            so that the overall error probability is bounded.
        next: number of records at the next run.

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
        """Return whether a run is due: at each doubling, then every :data:`LATEST` records."""
        if version < self.next:
            return False
        self.next = version + min(version, LATEST)
        return True

    def look(self, seen: Evidence) -> Iterator[Advice]:
        """Run the checks and yield new findings; each counts as reported once it is consumed."""
        looks = look_number(seen.rewards)
        if looks > self._looks:
            depends = advise(seen, skip=CHECKS.keys() - {"dependence"})
            self._looks, self.dependence, self._depends = looks, seen.dependence, depends
        findings = advise(seen, skip={"dependence"}) + self._depends
        self.current = frozenset(advice.name for advice in findings)
        for advice in findings:
            if advice.name not in self._given:
                self._given.add(advice.name)
                yield advice
