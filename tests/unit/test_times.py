"""Times and durations as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd
import pytest

from belated import Bandit, Bernoulli, DefaultAfter, DelayedUCB, Explicit
from belated.core.times import (
    as_datetime,
    as_duration,
    as_microseconds,
    format_duration,
    parse_duration,
)
from belated.exceptions import InvalidInput

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
NOON_US = 1_794_830_400_000_000


@pytest.mark.parametrize(
    "when",
    [
        NOON,
        NOON.astimezone(timezone(timedelta(hours=-7))),
        pd.Timestamp(NOON),
        pd.Timestamp("2026-11-16 13:00", tz="Europe/Vienna"),
        pd.Timestamp("2026-11-16T12:00:00.000000999Z"),
        "2026-11-16T12:00:00Z",
        "2026-11-16 13:00:00+01:00",
        "20261116T120000Z",
        NOON_US,
        np.int64(NOON_US),
    ],
    ids=repr,
)
def test_one_moment_in_many_forms(when: Any) -> None:
    """Whatever a program has at hand, if only its zone is known."""
    assert as_microseconds(when) == NOON_US


@pytest.mark.parametrize(
    ("when", "cure"),
    [
        (datetime(2026, 11, 16), "has no time zone: pass a datetime in UTC"),
        (pd.Timestamp("2026-11-16"), "has no time zone"),
        (pd.NaT, "pass a time, or omit it"),
        ("2026-11-16", "has no time zone"),
        ("yesterday", "must be ISO 8601 text such as '2026-11-16T12:00:00Z'"),
        ("", "must be ISO 8601 text"),
        (np.datetime64("2026-11-16"), "or pandas.Timestamp(..., tz='UTC')"),
        (
            1_794_830_400,
            "looks like seconds since 1970: pass a datetime, such as datetime.fromtimestamp(",
        ),
        (1_794_830_400.5, "looks like seconds since 1970"),
        (
            1_794_830_400_000,
            "milliseconds since 1970: pass a datetime, such as datetime.fromtimestamp(",
        ),
        (1_794_830_400_000_000_000, "looks like nanoseconds since 1970"),
        (0, "out of range for microseconds since 1970"),
        (-5, "out of range for microseconds"),
        (1 << 80, "out of range for microseconds"),
        (0.5, "must be a timezone-aware datetime"),
        (float("nan"), "must be a timezone-aware datetime"),
        (True, "must be a timezone-aware datetime"),
        (timedelta(days=1), "must be a timezone-aware datetime"),
    ],
    ids=repr,
)
def test_what_could_be_mistaken_is_refused(when: Any, cure: str) -> None:
    """With the value, and what to do."""
    with pytest.raises(InvalidInput) as error:
        as_microseconds(when)
    assert str(error.value).startswith("`at` ")
    assert cure in str(error.value)


def test_times_no_datetime_can_hold() -> None:
    """Whatever a caller's clock said, it can be shown."""
    assert as_datetime(NOON_US) == NOON
    assert as_datetime(-(1 << 63)) == datetime.min.replace(tzinfo=UTC)
    assert as_datetime((1 << 63) - 1) == datetime.max.replace(tzinfo=UTC)


def test_a_bandit_tells_and_takes_datetimes() -> None:
    """Also of the past."""
    bandit = Bandit(
        policy=DelayedUCB(2, Bernoulli()),
        rewards=Explicit("7d"),
        retention="30d",
        clock=lambda: NOON_US + 1,
    )
    decision = bandit.decide(rows=[[1.0, 0.0], [0.0, 1.0]])
    assert decision.at - NOON == timedelta(microseconds=1)
    bandit.observe(decision.id, 1.0, at=pd.Timestamp(NOON))
    story = bandit.entry(decision.id)
    assert [report.at for report in story.reported] == [NOON]
    assert story.due is not None
    assert story.recorded is not None
    assert story.due - story.recorded == timedelta(days=7)
    assert bandit.as_of("2020-01-01T00:00Z").decision_counts["rewarded"] == 0


def test_durations() -> None:
    """Whole numbers with their units, added up; nothing else."""
    assert as_duration("1d2h3m4s5us", "window") == timedelta(
        days=1, hours=2, minutes=3, seconds=4, microseconds=5
    )
    assert format_duration(86_400_000_001) == "1d1us"
    assert DefaultAfter("7d") == DefaultAfter(timedelta(days=7))
    for text in ("", "7", "d", "1.5h", "-1d", "1 d", "٣d"):
        with pytest.raises(InvalidInput, match="expected a duration, such as 7d, 12h, 30m or 45s"):
            parse_duration(text)
    for text in ("9999999999d", f"{'9' * 5000}s"):
        with pytest.raises(InvalidInput, match="is too long"):
            parse_duration(text)


@pytest.mark.parametrize("value", [5, 7.0, None, True, np.timedelta64(7, "D"), "0s", timedelta(0)])
def test_a_duration_is_named_in_its_error(value: Any) -> None:
    """So that a retention is not mistaken for a window."""
    with pytest.raises(InvalidInput, match=r"^`retention` must be .*a duration"):
        as_duration(value, "retention")
