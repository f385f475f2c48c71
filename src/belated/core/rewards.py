"""Reward semantics: the meaning of a missing reward.

A missing reward may be late or lost, or there may never have been one to report. This depends on
your application, so a :class:`~belated.Bandit` requires a choice. If a decision has no reward when
its window ends,

* :class:`ConversionsOnly` concludes that there was no conversion; until then, the decision is
  weighted by its age;
* :class:`DefaultAfter` assumes the default value, which a later reward replaces;
* :class:`Explicit` concludes nothing, because every outcome is reported; the decision is
  *censored*.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, fields
from datetime import timedelta
from typing import Any, ClassVar, Literal

from belated.core.events import Reward, SubjectReward
from belated.core.ids import check_id
from belated.core.inputs import MAX_REWARD, Interval, as_reward, must_be, outside
from belated.core.times import Duration, as_duration, duration_us, format_duration
from belated.exceptions import InvalidInput

Reduce = Literal["latest", "sum", "max"]


@dataclass(frozen=True)
class _Semantics:
    window: Duration | None = None
    _: KW_ONLY
    reduce: Reduce = "latest"
    bounds: tuple[float, float] | None = None
    attribution: Duration | None = None

    #: The status of a decision that had no reward when its window ended.
    on_timeout: ClassVar[Literal["censored", "defaulted"]] = "censored"

    def __post_init__(self) -> None:
        if self.window is not None:
            object.__setattr__(self, "window", as_duration(self.window, "window"))
        if self.attribution is not None:
            span = as_duration(self.attribution, "attribution")
            object.__setattr__(self, "attribution", span)
        if self.reduce not in ("latest", "sum", "max"):
            raise must_be("reduce", "'latest', 'sum' or 'max'", self.reduce)
        if self.bounds is not None:
            try:
                low, high = (as_reward(bound) for bound in self.bounds)
            except (TypeError, ValueError):
                low, high = math.nan, math.nan
            if not low < high:
                message = f"`bounds` is {self.bounds!r}: pass two numbers, the lower one first"
                raise InvalidInput(message, self.bounds)
            object.__setattr__(self, "bounds", (low, high))

    @property
    def window_us(self) -> int | None:
        """The window in microseconds."""
        assert self.window is None or isinstance(self.window, timedelta)  # see __post_init__
        return None if self.window is None else duration_us(self.window)

    @property
    def attribution_us(self) -> int | None:
        """How long after a decision subject rewards are credited to it, in microseconds."""
        span = self.attribution
        return duration_us(span) if isinstance(span, timedelta) else self.window_us

    def __repr__(self) -> str:
        # This text identifies snapshots. Parameters added later are omitted if they have their
        # default values, so that older snapshots still match.
        added_later = {"learn": "on arrival", "attribution": None}
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        arguments = ", ".join(
            f"{name}={value!r}"
            for name, value in values.items()
            if name not in added_later or value != added_later[name]
        )
        return f"{type(self).__name__}({arguments})"

    @property
    def min_reward(self) -> float:
        """The smallest reward that is accepted."""
        return -MAX_REWARD if self.bounds is None else self.bounds[0]

    @property
    def max_reward(self) -> float:
        """The largest reward that is accepted."""
        return MAX_REWARD if self.bounds is None else self.bounds[1]

    def range(self, support: Interval) -> tuple[float, float]:
        """Return the smallest and the largest reward accepted for a family with this support."""
        return max(support.lower, self.min_reward), min(support.upper, self.max_reward)

    @property
    def default(self) -> float:
        """The value of a missing reward, unless decisions without a reward are censored."""
        return 0.0


@dataclass(frozen=True, repr=False)
class Explicit(_Semantics):
    """Every outcome is reported, including bad ones: a missing reward carries no information.

    Args:
        window: how long a decision without a reward counts as pending. A reward that arrives later
            still counts. None means no limit.
        reduce: how the parts of a reward are combined: the "latest" part, their "sum" or "max".
        bounds: smallest and largest valid reward; other rewards are rejected.
        attribution: how long after a decision subject rewards are credited to it; by default, the
            length of the window.

    >>> Explicit("7d").on_timeout
    'censored'
    """


@dataclass(frozen=True, repr=False)
class DefaultAfter(_Semantics):
    """A reward that is missing when the window ends counts as a default value.

    Use this if every outcome is certain to be reported within the window, and few decisions are
    made before the first windows end. A reward that arrives later replaces the default. If only
    good outcomes are reported, use :class:`ConversionsOnly`.

    Args:
        window: how long to wait for a reward.
        value: the default value.
        reduce: how the parts of a reward are combined: the "latest" part, their "sum" or "max".
        bounds: smallest and largest valid reward; other rewards are rejected.
        attribution: how long after a decision subject rewards are credited to it; by default, the
            length of the window.
        learn: "on arrival" uses a reward when it arrives and the default when the window ends. The
            model then learns successes sooner than failures, and predictions are too high until the
            first windows have ended, by a factor of several if the window is much longer than the
            delays. "together" uses both when the window ends: predictions are unbiased, but
            nothing is learned earlier. :class:`ConversionsOnly` avoids both problems.

    >>> DefaultAfter("30m").default
    0.0
    """

    _: KW_ONLY
    value: float = 0.0
    learn: Literal["on arrival", "together"] = "on arrival"
    on_timeout: ClassVar[Literal["censored", "defaulted"]] = "defaulted"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window is None:
            raise InvalidInput(
                "`window` of DefaultAfter is None: pass the time to wait for a reward, such as"
                " '7d'",
                None,
            )
        if self.learn not in ("on arrival", "together"):
            raise must_be("learn", "'on arrival' or 'together'", self.learn)
        object.__setattr__(self, "value", as_reward(self.value))
        if not self.min_reward <= self.value <= self.max_reward:
            message = f"`value` must be within `bounds` {self.bounds}, got {self.value!r}"
            raise InvalidInput(message, self.value)

    @property
    def default(self) -> float:
        """The value assumed for a missing reward."""
        return self.value


@dataclass(frozen=True, repr=False)
class ConversionsOnly(_Semantics):
    """Only conversions are reported: a missing reward means no conversion so far.

    Choose this if only good outcomes are reported, such as clicks, sales or sign-ups. The bandit
    learns from every decision immediately, weighted by the share of conversions expected by its
    age. The bandit also estimates this share, with one delay distribution for all actions. A
    conversion after the window counts like any other. A reward of 0 carries no more information
    than a missing reward.

    Args:
        window: the bandit predicts conversions within this time after a decision.
        reduce: how the parts of a reward are combined: the "latest" part, their "sum" or "max".
        bounds: smallest and largest valid reward; other rewards are rejected.
        attribution: how long after a decision subject rewards are credited to it; by default, the
            length of the window.
        delivery: "batches" if conversions are reported together, for example by a nightly job; the
            age of a decision is then measured up to the last delivery. "single" if conversions are
            reported one by one. "auto" detects batches once a delivery contains many conversions.

    When its window ends, a decision without a conversion becomes ``defaulted`` with the value 0.
    This does not change the estimate, because the decision has been weighted by its age all along.

    >>> ConversionsOnly("7d").delivery
    'auto'
    """

    _: KW_ONLY
    delivery: Literal["auto", "batches", "single"] = "auto"
    on_timeout: ClassVar[Literal["censored", "defaulted"]] = "defaulted"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window is None:
            raise InvalidInput(
                "`window` of ConversionsOnly is None: pass the time to wait for a reward,"
                " such as '7d'",
                None,
            )
        if self.delivery not in ("auto", "batches", "single"):
            raise must_be("delivery", "'auto', 'batches' or 'single'", self.delivery)


Rewards = Explicit | DefaultAfter | ConversionsOnly

_RECOMMENDED = (
    "pass ConversionsOnly('7d') if only good outcomes are reported, or Explicit() if all are"
)


def reduced(parts: Mapping[str, tuple[int, float]], how: Reduce) -> float:
    """Combine the parts of a reward, each given as its time and value.

    >>> reduced({"click": (10, 1.0), "sale": (20, 5.0)}, "sum")
    6.0
    >>> reduced({"click": (30, 1.0), "sale": (20, 5.0)}, "latest")
    1.0
    """
    if how == "sum":
        total = math.fsum(value for _, value in parts.values())  # independent of their order
        return max(-MAX_REWARD, min(total, MAX_REWARD))
    if how == "max":
        return max(value for _, value in parts.values())
    return max((at, part, value) for part, (at, value) in parts.items())[2]


def check_semantics(rewards: Any) -> None:
    """Raise unless ``rewards`` states what a missing reward means."""
    if rewards is None:
        raise InvalidInput(f"`rewards` is missing: {_RECOMMENDED}", rewards)
    if not isinstance(rewards, Rewards):
        actual = f"the class {rewards.__name__}" if isinstance(rewards, type) else repr(rewards)
        expected = "`rewards` must be ConversionsOnly(window), DefaultAfter(window) or Explicit()"
        raise InvalidInput(f"{expected}; got {actual}: {_RECOMMENDED}", rewards)


def check_default(rewards: Rewards, support: Interval) -> None:
    """Raise if the default is not a valid reward of the family."""
    min_reward, max_reward = rewards.range(support)
    if rewards.on_timeout == "defaulted" and not min_reward <= rewards.default <= max_reward:
        bounds = f"[{min_reward:g}, {max_reward:g}]"
        message = f"the default value must be within {bounds}, got {rewards.default}"
        raise InvalidInput(message, rewards.default)


def retention_us(retention: object, rewards: Rewards) -> int | None:
    """Return the retention in microseconds, or None; raise if it is shorter than the window."""
    if retention is None:
        return None
    span = duration_us(as_duration(retention, "retention"))
    if rewards.window_us is not None and span < rewards.window_us:
        window = format_duration(rewards.window_us)
        message = f"retention {format_duration(span)} is shorter than the window {window}"
        raise InvalidInput(f"{message}: use a retention of at least {window}", retention)
    return span


def reported_reward(
    id: Any,
    value: Any,
    at: int,
    part: Any,
    revision: Any,
    *,
    min_reward: float,
    max_reward: float,
    reporter: str = "",
) -> Reward:
    """Validate a reported reward and return its event.

    Args:
        id: decision id.
        value: the reward.
        at: event time, in microseconds since 1970.
        part: name of the part; empty for the whole reward.
        revision: revision of this part.
        min_reward: the smallest reward that is accepted.
        max_reward: the largest reward that is accepted.
        reporter: the name of the API key that reports the reward.

    Raises:
        InvalidInput: an argument is invalid.
    """
    id = check_id(id)
    value = as_reward(value)
    if not min_reward <= value <= max_reward:
        raise outside(value, min_reward, max_reward)
    if part != "" or type(revision) is not int or revision:
        check_part(part, revision)
    return Reward(id, at, value, part, revision, reporter)


def reported_outcome(
    subject: Any,
    value: Any,
    at: int,
    event_id: Any,
    *,
    min_reward: float,
    max_reward: float,
    reporter: str = "",
) -> SubjectReward:
    """Validate a reported subject reward and return its event.

    Args:
        subject: the subject.
        value: the reward.
        at: event time, in microseconds since 1970.
        event_id: identifies the outcome.
        min_reward: the smallest reward that is accepted.
        max_reward: the largest reward that is accepted.
        reporter: the name of the API key that reports the reward.

    Raises:
        InvalidInput: an argument is invalid.
    """
    check_id(subject, "the subject")
    check_id(event_id, "the event_id")
    value = as_reward(value)
    if not min_reward <= value <= max_reward:
        raise outside(value, min_reward, max_reward)
    return SubjectReward(subject, at, value, event_id, reporter)


def check_alone(subject: str, id: object, part: str, revision: int) -> None:
    """Reject a subject reward that also has a decision id, a part or a revision."""
    if id is not None or part or revision:
        message = f"a reward of the subject {subject!r} also has an id, a part or a revision"
        raise InvalidInput(f"{message}: pass only subject, value, at and event_id", subject)


def check_part(part: Any, revision: Any) -> None:
    """Reject an invalid part name or revision."""
    if not isinstance(part, str) or part:
        check_id(part, "the part")
    whole = isinstance(revision, int) and not isinstance(revision, bool)
    if not whole or not 0 <= revision < 1 << 63:
        raise must_be("revision", "a non-negative integer", revision)
