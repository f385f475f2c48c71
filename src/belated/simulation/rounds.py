"""A policy against an environment and a delay process, by the timeline of the paper.

The reward of round s with delay D_s can be used in round t if and only if s + D_s <= t - 1. What is
simulated is the real policy, learner and model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from belated.advice import ROWS, SAMPLE, Evidence, advise, warn
from belated.delays import NEVER, DelayProcess
from belated.exceptions import InvalidInput
from belated.inputs import Row, Vector, as_rounds, check_made
from belated.kernels import Kernels, complete
from belated.learner import DecisionWindow, Learner, new_learner
from belated.learner.evidence import evidence_of
from belated.learner.forgetting import ForgettingLearner
from belated.policies import Choice, Policy
from belated.results import Result
from belated.rewards import Rewards, check_semantics
from belated.simulation.environments import Environment
from belated.simulation.reported import ROUND_US, ReportedRounds


@dataclass(frozen=True, eq=False)
class Trace(Result):
    """What happened, round by round.

    Attributes:
        regret: cumulative, of means: what the best row would have brought more.
        pending: G_t at the choice of each round.
        delay: D_t, :data:`~belated.delays.NEVER` for rewards that do not come.
        actions: the chosen rows.
        rewards: of the chosen rows, arrived or not.
        propensities: with which they were chosen.
        learner: as it stands at the end.
    """

    regret: Vector
    pending: NDArray[np.int64]
    delay: NDArray[np.int64]
    actions: NDArray[np.int64]
    rewards: Vector
    propensities: Vector
    learner: Learner

    def to_dict(self) -> dict[str, Any]:
        """Return each round as plain data; the delay of a reward that never comes is None."""
        return {
            "regret": self.regret.tolist(),
            "pending": self.pending.tolist(),
            "delay": [None if one == NEVER else one for one in self.delay.tolist()],
            "actions": self.actions.tolist(),
            "rewards": self.rewards.tolist(),
            "propensities": self.propensities.tolist(),
        }

    def __repr__(self) -> str:
        rounds, regret = len(self.actions), self.regret[-1] if len(self.regret) else 0.0
        pending = self.pending.max(initial=0)
        return f"Trace({rounds:,} rounds, regret {regret:.4g}, at most {pending:,} pending)"


def simulate(
    policy: Policy,
    environment: Environment,
    delay: DelayProcess,
    *,
    horizon: int,
    seed: int = 0,
    window: int | None = None,
    rewards: Rewards | None = None,
    kernels: Kernels | None = None,
) -> Trace:
    """Run a policy for ``horizon`` rounds.

    Contexts, luck, delays and the policy's own draws come from four streams of ``seed``: two
    policies with the same seed meet the same contexts, the same luck and the same delays.
    Rounds are a second apart: a half-life of 500 rounds is ``"500s"``.

    Args:
        policy: what chooses.
        environment: what offers rows and gives rewards.
        delay: when rewards come.
        horizon: T.
        seed: of all randomness.
        window: rounds after which a decision without a reward counts as explored no longer; its
            reward is learned all the same when it comes.
        rewards: what a missing reward means, its window in seconds: ``DefaultAfter("500s")`` is
            500 rounds. What silence means is then not reported. None: every reward comes.
        kernels: to use instead of the best available. A run never changes them: those that are
            compiled only after it has begun are for the next one.

    >>> from belated import Bernoulli, DelayedUCB, delays, environments
    >>> world = environments.fixed(seed=3)
    >>> trace = simulate(DelayedUCB(10, Bernoulli()), world, delays.Constant(5), horizon=100)
    >>> trace.pending[:8]
    array([0, 1, 2, 3, 4, 5, 5, 5])
    """
    check_made(policy, "policy", needs="choose", example="DelayedUCB(world.dim, Bernoulli())")
    check_made(environment, "environment", needs="rounds", example="environments.fixed(seed=3)")
    check_made(delay, "delay", needs="sample", example="delays.Geometric(mean=100)")
    if policy.dim != environment.dim:
        message = f"policy.dim is {policy.dim} but environment.dim is {environment.dim}"
        raise InvalidInput(message, policy)
    horizon = as_rounds(horizon, "horizon")
    window = None if window is None else as_rounds(window, "window")
    if window is not None and rewards is not None:
        raise InvalidInput("window and rewards are both given: rewards has its own window", window)
    contexts, luck, waits, draws = (
        np.random.default_rng(stream) for stream in np.random.SeedSequence(seed).spawn(4)
    )
    uniform = luck.random(horizon).tolist()
    calendar = _Calendar(delay, horizon, waits, window)
    if rewards is not None:
        check_semantics(rewards)
        reported = ReportedRounds(policy, rewards, kernels or complete())
        return _run_reported(reported, environment, calendar, contexts, uniform, draws)
    learner = new_learner(policy, kernels=kernels or complete(), interval=ROUND_US)
    model = learner.model
    regret: list[float] = []
    pending: list[int] = []
    choices: list[Choice] = []
    kept = _Rounds(learner)
    choose = policy.choose
    held = None
    if policy.learns_after is not None:  # rewards are held back until then
        told = kept.learn, kept.remove_pending, kept.restore_pending
        held = DecisionWindow(policy.learns_after, *told, late=policy.learns_late)
    known, best = None, 0.0
    for t, (rows, means) in enumerate(environment.rounds(horizon, contexts)):
        if kept.forgets is not None:
            kept.forgets.see(ROUND_US * (t + 1))
        for s in calendar.lapses.pop(t, ()):
            if held is None or held.leave(s) or held.late:
                kept.remove_pending(s)
        for s in calendar.arrivals.pop(t, ()):
            late = s in calendar.lapsed  # it counts again, and its reward is learned
            if held is None:
                if late:
                    kept.restore_pending(s)
                kept.learn(s, kept.rewards[s])
            else:
                if late and not held.is_over(s):
                    kept.restore_pending(s)
                    held.add_pending(s)
                held.learn(s, kept.rewards[s])
        pending.append(model.pending)
        choice = choose(model, rows, draws)
        mean = float(means[choice.index])
        x, y = rows[choice.index], environment.reward(mean, uniform[t])
        kept.decided(x, y, choice)
        if held is not None:
            held.made(t)
        choices.append(choice)
        if calendar.given is not None:
            calendar.decided(t, x, y)
        if means is not known:
            known, best = means, float(means.max())
        regret.append(best - mean)
    values = np.array(kept.rewards)
    outstanding = np.array(pending, dtype=np.int64)
    chosen = np.array(kept.rows, dtype=np.float32).reshape(-1, policy.dim)
    for advice in advise(_seen(learner, chosen, values, calendar.delay, window)):
        warn(advice)
    return Trace(
        regret=np.cumsum(regret),
        pending=outstanding,
        delay=calendar.delay,
        actions=np.array([choice.index for choice in choices], dtype=np.int64),
        rewards=values,
        propensities=np.array([choice.propensity for choice in choices]),
        learner=learner,
    )


def _run_reported(
    told: ReportedRounds,
    environment: Environment,
    calendar: _Calendar,
    contexts: np.random.Generator,
    uniform: list[float],
    draws: np.random.Generator,
) -> Trace:
    """Rounds in which the ledger says what a missing reward means."""
    model, choose = told.model, told.policy.choose
    regret: list[float] = []
    pending: list[int] = []
    choices: list[Choice] = []
    for t, (rows, means) in enumerate(environment.rounds(len(uniform), contexts)):
        told.begin(t)
        for s in calendar.arrivals.pop(t, ()):
            told.arrived(s)
        told.settle()
        pending.append(model.pending)
        choice = choose(model, rows, draws)
        mean = float(means[choice.index])
        x, y = rows[choice.index], environment.reward(mean, uniform[t])
        told.decided(x, y, choice)
        choices.append(choice)
        if calendar.given is not None:
            calendar.decided(t, x, y)
        regret.append(float(means.max()) - mean)
    for advice in advise(evidence_of(told.fold)):
        warn(advice)
    return Trace(
        regret=np.cumsum(regret),
        pending=np.array(pending, dtype=np.int64),
        delay=calendar.delay,
        actions=np.array([choice.index for choice in choices], dtype=np.int64),
        rewards=np.array(told.rewards),
        propensities=np.array([choice.propensity for choice in choices]),
        learner=told.fold.learner,
    )


class _Rounds:
    """What was chosen in each round, and the learner that is told of it."""

    def __init__(self, learner: Learner) -> None:
        self.rows: list[Vector] = []
        self.rewards: list[float] = []
        self._weights: list[float] = []
        self._means: list[tuple[float, ...]] = []
        self._learner = learner
        #: The learner, if it must be told the time.
        self.forgets = learner if isinstance(learner, ForgettingLearner) else None

    def decided(self, x: Vector, y: float, choice: Choice) -> None:
        s, learner = len(self.rows), self._learner
        self.rows.append(x)
        self.rewards.append(y)
        self._weights.append(choice.weight)
        if self.forgets is not None:
            compares = learner.model.rivals is not None
            self._means.append(learner.model.means_of(x, choice.mean) if compares else ())
            self._tell(s)
        learner.add_pending(x, choice.weight)

    def learn(self, s: int, y: float) -> None:
        self._tell(s)
        self._learner.learn(self.rows[s], y, self._weights[s])

    def remove_pending(self, s: int) -> None:
        self._tell(s)
        self._learner.remove_pending(self.rows[s], self._weights[s])

    def restore_pending(self, s: int) -> None:
        self._tell(s)
        self._learner.restore_pending(self.rows[s], self._weights[s])

    def _tell(self, s: int) -> None:
        if self.forgets is not None:
            self.forgets.tell(ROUND_US * (s + 1), self._means[s])


class _Calendar:
    """Which rewards arrive and which decisions lapse before the choice of each round, from 0."""

    def __init__(
        self, delay: DelayProcess, horizon: int, rng: np.random.Generator, window: int | None
    ) -> None:
        self.given = getattr(delay, "given", None)
        self.arrivals: dict[int, list[int]] = {}
        self.lapses: dict[int, list[int]] = {}
        self.lapsed: set[int] = set()
        self._window = window
        self._horizon = horizon
        if self.given is None:
            self.delay = delay.sample(horizon, rng)
            for s, wait in enumerate(self.delay.tolist()):
                self._enter(s, wait)
        else:
            self.delay = np.full(horizon, NEVER, dtype=np.int64)
            self._uniform = rng.random(horizon)

    def decided(self, t: int, x: Vector, y: float) -> None:
        """A delay that depends on the row or the reward is known only now."""
        assert self.given is not None
        wait = self.delay[t] = self.given(float(self._uniform[t]), x, y)
        self._enter(t, int(wait))

    def _enter(self, s: int, wait: int) -> None:
        if self._window is not None and wait > self._window:
            self._at(s + self._window + 1, s, self.lapses)
            self.lapsed.add(s)
        self._at(s + wait + 1, s, self.arrivals)  # the reward of s is there once t - 1 >= s + D

    def _at(self, t: int, s: int, rounds: dict[int, list[int]]) -> None:
        if t < self._horizon:
            rounds.setdefault(t, []).append(s)


def _seen(
    learner: Learner, rows: Row, rewards: Vector, delay: NDArray[np.int64], window: int | None
) -> Evidence:
    """What a bandit would know at the end, its times in rounds."""
    t, policy = len(rewards), learner.policy
    came = np.where(delay < t - np.arange(t), np.arange(t) + delay, -1)
    some = Evidence.spread(t, SAMPLE)
    at = Evidence.spread(len(some), ROWS)
    return Evidence(
        family=policy.family,
        ridge=float(policy.start.precision.trace()) / policy.dim,
        window=window,
        defaults=False,
        now=t,
        latest=int(came.max(initial=-1)),
        decisions=t,
        pending=learner.model.pending,
        together=policy.learns_after is not None,
        rewards=int((came >= 0).sum()),
        duplicates=0,
        unmatched=0,
        made=some,
        came=came[some],
        value=rewards[some],
        learned=came[some] >= 0,
        rows=rows[some[at]],
        at=at,
        unit="rounds",
    )
