"""What a delay, a window and a stale model cost a bandit, and how long until its lift is known.

The regret is that of simulations with the real policy, learner and ledger. Time is kept: so many
days are played with as many rounds as can be afforded, and delay, window and refreshes are the same
part of them. If a round stands for several decisions, a real bandit learns from more of them and
loses less; the share of the time that is decided blindly is the same.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
from scipy.special import stdtrit

from belated.delays import Constant
from belated.exceptions import AdviceWarning, DelayWarning, InvalidInput
from belated.families import Bernoulli
from belated.inputs import Vector
from belated.planning.holdouts import (
    LEVEL,
    SHARES,
    Comparison,
    HoldoutTimes,
    known_within,
    smallest_share,
)
from belated.planning.offers import Offers
from belated.planning.timed_delays import RoundsDelay, SecondsDelay, quantiles
from belated.policies import DelayedUCB, Policy
from belated.results import Result
from belated.rewards import ConversionsOnly, DefaultAfter, Explicit, Rewards
from belated.simulation import simulate
from belated.simulation.environments import Environment

HOUR, DAY = 3_600.0, 86_400.0
#: Windows that are compared with the one that is asked for, by factors of it.
WINDOWS = (0.25, 0.5, 2.0)
#: Seconds after which a model may be refreshed, and the fewest rounds that show it.
REFRESHES = (HOUR, DAY, 7 * DAY)
SHORTEST = 2
#: Decisions without which there is nothing to plan.
FEW = 100
#: What a missing reward means, by its name.
MEANINGS: Mapping[str, type[Rewards]] = {
    one.__name__: one for one in (ConversionsOnly, DefaultAfter, Explicit)
}
_FIRST = 60_000


@dataclass(frozen=True)
class Learning:
    """What a bandit is to learn from.

    Attributes:
        rate: decisions a second, in the mean.
        delay: of rewards, in seconds: a law of :mod:`belated.delays`, or what was seen.
        window: after which a missing reward says something, in seconds.
        reward_share: of decisions that are rewarded, if they are made by lot.
        lift: by how much more the best choice brings, relative; and the lift to be known.
        period: that is planned, in seconds.
        actions: to choose from.
        dim: features of a row.
        rewards: what a missing reward means: "ConversionsOnly", "DefaultAfter" or "Explicit".
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
                given = getattr(self, name)
                raise InvalidInput(f"{name} is {given!r}: a number above 0 was expected", given)
        if self.reward_share * (1.0 + self.lift) >= 1.0:
            message = f"{self.reward_share:.0%} with a lift of {self.lift:.0%} is more than all"
            raise InvalidInput(f"{message}: give a smaller --reward-share or --lift", self.lift)
        if self.rewards not in MEANINGS:
            known = ", ".join(MEANINGS)
            raise InvalidInput(f"rewards is {self.rewards!r}: one of {known}", self.rewards)
        if self.decisions < FEW:
            message = f"{self.decisions:.0f} decisions in the whole period: at least {FEW} are"
            raise InvalidInput(f"{message} needed; give a longer one, or a higher rate", self.rate)

    @property
    def decisions(self) -> float:
        """Of the whole period."""
        return self.rate * self.period


@dataclass(frozen=True)
class Interval:
    """A mean over simulated problems, with its interval.

    Attributes:
        mean: over all of them.
        low: lower end, by Student's quantile.
        high: upper end.
    """

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Vector) -> Interval:
        """The interval of a mean.

        >>> round(Interval.of(np.array([1.0, 2.0, 3.0])).low, 2)
        -0.48
        """
        n, mean = len(values), float(values.mean())
        width = float(stdtrit(n - 1, 0.5 + LEVEL / 2) * values.std(ddof=1)) / math.sqrt(n)
        return cls(mean, mean - width, mean + width)


@dataclass(frozen=True)
class Case:
    """One way to run the bandit.

    Attributes:
        name: what differs from what is planned.
        kept: share of the possible gain that the bandit brings over the period.
        change: the same minus that of the plan, on the same problems; None for the plan itself.
        lost: rewards of the period that the best choice would have brought more.
    """

    name: str
    kept: Interval
    change: Interval | None
    lost: float


@dataclass(frozen=True)
class LearningPlan(Result):
    """What is to be expected.

    Attributes:
        asked: what it is a plan for.
        policy: that was simulated.
        seeds: problems that were simulated.
        rounds: of each.
        cases: what was simulated; the second is the plan.
        holdouts: what each share takes until the lift is known.
        take: the smallest of them by which it is known within the period; None if none is.
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
        """Decisions that a round stands for."""
        return self.asked.decisions / self.rounds

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data, times in seconds; None for what takes for ever."""

        def plain(one: Any) -> dict[str, Any]:
            found = dict(vars(one))
            return {
                name: None if isinstance(value, float) and math.isinf(value) else value
                for name, value in found.items()
            }

        asked = plain(self.asked) | {"delay": str(self.asked.delay)}
        cases = [
            plain(one) | {
                "kept": plain(one.kept),
                "change": None if one.change is None else plain(one.change),
            }
            for one in self.cases
        ]  # fmt: skip
        return {
            "asked": asked,
            "policy": self.policy,
            "seeds": self.seeds,
            "rounds": self.rounds,
            "decisions_a_round": self.decisions_a_round,
            "level": LEVEL,
            "cases": cases,
            "holdouts": [plain(one) for one in self.holdouts],
            "take": None if self.take is None else self.take.share,
        }


@dataclass(frozen=True)
class _Way:
    """What is simulated: all as planned, but for what is given."""

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
    """Simulate what is asked for, and what differs from it in one respect.

    Args:
        asked: what the bandit is to learn from.
        policy: makes one for a problem; None: :class:`~belated.DelayedUCB`.
        policy_name: what to call it.
        seeds: problems to simulate, at least 2.
        rounds: of each, at most; fewer if the period has fewer decisions.
        progress: is told how many more runs are done, of :func:`runs_of`.

    >>> from belated.delays import Exponential
    >>> asked = Learning(rate=0.01, delay=Exponential(mean=86_400), lift=1.0, dim=3, actions=3)
    >>> made = plan_learning(asked, seeds=2, rounds=300)
    >>> [case.name for case in made.cases][:3]
    ['every outcome known at once', 'as planned', 'window 1.8 d']
    """
    if seeds < 2:
        raise InvalidInput(f"seeds is {seeds}: at least 2 are needed for an interval", seeds)
    make = policy or (lambda world: DelayedUCB(world.dim, Bernoulli()))
    rounds = min(rounds, math.ceil(asked.decisions))
    ways = _ways(asked, rounds / asked.period)
    regret = np.empty((len(ways), seeds))
    for seed in range(seeds):
        world = Offers(asked.reward_share, asked.lift, asked.actions, asked.dim, _FIRST + seed)
        for n, way in enumerate(ways):
            regret[n, seed] = _regret(asked, way, make(world), world, rounds, _FIRST + seed)
            progress(1)
    kept = 1.0 - regret / (rounds * asked.reward_share * asked.lift)
    per_round = asked.decisions / rounds
    cases = tuple(
        Case(
            way.name,
            Interval.of(kept[n]),
            None if n == _PLANNED else Interval.of(kept[n] - kept[_PLANNED]),
            float(regret[n].mean()) * per_round,
        )
        for n, way in enumerate(ways)
    )
    holdouts = holdout_times(asked)
    take = smallest_share(holdouts, asked.period)
    return LearningPlan(asked, policy_name, seeds, rounds, cases, tuple(holdouts), take)


def holdout_times(asked: Learning) -> list[HoldoutTimes]:
    """Return what each of :data:`~belated.planning.holdouts.SHARES` takes until the lift is known.

    >>> from belated.delays import Exponential
    >>> asked = Learning(
    ...     rate=1_000 / DAY, delay=Exponential(mean=DAY), window=7 * DAY, lift=0.3
    ... )
    >>> [round(one.seconds / DAY) for one in holdout_times(asked)]
    [81, 41, 18, 10, 7, 7]
    """
    delays = quantiles(asked.delay)
    base = asked.reward_share * known_within(delays, asked.window)
    comparison = Comparison(base, asked.lift, asked.rate, asked.window, delays)
    return [comparison.times(share) for share in SHARES]


def runs_of(asked: Learning, seeds: int, rounds: int) -> int:
    """Return how many simulations a plan takes."""
    return len(_ways(asked, min(rounds, asked.decisions) / asked.period)) * seeds


#: The place of what is asked for among all ways.
_PLANNED = 1


def _ways(asked: Learning, pace: float) -> list[_Way]:
    windows = [asked.window * factor for factor in WINDOWS]
    return [
        _Way("every outcome known at once", at_once=True),
        _Way("as planned"),
        *(_Way(f"window {lasting(one)}", window=one) for one in windows if one < asked.period),
        *(
            _Way(f"model refreshed every {lasting(one)}", refresh=one)
            for one in REFRESHES
            if SHORTEST / pace <= one < asked.period
        ),
    ]


def _regret(
    asked: Learning, way: _Way, policy: Policy, world: Offers, rounds: int, seed: int
) -> float:
    pace = rounds / asked.period
    rewards: Rewards | None = None
    delay: Any = Constant(0)
    if not way.at_once:
        window = asked.window if way.window is None else way.window
        length = timedelta(seconds=max(1, round(window * pace)))
        rewards = MEANINGS[asked.rewards](length)
        delay = RoundsDelay(asked.delay, pace, max(1, round(way.refresh * pace)))
    with warnings.catch_warnings():
        for kind in (AdviceWarning, DelayWarning):  # of the problem, which is what is asked about
            warnings.simplefilter("ignore", kind)
        trace = simulate(policy, world, delay, horizon=rounds, seed=seed, rewards=rewards)
    return float(trace.regret[-1])


def lasting(seconds: float) -> str:
    """A time in its greatest unit.

    >>> lasting(3_600.0), lasting(151_200.0), lasting(90.0)
    ('1 h', '1.8 d', '1.5 min')
    """
    for size, unit in ((DAY, "d"), (HOUR, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.{2 if seconds < 10 * size else 3}g} {unit}"
    return f"{seconds:.3g} s"
