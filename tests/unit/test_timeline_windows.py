"""Windows in a simulation: who waits, what lapses, what comes late."""

from __future__ import annotations

import numpy as np
import pytest

from belated import (
    Bernoulli,
    DelayedUCB,
    Gaussian,
    WaitForWindow,
    delays,
)
from belated.delays import NEVER
from tests.unit.watched_runs import arrived_by, gram, run


def test_waiting_for_a_window_learns_at_its_end() -> None:
    """Θ̂ of round t is of the rounds with D_s ≤ w and s + w ≤ t - 1: none before, none later."""
    policy = WaitForWindow(3, Gaussian(1.0), window=6, ridge=1.0)
    trace, states = run(policy, delays.Geometric(mean=5), 150)
    rows = np.array([state.x for state in states])
    dropped = trace.delay > 6
    assert 20 < dropped.sum() < 130
    for t, state in enumerate(states, start=1):
        over = np.arange(1, t) + 6 <= t - 1
        is_kept = over & ~dropped[: t - 1]
        X, y = rows[: t - 1][is_kept], trace.rewards[: t - 1][is_kept]
        exact = np.linalg.solve(np.eye(3) + X.T @ X, X.T @ y)
        np.testing.assert_allclose(state.theta, exact, rtol=0.0, atol=1e-10)
        assert (state.n, state.pending) == (is_kept.sum(), (~over).sum())


def test_a_window_of_nothing_keeps_what_comes_at_once() -> None:
    """WaitForWindow(0) learns rewards of delay 0 in the next round and drops all others."""
    policy = WaitForWindow(3, Bernoulli(), window=0)
    trace, states = run(policy, delays.Uniform(1), 100)
    immediate = trace.delay == 0
    assert 20 < immediate.sum() < 80
    assert [state.n for state in states] == [int(immediate[:t].sum()) for t in range(100)]
    assert (trace.pending == 0).all()


def test_a_lapsed_decision_no_longer_counts_as_explored() -> None:
    """V of round t holds what arrived and what is pending since at most the window."""
    trace, states = run(
        DelayedUCB(3, Gaussian(1.0), ridge=1.0), delays.Geometric(mean=8), 150, window=5
    )
    rows = [state.x for state in states]
    assert (trace.delay > 5).sum() > 30
    for t, state in enumerate(states, start=1):
        arrived = arrived_by(trace.delay, t)
        waiting = ~arrived & (np.arange(1, t) + 5 >= t)
        counted = gram(rows, arrived | waiting)
        np.testing.assert_allclose(state.decided, np.eye(3) + counted, rtol=1e-8, atol=1e-8)
        assert (state.n, state.pending) == (arrived.sum(), waiting.sum())


def test_a_reward_after_the_window_is_learned_all_the_same() -> None:
    """With window= θ̂ is that of everything that has arrived, however late."""
    law = delays.Geometric(mean=8)
    trace, states = run(DelayedUCB(3, Gaussian(1.0), ridge=1.0), law, 150, window=5)
    rows = np.array([state.x for state in states])
    for t, state in enumerate(states, start=1):
        arrived = arrived_by(trace.delay, t)
        X, y = rows[: t - 1][arrived], trace.rewards[: t - 1][arrived]
        exact = np.linalg.solve(np.eye(3) + X.T @ X, X.T @ y)
        np.testing.assert_allclose(state.theta, exact, rtol=0.0, atol=1e-10)
    assert trace.learner.estimate.n == int(arrived_by(trace.delay, 150).sum())


def test_a_late_reward_is_of_a_decision_made_before() -> None:
    """With lapsed decisions whose rewards come later, as many decisions count as rounds."""
    for window in (None, 5):
        trace, _ = run(
            DelayedUCB(3, Gaussian(1.0), ridge=1.0), delays.Geometric(mean=8), 150, window=window
        )
        assert trace.learner.model.decisions == 150


def test_what_never_comes_lapses_with_its_window() -> None:
    """G_t counts the lost ones of the last ten rounds only, with a window of ten."""
    law = delays.Mixture(never=0.5, base=delays.Constant(0))
    trace, _ = run(DelayedUCB(3, Bernoulli()), law, 200, window=10)
    lost = trace.delay == NEVER
    assert trace.pending.tolist() == [int(lost[max(0, t - 10) : t].sum()) for t in range(200)]


def test_a_window_longer_than_every_delay_changes_nothing() -> None:
    """A reward that comes in the last round of its window has not lapsed."""
    law = delays.Uniform(9)
    plain, _ = run(DelayedUCB(3, Bernoulli()), law, 200)
    exact, _ = run(DelayedUCB(3, Bernoulli()), law, 200, window=9)
    assert exact.actions.tolist() == plain.actions.tolist()
    assert exact.pending.tolist() == plain.pending.tolist()


@pytest.mark.filterwarnings("ignore::belated.exceptions.MissingRewardWarning")
def test_given_delays_have_windows_too() -> None:
    """Slow rewards of RewardDependent lapse like any other."""
    law = delays.RewardDependent(zero_law=delays.Constant(0), one_law=delays.Constant(NEVER))
    trace, _ = run(DelayedUCB(3, Bernoulli()), law, 200, window=10)
    lost = trace.rewards == 1.0
    assert trace.pending.tolist() == [int(lost[max(0, t - 10) : t].sum()) for t in range(200)]
