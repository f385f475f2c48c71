"""The settings that a seed draws: streams of random numbers, and the settings of a run."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count
from random import Random

from belated.core.rewards import ConversionsOnly, DefaultAfter, Explicit, Reduce, Rewards
from belated.core.tuning import Tuning
from belated.exceptions import InvalidInput
from belated.fold.partitioned import check_mergeable
from belated.model.estimators import Laplace, Online
from belated.model.families import Bernoulli, Family, Gaussian, Poisson
from belated.policies import DelayedThompson, DelayedUCB, Policy, Uniform

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR


def stream(seed: int, name: str) -> Random:
    """Return the random numbers of one subsystem; its draws do not shift those of the others.

    >>> stream(7, "network").random() == stream(7, "network").random()
    True
    >>> stream(7, "network").random() == stream(7, "clocks").random()
    False
    """
    return Random(f"{seed} {name}")  # unlike hash(), the same in every process


@dataclass(frozen=True)
class Settings:
    """The settings of a run.

    Attributes:
        seed: they were drawn from.
        policy: of every bandit.
        rewards: what a missing reward means.
        retention: how long a decision accepts rewards.
        partitions: of the journal.
        deciders: processes that answer clients.
        learners: processes that settle decisions and save snapshots.
        clients: how many request decisions and report rewards.
        decisions: how many each client requests.
        served: whether the service runs, with deciders and learners; otherwise each process has a
            bandit of its own.
        owned: whether learners acquire partitions before they save; otherwise any process saves.
        spooled: whether deciders have a local spool.
        paged: whether the page kernel folds what it can, interpreted; otherwise the rules fold all.
        tuning: sizes, mostly so small that their boundaries are crossed; ids that repeat.
        span: how long clients are active, in microseconds.
        shared: whether the learners of a service share the partitions.
        subjects: whether a client decides for subjects, and rewards them.
        releases: whether features change.
    """

    seed: int
    policy: Policy
    rewards: Rewards
    retention: timedelta | None
    partitions: int
    deciders: int
    learners: int
    clients: int
    decisions: int
    served: bool
    owned: bool
    spooled: bool
    paged: bool
    tuning: Tuning
    span: int
    shared: bool = False
    subjects: bool = False
    releases: bool = False

    @classmethod
    def draw(cls, seed: int, *, shared: bool = False) -> Settings:
        """Draw the settings of a seed; if ``shared``, four learners share sixteen partitions.

        >>> Settings.draw(7) == Settings.draw(7)
        True
        >>> Settings.draw(7, shared=True).partitions
        16
        """
        rng = stream(seed, "knobs")
        families: list[Family] = [Bernoulli(), Gaussian(), Poisson()]
        kind = rng.choice([DelayedUCB, DelayedUCB, DelayedThompson, Uniform])
        estimator = rng.choice([Online(), Online(), Online(), Online(), Laplace()])
        reduce: Reduce = rng.choice(["latest", "sum", "max"])
        window = timedelta(microseconds=rng.choice([1, 5 * MINUTE, HOUR, HOUR, DAY]))
        semantics: list[Rewards] = [
            Explicit(reduce=reduce),
            Explicit(window, reduce=reduce),
            DefaultAfter(window, reduce=reduce, value=rng.choice([0.0, 1.0])),
        ]
        extra_time = rng.choice([None, 0, HOUR, 40 * DAY])
        is_owned = rng.random() < 0.5
        rows = stream(seed, "rows")
        settings = cls(
            seed=seed,
            policy=kind(rng.choice([2, 3]), rng.choice(families), estimator=estimator),
            rewards=rng.choice(semantics),
            retention=None if extra_time is None else window + timedelta(microseconds=extra_time),
            partitions=rng.choice([1, 1, 2, 4]),
            deciders=rng.choice([1, 2, 3]),
            learners=rng.choice([1, 2, 2]),
            clients=rng.choice([1, 2, 4]),
            decisions=rng.choice([2, 4, 6]),
            served=rng.random() < 0.5,
            owned=is_owned,
            spooled=rng.random() < 0.5,
            paged=stream(seed, "pages").random() < 0.5,
            tuning=Tuning(
                page=rng.choice([1, 3, 10_000]),
                follow=rng.choice([1, 10, 500]),
                bulk=rng.choice([1, 1, 20, 1_000]),
                dropped=rng.choice([1, 3, 1024]),
                exact=rows.choice([0, 4, 100_000]),
                block=rows.choice([1, 3]),
                batch=rng.choice([1, 5, 1000]),
                snapshot_every=100_000 if is_owned else rng.choice([1, 20, 100_000]),
                max_unapplied=rng.choice([1, 4, 20_000]),
                unapplied_block=rng.choice([1, 3]),
                link=stream(seed, "link").choice([1, 4, 16]),
                new_id=_Ids(seed),
            ),
            span=rng.choice([MINUTE, HOUR, 3 * HOUR]),
            subjects=stream(seed, "subjects").random() < 0.5,
        )
        if shared:
            settings = replace(settings, partitions=16, learners=4, served=True, shared=True)
            by_age = settings._weighted_by_age(window, reduce)
            with suppress(InvalidInput):
                check_mergeable(by_age.policy, by_age.rewards)
                return by_age
            return settings
        releases = stream(seed, "releases or not").random() < 0.4
        return replace(settings, releases=releases)._weighted_by_age(window, reduce)._attributed()

    def _attributed(self) -> Settings:
        """Credit rewards of subjects for half of the window in some runs."""
        window = self.rewards.window
        is_drawn = stream(self.seed, "attribution").random() < 0.3
        if not self.subjects or not is_drawn or not isinstance(window, timedelta):
            return self
        half = max(window // 2, timedelta(microseconds=1))
        return replace(self, rewards=replace(self.rewards, attribution=half))

    def _weighted_by_age(self, window: timedelta, reduce: Reduce) -> Settings:
        """Have observations count by their age in half of the runs."""
        rng = stream(self.seed, "ages")
        kind = rng.choice([*["constant"] * 3, "half-life", "conversions", "both"])
        if kind == "constant":
            return self
        half_life, rewards = timedelta(microseconds=rng.choice([HOUR, DAY, 30 * DAY])), self.rewards
        if kind != "half-life":
            rewards = ConversionsOnly(window, reduce=reduce, delivery="single")
        policy = replace(
            self.policy,
            estimator=Laplace(),  # Online cannot forget
            half_life=None if kind == "conversions" else half_life,
        )
        return replace(self, policy=policy, rewards=rewards)


class _Ids:
    """Makes ids that are the same in every run of a seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._rng, self._numbers = stream(seed, "ids"), count()

    def __call__(self, now_us: int, slot: int | None) -> str:
        slot, number = self._rng.getrandbits(12) if slot is None else slot, next(self._numbers)
        return f"{now_us // 1000 % (1 << 48):012x}7{slot:03x}8{number:015x}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Ids) and other._seed == self._seed

    def __hash__(self) -> int:
        return hash(self._seed)
