"""The outcomes that learners send come to what a fold of the whole journal says."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress

import pytest

from belated import DelayedUCB
from belated.core.events import Decision, Erased, Retracted, Reward, Settled
from belated.core.ids import erased_key_of
from belated.core.tuning import Tuning
from belated.exceptions import HistoryChanged, JournalUnavailable
from belated.fold.fold import Fold
from belated.journals import MemoryJournal
from belated.journals.outcomes import OutcomeMessage
from tests.laws.column_runs import DIM, FAMILIES, START, Clock, history
from tests.outcomes import Consumer, check_equal


class Topic(MemoryJournal):
    """A journal whose outcomes are a stream that sometimes fails, before or after it has sent."""

    stream: list[OutcomeMessage]
    rng: random.Random

    def put_outcomes(self, partition: int, outcomes: Sequence[OutcomeMessage]) -> None:
        """Append to the stream."""
        versions = [outcome.version for outcome in outcomes]
        assert versions == sorted(versions)
        assert len({outcome.id for outcome in outcomes}) == len(outcomes)
        if self.rng.random() < 0.05:
            raise JournalUnavailable("before")
        self.stream += outcomes
        if self.rng.random() < 0.05:
            raise JournalUnavailable("after")


def learn(journal: Topic, fold: Fold, rng: random.Random) -> bool:
    """Fold some pages, and sometimes save; return False if the fold must be loaded again."""
    for _ in range(rng.randrange(6)):
        try:
            fold.follow(journal, 0, rng.choice([1, 5, 50]))
        except JournalUnavailable:
            pass
        except HistoryChanged:
            return False
        if rng.random() < 0.3:
            with suppress(JournalUnavailable):
                fold.save(journal)
    return rng.random() < 0.8


def play(seed: int) -> tuple[Topic, Consumer, int]:
    """Play one history, with learners that stop at any moment."""
    rng, clock = random.Random(seed), Clock()
    family, rewards = FAMILIES[seed % len(FAMILIES)]
    retention = rng.choice([None, None, 2_000])
    journal = Topic(clock=clock)
    journal.stream, journal.rng = [], rng
    policy = DelayedUCB(DIM, family)

    def new_fold() -> Fold:
        fold = Fold(
            policy, rewards, retention=retention, outcomes=journal, tuning=Tuning(dropped=4)
        )
        fold.load(journal)
        return fold

    events, fold, spans = history(rng, rng.choice([20, 120])), new_fold(), []
    ids = [event.id for event in events if isinstance(event, Decision)]
    for start in range(0, len(events), 10):
        journal.append(events[start : start + 10])
        if rng.random() < 0.06:
            journal.append([Erased(erased_key_of(rng.choice(ids)), START, "asked", "me")])
        if rng.random() < 0.06:
            begin = clock.now - rng.randrange(2_000)
            spans.append((begin, begin + rng.randrange(2_000), rng.choice(["", "key"])))
            journal.append([Retracted(0, START, *spans[-1])])
        if spans and rng.random() < 0.1:
            journal.append([Retracted(0, START, *spans.pop(), restored=True)])
        if rng.random() < 0.1:
            clock.now += rng.choice([500, 5_000])
            journal.append([Settled(0, clock.now)])
        if not learn(journal, fold, rng):
            fold = new_fold()
    for _ in range(1_000):
        try:
            if not fold.follow(journal, 0, 50):
                break
        except JournalUnavailable:
            continue
        except HistoryChanged:
            fold = new_fold()
    consumer = Consumer()
    consumer.take(message.data for message in journal.stream)
    check_equal(consumer, journal, rewards, retention, family.support)
    assert {id for id, outcome in consumer.newest.items() if outcome["state"] == "erased"} <= {*ids}
    return journal, consumer, sum(isinstance(event, Reward) for event in events)


def test_a_consumer_knows_what_the_ledger_knows(full: bool) -> None:
    """Whatever is corrected, erased, retracted or sent again, and wherever learners stop."""
    repeated = 0
    for seed in range(2_000 if full else 60):
        _, consumer, _ = play(seed)
        repeated += consumer.repeated
    assert repeated  # or no learner was ever restarted


@pytest.mark.parametrize("seed", range(3))
def test_the_last_message_of_each_key_is_the_newest(seed: int) -> None:
    """So compaction, which keeps the last, keeps what counts."""
    journal, consumer, _ = play(seed)
    last = {message.id: message.version for message in journal.stream}
    assert last == {id: message["version"] for id, message in consumer.newest.items()}
