"""A fit that takes long is made in a thread: nothing waits for it, and nothing is lost."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from belated import (
    Bandit,
    Bernoulli,
    ConversionsOnly,
    DelayedUCB,
    Explicit,
    PerArm,
    SQLiteJournal,
)
from belated.core.rewards import Rewards
from belated.exceptions import FitWarning
from belated.fold import learner as learner_module
from belated.fold.learner import Learner
from belated.fold.refit import Refit
from belated.fold.weighting import Constant, ExpectedConversions
from belated.fold.weighting.age_blocks import AgeBlocks
from belated.model import blocks as model_blocks
from belated.model.blocks import identity, precision_of
from belated.model.estimators import Thinned, thinned
from belated.model.kernels import plain
from belated.testing import ManualClock

#: Coefficients of a block that is fitted by itself.
DIM = 150
ACTIONS = ["mail", "call", "nothing"]
END = "9999-12-31T00:00Z"


@pytest.fixture(autouse=True)
def _all_fits_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learner_module, "CHEAP", 0.0)


def opened(
    blocks: bool, *, dim: int = DIM, rewards: Rewards | None = None, **settings: Any
) -> Bandit:
    """A bandit with wide rows by default, in blocks or not."""
    features = PerArm(ACTIONS, context=dim) if blocks else None
    policy = DelayedUCB(dim if features is None else features.dim, Bernoulli())
    return Bandit(features, rewards or Explicit(), policy=policy, seed=1, **settings)


def played(bandit: Bandit, rounds: int, between: Callable[[], object] = lambda: None) -> None:
    """Decide, report, correct and withdraw; rewards are 20 decisions late."""
    rng, dim = np.random.default_rng(3), bandit.policy.dim
    pending: list[str] = []
    for number in range(rounds):
        if bandit.features is None:
            rows = rng.normal(size=(3, dim)) / np.sqrt(dim)
        else:
            width = dim // len(ACTIONS) - 1  # beside the intercept
            rows = rng.normal(size=width) / np.sqrt(width)
        arguments = {"rows": rows} if bandit.features is None else {"context": rows}
        pending.append(bandit.decide(**arguments).id)
        if len(pending) > 20:
            id, reward = pending.pop(0), float(rng.random() < 0.4)
            bandit.observe(id, reward)
            if number % 17 == 0:
                bandit.observe(id, 1.0 - reward, revision=1)
            if number % 23 == 0:
                bandit.void(id)
        between()


def ended(bandit: Bandit) -> Learner:
    """The learner, once nothing runs in a thread and no step is to be repeated."""
    learner = bandit._fold.learner
    while learner.is_busy or learner._refit is not None:
        learner.finish(learner.now)
        time.sleep(0.001)
    return learner


@pytest.mark.parametrize("blocks", [True, False])
def test_a_fit_in_a_thread_loses_nothing(blocks: bool) -> None:
    """Estimate, sums and roots agree, and what is known equals a replay."""
    bandit = opened(blocks)
    tasks = set()
    played(bandit, 400, lambda: tasks.add(bandit._fold.learner._task))
    assert len(tasks) > 1  # None, and at least one fit
    learner = ended(bandit)
    estimate = bandit.estimate
    inverse = np.linalg.inv(estimate.precision)
    deviations = np.sqrt(np.diagonal(inverse, axis1=-2, axis2=-1))
    assert np.abs((learner.model.theta - estimate.theta) / deviations).max() < 1.0
    learner.fold_in()
    model, weighting = learner.model, learner.weighting
    assert weighting.pending.count == model.pending == 20
    covariance = model.decided @ model.decided.swapaxes(-1, -2)
    precision = precision_of(model.observed) + weighting.pending.matrix
    np.testing.assert_allclose(covariance @ precision, identity(model.theta.shape), atol=0.1)
    assert bandit.as_of(END).digest == bandit.digest


class Work:
    """Counts what is computed in the thread that made this, and in others."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self.here, self.elsewhere = Counter[str](), Counter[str]()

    def count(self, patch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        """Count the calls of a function."""
        function = getattr(owner, name)

        def counted(*arguments: Any, **named: Any) -> Any:
            is_local = threading.get_ident() == self._thread
            (self.here if is_local else self.elsewhere)[name] += 1
            return function(*arguments, **named)

        patch.setattr(owner, name, counted)


@pytest.mark.parametrize("dim", [3, DIM])
@pytest.mark.parametrize("blocks", [True, False])
def test_conversions_wait_for_no_fit(
    blocks: bool, dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the rewards that README recommends the caller never fits, nor solves for wide rows."""
    bandit, work = opened(blocks, dim=dim, rewards=ConversionsOnly("1h")), Work()
    with monkeypatch.context() as patch:
        for owner, name in (
            (Thinned, "fit"),
            (thinned, "fitted_law"),
            (AgeBlocks, "add_all"),
            (model_blocks, "_root"),
        ):
            work.count(patch, owner, name)
        played(bandit, 300, lambda: time.sleep(0.001))
        learner = ended(bandit)
    assert work.elsewhere["fit"] > 1
    assert work.elsewhere["fitted_law"] == work.elsewhere["fit"]
    assert work.here["fit"] == work.here["fitted_law"] == work.here["add_all"] == 0
    assert (work.here["_root"] == 0) == (dim == DIM)  # otherwise a step takes less than a handover
    assert bandit.as_of(END).digest == bandit.digest
    estimate = bandit.estimate
    inverse = np.linalg.inv(estimate.precision)
    deviations = np.sqrt(np.diagonal(inverse, axis1=-2, axis2=-1))
    fit = learner.begin_fit()  # how old the last one is depends on the speed of the machine
    assert learner.finish_fit(fit())
    assert np.abs((learner.model.theta - estimate.theta) / deviations).max() < 1e-3


@pytest.mark.parametrize("half_life", [None, "30m"])
def test_sums_by_age_miss_nothing_that_came_during_a_fit(half_life: str | None) -> None:
    """Decisions, conversions, corrections and withdrawals."""
    policy = DelayedUCB(3, Bernoulli(), half_life=half_life)
    bandit = Bandit(policy=policy, rewards=ConversionsOnly("1h"), seed=1)
    played(bandit, 100)
    learner = ended(bandit)
    learner.defers = True
    fit = learner.begin_fit()
    played(bandit, 100)
    assert learner.finish_fit(fit())
    weighting = learner.weighting
    assert isinstance(weighting, ExpectedConversions)
    sums, data = weighting._blocks, weighting.data()
    expected = AgeBlocks(
        weighting.window, Bernoulli(), sums.theta, sums.law, sums.until, weighting.half_life
    )
    expected.fade(sums._time)
    expected.add_all(data, weighting._clock.until)
    np.testing.assert_allclose(sums.converted, expected.converted, rtol=1e-9)
    np.testing.assert_allclose(sums._all, expected._all, rtol=1e-9)
    assert sums._n.sum() == pytest.approx(expected._n.sum(), rel=1e-9)


@pytest.mark.parametrize("rewards", [Explicit(), ConversionsOnly("1h")], ids=repr)
def test_in_line_equal_calls_lead_to_equal_decisions(rewards: Rewards) -> None:
    """And no thread is started."""
    settings: Any = {"rewards": rewards, "background_fits": False, "kernels": plain()}
    bandits = [opened(True, clock=ManualClock(), **settings) for _ in range(2)]
    for bandit in bandits:
        played(bandit, 100)
        assert bandit._fold.learner._task is None
    first, second = (bandit._fold.learner.model.theta for bandit in bandits)
    np.testing.assert_array_equal(first, second)


def test_a_fit_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bandit goes on by steps, and fits again later."""
    bandit = opened(False)

    def failing(*arguments: Any, **named: Any) -> None:
        raise MemoryError("no room for it")

    with monkeypatch.context() as patch:
        patch.setattr(Constant, "fit", failing)

        def failed() -> None:
            played(bandit, 60, lambda: time.sleep(0.002))
            ended(bandit)

        with pytest.warns(FitWarning, match="MemoryError: no room for it"):
            failed()
    played(bandit, 100)
    ended(bandit)
    assert bandit.estimate.n == bandit._fold.model.n > 100


def test_an_overtaken_step_ends_the_fit() -> None:
    """One that cannot be repeated on the result leaves the model as it is."""
    learner = Learner(DelayedUCB(DIM, Bernoulli()))
    learner.defers = True
    x = np.ones(DIM) / DIM
    for _ in range(20):
        learner.add_pending(x, 0.25)
        learner.learn(x, 1.0, 0.25)
    fit = learner.begin_fit()
    assert isinstance(learner._refit, Refit)
    learner._refit.note("remove_pending", 1e5 * x, (1.0,))
    before = learner.model.theta.copy()
    assert not learner.finish_fit(fit())
    np.testing.assert_array_equal(learner.model.theta, before)
    assert learner.fit_is_due()


def test_an_interrupt_drops_the_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bandit is rebuilt, and closes; the thread ends by itself."""
    bandit = opened(True, journal=SQLiteJournal(tmp_path / "offers.db", bandit="offers"))
    played(bandit, 100)
    with monkeypatch.context() as patch:

        def interrupted(*arguments: Any) -> None:
            raise KeyboardInterrupt

        patch.setattr(Refit, "note", interrupted)
        patch.setattr(Learner, "begin_fit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            played(bandit, 100)
    played(bandit, 50)
    assert bandit.as_of(END).digest == bandit.digest
    bandit.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_begins_with_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread is not there, and its sums are half made."""
    bandit = opened(True)
    played(bandit, 30, lambda: None)
    fit = Constant.fit

    def slow(*arguments: Any, **named: Any) -> Any:
        time.sleep(0.3)
        return fit(*arguments, **named)

    monkeypatch.setattr(Constant, "fit", slow)
    while not bandit._fold.learner.is_busy:
        played(bandit, 25)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            played(bandit, 30)
            code = 0 if bandit.as_of(END).digest == bandit.digest else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ended(bandit)
