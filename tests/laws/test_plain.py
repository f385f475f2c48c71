"""What is plain takes a short way, and comes to what the rules and all layers make of it."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

from belated import Bandit, Bernoulli, DelayedUCB, Gaussian
from belated.events import Decision, Reward
from belated.exceptions import RewardConflict
from belated.journals import MemoryJournal
from belated.kernels import plain
from belated.learner.fold import Fold
from belated.learner.plain import PlainFolder
from belated.policies import Policy
from belated.rewards import DefaultAfter, Explicit
from belated.tuning import Tuning
from tests.laws.column_runs import DIM, FAMILIES, START, Clock, check_same, history, undo


@pytest.fixture
def seeds(request: pytest.FixtureRequest) -> range:
    """Few by default."""
    return range(1_000 if request.config.getoption("--full") else 60)


def by_rules(fold: Fold) -> Fold:
    """The same without the short way."""
    fold.plain = dict.fromkeys(fold.plain)
    return fold


def check_exactly(one: Fold, other: Fold) -> None:
    """To the last bit: lines, rows, roots and the estimate."""
    for mine, theirs in zip(one.adapters.values(), other.adapters.values(), strict=True):
        lines = slice(len(mine.table))
        np.testing.assert_array_equal(mine.table.cells[lines], theirs.table.cells[lines])
        np.testing.assert_array_equal(mine.kept_rows(), theirs.kept_rows())
        assert (mine.table.changed, mine.decisions) == (theirs.table.changed, theirs.decisions)
    assert [ledger.soonest for ledger in one.ledgers.values()] == [
        ledger.soonest for ledger in other.ledgers.values()
    ]
    for name in ("theta", "observed", "decided"):
        np.testing.assert_array_equal(
            getattr(one.learner.model, name), getattr(other.learner.model, name)
        )


def test_plain_records_come_to_what_the_rules_make_of_them(seeds: range) -> None:
    """One record after the other, whatever comes between them."""
    for seed in seeds:
        rng, clock = random.Random(3_000_000 + seed), Clock()
        family, rewards = FAMILIES[seed % len(FAMILIES)]
        policy = DelayedUCB(DIM, family, pending_weight=rng.choice([1.0, 1.0, 0.5]))
        journal = MemoryJournal(clock=clock)
        events = history(rng, rng.choice([30, 250]))
        for event in events:
            journal.append([event])
        if rng.random() < 0.1:
            undo(rng, journal, events)
        tuning = Tuning(batch=rng.choice([None, 3]), dropped=4)
        retention = rng.choice([None, None, 2_000])
        short, long = (
            Fold(policy, rewards, retention=retention, kernels=plain(), tuning=tuning)
            for _ in range(2)
        )
        for fold in (short, by_rules(long)):
            some = random.Random(seed)
            fold.begin(journal)
            records = journal.read(0, 0, len(events))
            while records:
                count = min(len(records), some.choice([1, 1, 2, 7, 40]))
                page, records = records[:count], records[count:]
                if count == 1:
                    fold.take(page[0])
                else:
                    fold.take_few(0, page)
        check_same(short, long, {e.id for e in events if isinstance(e, Decision | Reward)}, near=0)
        check_exactly(short, long)


@pytest.mark.parametrize(
    "policy",
    [
        DelayedUCB(DIM, Bernoulli(), learn_after=5),
        DelayedUCB(DIM, Bernoulli(), metric="gram"),
        DelayedUCB(DIM, Bernoulli(), pending_weight=0.5),
        DelayedUCB(DIM, Gaussian(), half_life="1d"),
    ],
    ids=["window", "gram", "weight", "half-life"],
)
def test_whoever_learns_otherwise_goes_by_the_rules(policy: Policy) -> None:
    """And whose rewards are learned together."""
    assert Fold(policy, Explicit()).plain == {0: None}
    together = DefaultAfter("1d", learn="together")
    assert Fold(DelayedUCB(DIM, Bernoulli()), together).plain == {0: None}
    assert isinstance(Fold(DelayedUCB(DIM, Bernoulli()), Explicit()).plain[0], PlainFolder)


class Rounds:
    """A bandit with a clock, ids and choices of its own, which are those of every other."""

    def __init__(self, *, short: bool, seed: int) -> None:
        self.clock = Clock()
        count = itertools.count()
        tuning = Tuning(new_id=lambda now, slot: f"{now // 1000:012x}7abc8{next(count):015x}")
        self.bandit = Bandit(
            DelayedUCB(DIM, Bernoulli(), alpha=0.5),
            rewards=Explicit("1s"),
            retention="2s",
            seed=seed,
            clock=self.clock,
            keep_requests=0.0,
            kernels=plain(),
            tuning=tuning,
        )
        if not short:
            by_rules(self.bandit._fold)
            self.bandit._decider.plain = None
        self.answers: list[Any] = []

    def decide(self, rows: Any, **how: Any) -> None:
        """Note the decision."""
        made = self.bandit.decide(rows, **how)
        self.answers.append(made)

    def observe(self, id: str, value: float, **how: Any) -> None:
        """Note the receipt, or what was refused."""
        try:
            self.answers.append(self.bandit.observe(id, value, **how))
        except RewardConflict as error:
            self.answers.append(str(error))


def test_a_plain_round_is_a_round(seeds: range) -> None:
    """Decisions with their propensities, receipts, the records and the state are the same."""
    for seed in seeds[: len(seeds) // 4]:
        rng, pair = random.Random(seed), [Rounds(short=short, seed=seed) for short in (True, False)]
        draw = np.random.default_rng(seed)
        for t in range(120):
            rows = draw.normal(size=(rng.choice([1, 4]), DIM))
            if rng.random() < 0.3:
                rows[-1] = rows[0]  # a tie, if it is the best
            kind, own = rng.random(), f"own-{t}" if rng.random() < 0.1 else None
            made = [one.id for one in pair[0].answers if isinstance(one, Decision)]
            known = rng.choice(made) if made else "nobody"
            value, jump = rng.choice([0.0, 1.0, 1.0]), rng.choice([0, 0, 0, 700_000])
            part, revision = rng.choice(["", "", "", "b"]), rng.choice([0, 0, 0, 1])
            for one in pair:
                one.clock.now += jump
                if kind < 0.5:
                    one.decide(rows.tolist() if kind < 0.05 else rows, id=own)
                elif kind < 0.9:
                    one.observe(known, value, part=part, revision=revision)
                elif kind < 0.95:
                    one.bandit.change_mode("learn")
                else:
                    one.answers.append(one.bandit.void(known).status)
        short, long = pair
        assert short.answers == long.answers
        assert short.bandit.journal.read(0, 0, 1_000) == long.bandit.journal.read(0, 0, 1_000)
        check_same(short.bandit._fold, long.bandit._fold, set(made), near=0)
        check_exactly(short.bandit._fold, long.bandit._fold)
        assert START < short.clock.now == long.clock.now
