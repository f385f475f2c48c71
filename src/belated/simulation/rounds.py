"""Simulate a policy in an environment with delays, following the paper's timeline.

The reward of round s with delay D_s can be used in round t if and only if s + D_s <= t - 1. The
simulation runs the production policy, ledger, learner and model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from belated.advice import advise, warn
from belated.core.events import Decision, Event, Record, Reward, Settled
from belated.core.inputs import Vector, as_rounds, check_made
from belated.core.results import Result
from belated.core.rewards import Explicit, Rewards, check_semantics
from belated.delays import NEVER, DelayProcess
from belated.exceptions import InvalidInput, extra
from belated.fold.evidence import evidence_of
from belated.fold.fold import Fold
from belated.fold.learner import Learner
from belated.model.blocks import blocked
from belated.model.kernels import Kernels, complete
from belated.policies import Choice, Policy
from belated.simulation.environments import Environment

#: Columns of a trace's data frame.
_COLUMNS = ("regret", "pending", "delay", "actions", "rewards", "propensities")
#: Time between rounds: one second, in microseconds.
ROUND_US = 1_000_000


@dataclass(frozen=True, eq=False)
class Trace(Result):
    """The result of a simulation, round by round.

    Attributes:
        regret: cumulative regret, the amount by which the mean rewards of the best rows exceed
            those of the chosen rows.
        pending: G_t, the number of pending decisions when each choice was made.
        delay: D_t, in rounds; :data:`~belated.delays.NEVER` for rewards that never arrive.
        actions: indices of the chosen rows.
        rewards: rewards of the chosen rows, including those that have not arrived.
        propensities: probabilities with which the rows were chosen.
        learner: the learner in its final state.
    """

    regret: Vector
    pending: NDArray[np.int64]
    delay: NDArray[np.int64]
    actions: NDArray[np.int64]
    rewards: Vector
    propensities: Vector
    learner: Learner

    def to_dict(self) -> dict[str, Any]:
        """Return the trace as plain data; the delay of a reward that never arrives is None."""
        fields = super().to_dict()
        del fields["learner"]
        delays = [None if delay == NEVER else delay for delay in self.delay.tolist()]
        return fields | {"delay": delays}

    def frame(self) -> Any:
        """Return a pandas DataFrame with one row per round; delays of lost rewards are null.

        Raises:
            MissingExtra: pandas is not installed.
        """
        with extra("a data frame", "experiments"):
            import pandas as pd
        columns = {name: getattr(self, name) for name in _COLUMNS}
        columns["delay"] = pd.array(self.delay, dtype="Int64")
        columns["delay"][self.delay == NEVER] = pd.NA
        return pd.DataFrame(columns).rename_axis("round")

    def plot(self) -> Any:
        """Return a matplotlib figure with cumulative regret above and pending decisions below.

        Raises:
            MissingExtra: matplotlib is not installed.
        """
        with extra("a figure", "experiments"):
            from matplotlib.figure import Figure
        figure = Figure(figsize=(7.0, 4.0), layout="constrained")
        above, below = figure.subplots(2, sharex=True, height_ratios=[2, 1])
        above.plot(self.regret)
        above.set_ylabel("cumulative regret")
        below.plot(self.pending)
        below.set_ylabel("pending")
        below.set_xlabel("round")
        return figure

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

    Contexts, rewards, delays and the policy's choices use four separate random streams derived from
    ``seed``. Two policies with the same seed therefore see the same contexts, the same random
    numbers for rewards, and the same delays. Rounds are one second apart, so a half-life of 500
    rounds is ``"500s"``.

    Args:
        policy: the policy.
        environment: the environment, which offers rows and returns rewards.
        delay: the delay process.
        horizon: number of rounds T.
        seed: seed of all random numbers.
        window: number of rounds after which a decision without a reward no longer counts as
            pending; the model still learns from a later reward.
        rewards: what a missing reward means, with a window in seconds; for example,
            ``DefaultAfter("500s")`` is 500 rounds. Rewards equal to the default are then not
            reported. None means that every reward is reported.
        kernels: kernels to use instead of the fastest available. A run never switches kernels;
            kernels compiled during the run are used by the next run.

    >>> from belated import Bernoulli, DelayedUCB, delays, environments
    >>> world = environments.fixed(seed=3)
    >>> trace = simulate(DelayedUCB(10, Bernoulli()), world, delays.Constant(5), horizon=100)
    >>> trace.pending[:8]
    array([0, 1, 2, 3, 4, 5, 5, 5])
    """
    check_made(policy, "policy", needs="choose", example="DelayedUCB(world.dim, Bernoulli())")
    check_made(environment, "environment", needs="rounds", example="environments.fixed(seed=3)")
    check_made(delay, "delay", needs="sample", example="delays.Geometric(mean=100)")
    policy = policy.bound_to(environment)
    horizon = as_rounds(horizon, "horizon")
    window = None if window is None else as_rounds(window, "window")
    if window is not None and rewards is not None:
        raise InvalidInput(
            "`window` and `rewards` cannot both be passed: set the window in `rewards`", window
        )
    if window is not None:
        rewards = Explicit(timedelta(seconds=window + 1))
    if rewards is not None:
        check_semantics(rewards)
    context_rng, reward_rng, delay_rng, policy_rng = (
        np.random.default_rng(stream) for stream in np.random.SeedSequence(seed).spawn(4)
    )
    uniform = reward_rng.random(horizon).tolist()
    longest = None if policy.learns_late else policy.learns_after
    if longest is not None and rewards is None:  # do not wait for later rewards
        rewards = Explicit(timedelta(seconds=longest + 1))
    calendar = _Calendar(delay, horizon, delay_rng, longest)
    rounds = _Rounds(policy, rewards or Explicit(), kernels or complete())
    model, choose = rounds.fold.learner.model, policy.choose
    regret: list[float] = []
    pending: list[int] = []
    choices: list[Choice] = []
    last_means, best = None, 0.0
    for t, (rows, means) in enumerate(environment.rounds(horizon, context_rng)):
        rounds.begin(t, calendar.arrivals.pop(t, ()))
        pending.append(model.pending)
        offered = rows
        if policy.blocks is not None and rows.shape[1] != policy.row_width:
            offered = blocked(rows, policy.blocks)
        choice = choose(model, offered, policy_rng)
        mean = float(means[choice.index])
        y = environment.reward(mean, uniform[t])
        rounds.decided(offered[choice.index], y, choice)
        choices.append(choice)
        if calendar.given is not None:
            calendar.decided(t, rows[choice.index], y)
        if means is not last_means:
            last_means, best = means, float(means.max())
        regret.append(best - mean)
    for advice in advise(evidence_of(rounds.fold)):
        warn(advice)
    return Trace(
        regret=np.cumsum(regret),
        pending=np.array(pending, dtype=np.int64),
        delay=calendar.delay,
        actions=np.array([choice.index for choice in choices], dtype=np.int64),
        rewards=np.array(rounds.rewards),
        propensities=np.array([choice.propensity for choice in choices]),
        learner=rounds.fold.learner,
    )


class _Rounds:
    """A fold of simulated decisions and rewards, with one second per round.

    A reward equal to the value of a missing reward is not reported.

    Args:
        policy: the policy to simulate.
        meaning: what a missing reward means.
        kernels: the kernels to use.
    """

    def __init__(self, policy: Policy, meaning: Rewards, kernels: Kernels) -> None:
        self.fold = Fold(policy, meaning, kernels=kernels)
        self.rewards: list[float] = []
        self._ledger = self.fold.ledgers[0]
        self._silent = meaning.default if meaning.on_timeout == "defaulted" else None
        self._position = self._now = 0

    def begin(self, t: int, arrivals: Iterable[int]) -> None:
        """Begin a round: fold the rewards that arrive, and close the windows that end."""
        self._now = ROUND_US * (t + 1)
        for s in arrivals:
            if self.rewards[s] != self._silent:
                self._fold(Reward(f"{s:032x}", self._now, self.rewards[s]))
        if self._ledger.is_due(self._now):
            self._fold(Settled(0, self._now))

    def decided(self, x: Vector, y: float, choice: Choice) -> None:
        """Fold the decision of a round."""
        model, row = self.fold.learner.model, x.astype(np.float32)
        decision = Decision(
            id=f"{len(self.rewards):032x}",
            at_us=self._now,
            action=choice.index,
            index=choice.index,
            x=row,
            mean=choice.mean,
            propensity=choice.propensity,
            model=0,
            means=() if model.rivals is None else model.means_of(row, choice.mean),
        )
        self.rewards.append(y)
        self._fold(decision)

    def _fold(self, event: Event) -> None:
        self._position += 1
        self._ledger.fold(Record(0, self._position, self._now, event))


class _Calendar:
    """The rounds whose rewards arrive before each round's choice; rounds are numbered from 0."""

    def __init__(
        self,
        delay: DelayProcess,
        horizon: int,
        rng: np.random.Generator,
        longest: int | None,
    ) -> None:
        self.given = getattr(delay, "given", None)
        self.arrivals: dict[int, list[int]] = {}
        self._longest = horizon if longest is None else longest
        self._horizon = horizon
        if self.given is None:
            self.delay = delay.sample(horizon, rng)
            for s, rounds in enumerate(self.delay.tolist()):
                self._enter(s, rounds)
        else:
            self.delay = np.full(horizon, NEVER, dtype=np.int64)
            self._uniform = rng.random(horizon)

    def decided(self, t: int, x: Vector, y: float) -> None:
        """Compute the delay of round t, which depends on its row or its reward."""
        assert self.given is not None
        rounds = self.delay[t] = self.given(float(self._uniform[t]), x, y)
        self._enter(t, int(rounds))

    def _enter(self, s: int, rounds: int) -> None:
        t = s + rounds + 1  # the reward of round s can be used once t - 1 >= s + D
        if t < self._horizon and rounds <= self._longest:
            self.arrivals.setdefault(t, []).append(s)
