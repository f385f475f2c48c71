"""Plan a bandit before you build it: estimate what a delay, a window and a stale model cost.

:func:`plan_learning` runs simulations with the production policy, learner and ledger, and estimates
how long it takes to detect a lift; ``belated plan`` does the same on the command line. Time is
scaled: the period is simulated in a few thousand rounds, and the delay, the window and the refresh
interval are shortened in proportion. If one round represents several decisions, a real bandit
learns from more decisions and loses less than the simulated bandit.

>>> from belated.delays import Exponential
>>> asked = Learning(rate=1_000 / DAY, delay=Exponential(mean=DAY), lift=0.3)
>>> [round(holdout.seconds / DAY) for holdout in holdout_times(asked)]
[81, 41, 18, 10, 7, 7]
"""

from __future__ import annotations

import math
import warnings
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, ndtr, ndtri, stdtrit

from belated.core.inputs import Vector, must_be
from belated.core.results import Result, Shortened
from belated.core.rewards import ConversionsOnly, DefaultAfter, Explicit, Rewards
from belated.core.times import lasting
from belated.delays import NEVER, Constant
from belated.evaluation import DelayCurve
from belated.evaluation.delays import delay_curve
from belated.evaluation.lifts import FIRST, USUAL, earned
from belated.evaluation.log import DecisionLog
from belated.evaluation.sequences import sequence_width
from belated.exceptions import AdviceWarning, DelayWarning, InvalidInput, NotEvaluable
from belated.model.families import Bernoulli
from belated.policies import DelayedUCB, Policy
from belated.simulation import simulate
from belated.simulation.environments import GLM, Environment, draw_theta

HOUR, DAY = 3_600.0, 86_400.0
#: Windows to compare with the planned window, as multiples of it.
WINDOWS = (0.25, 0.5, 2.0)
#: Intervals between model refreshes to simulate, in seconds.
REFRESHES = (HOUR, DAY, 7 * DAY)
#: Minimum interval between model refreshes, in rounds.
SHORTEST = 2
#: Minimum number of decisions in a period.
FEW = 100
#: Meanings of a missing reward, by name.
MEANINGS: Mapping[str, type[Rewards]] = {
    meaning.__name__: meaning for meaning in (ConversionsOnly, DefaultAfter, Explicit)
}
_FIRST = 60_000
#: Shares of held-out decisions to consider.
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
#: Probability of detecting a lift, and confidence level of the interval that detects it.
POWER, LEVEL = 0.8, 0.95
#: Longest time considered, in seconds, and the relative precision of times.
_LONGEST, _STEP = 1e12, 1e-4


@dataclass(frozen=True)
class Learning:
    """The traffic that a bandit learns from.

    Attributes:
        rate: Mean decisions per second.
        delay: Delay of rewards in seconds: a distribution from :mod:`belated.delays`, or an
            observed distribution.
        window: Reward window, in seconds.
        reward_share: Share of decisions that are rewarded if actions are chosen at random.
        lift: Relative gain of the best choices over random choices; also the lift to detect.
        period: Planned duration, in seconds.
        actions: Number of actions to choose from.
        dim: Number of features in a row.
        rewards: Meaning of a missing reward: "ConversionsOnly", "DefaultAfter" or "Explicit".
    """

    rate: float
    delay: SecondsDelay
    window: float = 7 * DAY
    reward_share: float = 0.1
    lift: float = 0.2
    period: float = 30 * DAY
    actions: int = 10
    dim: int = 20
    rewards: str = "ConversionsOnly"

    def __post_init__(self) -> None:
        for name in ("rate", "window", "reward_share", "lift", "period"):
            if not 0.0 < getattr(self, name) < math.inf:
                raise must_be(name, "a number above 0", getattr(self, name))
        if self.reward_share * (1.0 + self.lift) >= 1.0:
            message = f"a reward share of {self.reward_share:.0%} with a lift of {self.lift:.0%}"
            remedy = "pass a smaller --reward-share or --lift"
            raise InvalidInput(f"{message} exceeds 100%: {remedy}", self.lift)
        if self.rewards not in MEANINGS:
            raise must_be("rewards", f"one of {', '.join(MEANINGS)}", self.rewards)
        if self.decisions < FEW:
            message = f"only {self.decisions:.0f} decisions in the whole period, but at least {FEW}"
            raise InvalidInput(
                f"{message} are needed: pass a longer period or a higher rate", self.rate
            )

    @property
    def decisions(self) -> float:
        """Number of decisions in the whole period."""
        return self.rate * self.period


@dataclass(frozen=True)
class Interval:
    """The mean over simulated problems, with a confidence interval.

    Attributes:
        mean: Mean over all problems.
        low: Lower end of the interval, from the t distribution.
        high: Upper end of the interval.
    """

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Vector) -> Interval:
        """Compute the mean of the values and its confidence interval.

        >>> round(Interval.of(np.array([1.0, 2.0, 3.0])).low, 2)
        -0.48
        """
        n, mean = len(values), float(values.mean())
        width = float(stdtrit(n - 1, 0.5 + LEVEL / 2) * values.std(ddof=1)) / math.sqrt(n)
        return cls(mean, mean - width, mean + width)


@dataclass(frozen=True)
class Case:
    """The result of one simulated setting.

    Attributes:
        name: How the setting differs from the plan.
        kept: Share of the possible gain that the bandit achieves over the period.
        change: Difference in ``kept`` from the plan, on the same problems; None for the plan.
        lost: Additional rewards that the best choices would have earned over the period.
    """

    name: str
    kept: Interval
    change: Interval | None
    lost: float


@dataclass(frozen=True, repr=False)
class LearningPlan(Shortened, Result):
    """Expected results of a bandit over the planned period.

    Attributes:
        asked: The planned traffic.
        policy: Name of the simulated policy.
        seeds: Number of simulated problems.
        rounds: Number of rounds per problem.
        cases: Simulated settings; the second is the plan itself.
        holdouts: Time to detect the lift with each share of held-out decisions.
        take: Entry of ``holdouts`` with the smallest share that detects the lift within the period;
            None if there is none.
    """

    asked: Learning
    policy: str
    seeds: int
    rounds: int
    cases: tuple[Case, ...]
    holdouts: tuple[HoldoutTimes, ...]
    take: HoldoutTimes | None

    @property
    def decisions_a_round(self) -> float:
        """Number of decisions that each round represents."""
        return self.asked.decisions / self.rounds

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data, with times in seconds and None for infinite times."""
        return {
            "asked": vars(self.asked) | {"delay": str(self.asked.delay)},
            "policy": self.policy,
            "seeds": self.seeds,
            "rounds": self.rounds,
            "decisions_a_round": self.decisions_a_round,
            "level": LEVEL,
            "cases": [asdict(case) for case in self.cases],
            "holdouts": [
                {key: value if math.isfinite(value) else None for key, value in vars(times).items()}
                for times in self.holdouts
            ],
            "take": None if self.take is None else self.take.share,
        }


@dataclass(frozen=True)
class _Setting:
    """A setting to simulate, which differs from the plan in the fields that are set."""

    name: str
    window: float | None = None
    refresh: float = 0.0
    at_once: bool = False


def plan_learning(
    asked: Learning,
    *,
    policy: Callable[[Environment], Policy] | None = None,
    policy_name: str = "DelayedUCB()",
    seeds: int = 10,
    rounds: int = 4_000,
    progress: Callable[[int], None] = lambda count: None,
) -> LearningPlan:
    """Simulate the plan and settings that differ from it in one respect.

    Args:
        asked: The traffic to plan for.
        policy: Returns a policy for a problem; by default, :class:`~belated.DelayedUCB`.
        policy_name: Name of the policy in the result.
        seeds: Number of problems to simulate; at least 2.
        rounds: Maximum number of rounds per problem; fewer if the period has fewer decisions.
        progress: Called with the number of runs that have just finished; :func:`runs_of` returns
            the total.

    >>> from belated.delays import Exponential
    >>> asked = Learning(rate=0.01, delay=Exponential(mean=86_400), lift=1.0, dim=3, actions=3)
    >>> plan = plan_learning(asked, seeds=2, rounds=300)
    >>> [case.name for case in plan.cases][:3]
    ['every outcome known at once', 'as planned', 'window 1.8 d']
    """
    if seeds < 2:
        raise must_be("seeds", "at least 2, so that intervals can be computed", seeds)
    make = policy or (lambda world: DelayedUCB(world.dim, Bernoulli()))
    rounds = min(rounds, math.ceil(asked.decisions))
    settings = _settings(asked, rounds / asked.period)
    regret = np.empty((len(settings), seeds))
    for seed in range(seeds):
        world = offers(asked.reward_share, asked.lift, asked.actions, asked.dim, _FIRST + seed)
        for n, setting in enumerate(settings):
            regret[n, seed] = _regret(asked, setting, make(world), world, rounds, _FIRST + seed)
            progress(1)
    achieved = 1.0 - regret / (rounds * asked.reward_share * asked.lift)
    per_round = asked.decisions / rounds
    cases = tuple(
        Case(
            setting.name,
            Interval.of(achieved[n]),
            None if n == _PLANNED else Interval.of(achieved[n] - achieved[_PLANNED]),
            float(regret[n].mean()) * per_round,
        )
        for n, setting in enumerate(settings)
    )
    holdouts = holdout_times(asked)
    choice = next((times for times in holdouts if times.seconds <= asked.period), None)
    return LearningPlan(asked, policy_name, seeds, rounds, cases, tuple(holdouts), choice)


def holdout_times(asked: Learning) -> list[HoldoutTimes]:
    """Return the time to detect the lift with each of ``SHARES``."""
    delays = quantiles(asked.delay)
    base = asked.reward_share * float((delays <= asked.window).mean())
    comparison = Comparison(base, asked.lift, asked.rate, asked.window, delays)
    return [comparison.times(share) for share in SHARES]


def runs_of(asked: Learning, seeds: int, rounds: int) -> int:
    """Return the number of simulations that :func:`plan_learning` runs."""
    return len(_settings(asked, min(rounds, asked.decisions) / asked.period)) * seeds


#: Index of the plan itself among the settings.
_PLANNED = 1


def _settings(asked: Learning, pace: float) -> list[_Setting]:
    windows = [asked.window * factor for factor in WINDOWS]
    return [
        _Setting("every outcome known at once", at_once=True),
        _Setting("as planned"),
        *(
            _Setting(f"window {lasting(window)}", window=window)
            for window in windows
            if window < asked.period
        ),
        *(
            _Setting(f"model refreshed every {lasting(refresh)}", refresh=refresh)
            for refresh in REFRESHES
            if SHORTEST / pace <= refresh < asked.period
        ),
    ]


def _regret(
    asked: Learning, setting: _Setting, policy: Policy, world: Environment, rounds: int, seed: int
) -> float:
    pace = rounds / asked.period
    rewards: Rewards | None = None
    delay: Any = Constant(0)
    if not setting.at_once:
        window = asked.window if setting.window is None else setting.window
        length = timedelta(seconds=max(1, round(window * pace)))
        rewards = MEANINGS[asked.rewards](length)
        delay = RoundsDelay(asked.delay, pace, max(1, round(setting.refresh * pace)))
    with warnings.catch_warnings():
        for kind in (AdviceWarning, DelayWarning):  # the problem is intentionally difficult
            warnings.simplefilter("ignore", kind)
        trace = simulate(policy, world, delay, horizon=rounds, seed=seed, rewards=rewards)
    return float(trace.regret[-1])


# --- holdouts ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HoldoutTimes:
    """The time that a holdout takes to detect the lift, and what it costs.

    Attributes:
        share: Share of held-out decisions.
        seconds: Seconds until the lift is detected if you look only once, at that time.
        seconds_sequential: Seconds until the lift is detected if you look every day.
        rewards: Rewards that the holdout costs in ``seconds``.
    """

    share: float
    seconds: float
    seconds_sequential: float
    rewards: float


@dataclass(frozen=True)
class Comparison:
    """A comparison of a holdout with a bandit that earns more.

    Args:
        base: Mean reward of the holdout, within the window.
        lift: Relative gain of the bandit.
        rate: Number of decisions per second.
        window: Time after which an outcome is final, in seconds.
        delays: Sample of conversion delays, in seconds; infinite for conversions that never
            arrive.
    """

    base: float
    lift: float
    rate: float
    window: float
    delays: Vector

    def times(self, share: float) -> HoldoutTimes:
        """Return the time that a holdout with this share takes to detect the lift.

        At time t, a reward with delay D has the weight t/(t - D), because rewards of the latest
        decisions cannot have arrived yet (:mod:`belated.evaluation.arrivals`). The variance of a
        mean is therefore (p E[t/(t - D)] - p²) / n. The earliest time considered is the end of the
        first window.
        """
        squared_z = (float(ndtri(0.5 + LEVEL / 2)) + float(ndtri(POWER))) ** 2
        difference = self.base * self.lift
        first = 1.001 * self.window
        seconds = _first(lambda t: self._variance(t, share) * squared_z <= difference**2, first)
        always = _first(lambda t: self._shows(t, share), first)
        rewards = share * self.rate * min(seconds, _LONGEST) * difference
        return HoldoutTimes(share, seconds, always, rewards)

    def _variance(self, t: float, share: float) -> float:
        within = self.delays[self.delays <= self.window]
        weight = float((t / (t - within)).mean()) if len(within) else 1.0
        n = self.rate * t
        parts = ((self.base * (1.0 + self.lift), 1.0 - share), (self.base, share))
        return sum((p * weight - p * p) / (n * part) for p, part in parts)

    def _shows(self, t: float, share: float) -> bool:
        """Return whether the anytime-valid interval excludes 0 with probability ``POWER``."""
        n = self.rate * (t - self.window)  # decisions whose outcome is final
        smaller = n * min(share, 1.0 - share)
        rewards = self.base * smaller
        if rewards - float(ndtri(POWER)) * math.sqrt(rewards) < FIRST:
            return False
        parts = ((self.base * (1.0 + self.lift), 1.0 - share), (self.base, share))
        variance = sum(p * (1.0 - p) / (n * part) for p, part in parts)
        width = sequence_width(variance, smaller, USUAL, 1.0 - LEVEL)
        return self.base * self.lift - float(ndtri(POWER)) * math.sqrt(variance) >= width


def _first(holds: Callable[[float], bool], low: float) -> float:
    """Return the earliest time from which a condition holds; infinity if it never does."""
    steps = range(math.ceil(math.log(_LONGEST / low) / math.log1p(_STEP)) + 1)
    step = bisect_left(steps, True, key=lambda step: holds(low * (1.0 + _STEP) ** step))
    return low * (1.0 + _STEP) ** step if step < len(steps) else math.inf


# --- a problem with a known gain -----------------------------------------------------------------

#: Grid for integrals over the normal distribution, and the density times its step.
_GRID = np.linspace(-8.5, 8.5, 3_401)
_NORMAL = np.exp(-0.5 * _GRID**2) / math.sqrt(2.0 * math.pi) * (_GRID[1] - _GRID[0])
#: Largest norm of θ considered.
_WIDEST = 60.0


def offers(base: float, lift: float, actions: int, dim: int, seed: int) -> GLM:
    """Return an environment with a known possible gain and new features in every round.

    A row is (1, N(0, I)). The intercept and the norm of θ are chosen so that a share ``base`` of
    random choices converts, and the best choices convert (1 + ``lift``) times as often.

    Args:
        base: Share of decisions that convert if actions are chosen at random.
        lift: Relative gain of the best choices.
        actions: Number of actions.
        dim: Number of values per row.
        seed: Seed for the direction of θ.

    >>> world = offers(base=0.1, lift=0.5, actions=5, dim=3, seed=0)
    >>> means = np.array([means for _, means in world.rounds(20_000, np.random.default_rng(0))])
    >>> means.mean().round(2), (means.max(axis=1).mean() / means.mean() - 1.0).round(1)
    (np.float64(0.1), np.float64(0.5))
    """
    if actions < 2 or dim < 2:
        message = f"{actions} actions and {dim} features leave nothing to learn"
        raise InvalidInput(f"{message}: pass at least 2 of each", actions)
    intercept, length = spread_of(base, lift, actions)
    theta = draw_theta(dim - 1, length, np.random.default_rng([seed, 40]))
    return GLM(np.append(intercept, theta), actions, shape="intercept")


def spread_of(base: float, lift: float, actions: int) -> tuple[float, float]:
    """Return the intercept and the norm of θ for which the best choices gain ``lift``.

    Raises:
        InvalidInput: No coefficients reach this lift.

    >>> intercept, length = spread_of(0.1, 0.5, 5)
    >>> round(intercept, 2), round(length, 2)
    (-2.27, 0.44)
    """
    greatest = _greatest(actions)

    def gained(length: float) -> float:
        intercept = _intercept(base, length)
        return float(greatest @ expit(intercept + length * _GRID)) / base - 1.0

    if gained(_WIDEST) < lift:
        message = f"a lift of {lift:.0%} on {base:.0%} is impossible, because the best of {actions}"
        most = f"actions cannot gain more than {gained(_WIDEST):.0%}"
        raise InvalidInput(f"{message} {most}: pass a smaller lift", lift)
    length = float(brentq(lambda length: gained(length) - lift, 0.0, _WIDEST))
    return _intercept(base, length), length


def _intercept(base: float, length: float) -> float:
    """Return the intercept for which the mean over all actions is ``base``."""
    reach = 10.0 + 8.5 * length

    def off(intercept: float) -> float:
        return float(_NORMAL @ expit(intercept + length * _GRID)) - base

    return float(brentq(off, -reach - 20.0, reach + 20.0))


def _greatest(actions: int) -> Vector:
    """Return the density of the maximum of ``actions`` normal variables, times the grid step."""
    density: Vector = actions * ndtr(_GRID) ** (actions - 1) * _NORMAL
    return density


# --- delays in seconds, as rounds of a simulation ------------------------------------------------


class SecondsDelay(Protocol):
    """Draws delays in seconds; any distribution from :mod:`belated.delays` can be used."""

    def sample(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return ``count`` delays; :data:`~belated.delays.NEVER` for rewards that never arrive."""


@dataclass(frozen=True, eq=False)
class SeenDelay:
    """Delays observed in a journal.

    Args:
        curve: Share of rewards that has arrived by each age.

    >>> curve = DelayCurve(
    ...     delays=np.array([1e6, 5e6]), share=np.array([0.5, 1.0]), low=np.zeros(2),
    ...     high=np.ones(2), rewards=20, missing=0, level=0.95, conversions=True,
    ... )
    >>> np.unique(SeenDelay(curve).sample(100, np.random.default_rng(0)))
    array([1, 5])
    """

    curve: DelayCurve

    def sample(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw delays from the curve; rewards after the end of the curve never arrive."""
        share = self.curve.share
        # A curve of conversions describes only decisions that convert.
        total = share[-1] if self.curve.conversions else 1.0
        index = np.searchsorted(share, total * rng.random(count), side="left")
        seconds = np.append(np.ceil(self.curve.delays / 1e6), NEVER).astype(np.int64)
        return seconds[index]


@dataclass(frozen=True, eq=False)
class RoundsDelay:
    """Converts delays from seconds to rounds.

    Args:
        delay: Delays in seconds.
        pace: Number of rounds per second.
        every: Number of rounds between model refreshes; a reward is used from the next refresh on.

    >>> from belated.delays import Constant
    >>> RoundsDelay(Constant(50), pace=0.1).sample(3, np.random.default_rng(0))
    array([5, 5, 5])
    >>> RoundsDelay(Constant(50), pace=0.1, every=10).sample(3, np.random.default_rng(0))
    array([9, 8, 7])
    """

    delay: SecondsDelay
    pace: float
    every: int = 1

    def sample(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the delay of each round, in order."""
        seconds = self.delay.sample(count, rng)
        is_lost = seconds == NEVER
        rounds = np.ceil(np.where(is_lost, 0, seconds) * self.pace).astype(np.int64)
        chosen = np.arange(count)
        # The reward of round s can be used starting in round s + D + 1.
        used = -(-(chosen + rounds + 1) // self.every) * self.every
        return np.where(is_lost, NEVER, used - 1 - chosen)


def quantiles(delay: SecondsDelay, count: int = 4_000) -> Vector:
    """Return a sorted sample of delays in seconds; infinite for rewards that never arrive."""
    sample = np.sort(delay.sample(count, np.random.default_rng(0)))
    return np.where(sample == NEVER, np.inf, sample)


# --- read from a journal -------------------------------------------------------------------------

#: Name of the holdout group, which shows what is earned without the bandit.
_HOLDOUT = "holdout"


def seen_in(log: DecisionLog) -> dict[str, Any]:
    """Return the fields of :class:`Learning` that can be derived from a journal.

    The reward share is taken from the holdout if there is one, and the actions are those that were
    chosen.

    Raises:
        InvalidInput: The rewards in the journal are not 0 or 1.
        NotEvaluable: The journal has too few decisions or rewards.
    """
    if not isinstance(log.family, Bernoulli):
        message = f"the rewards in the journal are {log.family}, but a plan requires rewards of 0"
        raise InvalidInput(f"{message} or 1: pass --rate, --delay and --reward-share instead", None)
    table = log.table().live()
    span = float(np.ptp(table.made)) / 1e6 if len(table) else 0.0
    if span <= 0.0:
        message = f"the rate cannot be estimated from {len(table)} decisions: wait for more"
        raise NotEvaluable(f"{message}, or pass --rate, --delay and --reward-share")
    holdout = table.select(table.in_group(_HOLDOUT))
    base, group = (holdout, _HOLDOUT) if len(holdout) else (table, "all")
    window = table.rewards.window_us
    seen = {
        "rate": (len(table) - 1) / span,
        "delay": SeenDelay(delay_curve(table)),
        "reward_share": earned(base, group).value,
        "rewards": type(table.rewards).__name__,
        "actions": len(table.actions),
    }
    return seen if window is None else {**seen, "window": window / 1e6}
