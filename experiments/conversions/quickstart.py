"""README's quickstart in a loop: does the worse action win, because conversions are fast?

Blue converts in 5 % of the decisions, red in 20 %; the window is seven days. Conversions are
reported at once in real time, one second later with a decision per second, or ten minutes later
with a decision per minute. After 600 decisions, the share of the worse action among the last 100
is printed. Writes ``quickstart.md``.

Run: python -m experiments.conversions.quickstart [--seeds 100] [--jobs 2]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from belated import Bandit, Category, ConversionsOnly, Number, PerArm
from belated.exceptions import AdviceWarning
from belated.testing import ManualClock
from experiments.parallel import Rows, table_of

HERE = Path(__file__).parent
RATES = {"blue": 0.05, "red": 0.20}
DECISIONS, LAST, SECOND = 600, 100, 1_000_000
#: Seconds between two decisions and until a conversion; None is real time.
PACES: dict[str, tuple[int, int] | None] = {
    "at once, in real time": None,
    "a second later, a decision per second": (1, 1),
    "ten minutes later, a decision per minute": (60, 600),
}


def run(pace: str, seed: int) -> Rows:
    """The share of the worse action among the last decisions, and the largest coefficient."""
    warnings.simplefilter("ignore", AdviceWarning)
    rng, clock, times = np.random.default_rng(seed), ManualClock(), PACES[pace]
    features = PerArm(
        list(RATES), context={"age": Number(18, 90), "country": Category(["AT", "DE"])}
    )
    own: dict[str, Any] = {} if times is None else {"clock": clock}
    # No floor: a hundredth of the decisions would be the worse action by chance.
    bandit = Bandit(features, rewards=ConversionsOnly("7d"), floor=0, seed=seed, **own)
    step, delay = times or (0, 0)
    coming: list[tuple[int, str]] = []
    worse = 0
    for n in range(DECISIONS):
        clock.now += step * SECOND
        while coming and coming[0][0] <= clock.now:
            bandit.observe(coming.pop(0)[1], 1.0)
        context = {"age": int(rng.integers(18, 90)), "country": str(rng.choice(["AT", "DE"]))}
        decision = bandit.decide(context)
        worse += n >= DECISIONS - LAST and decision.action == "blue"
        if rng.random() < RATES[str(decision.action)]:
            coming.append((clock.now + delay * SECOND, decision.id))
            if times is None:
                bandit.observe(coming.pop()[1], 1.0)
    theta = float(np.abs(bandit.estimate.theta).max())
    return [{"pace": pace, "seed": seed, "worse": worse / LAST, "theta": theta}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    cells = [(pace, seed) for pace in PACES for seed in range(arguments.seeds)]
    table = table_of(run, cells, jobs=arguments.jobs, unit="run")
    lines = [
        "| conversions reported | seeds | mean share of the worse action | largest share |"
        " largest θ | above a half |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for pace, runs in table.groupby("pace", sort=False):
        lines.append(
            f"| {pace} | {len(runs)} | {runs.worse.mean():.3f} | {runs.worse.max():.2f} |"
            f" {runs.theta.max():.1f} | {(runs.worse > 0.5).sum()} |"
        )
    text = "\n".join(lines) + "\n"
    print(text)
    (HERE / "quickstart.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
