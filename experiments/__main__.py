"""Run every experiment and write its table and figure; ``--quick`` checks the tables instead.

On two idle cores a full run takes about seven hours: headline 10 minutes, regret
20, failures 5, rates 10, pending 6, waiting 4, widths 4, posteriors 4, missing 1, defaults 12,
priors 5, encoding 8, blocks 20, evaluation 60, forgetting 60, over HTTP 6, forged 8, and the
benchmark of other libraries three hours. The quick check takes two minutes,
and six with ``--slow``.

Run: python -m experiments [--quick [--slow]] [--only regret defaults]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
#: Steps of each experiment, in order; all run sequentially in one environment.
STEPS = {
    "headline": ["-m experiments.headline.figure"],
    "regret": ["-m experiments.regret.sweep", "-m experiments.regret.analysis"],
    "failures": ["-m experiments.regret.failures"],
    "rates": ["-m experiments.rates.sweep", "-m experiments.rates.analysis"],
    "pending": ["-m experiments.pending.sweep", "-m experiments.pending.analysis"],
    "waiting": ["-m experiments.waiting.sweep", "-m experiments.waiting.analysis"],
    "widths": ["-m experiments.widths.sweep", "-m experiments.widths.analysis"],
    "posteriors": ["-m experiments.posteriors.sweep", "-m experiments.posteriors.analysis"],
    "missing": ["-m experiments.missing.sweep", "-m experiments.missing.analysis"],
    "defaults": ["-m experiments.defaults.sweep", "-m experiments.defaults.analysis"],
    "priors": ["-m experiments.defaults.priors"],
    "encoding": ["-m experiments.encoding.sweep", "-m experiments.encoding.analysis"],
    "blocks": ["-m experiments.blocks.sweep", "-m experiments.blocks.analysis"],
    "evaluation": ["-m experiments.evaluation.sweep", "-m experiments.evaluation.analysis"],
    "forgetting": ["-m experiments.forgetting.sweep", "-m experiments.forgetting.analysis"],
    # These start the environments of other libraries, without this package: scripts, not modules.
    "benchmark": [
        "experiments/benchmark/install.py",
        "experiments/benchmark/run.py tuning",
        "experiments/benchmark/run.py reporting",
        "experiments/benchmark/analysis.py",
    ],
    "over_http": ["-m experiments.over_http.sweep", "-m experiments.over_http.analysis"],
    "forged": ["-m experiments.forged.sweep", "-m experiments.forged.analysis"],
}
#: Each compares a few new seeds with a committed table, or checks an invariant.
QUICK = {
    "regret": ["-m experiments.regret.quick"],
    "rates": ["-m experiments.rates.quick"],
    "pending": ["-m experiments.pending.quick"],
    "waiting": ["-m experiments.waiting.quick"],
    "widths": ["-m experiments.widths.quick"],
    "posteriors": ["-m experiments.posteriors.quick"],
    "missing": ["-m experiments.missing.quick"],
    "forged": ["-m experiments.forged.quick"],
    "encoding": ["-m experiments.encoding.quick"],
    "blocks": ["-m experiments.blocks.quick"],
    "forgetting": ["-m experiments.forgetting.quick"],
    "evaluation": ["-m experiments.evaluation.quick"],
}
#: These take about 40 s each even in a quick run. They are skipped unless `--slow` is given.
SLOW = {"regret", "rates", "pending", "waiting", "posteriors", "forgetting"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="check the committed tables")
    parser.add_argument("--slow", action="store_true", help="with --quick: the slow ones, too")
    parser.add_argument("--only", nargs="*", help="these experiments only")
    arguments = parser.parse_args()
    steps = QUICK if arguments.quick else STEPS
    skipped = SLOW if arguments.quick and not arguments.slow else set()
    for name in arguments.only or [name for name in steps if name not in skipped]:
        for step in steps[name]:
            print(f"== {name}: python {step}", flush=True)
            start = time.perf_counter()
            subprocess.run([sys.executable, *step.split()], cwd=HERE.parent, check=True)
            print(f"== {name}: {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
