"""How often a policy gets stuck: the share of runs on ``fixed`` with a regret above 250.

On a problem that offers the same rows every round a policy may settle on a wrong one. Prints the
share for each delay with its 95 % interval (Wilson), and the regret of the other runs.

Run: python -m experiments.regret.failures [--seeds 400] [--policies DelayedUCB]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import math

from belated import simulate_many
from experiments.regret.policies import DELAYS, HORIZON, POLICIES, WORLDS

STUCK = 250.0


def interval(failures: int, runs: int) -> tuple[float, float]:
    """Wilson's interval for a share."""
    z, p = 1.96, failures / runs
    centre = p + z * z / (2 * runs)
    spread = z * math.sqrt(p * (1 - p) / runs + z * z / (4 * runs * runs))
    return (centre - spread) / (1 + z * z / runs), (centre + spread) / (1 + z * z / runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=400)
    parser.add_argument("--first-seed", type=int, default=80_000)
    parser.add_argument("--policies", nargs="*", default=["DelayedUCB"])
    arguments = parser.parse_args()
    table = simulate_many(
        {name: POLICIES[name] for name in arguments.policies},
        {"fixed": WORLDS["fixed"]},
        {name: DELAYS[name] for name in ("0", "geo100", "lomax")},
        seeds=range(arguments.first_seed, arguments.first_seed + arguments.seeds),
        horizon=HORIZON,
    )
    print("| policy | delay | stuck | share, 95 % interval | mean regret | median |")
    print("|---|---|--:|--:|--:|--:|")
    for (policy, delay), group in table.groupby(["policy", "delay"]):
        regret = group["regret"]
        stuck = int((regret > STUCK).sum())
        low, high = interval(stuck, len(regret))
        share = f"{stuck / len(regret):.1%} [{low:.1%}, {high:.1%}]"
        figures = f"{regret.mean():.0f}±{regret.sem():.0f} | {regret.median():.0f}"
        print(f"| {policy} | {delay} | {stuck} of {len(regret)} | {share} | {figures} |")


if __name__ == "__main__":
    main()
