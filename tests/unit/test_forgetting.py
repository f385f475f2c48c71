"""A policy's half-life: what it is called, refused and shown, and where it travels."""

from __future__ import annotations

import math
import time
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from belated import (
    Bandit,
    Bernoulli,
    DelayedThompson,
    DelayedUCB,
    Explicit,
    Gaussian,
    SQLiteJournal,
    delays,
    environments,
    paper_ducb,
    simulate,
)
from belated.core.events import Decision
from belated.decider import Decider, LoadedModel, ParsedRequest
from belated.exceptions import InvalidInput
from belated.expressions import as_whole_policy
from belated.fold.fold import Fold
from belated.fold.follower import LiveModel
from belated.fold.published import PublishedModel
from belated.fold.weighting import HalfLife
from belated.fold.weighting.automatic import RECENT, Pace
from belated.journals import MemoryStore
from belated.model.estimators import Online
from belated.policies import Warmup
from belated.service.learning import learning_service
from belated.service.learning.learning_service import LearningService
from belated.service.operating.metrics import half_life_of

B = Bernoulli()
SECOND = 1_000_000
START = 1_700_000_000 * SECOND


def test_a_policy_without_one_has_the_name_it_had() -> None:
    """Models that were published before there were half-lives are still those of their policy."""
    assert DelayedUCB(2, B).fingerprint == "e8da3681cae613680f2fc8509aad8840"
    assert DelayedThompson(2, Gaussian(0.25)).fingerprint == "8b9dddd6b25fd43c087ada2c077e2ba2"
    assert paper_ducb(2, B, 3.0).fingerprint == "321b955c8815571ab4389392a23d4514"
    names = {
        DelayedUCB(2, B, half_life=half_life).fingerprint
        for half_life in (None, "7d", "8d", "auto")
    }
    assert len(names) == 4


def test_it_is_a_duration() -> None:
    """A timedelta, or text as durations are written; also where policies are text."""
    week = timedelta(days=7)
    assert DelayedUCB(2, B, half_life="7d") == DelayedUCB(2, B, half_life=week)
    parsed = as_whole_policy("DelayedThompson(dim=2, family=Bernoulli(), half_life='7d')")
    assert parsed == DelayedThompson(2, B, half_life=week)
    assert as_whole_policy("DelayedUCB(dim=2, family=Bernoulli(), half_life='auto')").half_life
    assert Warmup(DelayedUCB(2, B, half_life="7d"), rounds=5).half_life == week


@pytest.mark.parametrize("bad", ["soon", 7, timedelta(0), timedelta(days=-1), math.inf])
def test_what_is_no_duration_is_refused(bad: Any) -> None:
    """With its name, and the value."""
    with pytest.raises(InvalidInput, match="half_life"):
        DelayedUCB(2, B, half_life=bad)


def test_what_cannot_forget_is_refused() -> None:
    """Steps that are never fitted again, and the paper's metric."""
    with pytest.raises(InvalidInput, match="hessian"):
        DelayedUCB(2, B, half_life="7d", metric="gram")
    with pytest.raises(InvalidInput, match="Laplace"):
        DelayedUCB(2, B, half_life="7d", estimator=Online())


def test_the_width_is_of_the_rewards_that_still_count() -> None:
    """Old rewards make no bound wider."""
    policy = DelayedUCB(10, B, half_life="100s")
    learner = simulate(policy, environments.fixed(seed=1), delays.Constant(0), horizon=800).learner
    model = learner.model
    assert model.n == 799
    assert model.effective_n is not None
    assert 100 < model.effective_n < 160  # 100 / log 2
    assert policy.width(model) == pytest.approx(0.95 * math.sqrt(math.log(2 + model.effective_n)))


def test_a_very_long_half_life_forgets_nothing() -> None:
    """The same choices as without one, but for rounding."""
    world = environments.fresh(seed=2)
    runs = [
        simulate(
            DelayedUCB(10, B, half_life=half_life), world, delays.Geometric(mean=20), horizon=400
        )
        for half_life in (None, "100000d")
    ]
    assert (runs[0].actions == runs[1].actions).mean() > 0.97


def test_auto_chooses_as_without_one_while_nothing_changes() -> None:
    """As long as nothing is forgotten, every choice is the same."""
    world = environments.fixed(seed=2)
    plain, auto = (
        simulate(
            DelayedUCB(10, B, half_life=half_life), world, delays.Geometric(mean=20), horizon=400
        )
        for half_life in (None, "auto")
    )
    assert isinstance(auto.learner.weighting, HalfLife)
    assert auto.learner.weighting.since == 0
    np.testing.assert_array_equal(plain.actions, auto.actions)
    np.testing.assert_array_equal(plain.learner.model.theta, auto.learner.model.theta)


def test_the_pace_is_a_function_of_the_stamps() -> None:
    """Shuffled, they give the same once measured; in order, they need not be measured again."""
    rng = np.random.default_rng(0)
    stamps = np.cumsum(rng.integers(1, 100, size=3 * RECENT + 77)).tolist()
    ordered, shuffled = Pace(), Pace()
    for stamp in stamps:
        ordered.decided(stamp)
    for stamp in rng.permutation(stamps).tolist():
        shuffled.decided(stamp)
    before = ordered.interval
    ordered.measure()
    shuffled.measure()
    assert ordered.interval == before == shuffled.interval
    last = (stamps[3 * RECENT - 1] - stamps[2 * RECENT - 1]) / RECENT
    assert before == pytest.approx(last)


def test_decisions_at_one_moment_have_no_pace() -> None:
    """Then nothing is forgotten, for no half-life is known."""
    pace = Pace()
    for _ in range(10):
        pace.decided(5)
    assert pace.interval is None


class Clock:
    """Goes on by a second and a half with every look: there are four in a round."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        """The time."""
        self.now += 3 * SECOND // 2
        return self.now


def played(bandit: Bandit, rounds: int, seed: int = 0) -> list[tuple[Decision, float]]:
    """Rewards at once; θ turns in the middle."""
    rng, outcomes = np.random.default_rng(seed), []
    for t in range(rounds):
        decision = bandit.decide(rows=rng.normal(size=(4, 2)))
        eta = (4.0 if t < rounds // 2 else -4.0) * float(decision.x[0])
        outcomes.append((decision, float(rng.random() < 1.0 / (1.0 + math.exp(-eta)))))
        bandit.observe(*outcomes[-1])
    return outcomes


@pytest.mark.parametrize("half_life", ["60s", "auto"])
def test_a_file_is_opened_again_with_all_it_knew(tmp_path: Path, half_life: str) -> None:
    """From its snapshot: the half-life in use, since when, and the estimate by it."""
    policy, clock = DelayedUCB(2, B, half_life=half_life), Clock()

    def opened() -> Bandit:
        journal = SQLiteJournal(tmp_path / "b.db", bandit="b", clock=clock)
        return Bandit(policy=policy, rewards=Explicit(), journal=journal, clock=clock, seed=1)

    with opened() as bandit:
        played(bandit, 500)
        before = bandit.estimate
        assert before.half_life is not None
        if half_life == "auto":
            assert before.half_life_since is not None
    with opened() as bandit:
        after = bandit.estimate
    assert after.half_life == before.half_life
    assert after.half_life_since == before.half_life_since
    assert after.effective_n == pytest.approx(before.effective_n, rel=1e-12)
    np.testing.assert_allclose(after.theta, before.theta, atol=1e-7)


def test_a_published_model_carries_what_predictions_need() -> None:
    """A decider that has loaded it journals the mean by each half-life, and the same width."""
    policy = DelayedUCB(2, B, half_life="auto")
    bandit = Bandit(policy=policy, rewards=Explicit(), clock=Clock(), seed=1)
    played(bandit, 500)
    model = bandit._fold.model
    published = PublishedModel.read(bandit._fold.export_model(START).write())
    source = LoadedModel(policy)
    decider = Decider(policy, source, partitions=1)
    source.load(published, decider.unapplied)
    assert decider.model.effective_n == model.effective_n
    assert decider.model.picked == model.picked > 0
    rows, rng = np.eye(2, dtype=np.float32), np.random.default_rng(0)
    batch = decider.choose([ParsedRequest(2, None)], rows, now=START, rng=rng, hold=True)
    decision = batch.decisions[0]
    assert len(decision.means) == 4
    assert decision.means[model.picked] == decision.mean
    assert decision.means == model.means_of(decision.x, decision.mean)
    before = Decider(policy, LoadedModel(policy), partitions=1)
    first = before.choose([ParsedRequest(2, None)], rows, now=START, rng=rng, hold=True)
    assert first.decisions[0].means == ()  # the prior alone: nothing to compare


@pytest.mark.parametrize("half_life", ["60s", "auto"])
def test_a_fit_beside_the_fold_ends_where_one_at_once_does(half_life: str) -> None:
    """Rewards that come meanwhile are learned by steps, and added after it."""
    policy = DelayedUCB(2, B, half_life=half_life)
    bandit = Bandit(policy=policy, rewards=Explicit(), clock=Clock(), seed=1)
    played(bandit, 500)
    learner = bandit._fold.learner
    learner.defers = True
    fit, start = learner.begin_fit(), learner.now
    model = fit().model
    assert model is not None
    assert isinstance(learner.weighting, HalfLife)
    length = learner.weighting.half_life or math.inf
    for decision, reward in played(bandit, 6, seed=3):
        recorded = bandit.entry(decision).recorded_us
        assert recorded is not None
        model.learn(decision.x, reward, 2.0 ** ((recorded - start) / length))
    assert learner.finish_fit(fit())
    theta = learner.model.theta.copy()
    np.testing.assert_allclose(theta, model.theta, rtol=1e-12)
    learner.fit()  # each of six steps is off by a share of what it moves θ by
    np.testing.assert_allclose(theta, learner.model.theta, atol=0.15)
    # A twentieth of a half-life later it is due by itself.
    assert not learner.fit_is_due()
    learner.finish(learner.now + 100 * SECOND)
    assert learner.fit_is_due()


def test_a_decision_without_a_record_counts_in_full_until_it_is_folded() -> None:
    """As those that wait in a spool; afterwards nothing of it is left."""
    policy = DelayedUCB(2, B, half_life="60s")
    fold = Fold(policy, Explicit())
    source, x = LiveModel(fold), np.array([1.0, 0.0])
    before = fold.model.decided.copy()
    source.add_pending(x, 0.25)
    fold.learner.fit()
    assert fold.model.pending == 1
    assert fold.model.decided[0, 0] < before[0, 0]
    source.remove_pending(x, 0.25)
    fold.learner.fit()
    assert fold.model.pending == 0
    np.testing.assert_allclose(fold.model.decided, before, atol=1e-12)


def test_metrics_tell_the_half_life_in_use() -> None:
    """Infinite while nothing is forgotten; none at all for a policy without one."""
    bandit = Bandit(
        policy=DelayedUCB(2, B, half_life="auto"), rewards=Explicit(), clock=Clock(), seed=1
    )
    assert list(half_life_of(bandit._fold).values()) == [math.inf, 0.0]
    played(bandit, 500)
    metrics: Any = half_life_of(bandit._fold)
    assert 0.0 < metrics["belated_half_life_seconds"] < math.inf
    assert metrics["belated_half_life_since_seconds"] > START / SECOND
    assert half_life_of(Fold(DelayedUCB(2, B), Explicit())) == {}


@pytest.mark.parametrize("half_life", ["60s", "auto"])
def test_a_learner_of_the_service_publishes_by_it(
    monkeypatch: pytest.MonkeyPatch, half_life: str
) -> None:
    """It fits beside the fold, and its successor goes on from the snapshot with the same pick."""
    monkeypatch.setattr(learning_service, "PUBLISH", 0.0)
    policy, store, clock = DelayedUCB(2, B, half_life=half_life), MemoryStore(), Clock()
    bandit = Bandit(policy=policy, rewards=Explicit(), journal=store.journal(), clock=clock, seed=1)
    played(bandit, 500)
    end = bandit.journal.end(0)

    def learner(holder: str) -> LearningService:
        factory = partial(Fold, policy, Explicit())
        return LearningService(store.journal(), store.coordination(), factory, holder=holder)

    half_lives = []
    for service in (learner("first"), learner("second")):
        deadline = time.monotonic() + 30
        while (last := store.coordination().published()) is None or service.fold is None:
            service.step()
            assert time.monotonic() < deadline
        while service.fold is None or service.fold.positions != [end] or service._fit is not None:
            service.step()
            assert time.monotonic() < deadline
        weighting = service.fold.learner.weighting
        assert isinstance(weighting, HalfLife)
        half_lives.append((weighting.half_life, weighting.since))
        service.close()
        assert PublishedModel.read(last[1]).fingerprint == policy.fingerprint
    live = bandit._fold.learner.weighting
    assert isinstance(live, HalfLife)
    assert half_lives == [(live.half_life, live.since)] * 2
