"""Log-rank sums, compared with sums by their definition."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from belated.model.statistics.log_rank import STRATA, excess, log_rank, strata_of

Waits = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64]]


def drawn(seed: int, count: int = 40, groups: int = 3) -> Waits:
    """Return times at risk with different starts, many of which end together."""
    rng = np.random.default_rng(seed)
    start = rng.integers(0, 6, size=count)
    return (
        start,
        start + rng.integers(0, 8, size=count),
        rng.random(count) < 0.6,
        rng.integers(groups, size=count),
    )


@pytest.mark.parametrize("seed", range(5))
def test_sums_are_those_of_the_definition(seed: int) -> None:
    """Observed, expected and covariance at each event time."""
    start, end, event, groups = drawn(seed)
    score, expected, variance = np.zeros(3), np.zeros(3), np.zeros((3, 3))
    for time in sorted({*end[event].tolist()}):
        waiting = (start <= time) & (time <= end)
        events_at_time = event & (end == time)
        n, d = waiting.sum(), events_at_time.sum()
        if n < 2:
            continue
        share = np.array([(waiting & (groups == g)).sum() for g in range(3)]) / n
        score += [(events_at_time & (groups == g)).sum() for g in range(3)] - d * share
        expected += d * share
        variance += d * (n - d) / (n - 1) * (np.diag(share) - np.outer(share, share))
    result = log_rank(start, end, event, groups, 3)
    np.testing.assert_allclose(result.score, score, atol=1e-12)
    np.testing.assert_allclose(result.expected, expected)
    np.testing.assert_allclose(result.variance, variance, atol=1e-12)
    assert result.score.sum() == pytest.approx(0.0, abs=1e-12)


def test_the_last_one_alone_says_nothing() -> None:
    """There is no other subject to compare it with."""
    single = np.array([0]), np.array([3]), np.array([True]), np.array([0])
    result = log_rank(*single, 2)
    assert result.score.tolist() == result.expected.tolist() == [0.0, 0.0]


def test_nothing_came() -> None:
    """Without events, all sums are 0."""
    start, end, _, groups = drawn(1)
    result = log_rank(start, end, np.zeros(len(start), dtype=np.bool_), groups, 3)
    assert (result.score.shape, result.variance.shape, result.expected.shape) == (
        (3,),
        (3, 3),
        (3,),
    )
    for sums in result:
        assert not sums.any()


@pytest.mark.parametrize("seed", range(5))
def test_the_excess_of_a_group_is_its_score(seed: int) -> None:
    """It is positive for early events; all of them sum to 0."""
    start, end, event, groups = drawn(seed)
    ends = np.append(end, [20, 21])  # so that nobody is the last alone
    start, event, groups = (
        np.append(start, [0, 0]),
        np.append(event, [False, False]),
        np.append(groups, [0, 1]),
    )
    scores = excess(start, ends, event)
    assert scores.sum() == pytest.approx(0.0, abs=1e-12)
    score = log_rank(start, ends, event, groups, 3).score
    sums = [scores[groups == group].sum() for group in range(3)]
    np.testing.assert_allclose(sums, score, atol=1e-12)


def test_strata_have_equally_many() -> None:
    """In chronological order, for times in any order; empty input has none."""
    rng = np.random.default_rng(2)
    times = rng.permutation(1_000)
    strata = strata_of(times)
    assert np.bincount(strata).tolist() == [100] * STRATA
    assert (strata == times // 100).all()
    assert strata_of(np.zeros(0)).tolist() == []
