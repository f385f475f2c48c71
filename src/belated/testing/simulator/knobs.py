"""How a run is set up: everything that users may choose, drawn from the seed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from unittest.mock import patch

from belated.estimators import Laplace, Online
from belated.families import Bernoulli, Family, Gaussian, Poisson
from belated.policies import DelayedThompson, DelayedUCB, Policy, Uniform
from belated.rewards import DefaultAfter, Explicit, Reduce, Rewards
from belated.testing.simulator.schedule import DAY, HOUR, MINUTE, stream


@dataclass(frozen=True)
class Knobs:
    """The settings of a run.

    Attributes:
        seed: they were drawn from.
        policy: of every bandit.
        rewards: what silence means.
        retention: for how long a decision takes rewards.
        partitions: of the journal.
        deciders: processes that answer clients.
        learners: processes that settle and save snapshots.
        clients: who want decisions and tell rewards.
        decisions: how many each client wants.
        owned: whether learners acquire partitions before they save, or everyone saves as it likes.
        spooled: whether deciders have a local spool.
        page: records that are read at a time.
        at_once: records that a bandit folds in one call while it is behind.
        many: records from which on they are folded in bulk.
        fresh: decisions that wait before the ledger puts them into its columns.
        dropped: forgotten decisions that leave memory together.
        batch: changes that wait before the learner adds them to its sums.
        snapshot_every: records after which a bandit saves by itself.
        span: how long clients are active, in microseconds.
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
    owned: bool
    spooled: bool
    page: int
    at_once: int
    many: int
    fresh: int
    dropped: int
    batch: int
    snapshot_every: int
    span: int

    @classmethod
    def draw(cls, seed: int) -> Knobs:
        """The settings of a seed.

        >>> Knobs.draw(7) == Knobs.draw(7)
        True
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
        more = rng.choice([None, 0, HOUR, 40 * DAY])
        owned = rng.random() < 0.5
        return cls(
            seed=seed,
            policy=kind(rng.choice([2, 3]), rng.choice(families), estimator=estimator),
            rewards=rng.choice(semantics),
            retention=None if more is None else window + timedelta(microseconds=more),
            partitions=rng.choice([1, 1, 2, 4]),
            deciders=rng.choice([1, 2, 3]),
            learners=rng.choice([1, 2, 2]),
            clients=rng.choice([1, 2, 4]),
            decisions=rng.choice([2, 4, 6]),
            owned=owned,
            spooled=rng.random() < 0.5,
            page=rng.choice([1, 3, 10_000]),
            at_once=rng.choice([1, 10, 500]),
            many=rng.choice([1, 20, 1_000, 1_000]),
            fresh=rng.choice([1, 4, 256]),
            dropped=rng.choice([1, 3, 1024]),
            batch=rng.choice([1, 5, 1000]),
            snapshot_every=100_000 if owned else rng.choice([1, 20, 100_000]),
            span=rng.choice([MINUTE, HOUR, 3 * HOUR]),
        )

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The library with these settings where it has constants, and with ids that repeat."""
        ids, numbers = stream(self.seed, "ids"), count()

        def new_id(now_us: int) -> str:
            return (
                f"{now_us // 1000 % (1 << 48):012x}7{ids.getrandbits(12):03x}{next(numbers):016x}"
            )

        with ExitStack() as stack:
            for place, value in {
                "belated.fold.PAGE": self.page,
                "belated.bandit.PAGE": self.page,
                "belated.bandit.AT_ONCE": self.at_once,
                "belated.fold.MANY": self.many,
                "belated.ledger.ledger.MOST": self.fresh,
                "belated.learner.account.MOST": self.fresh,
                "belated.ledger.ledger._DROPPED": self.dropped,
                "belated.bandit.SNAPSHOT_EVERY": self.snapshot_every,
                "belated.bandit.new_id": new_id,
            }.items():
                stack.enter_context(patch(place, value))
            yield
