"""Issues: problems with individual events and values, counted from the first occurrence.

A check (:mod:`belated.advice.checks`) examines many events, and reports what chance cannot explain.
An issue is counted even if it occurs only once, with the time of the last occurrence and an
example. Names and descriptions are the same in ``Bandit.issues()``, the report, the web console,
the log and the metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec

from belated.core.results import Result
from belated.core.times import as_datetime
from belated.exceptions import BelatedError

#: Maximum length of an example, in characters.
LONGEST = 80


class IssueKind(NamedTuple):
    """Description of a kind of issue.

    Attributes:
        title: heading.
        what: what happened, phrased as a predicate of "rewards" or "values".
        remedy: how such events are handled, and what to do.
    """

    title: str
    what: str
    remedy: str


#: The kinds by name; issues with rewards come first.
KINDS = {
    "unmatched": IssueKind(
        "Unknown decision", "name an unknown decision",
        "they have no effect unless the decision arrives. Report rewards under decision.id",
    ),
    "conflict": IssueKind(
        "Contradicted", "contradict an earlier value",
        "the first value counts. Report a correction with a higher revision",
    ),
    "expired": IssueKind(
        "After the retention", "arrived after the retention",
        "they are ignored. Report sooner, or set a longer retention",
    ),
    "invalid": IssueKind(
        "Invalid", "are invalid",
        "they are ignored: their value is outside the range of rewards, or their decision"
        " has too many parts",
    ),
    "early": IssueKind(
        "Before the decision", "are dated before their decision",
        "they are rejected if the time of the decision is known. Send the time of the event with"
        " its time zone, and synchronize clocks with NTP",
    ),
    "future": IssueKind(
        "In the future", "are dated in the future",
        "they are rejected. Send the time of the event with its time zone, and synchronize"
        " clocks with NTP, or increase clock_skew",
    ),
    "clipped": IssueKind(
        "Clipped", "are outside the range of their field",
        "they are replaced by the nearer bound. Widen the range, or check the unit of the values",
    ),
    "unknown": IssueKind(
        "Unknown category", "are not among the values of their field",
        "they share a column. Add them to the Category, or check their spelling",
    ),
}  # fmt: skip


class Noticed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The number of occurrences of an issue.

    Attributes:
        count: number of occurrences.
        last_us: time of the last occurrence, in microseconds since 1970; 0 if unknown.
        example: the last id or value.
    """

    count: int = 0
    last_us: int = 0
    example: str = ""

    def plus(self, other: Noticed) -> Noticed:
        """Return the sum of both counts, with the more recent example."""
        last = max(self, other, key=lambda noticed: (noticed.last_us, noticed.example))
        return Noticed(self.count + other.count, last.last_us, last.example)


class Issue(msgspec.Struct, Result, frozen=True, omit_defaults=True):
    """A problem with events or values.

    Attributes:
        name: unmatched, conflict, expired, invalid, early, future, clipped or unknown.
        count: number of occurrences.
        what: description of the problem.
        remedy: how such events are handled, and what to do.
        last: time of the last occurrence; None if it was before this process started.
        example: the last id or value.
        field: the field of the context or the actions, if the problem concerns a field.
    """

    name: str
    count: int
    what: str
    remedy: str
    last: datetime | None = None
    example: str = ""
    field: str = ""


class IssueCounter(dict[str, Noticed]):
    """Counts issues by name.

    >>> issues = IssueCounter()
    >>> issues.note("future", "order-17", 1_700_000_000_000_000)
    >>> issues["future"].count
    1
    """

    def note(self, name: str, example: object, at_us: int) -> None:
        """Count an issue."""
        noticed = Noticed(1, at_us, str(example).lstrip("\0")[:LONGEST])
        self[name] = self.get(name, Noticed()).plus(noticed)

    def note_error(self, error: BaseException, clock: Callable[[], int]) -> None:
        """Count an error if it is an issue, using the error's id or invalid value as an example."""
        if isinstance(error, BelatedError) and error.issue:
            example = getattr(error, "id", None) or getattr(error, "value", "")
            self.note(error.issue, example, clock())


def total_of(*parts: Mapping[str, Noticed]) -> dict[str, Noticed]:
    """Add up the counts, by name.

    >>> total_of({"early": Noticed(2)}, {"early": Noticed(3, 7, "a")})["early"]
    Noticed(count=5, last_us=7, example='a')
    """
    total: dict[str, Noticed] = {}
    for part in parts:
        for name, noticed in dict(part).items():
            total[name] = total.get(name, Noticed()).plus(noticed)
    return total


def of_counters(
    counters: Mapping[str, int], latest: Mapping[str, tuple[int, str]] | None = None
) -> dict[str, Noticed]:
    """Return the issues, given the number of events by status.

    Args:
        counters: number of events with each status.
        latest: time and id of the last event with each status.

    >>> of_counters({"rewarded": 5, "unmatched": 1, "orphaned": 2})
    {'unmatched': Noticed(count=3, last_us=0, example='')}
    """
    issues = {}
    for name in KINDS:
        count = counters.get(name, 0)
        if name == "unmatched":  # including unmatched events that were dropped
            count += counters.get("orphaned", 0)
        if count:
            last, example = (latest or {}).get(name, (0, ""))
            issues[name] = Noticed(count, last, example.lstrip("\0"))
    return issues


def of_fields(features: object) -> dict[str, Noticed]:
    """Return the issues in features by kind and field, such as "clipped age"."""
    fields: Mapping[tuple[str, str], tuple[int, int, str]] = getattr(features, "noticed", {})
    return {f"{kind} {field}": Noticed(*seen) for (kind, field), seen in fields.items()}


def issues_of(noticed: Mapping[str, Noticed]) -> list[Issue]:
    """Return a list of issues, most frequent first.

    >>> issues_of({"clipped age": Noticed(3, 7, "400")})[0].field
    'age'
    """
    issues = []
    for name, seen in noticed.items():
        if seen.count <= 0:
            continue
        kind, _, field = name.partition(" ")
        noun = f"values of {field!r} {KINDS[kind].what}" if field else f"rewards {KINDS[kind].what}"
        last = as_datetime(seen.last_us) if seen.last_us else None
        issue = Issue(kind, seen.count, noun, KINDS[kind].remedy, last, seen.example, field)
        issues.append(issue)
    return sorted(issues, key=lambda issue: (-issue.count, issue.name, issue.field))
