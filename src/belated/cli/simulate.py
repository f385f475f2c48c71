"""``belated simulate``: run one policy under one delay, on problems with a known solution.

No extra is required. To compare several policies, see :mod:`belated.cli.compare`.
"""

from __future__ import annotations

import argparse
import math
import re
import warnings
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
import numpy as np

from belated.cli.options import add_json, add_option, add_simulation, count
from belated.cli.text import Progress, several, table, wrapped
from belated.exceptions import BelatedWarning
from belated.expressions import (
    as_delay,
    as_environment,
    as_policy,
    as_semantics,
    label,
    load_modules,
)
from belated.model.kernels import special
from belated.simulation import simulate

EXAMPLE = 'belated simulate --delay "Geometric(mean=100)" --rounds 2000 --seeds 5'

#: Labels for the statistics of a run.
ROWS = {"regret": "regret", "pending": "pending at the end", "most_pending": "maximum pending"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_simulation(parser, "delay of rewards", "policy", "DelayedUCB", several=False)
    about = "number of rounds after which a decision without a reward is no longer pending"
    add_option(parser, "--window", about, count, metavar="ROUNDS")
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    report = simulated(options)
    print(msgspec.json.encode(report).decode() if options.json else _text(report))


def simulated(options: argparse.Namespace) -> dict[str, Any]:
    """Run the simulation for all seeds and return the results."""
    load_modules(options.module)
    delay = as_delay(options.delay)
    policy_for = as_policy(options.policy)
    make = as_environment(options.environment)
    rewards = None if options.rewards is None else as_semantics(options.rewards)
    runs = []
    progress = Progress("rounds simulated:", options.rounds * options.seeds)
    with progress, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", BelatedWarning)
        for seed in range(options.seeds):
            world = make(seed)
            trace = simulate(
                policy_for(world),
                world,
                delay,
                horizon=options.rounds,
                seed=seed,
                window=options.window,
                rewards=rewards,
            )
            runs.append(
                {
                    "seed": seed,
                    "regret": float(trace.regret[-1]),
                    "pending": int(trace.pending[-1]),
                    "most_pending": int(trace.pending.max()),
                }
            )
            progress.step(options.rounds)
    return {
        "policy": label(options.policy),
        "environment": label(options.environment),
        "delay": label(options.delay),
        "rounds": options.rounds,
        "seeds": options.seeds,
        "window": options.window,
        **{name: asdict(Spread.of([run[name] for run in runs])) for name in ROWS},
        "runs": runs,
        "notes": _notes(str(warning.message) for warning in caught),
    }


def _notes(messages: Iterable[str]) -> list[str]:
    """Return one note of each kind, because notes for other seeds differ only in numbers."""
    kinds: dict[str, str] = {}
    for message in messages:
        kinds.setdefault(re.sub(r"[-\d.]+", "", message), message)
    return list(kinds.values())


def _text(report: dict[str, Any]) -> str:
    head = f"{report['policy']} in {report['environment']} under {report['delay']}"
    size = f"{several(report['rounds'], 'round')}, {several(report['seeds'], 'seed')}"
    if report["window"] is not None:
        size += f", a window of {several(report['window'], 'round')}"
    rows = []
    for name, called in ROWS.items():
        spread = Spread(**report[name])
        rows.append([called, str(spread), f"{spread.least:,.1f}", f"{spread.most:,.1f}"])
    mean = ">mean ± standard error" if report["seeds"] > 1 else ">value"
    lines = [head, size, "", table(["", mean, ">least", ">most"], rows)]
    return "\n".join([*lines, *(wrapped(f"note: {note}", "  ") for note in report["notes"])])


# --- statistics over seeds -----------------------------------------------------------------------

#: Significance level.
CHANCE = 0.05


@dataclass(frozen=True)
class Spread:
    """The distribution of a statistic over seeds.

    Attributes:
        mean: the mean.
        error: the standard error of the mean; None for a single value.
        least: the minimum.
        most: the maximum.
    """

    mean: float
    error: float | None
    least: float
    most: float

    @classmethod
    def of(cls, values: Any) -> Spread:
        """Summarize the values of all seeds.

        >>> print(Spread.of([1.0, 2.0, 3.0]))
        2.0 ± 0.6
        >>> print(Spread.of([1.0]))
        1.0
        """
        array = np.asarray(values, dtype=np.float64)
        count = len(array)
        error = float(array.std(ddof=1)) / math.sqrt(count) if count > 1 else None
        return cls(float(array.mean()), error, float(array.min()), float(array.max()))

    @property
    def t(self) -> float | None:
        """The mean divided by its standard error; None for a single value."""
        return self.mean / self.error if self.error else None

    def text(self, sign: str = "") -> str:
        """Format the mean and its error. With ``sign="+"``, a positive mean gets a sign, too."""
        mean = format(self.mean, f"{sign},.1f")
        return mean if self.error is None else f"{mean} ± {self.error:,.1f}"

    def __str__(self) -> str:
        return self.text()


def hardly_chance(seeds: int) -> float:
    """Return the critical value of t at the significance level.

    >>> round(hardly_chance(10), 2)
    2.26
    """
    return float(special.stdtrit(seeds - 1, 1.0 - 0.5 * CHANCE))
