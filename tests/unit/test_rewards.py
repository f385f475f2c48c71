"""What silence means, and what is refused."""

from __future__ import annotations

import math
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from belated.core.rewards import (
    ConversionsOnly,
    DefaultAfter,
    Explicit,
    Rewards,
    check_part,
    check_semantics,
    reduced,
    reported_reward,
    retention_us,
)
from belated.exceptions import InvalidInput

HOUR = timedelta(hours=1)
EVERY: list[type[Rewards]] = [Explicit, DefaultAfter, ConversionsOnly]
every_semantics = pytest.mark.parametrize("kind", EVERY)


@pytest.mark.parametrize(
    ("rewards", "on_timeout", "default"),
    [
        (Explicit(HOUR), "censored", 0.0),
        (DefaultAfter(HOUR), "defaulted", 0.0),
        (DefaultAfter(HOUR, value=-2), "defaulted", -2.0),
        (ConversionsOnly(HOUR), "defaulted", 0.0),
    ],
    ids=repr,
)
def test_what_silence_means(rewards: Rewards, on_timeout: str, default: float) -> None:
    """Nothing, a default, or no conversion."""
    assert (rewards.on_timeout, rewards.default) == (on_timeout, default)


@every_semantics
def test_semantics_are_values(kind: type[Rewards]) -> None:
    """Equal ones are equal, and none of them changes."""
    assert kind(HOUR) == kind(HOUR)
    assert kind(HOUR) != kind(2 * HOUR)
    assert hash(kind(HOUR, reduce="sum")) == hash(kind(HOUR, reduce="sum"))
    with pytest.raises(AttributeError):
        kind(HOUR).window = 2 * HOUR  # type: ignore[misc]


@every_semantics
def test_the_window_is_kept_in_microseconds(kind: type[Rewards]) -> None:
    """Exactly, also where a float would round."""
    window = timedelta(days=10**6, microseconds=1)
    assert kind(window).window_us == 86_400 * 10**12 + 1


def test_only_explicit_rewards_may_be_waited_for_for_ever() -> None:
    """Elsewhere silence has to mean something at some time."""
    assert Explicit().window_us is None
    for kind in (DefaultAfter, ConversionsOnly):
        with pytest.raises(InvalidInput, match="is None: pass the time to wait"):
            kind(None)


@every_semantics
@pytest.mark.parametrize(
    "window", [timedelta(0), timedelta(microseconds=-1), 7, 7.0, "7 days"], ids=repr
)
def test_a_bad_window_is_refused(kind: type[Rewards], window: Any) -> None:
    """It is a time span above 0; a number would leave the unit open."""
    with pytest.raises(InvalidInput, match=r"^`window` must be a duration") as error:
        kind(window)
    assert error.value.value == window


@every_semantics
@pytest.mark.parametrize("reduce", ["last", "", None, "SUM"])
def test_a_bad_reduce_is_refused(kind: type[Rewards], reduce: Any) -> None:
    """The message says what can be."""
    with pytest.raises(InvalidInput, match="must be 'latest', 'sum' or 'max'") as error:
        kind(HOUR, reduce=reduce)
    assert error.value.value == reduce


@every_semantics
@pytest.mark.parametrize(
    "bounds",
    [(1.0, 0.0), (1, 1), (0, math.nan), (-math.inf, 0), (0, 2e9), (0,), (0, 1, 2), 5, ("a", "b")],
    ids=repr,
)
def test_bad_bounds_are_refused(kind: type[Rewards], bounds: Any) -> None:
    """Two finite numbers of at most a billion, the lower first."""
    with pytest.raises(InvalidInput, match="two numbers, the lower one first") as error:
        kind(HOUR, bounds=bounds)
    assert error.value.value is bounds


@every_semantics
def test_bounds_are_what_is_taken(kind: type[Rewards]) -> None:
    """A billion on both sides where none are given."""
    assert (kind(HOUR).min_reward, kind(HOUR).max_reward) == (-1e9, 1e9)
    bounded = kind(HOUR, bounds=[-1, 2])  # type: ignore[arg-type]
    assert bounded.bounds == (bounded.min_reward, bounded.max_reward) == (-1.0, 2.0)
    assert hash(bounded) == hash(kind(HOUR, bounds=(-1.0, 2.0)))


def test_a_default_outside_its_own_bounds_is_refused() -> None:
    """At the bounds it is taken."""
    for value in (1.5, -0.5):
        with pytest.raises(InvalidInput, match="`value` must be within `bounds`") as error:
            DefaultAfter(HOUR, value=value, bounds=(0.0, 1.0))
        assert error.value.value == value
    assert DefaultAfter(HOUR, value=1, bounds=(0, 1)).default == 1.0


@pytest.mark.parametrize("value", [math.nan, math.inf, 2e9, "1", None], ids=repr)
def test_a_default_that_is_no_reward_is_refused(value: Any) -> None:
    """It would be learned as one."""
    with pytest.raises(InvalidInput):
        DefaultAfter(HOUR, value=value)


def test_all_but_the_window_is_given_by_name() -> None:
    """A default is not to be mistaken for a window, or bounds for either."""
    for kind, argument in ((DefaultAfter, 1.0), (Explicit, "sum"), (ConversionsOnly, (0.0, 1.0))):
        with pytest.raises(TypeError):
            kind(HOUR, argument)  # type: ignore[arg-type, call-arg]


def test_the_latest_part_is_by_time_and_then_by_name() -> None:
    """Not by the order of the parts, and not by their values."""
    assert reduced({"a": (2, 5.0), "b": (2, 1.0), "c": (1, 9.0)}, "latest") == 1.0
    assert reduced({"b": (2, 1.0), "a": (2, 5.0), "c": (1, 9.0)}, "latest") == 1.0


def test_a_sum_does_not_depend_on_the_order() -> None:
    """Not in its last bit."""
    values = [0.1, 1e9, -1e9, 0.2, 0.3]
    parts = {str(i): (0, value) for i, value in enumerate(values)}
    backwards = dict(reversed(parts.items()))
    assert reduced(parts, "sum") == reduced(backwards, "sum") == math.fsum(values)


def test_a_sum_is_held_at_the_largest_reward() -> None:
    """On both sides."""
    assert reduced({"a": (0, 9e8), "b": (0, 9e8)}, "sum") == 1e9
    assert reduced({"a": (0, -9e8), "b": (0, -9e8)}, "sum") == -1e9


def test_the_greatest_part() -> None:
    """Whenever it came."""
    assert reduced({"a": (0, -3.0), "b": (9, -5.0)}, "max") == -3.0


@pytest.mark.parametrize("part", [5, None, "x" * 129])
def test_what_names_no_part(part: Any) -> None:
    """Text of at most 128 bytes does; the empty one is the whole."""
    check_part("", 0)
    check_part("x" * 128, 0)
    with pytest.raises(InvalidInput, match="the part"):
        check_part(part, 0)


@pytest.mark.parametrize("revision", [-1, 1 << 63, 1.0, True, None])
def test_what_is_no_revision(revision: Any) -> None:
    """A whole number from 0 on is, as far as 63 bits hold it."""
    check_part("", (1 << 63) - 1)
    with pytest.raises(InvalidInput, match="`revision` must be a non-negative integer"):
        check_part("", revision)


@pytest.mark.parametrize(
    ("part", "revision"), [("", True), ("", -1), ("", 0.0), ("", None), (7, 0), ("x" * 129, 0)]
)
def test_a_reward_with_no_part_or_revision_is_not_made(part: Any, revision: Any) -> None:
    """The same that a part alone is refused for."""
    report = partial(reported_reward, "a", 1.0, 5, min_reward=0.0, max_reward=1.0)
    assert report("part", 3).revision == 3
    with pytest.raises(InvalidInput, match=r"the part|`revision` must be"):
        report(part, revision)


def test_a_reward_is_within_its_bounds() -> None:
    """The bounds themselves are."""
    report = partial(
        reported_reward, "a", at=5, part="", revision=0, min_reward=-1.0, max_reward=2.0
    )
    assert [report(value).value for value in (-1, 2.0)] == [-1.0, 2.0]
    for value in (-1.001, 2.001):
        with pytest.raises(InvalidInput):
            report(value)


def test_a_default_is_a_number_with_a_fraction() -> None:
    """Whatever it was given as."""
    default = DefaultAfter(HOUR, value=1).value
    assert (type(default), default) == (float, 1.0)


@pytest.mark.parametrize(
    ("rewards", "said"),
    [
        (None, r"`rewards` is missing: pass ConversionsOnly\('7d'\) if only good outcomes are"),
        (Explicit, r"Explicit\(\); got the class Explicit: pass .*, or Explicit\(\) if all are"),
        (ConversionsOnly, r"got the class ConversionsOnly: pass ConversionsOnly\('7d'\)"),
        ("7d", r"`rewards` must be ConversionsOnly\(window\), .*; got '7d': pass ConversionsOnly"),
    ],
)
def test_what_says_nothing_of_missing_rewards(rewards: Any, said: str) -> None:
    """The error says what to pass instead."""
    with pytest.raises(InvalidInput, match=said):
        check_semantics(rewards)


def test_a_retention_is_as_long_as_the_window() -> None:
    """At least; both are told."""
    assert retention_us("1h", Explicit(HOUR)) == 3_600_000_000
    assert retention_us(None, Explicit(HOUR)) is None
    with pytest.raises(InvalidInput, match="retention 30m is shorter than the window 1h"):
        retention_us("30m", Explicit(HOUR))
