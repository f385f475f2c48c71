"""A bandit with a block of coefficients for each action learns as one without blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from belated import (
    Bandit,
    Bernoulli,
    Category,
    ConversionsOnly,
    DefaultAfter,
    DelayedThompson,
    DelayedUCB,
    Explicit,
    Gaussian,
    Number,
    PerArm,
    Poisson,
    SQLiteJournal,
)
from belated.core.inputs import Row
from belated.core.rewards import Rewards
from belated.fold.partitioned.merging import merged_estimate
from belated.model.blocks import unblocked
from belated.model.families import Family
from belated.model.statistics import Joined, Observations, quadratic_at
from belated.model.statistics.sums import FrozenSums
from belated.policies import Policy
from belated.testing import ManualClock

ACTIONS = ["mail", "call", "nothing"]
CONTEXT = {"age": Number(0, 1), "visits": Number(0, 1), "country": Category(["AT", "DE"])}
ROUNDS, DIM = 300, 18


class Unblocked(PerArm):
    """The same features with rows over all coefficients."""

    @property
    def blocks(self) -> None:  # type: ignore[override]
        """There are none."""

    def rows(self, context: Any, actions: Any) -> Row:
        """One row for each action, zero outside its block."""
        rows = super().rows(context, actions)
        return unblocked(rows, len(self.actions)).astype(np.float32)


CASES: dict[str, tuple[Rewards, Policy]] = {
    "explicit": (Explicit(), DelayedUCB(DIM, Bernoulli())),
    "gram": (Explicit(), DelayedUCB(DIM, Bernoulli(), metric="gram", pending_weight=0.5)),
    "estimated variance": (Explicit(), DelayedUCB(DIM, Gaussian("estimate"))),
    "counts": (Explicit(), DelayedUCB(DIM, Poisson(), ridge=1.0)),
    "defaults": (DefaultAfter("1m"), DelayedUCB(DIM, Bernoulli(), floor=0.1)),
    "half-life": (Explicit(), DelayedUCB(DIM, Bernoulli(), half_life="2m")),
    "automatic half-life": (Explicit(), DelayedUCB(DIM, Bernoulli(), half_life="auto")),
    "conversions": (ConversionsOnly("2m"), DelayedUCB(DIM, Bernoulli())),
    "fading conversions": (ConversionsOnly("2m"), DelayedUCB(DIM, Bernoulli(), half_life="5m")),
    "draws": (Explicit(), DelayedThompson(DIM, Bernoulli())),
}


def run(
    features: PerArm, rewards: Rewards, policy: Policy, path: Path
) -> tuple[list[object], Bandit]:
    """Decide, report, correct and withdraw, and open the journal anew half way."""
    clock = ManualClock()

    def opened() -> Bandit:
        journal = SQLiteJournal(path, bandit="offers", clock=clock)
        return Bandit(
            policy=policy, rewards=rewards, features=features, journal=journal, clock=clock, seed=3
        )

    bandit, rng = opened(), np.random.default_rng(5)
    chosen: list[object] = []
    pending: list[tuple[int, str, float]] = []
    for number in range(ROUNDS):
        clock.now += 1_000_000
        age = rng.random()
        visitor = {"age": age, "visits": rng.random(), "country": "AT"}
        decision = bandit.decide(visitor, id=f"order {number}")
        chosen.append((decision.action, round(decision.propensity, 9)))
        mean = 0.2 + 0.6 * age * (decision.action == "call")
        pending.append((number + rng.geometric(0.05), decision.id, float(rng.random() < mean)))
        for _, id, value in [entry for entry in pending if entry[0] == number]:
            if value or not isinstance(rewards, ConversionsOnly):
                bandit.observe(id, value)
            if rng.random() < 0.1:
                bandit.observe(id, 1.0 - value, revision=1)
            elif rng.random() < 0.05:
                bandit.void(id)
        if number == ROUNDS // 2:
            bandit.close()
            bandit = opened()
    return chosen, bandit


@pytest.mark.parametrize("name", CASES)
def test_blocks_equal_no_blocks(name: str, tmp_path: Path) -> None:
    """The same choices, estimates and intervals, to rounding."""
    rewards, policy = CASES[name]
    kinds = (PerArm, Unblocked)
    (regret, bandit), (expected, plain) = (
        run(kind(ACTIONS, context=CONTEXT), rewards, policy, tmp_path / f"{n}.db")
        for n, kind in enumerate(kinds)
    )
    with bandit, plain:
        assert regret == expected
        left, right = bandit.estimate, plain.estimate
        np.testing.assert_allclose(left.mean.ravel(), right.mean, rtol=1e-9, atol=1e-9)
        for blocked_entry, plain_entry in zip(
            left.coefficients(), right.coefficients(), strict=True
        ):
            assert blocked_entry["sd"] == pytest.approx(plain_entry["sd"], rel=1e-9)
        assert len(bandit.entry("order 7").decision.x) == 1 + DIM // 3  # type: ignore[union-attr]


@pytest.mark.parametrize("family", [Bernoulli(), Gaussian("estimate"), Poisson()], ids=repr)
def test_sums_of_partitions_in_blocks_equal_those_without(family: Family) -> None:
    """Packed, merged, and taken out again."""
    rng = np.random.default_rng(2)
    blocks, y = rng.integers(3, size=200), family.sample(np.zeros(200), rng, 0.5)
    rows = np.column_stack([blocks, rng.normal(size=(200, 6))]).astype(np.float32)
    estimates = []
    for table, shape in ((rows, (3, 6)), (unblocked(rows, 3).astype(np.float32), (18,))):
        policy = DelayedUCB(18, family, blocks=3 if len(shape) == 2 else None)
        theta = np.full(shape, 0.1)
        parts = [
            FrozenSums.read(FrozenSums.of(table[n::4], y[n::4], family, theta).pack(), shape)
            for n in range(4)
        ]
        zero = FrozenSums.read(FrozenSums.zero(shape).pack(), shape)
        merged = sum(parts, zero) - parts[3]
        estimates.append(
            tuple(merged_estimate(policy, [(sums, theta)]) for sums in (merged, merged + zero))
        )
    (blocked, repeated), (plain, _) = estimates
    assert blocked.n == plain.n == repeated.n == 150
    np.testing.assert_allclose(blocked.theta.ravel(), plain.theta, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(blocked.theta, repeated.theta, rtol=0, atol=0)
    for coefficient, reference in zip(blocked.coefficients(), plain.coefficients(), strict=True):
        assert coefficient["sd"] == pytest.approx(reference["sd"], rel=1e-9)


def test_the_store_of_a_block_is_what_it_would_be_alone() -> None:
    """Rows, rewards and frozen sums; merged stores too."""
    rng = np.random.default_rng(4)
    rows = np.column_stack([np.arange(90) % 3, rng.normal(size=(90, 4))]).astype(np.float32)
    y = rng.integers(2, size=90).astype(np.float64)
    first, second = (Observations((3, 4), Bernoulli(), block=16) for _ in range(2))
    for store, half in ((first, slice(50)), (second, slice(50, 90))):
        store.extend(rows[half], y[half])
        store.freeze(np.zeros((3, 4)), 20)
        store.remove(2)
    whole = quadratic_at(first + second, Bernoulli(), np.full((3, 4), 0.2))
    assert (first.n_by_block() + second.n_by_block()).sum() <= (first + second).n == 88
    for block in range(3):
        part = Joined([first, second]).of_block(block)
        quadratic = quadratic_at(part, Bernoulli(), np.full(4, 0.2))
        np.testing.assert_allclose(quadratic.information, whole.information[block], rtol=1e-9)
        np.testing.assert_allclose(quadratic.pull, whole.pull[block], rtol=1e-9, atol=1e-9)
