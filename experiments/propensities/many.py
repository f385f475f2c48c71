"""How often ``decide_many`` takes actions that it says are unlikely, over a long run.

Batches of 50 decisions, six actions, a floor; rewards of half of them come before the next batch.
In every decision an action is chosen with the probability that the bandit has kept for it, given
all that came before, so what was chosen minus what was said is a martingale: its sum over all
decisions in which an action had a probability within a class is normal. Writes ``table.md``: that
sum over all bandits in standard deviations, and the mean square of those of each bandit, which is
about 1. Every bandit has a seed of its own: one seed draws the same numbers whatever the policy.

Run: python -m experiments.propensities.many [BANDITS] [FIRST SEED]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import sys
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np

from belated import Bandit, Bernoulli, DelayedThompson, DelayedUCB, EpsilonGreedy, Explicit
from belated.core.inputs import Matrix, Vector
from belated.policies import Policy

HERE = Path(__file__).parent
ACTIONS, DIM, BATCH, DECISIONS = 6, 4, 50, 6_000
#: Classes with fewer choices expected are left out.
FEW = 20.0
#: Upper ends of the classes of probabilities.
CLASSES = (0.005, 0.02, 0.05, 0.2, 1.0)
POLICIES: dict[str, Policy] = {
    "UCB, floor .02": DelayedUCB(DIM, Bernoulli(), floor=0.02),
    "UCB, floor .12": DelayedUCB(DIM, Bernoulli(), floor=0.12),
    "Rayleigh, floor .02": DelayedUCB(DIM, Bernoulli(), floor=0.02, randomized=True),
    "Thompson, floor .02": DelayedThompson(DIM, Bernoulli(), floor=0.02),
    "Thompson, floor .12": DelayedThompson(DIM, Bernoulli(), floor=0.12),
    "greedy, a tenth at random": EpsilonGreedy(DIM, Bernoulli(), floor=0.1),
}


def said_and_chosen(policy: Policy, decisions: int, seed: int) -> tuple[Matrix, Vector]:
    """The probability of each action in each decision, and which was chosen."""
    rng = np.random.default_rng([seed, 60])
    theta = rng.normal(size=DIM)
    bandit = Bandit(policy=policy, rewards=Explicit(), seed=seed)
    propensities, chosen = [], []
    for _ in range(decisions // BATCH):
        tables = rng.normal(size=(BATCH, ACTIONS, DIM)) / 2.0
        chosen_decisions = bandit.decide_many(rows=list(tables))
        for table, decision in zip(tables, chosen_decisions, strict=True):
            request = bandit.entry(decision.id).request
            assert request is not None
            assert request.propensities is not None
            assert request.propensities[decision.index] == decision.propensity
            propensities.append(request.propensities)
            chosen.append(decision.index)
            if rng.random() < 0.5:
                chance = 1.0 / (1.0 + np.exp(-table[decision.index] @ theta))
                bandit.observe(decision.id, float(rng.random() < chance))
    return np.array(propensities), np.array(chosen)


def main() -> None:
    bandits = int(sys.argv[1]) if len(sys.argv) > 1 else 12
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 52_000
    warnings.simplefilter("ignore")
    lines = [
        f"{bandits} bandits a policy, {DECISIONS:,} decisions each, seeds from {first}.",
        "",
        "| policy | probability said | expected | chosen | deviations | mean square |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for place, (name, policy) in enumerate(POLICIES.items()):
        seeds = range(first + place * bandits, first + (place + 1) * bandits)
        runs = [said_and_chosen(policy, DECISIONS, seed) for seed in seeds]
        for low, high in pairwise((0.0, *CLASSES)):
            sums = np.array(
                [_sums(propensities, chosen, low, high) for propensities, chosen in runs]
            )
            expected, observed, variance = sums.sum(axis=0)
            if expected < FEW:
                continue
            deviation = (observed - expected) / variance**0.5
            scored = sums[sums[:, 2] > 0.0]
            square = float(np.mean(np.square(scored[:, 1] - scored[:, 0]) / scored[:, 2]))
            cells = f"{expected:,.1f} | {observed:,.0f} | {deviation:+.2f} | {square:.2f}"
            lines.append(f"| {name} | ({low:g}, {high:g}] | {cells} |")
            print(lines[-1], flush=True)
    (HERE / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _sums(said: Matrix, chosen: Vector, low: float, high: float) -> tuple[float, float, float]:
    """Of a class: choices that were expected, choices, and their variance."""
    here = (said > low) & (said <= high)
    share = np.where(here, said, 0.0).sum(axis=1)  # of one decision: at most one is chosen
    share_taken = here[np.arange(len(chosen)), chosen]
    return float(share.sum()), float(share_taken.sum()), float((share * (1.0 - share)).sum())


if __name__ == "__main__":
    main()
