"""``belated compare``: run policies against each other, under the same delays and the same luck.

Every policy meets the same problems, contexts, luck and delays under one seed, so that they can be
compared pair by pair. It needs the extra ``experiments``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from belated.cli.options import add_expression, add_json, add_policy, add_runs, count
from belated.cli.simulation.checks import check_extra, check_figure, check_place
from belated.cli.simulation.compare_figure import save
from belated.cli.simulation.figures import DARK, LIGHT
from belated.cli.simulation.spreads import CHANCE, Spread, hardly_chance
from belated.cli.text import several, table, wrapped
from belated.exceptions import InvalidInput
from belated.expressions import (
    DELAYS,
    ENVIRONMENTS,
    as_delay,
    as_environment,
    as_policy,
    label,
    load_modules,
)
from belated.simulation.sweeps import simulate_many

if TYPE_CHECKING:
    import pandas as pd

EXAMPLE = 'belated compare --delay "Batched(500)" "Constant(0)" --figure regret.png'

#: Compared where nothing else is said.
POLICIES_BY_DEFAULT = ("DelayedUCB", "DelayedThompson", "BlindUCB")
#: Rounds at which the regret of a run is kept.
CHECKPOINTS = 50

T = TypeVar("T")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_expression(parser, DELAYS, "when rewards come: one or more", several=True)
    add_policy(
        parser,
        "what is compared with the first one",
        default=" ".join(POLICIES_BY_DEFAULT),
        several=True,
    )
    add_expression(
        parser,
        ENVIRONMENTS,
        "the problems, drawn anew for each seed",
        default="fixed",
        several=True,
    )
    add_runs(parser)
    parser.add_argument(
        "--figure", metavar="FILE", help="draw the regret over the rounds: .png, .svg or .pdf"
    )
    parser.add_argument("--title", metavar="TEXT", help="of the figure")
    parser.add_argument("--dark", action="store_true", help="draw it for a dark page")
    parser.add_argument("--csv", metavar="FILE", help="write all runs, at 50 rounds each")
    parser.add_argument(
        "--resume",
        metavar="FILE",
        help="keep finished runs there, and do not repeat those that are there",
    )
    parser.add_argument(
        "--jobs", type=count, metavar="N", help="processes; without it as many as there are cores"
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    check_extra("belated compare", "joblib", "pandas", "tqdm")
    check_figure(options.figure)
    for place in (options.csv, options.resume):
        check_place(place)
    load_modules(options.module)
    policies = _named(options.policy or POLICIES_BY_DEFAULT, as_policy)
    environments = _named(options.environment or ("fixed",), as_environment)
    delays = _named(options.delay, as_delay)
    runs = simulate_many(
        policies,
        environments,
        delays,
        seeds=range(options.seeds),
        horizon=options.rounds,
        checkpoints=checkpoints(options.rounds),
        resume=options.resume,
        jobs=options.jobs or -1,
        progress=sys.stderr.isatty(),
    ).drop(columns="seconds")  # all else is the same whenever the same is asked for
    report = compared(runs, list(policies), list(environments), list(delays))
    if options.csv is not None:
        runs.to_csv(options.csv, index=False)
    if options.figure is not None:
        theme = DARK if options.dark else LIGHT
        names = list(policies), list(environments), list(delays)
        save(options.figure, runs, *names, title=options.title, theme=theme)
    print(msgspec.json.encode(report).decode() if options.json else _text(report))
    return 0


def checkpoints(rounds: int) -> list[int]:
    """Rounds evenly spread, the last among them.

    >>> checkpoints(200)[:3], len(checkpoints(200)), checkpoints(3)
    ([4, 8, 12], 50, [1, 2, 3])
    """
    return sorted({-(-rounds * step // CHECKPOINTS) for step in range(1, CHECKPOINTS + 1)})


def compared(
    runs: pd.DataFrame, policies: Sequence[str], environments: Sequence[str], delays: Sequence[str]
) -> dict[str, Any]:
    """The regret of all policies at the end, and how it differs from that of the first."""
    rounds = int(runs["round"].max())
    last = runs[runs["round"] == rounds]
    results = []
    for environment in environments:
        for delay in delays:
            here = last[(last["environment"] == environment) & (last["delay"] == delay)]
            regret = here.pivot(index="seed", columns="policy", values="regret")
            pending = here.pivot(index="seed", columns="policy", values="pending")
            for policy in policies:
                result = {
                    "environment": environment,
                    "delay": delay,
                    "policy": policy,
                    "regret": asdict(Spread.of(regret[policy])),
                    "pending": asdict(Spread.of(pending[policy])),
                    "difference": None,
                }
                if policy != policies[0]:
                    difference = Spread.of(regret[policy] - regret[policies[0]])
                    result["difference"] = asdict(difference) | {"t": difference.t}
                results.append(result)
    return {
        "rounds": rounds,
        "seeds": int(last["seed"].nunique()),
        "first": policies[0],
        "results": results,
    }


def _text(report: dict[str, Any]) -> str:
    seeds, first = report["seeds"], report["first"]
    head = f"regret after {several(report['rounds'], 'round')}"
    head += f": mean ± standard error of {seeds} seeds" if seeds > 1 else ", one seed"
    blocks = [head]
    cells: dict[str, list[dict[str, Any]]] = {}
    for result in report["results"]:
        cells.setdefault(f"{result['environment']} under {result['delay']}", []).append(result)
    for name, results in cells.items():
        rows = [_row(result) for result in results]
        columns = ["policy", ">regret", ">pending", ">difference", ">t"]
        if len(results) == 1:  # nothing to compare with
            columns, rows = columns[:3], [row[:3] for row in rows]
        blocks.append(f"{name}\n{table(columns, rows, indent='  ')}")
    if any(result["difference"] for result in report["results"]):
        blocks.append(_explained(first, seeds))
    return "\n\n".join(blocks)


def _row(result: dict[str, Any]) -> list[str]:
    regret, pending = Spread(**result["regret"]), Spread(**result["pending"])
    row = [result["policy"], str(regret), f"{pending.mean:,.0f}"]
    if result["difference"] is None:
        return [*row, "", ""]
    t = result["difference"]["t"]
    difference = Spread(**{name: result["difference"][name] for name in result["regret"]})
    return [*row, difference.text("+"), "-" if t is None else f"{t:+.1f}"]


def _explained(first: str, seeds: int) -> str:
    text = f"difference: to the regret of {first} under the same seeds; above 0 is worse."
    if seeds == 1:
        return wrapped(f"{text} One seed cannot tell it from chance: take more with --seeds.")
    return wrapped(
        f"{text} t is the difference in standard errors: beyond ±{hardly_chance(seeds):.1f} it is"
        f" hardly chance ({CHANCE:.0%})."
    )


def _named(texts: Sequence[str], read: Callable[[str], T]) -> dict[str, T]:
    """What was written, by its label."""
    found: dict[str, T] = {}
    seen: set[str] = set()
    for text in texts:
        value, name = read(text), label(text)
        if (whole := label(text, shown=len(text))) in seen:
            raise InvalidInput(f"{name} is asked for twice", text)
        seen.add(whole)
        others = sum(one == name or one.startswith(f"{name} #") for one in found)
        found[f"{name} #{others + 1}" if others else name] = value  # lists that begin alike
    return found
