"""Random histories, folded as columns and record by record."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from unittest import mock

import msgspec
import numpy as np

from belated import Bernoulli, DelayedUCB, Gaussian, Poisson
from belated.core.events import (
    ActionChanged,
    Activation,
    Configured,
    Decision,
    Erased,
    Event,
    ModeChanged,
    ModelChosen,
    Retracted,
    Reward,
    Settled,
    SubjectDecision,
    SubjectReward,
    Void,
)
from belated.core.ids import erased_key_of, new_id
from belated.core.rewards import DefaultAfter, Explicit, Rewards
from belated.core.tuning import Tuning
from belated.fold import fold as module
from belated.fold.fold import Fold, same_sums
from belated.journals import Journal
from belated.model.families import Family
from belated.model.kernels import PageKernels, pages
from belated.policies import Policy

DIM = 3
START = 1_700_000_000_000_000
PLAIN = PageKernels(pages.crc_all, pages.fold_page)


class Clock:
    """Moves by a little at each look, and by more when told."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        """The time."""
        self.now += 7
        return self.now


def history(rng: random.Random, count: int) -> list[Event]:
    """Decisions with all that can happen to them: soon, late, before them, twice and never."""
    entries: list[tuple[float, Event]] = []
    subjects = rng.choice([0.0, 0.1, 0.6])  # the share of decisions that are made for one
    for t in range(count):
        time = START + 7 * t
        id = new_id(time) if rng.random() < 0.9 else f"own-{t}"
        x = np.array([rng.gauss(0, 1) for _ in range(DIM)], dtype=np.float32)
        mean, model = rng.choice([0.0, 0.2, 0.9]), rng.choice([0, 7, 300, 1 << 20, 1 << 40])
        names: list[int | str] = [0, 3, 200, "a", "blau", "grün", "x" * 40, ""]
        action = rng.choice(names)
        decision = Decision(id, time, action, rng.choice([0, 1, 300]), x, mean, 0.5, model)
        if rng.random() < 0.1:
            changes: dict[str, Any] = {
                "activated": False, "source": "baseline", "group": "g", "overall": 0.4,
                "means": (0.1, 0.2), "at_us": 1 << 62,
            }  # fmt: skip
            name = rng.choice(sorted(changes))
            decision = msgspec.structs.replace(decision, **{name: changes[name]})
        entries.append((t, decision))
        for _ in range(rng.choice([0, 0, 1, 1, 1, 2, 3])):
            due = t + rng.choice([-5.0, 0.5, 1.5, 30.5, 200.5])
            part, revision = rng.choice(["", "", "", "b"]), rng.choice([0, 0, 0, 1])
            value = rng.choice([0.0, 1.0, 1.0, 0.25, 2.0, float("nan")])
            report: Event = Reward(id, time + 3, value, part, revision, rng.choice(["", "key"]))
            kind = rng.random()
            if kind < 0.05:
                report = Void(id, time)
            elif kind < 0.1:
                report = Activation(id, time)
            elif kind < 0.15:
                report = decision
            elif kind < 0.2:
                report = Decision(id, time, 0, 0, -x, mean, 0.5, 1)
            entries.append((due, report))
        if rng.random() < subjects:
            subject = f"user-{rng.randrange(9)}" if rng.random() < 0.9 else "Jörg"
            for _ in range(rng.choice([1, 1, 1, 2])):  # a second one may name another subject
                due = t + rng.choice([0.1, 0.1, 0.1, 20.2])
                entries.append((due, SubjectDecision(subject, time, id)))
                subject = rng.choice([subject, "user-0"])
            for _ in range(rng.choice([0, 1, 1, 2])):
                due, occurred = t + rng.choice([-5.0, 0.6, 9.5, 90.5]), time + rng.randint(-9, 99)
                value, name = rng.choice([0.0, 1.0, 0.5, 2.0]), f"order-{rng.randrange(99)}"
                report = SubjectReward(subject, occurred, value, name, rng.choice(["", "key"]))
                entries.append((due, report))
        if rng.random() < 0.05:
            entries.append((t, Reward(new_id(time), time, 1.0)))  # whose decision never comes
        if rng.random() < 0.02:
            entries.append((t, Settled(0, time)))
        if rng.random() < 0.01:
            entries.append((t, ModeChanged(time, rng.choice(["learn", "freeze", "off"]))))
        if rng.random() < 0.01:
            action, change = rng.choice("ab"), rng.choice(["pause", "resume", "retire"])
            entries.append((t, ActionChanged(time, action, change)))
        if rng.random() < 0.01:
            entries.append((t, ModelChosen(time, 0, reason="the newest again")))
        if rng.random() < 0.01:
            entries.append((t, Configured(time, {"window": "7d"})))
    entries.sort(key=lambda entry: entry[0])
    return [event for _, event in entries]


def undo(rng: random.Random, journal: Journal, events: list[Event]) -> None:
    """Some rewards are retracted, and a decision is erased."""
    decisions = [event for event in events if isinstance(event, Decision)]
    journal.append([Erased(erased_key_of(rng.choice(decisions).id), START, "asked", "me")])
    journal.append([Retracted(0, START, START + 100, START + 900, "key")])


def folded(
    journal: Journal, policy: Policy, rewards: Rewards, retention: int | None, page: int
) -> Callable[[PageKernels | None], Fold]:
    """What a journal comes to with kernels, or without."""

    def fold(kernels: PageKernels | None) -> Fold:
        result = Fold(
            policy, rewards, retention=retention, tuning=Tuning(page=page, bulk=1, dropped=4)
        )
        with mock.patch.object(module, "kernels_for", return_value=kernels):
            result.begin(journal)
            result.catch_up(journal)
        return result

    return fold


def check_same(one: Fold, other: Fold, ids: set[str], *, near: float = 1e-6) -> None:
    """Everything that can be asked of them.

    Args:
        one: of the two.
        other: of the two.
        ids: to be asked for.
        near: how far the working θ̂ may differ: between two fits it depends on the order.
    """
    assert (one.digest, one.counts, one.counters) == (other.digest, other.counts, other.counters)
    assert (one.positions, one.version, one.mode) == (other.positions, other.version, other.mode)
    assert one.head == other.head
    assert same_sums(one, other, 1e-12)
    left, right = one.learner, other.learner
    for learner in (left, right):
        assert learner.observed.n == learner.model.n  # what waits is summed
    left_sums, right_sums = left.weighting, right.weighting
    np.testing.assert_allclose(left_sums.pending.matrix, right_sums.pending.matrix, atol=1e-9)
    assert left_sums.pending.count == right_sums.pending.count
    np.testing.assert_allclose(left_sums.counted, right_sums.counted, atol=1e-9)
    for name in ("n", "pending", "decisions"):
        assert getattr(left.model, name) == getattr(right.model, name)
    np.testing.assert_allclose(left.model.theta, right.model.theta, atol=near)
    for left_ledger, right_ledger in zip(one.ledgers.values(), other.ledgers.values(), strict=True):
        assert list(left_ledger.pending()) == list(right_ledger.pending())
        assert (left_ledger.due, left_ledger.watermark) == (
            right_ledger.due,
            right_ledger.watermark,
        )
        for column in ("crc", "position", "reward_at", "reward_recorded", "flags"):
            np.testing.assert_array_equal(
                left_ledger._table.column(column), right_ledger._table.column(column)
            )
        # Of an estimated variance, which is a sum: in another order it is rounded otherwise.
        assert left_ledger._subjects.histories == right_ledger._subjects.histories
        assert +left_ledger._subjects.reporters == +right_ledger._subjects.reporters
        assert left_ledger._subjects.rewards == right_ledger._subjects.rewards
        weights, other_weights = (
            left_ledger._table.column("weight"),
            right_ledger._table.column("weight"),
        )
        np.testing.assert_allclose(weights, other_weights, rtol=1e-12)
    for id in ids:
        assert one.entry(id) == other.entry(id)


FAMILIES: list[tuple[Family, Rewards]] = [
    (Bernoulli(), Explicit(timedelta(microseconds=400), bounds=(0.0, 1.0))),
    (Bernoulli(), DefaultAfter(timedelta(microseconds=900))),
    (Gaussian(), Explicit()),
    (Gaussian(0.5), Explicit(reduce="sum")),
    (Poisson(), Explicit(timedelta(milliseconds=5))),
]


def run(seed: int, journal: Journal, kernels: PageKernels, clock: Clock) -> Fold:
    """One history, folded both ways; then a second one behind it, on both."""
    rng = random.Random(seed)
    family, rewards = FAMILIES[seed % len(FAMILIES)]
    metric = rng.choice(["hessian", "hessian", "gram"])
    policy = DelayedUCB(DIM, family, metric=metric)  # type: ignore[arg-type]
    retention = rng.choice([None, None, 2_000])
    events = history(rng, rng.choice([1, 30, 250]))
    for start in range(0, len(events), 20):
        journal.append(events[start : start + 20])
    if rng.random() < 0.15:
        undo(rng, journal, events)
    fold = folded(journal, policy, rewards, retention, page=rng.choice([1, 7, 64, 10_000]))
    rules, columns = fold(None), fold(kernels)
    ids = {event.id for event in events if isinstance(event, Decision | Reward)}
    check_same(rules, columns, ids)
    # What the kernel has taken can be revised, retracted and settled by the rules.
    extra_events: list[Event] = []
    for id in sorted(ids):
        extra_events += [Reward(id, START, 0.5, "", 2)] * (rng.random() < 0.3)
        extra_events += [Void(id, START)] * (rng.random() < 0.1)
    clock.now += 10_000
    journal.append([*extra_events, *history(rng, 20), Settled(0, clock.now)])
    rules.catch_up(journal)
    with mock.patch.object(module, "kernels_for", return_value=kernels):
        columns.catch_up(journal)
    check_same(rules, columns, ids)
    return columns
