"""``belated bounds``: how many rewards can be out at once under a delay, by every bound known.

Only ``--figure`` needs an extra.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from belated.cli.options import add_expression, add_json, count
from belated.cli.simulation.bounds_figure import save
from belated.cli.simulation.checks import check_figure
from belated.cli.simulation.delay_lines import read_delays
from belated.cli.text import amount, pairs, percent, several, table, wrapped
from belated.delays import (
    NEVER,
    BlockDependent,
    Conditional,
    DelayProcess,
    Empirical,
    expected_missing,
)
from belated.exceptions import InvalidInput
from belated.expressions import DELAYS, as_delay, label
from belated.theory import Bound, Bounds, bounds_for, missing_max_bennett

EXAMPLE = 'belated bounds --delay "Geometric(mean=100)" --rounds 10000 --delta 0.05'

#: Every round is looked at: so many take some seconds.
MOST_ROUNDS = 10_000_000
#: Bounds that never fail, and why.
CERTAIN = {
    "bounded": "there are never more",
    "rounds": "nothing but the number of rounds is known to bound them",
}
#: A share of lost rewards that is worth a word.
FEW = 0.0005


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    group = add_expression(parser, DELAYS, "when rewards come", several=False, instead="--file")
    group.add_argument(
        "--file",
        metavar="FILE",
        help="delays that were seen, one in a line, in rounds; NEVER or nothing for a reward that"
        " never came; - is the standard input",
    )
    group.add_argument("--column", metavar="NAME", help="of the file, if it is CSV")
    parser.add_argument(
        "--rounds", type=count, default=10_000, metavar="N", help="looked at; default: 10000"
    )
    parser.add_argument(
        "--delta",
        type=float,
        default=0.05,
        metavar="P",
        help="the probability with which a bound may fail; default: 0.05",
    )
    parser.add_argument("--figure", metavar="FILE", help="draw the bounds: .png, .svg or .pdf")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    check_figure(options.figure)
    if options.rounds > MOST_ROUNDS:
        message = f"--rounds is {options.rounds:,}: at most {MOST_ROUNDS:,} can be looked at"
        raise InvalidInput(message, options.rounds)
    report = bounded(options)
    if options.figure is not None:
        save(options.figure, report)
    print(msgspec.json.encode(report).decode() if options.json else _text(report))
    return 0


def bounded(options: argparse.Namespace) -> dict[str, Any]:
    """What is known of the delay, all bounds, and what to plan for."""
    if options.file is not None:
        return _from_file(options)
    if options.column is not None:
        raise InvalidInput("--column is for a --file", options.column)
    if not options.delay:
        raise InvalidInput("--delay or --file is needed: when do rewards come?", None)
    delay = as_delay(options.delay)
    bounds = bounds_for(delay, horizon=options.rounds, delta=options.delta)
    return _report(label(options.delay), delay, bounds)


def _from_file(options: argparse.Namespace) -> dict[str, Any]:
    """The same for delays that were seen, which may depend on one another or not."""
    if options.delay:
        raise InvalidInput("--delay and --file: only one of them can be used", options.file)
    seen = read_delays(options.file, options.column)
    law, n = Empirical(seen), len(seen)
    alone = bounds_for(law, horizon=options.rounds, delta=options.delta)
    # Pairs of equal delays have this law, and no bound for independent delays holds for them.
    together = bounds_for(
        BlockDependent(law, length=2), horizon=options.rounds, delta=options.delta
    )
    most = _most_out(seen)
    chance = missing_max_bennett(float(expected_missing(law, n)), horizon=n, delta=options.delta)
    file = {
        "delays": n,
        "never": int((seen == NEVER).sum()),
        "most_out": most,
        "independent": most <= chance,
        "best_if_dependent": _ordered(together)[0].name,
        "plan_if_dependent": _whole(together.best_maximum),
    }
    name = "standard input" if options.file == "-" else options.file
    return _report(name, law, alone if file["independent"] else together, file)


def _most_out(seen: NDArray[np.int64]) -> int:
    """The most rewards out at once, if these are the delays of rounds that follow one another."""
    n = len(seen)
    arrival = np.arange(1, n + 1) + seen
    arrived = np.bincount(arrival[arrival < n], minlength=n)
    return int((np.arange(n) - np.cumsum(arrived)).max())


def _report(
    name: str, delay: DelayProcess, bounds: Bounds, file: dict[str, Any] | None = None
) -> dict[str, Any]:
    known = not isinstance(delay, Conditional)
    return {
        "delay": name,
        "file": file,
        "rounds": bounds.horizon,
        "delta": bounds.delta,
        "law": _law(delay) if known else None,
        "expected": float(expected_missing(delay, bounds.horizon)) if known else None,
        "bounds": [asdict(row) | {"holds": row.holds} for row in _ordered(bounds)],
        "best": _ordered(bounds)[0].name,
        "plan": _whole(bounds.best_maximum),
    }


def _ordered(bounds: Bounds) -> list[Bound]:
    """The least first; of several one that never fails; those that do not hold last."""

    def place(row: Bound) -> tuple[bool, float, bool, float]:
        if row.maximum is None:
            return True, 0.0, False, 0.0
        allowed = row.maximum if math.isinf(row.maximum) else _whole(row.maximum)
        return False, allowed, row.name not in CERTAIN, row.maximum

    return sorted(bounds, key=place)


def _whole(bound: float) -> int:
    """As many rewards as it allows; what it lacks by rounding is not missed."""
    return math.floor(bound + 1e-9)


def _law(delay: DelayProcess) -> dict[str, float | None]:
    """Of one delay; None where it is infinite."""
    return {
        "mean": delay.mean if math.isfinite(delay.mean) else None,
        "median": _quantile(delay, 0.5),
        "q95": _quantile(delay, 0.95),
        "never": float(delay.tail(float(NEVER))),
    }


def _quantile(delay: DelayProcess, share: float) -> int | None:
    """The least delay that so many do not exceed, or None if fewer ever come."""

    def enough(k: int) -> bool:
        return float(delay.tail(k + 1.0)) <= 1.0 - share + 1e-12

    low, high = -1, 1
    while not enough(high):
        low, high = high, 2 * high
        if high >= NEVER:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _text(report: dict[str, Any]) -> str:
    rows = report["bounds"]
    holding = [row for row in rows if row["holds"]]

    def column(name: str) -> list[str]:
        least = amount(min(row[name] for row in holding))
        numbers = [amount(row[name]) for row in holding]
        marked = [f"{number}{'*' if number == least else ' '}" for number in numbers]
        return marked + ["– "] * (len(rows) - len(holding))

    names, references = ([row[key] for row in rows] for key in ("name", "reference"))
    cells = zip(names, column("value"), column("maximum"), references, strict=True)
    head = ["bound", ">one round ", f">any of {report['rounds']:,} ", "from"]
    blocks = [
        _aligned(_known(report)),
        f"rewards out at once, at most; a bound fails in {percent(report['delta'])} of runs at most"
        f"\n{table(head, list(map(list, cells)), indent='  ')}\n  * the least",
    ]
    if others := rows[len(holding) :]:
        reasons: dict[str, list[str]] = {}
        for row in others:
            reasons.setdefault(row["why"], []).append(row["name"])
        lines = [wrapped(f"  {', '.join(names)}: {why}", "    ") for why, names in reasons.items()]
        blocks.append("\n".join(["do not hold", *lines]))
    blocks += [wrapped(sentence) for sentence in (*_notes(report), _advice(report))]
    return "\n\n".join(blocks)


def _aligned(items: list[tuple[str, str]]) -> str:
    indent = " " * (2 + max(len(name) for name, _ in items))
    return "\n".join(wrapped(line, indent) for line in pairs(items).splitlines())


def _known(report: dict[str, Any]) -> list[tuple[str, str]]:
    """What is known of the delay and of what is out on average."""
    file, law, expected = report["file"], report["law"], report["expected"]
    lines = [("delay", report["delay"])]
    if file is not None:
        lines.append(("seen", f"{several(file['delays'], 'delay')}, {file['never']:,} never came"))
    if law is None:
        lines.append(("law", "none of its own: it depends on the row or on the reward"))
    else:
        mean = law["mean"]
        parts = [
            "infinite mean" if mean is None else f"mean {mean:{',.1f' if mean < 1e12 else '.1e'}}"
        ]
        parts += [f"median {law['median']:,}"] if law["median"] is not None else []
        parts += [f"95% within {several(law['q95'], 'round')}"] if law["q95"] is not None else []
        parts += [f"{percent(law['never'])} never come"] if law["never"] > FEW else []
        lines.append(("law", ", ".join(parts)))
    if expected is not None:
        lines.append(("out", f"{expected:,.1f} on average, by round {report['rounds']:,}"))
    return lines


def _notes(report: dict[str, Any]) -> list[str]:
    notes = []
    if report["file"] is not None:
        most = report["file"]["most_out"]
        note = f"note: if the lines are in the order of the decisions, {most:,} were out at most"
        if not report["file"]["independent"]:
            note += ", more than independent delays would have: they come together, as in batches"
        notes.append(f"{note}.")
    if report["law"] is not None and report["law"]["never"] > FEW:
        notes.append(
            "note: rewards that never come add up over the rounds; a window, after which they are"
            " not waited for, ends that."
        )
    return notes


def _advice(report: dict[str, Any]) -> str:
    """What to take from it, in one sentence."""
    file, best = report["file"], report["best"]
    text = f"Plan for at most {several(report['plan'], 'reward')} out at once"
    risk = f"at most {percent(report['delta'])} of runs of {several(report['rounds'], 'round')}"
    if file is None and best in CERTAIN:
        return f"{text}: {CERTAIN[best]}."
    if file is not None and file["plan_if_dependent"] > report["plan"]:
        text += (
            f" if delays do not depend on one another, and for {file['plan_if_dependent']:,} if"
            " they may"
        )
    as_before = "" if file is None else ", if delays stay as they were"
    return f"{text}: {risk} come to more{as_before}."
