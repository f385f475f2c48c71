"""``belated bounds``: bound how many rewards can be pending at once under a delay.

Only ``--figure`` requires an extra.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np
from numpy.typing import NDArray

from belated.cli.figures import (
    COLOURS,
    FOOT,
    GREY,
    HEAD,
    LINE,
    SMALL,
    add_head,
    add_note,
    add_rows,
    check_figure,
    drawn,
    lines_of,
)
from belated.cli.options import add_expression, add_json, add_option, count
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
from belated.expressions import DELAYS, as_delay, label, shortened
from belated.theory import Bound, Bounds, bounds_for, missing_bennett

EXAMPLE = 'belated bounds --delay "Geometric(mean=100)" --rounds 10000 --delta 0.05'

#: Maximum number of rounds. The cost grows with the number of rounds, and this many take seconds.
MOST_ROUNDS = 10_000_000
#: Bounds that hold with certainty, and why.
CERTAIN = {
    "bounded": "there are never more",
    "rounds": "no bound is known except the number of rounds",
}
#: The share of lost rewards is reported if it is above this threshold.
FEW = 0.0005


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    group = add_expression(parser, DELAYS, "delay of rewards", several=False, instead="--file")
    group.add_argument(
        "--file",
        metavar="FILE",
        help="observed delays in rounds, one per line; NEVER or an empty line for a reward that"
        " never arrived; - for standard input",
    )
    group.add_argument("--column", metavar="NAME", help="column of FILE, if it is CSV")
    add_option(parser, "--rounds", "number of rounds", count, 10_000)
    risk = "probability with which a bound may fail"
    add_option(parser, "--delta", risk, float, 0.05, metavar="P")
    parser.add_argument("--figure", metavar="FILE", help="draw the bounds: .png, .svg or .pdf")
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    check_figure(options.figure)
    if options.rounds > MOST_ROUNDS:
        message = f"--rounds is {options.rounds:,}: at most {MOST_ROUNDS:,} are supported"
        raise InvalidInput(message, options.rounds)
    report = bounded(options)
    if options.figure is not None:
        save(options.figure, report)
    print(msgspec.json.encode(report).decode() if options.json else _text(report))


def bounded(options: argparse.Namespace) -> dict[str, Any]:
    """Return properties of the delay, all bounds, and the number of pending rewards to plan for."""
    if options.file is not None:
        return _from_file(options)
    if options.column is not None:
        raise InvalidInput("--column requires --file", options.column)
    if not options.delay:
        raise InvalidInput("the delay of rewards is missing: pass --delay or --file", None)
    delay = as_delay(options.delay)
    bounds = bounds_for(delay, horizon=options.rounds, delta=options.delta)
    return _report(label(options.delay), delay, bounds)


def _from_file(options: argparse.Namespace) -> dict[str, Any]:
    """Return the report for observed delays, which may be dependent."""
    if options.delay:
        raise InvalidInput("--delay and --file are alternatives: pass one of them", options.file)
    seen = read_delays(options.file, options.column)
    law, n = Empirical(seen), len(seen)
    alone = bounds_for(law, horizon=options.rounds, delta=options.delta)
    # Pairs of equal delays have the same law but are dependent, so bounds for independent delays do
    # not apply.
    together = bounds_for(
        BlockDependent(law, length=2), horizon=options.rounds, delta=options.delta
    )
    most = _most_out(seen)
    chance = missing_bennett(float(expected_missing(law, n)), horizon=n, delta=options.delta)
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
    """Return the maximum number of pending rewards, for the delays of consecutive rounds."""
    n = len(seen)
    arrival = np.arange(1, n + 1) + seen
    arrived = np.bincount(arrival[arrival < n], minlength=n)
    return int((np.arange(n) - np.cumsum(arrived)).max())


def _report(
    name: str, delay: DelayProcess, bounds: Bounds, file: dict[str, Any] | None = None
) -> dict[str, Any]:
    is_known = not isinstance(delay, Conditional)
    return {
        "delay": name,
        "file": file,
        "rounds": bounds.horizon,
        "delta": bounds.delta,
        "law": _law(delay) if is_known else None,
        "expected": float(expected_missing(delay, bounds.horizon)) if is_known else None,
        "bounds": [asdict(row) | {"holds": row.holds} for row in _ordered(bounds)],
        "best": _ordered(bounds)[0].name,
        "plan": _whole(bounds.best_maximum),
    }


def _ordered(bounds: Bounds) -> list[Bound]:
    """Sort bounds by size. Certain bounds precede equal ones; inapplicable bounds come last."""

    def place(row: Bound) -> tuple[bool, float, bool, float]:
        if row.maximum is None:
            return True, 0.0, False, 0.0
        allowed = row.maximum if math.isinf(row.maximum) else _whole(row.maximum)
        return False, allowed, row.name not in CERTAIN, row.maximum

    return sorted(bounds, key=place)


def _whole(bound: float) -> int:
    """Return the largest whole number within a bound, tolerating rounding errors."""
    return math.floor(bound + 1e-9)


def _law(delay: DelayProcess) -> dict[str, float | None]:
    """Return statistics of a delay, with None for infinite values."""
    return {
        "mean": delay.mean if math.isfinite(delay.mean) else None,
        "median": _quantile(delay, 0.5),
        "q95": _quantile(delay, 0.95),
        "never": float(delay.tail(float(NEVER))),
    }


def _quantile(delay: DelayProcess, share: float) -> int | None:
    """Return the quantile of a delay for a share of the rewards; None if it is infinite."""

    def enough(delay_rounds: int) -> bool:
        return float(delay.tail(delay_rounds + 1.0)) <= 1.0 - share + 1e-12

    quantile = bisect_left(range(NEVER), True, key=enough)
    return None if quantile == NEVER else quantile


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
        "maximum number of pending rewards; each bound fails in at most "
        f"{percent(report['delta'])} of runs\n"
        f"{table(head, list(map(list, cells)), indent='  ')}\n  * lowest",
    ]
    if failing := rows[len(holding) :]:
        reasons: dict[str, list[str]] = {}
        for row in failing:
            reasons.setdefault(row["why"], []).append(row["name"])
        lines = [wrapped(f"  {', '.join(names)}: {why}", "    ") for why, names in reasons.items()]
        blocks.append("\n".join(["bounds that do not hold", *lines]))
    blocks += [wrapped(sentence) for sentence in (*_notes(report), _advice(report))]
    return "\n\n".join(blocks)


def _aligned(items: list[tuple[str, str]]) -> str:
    indent = " " * (2 + max(len(name) for name, _ in items))
    return "\n".join(wrapped(line, indent) for line in pairs(items).splitlines())


def _known(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what is known about the delay and the average number of pending rewards."""
    file, law, expected = report["file"], report["law"], report["expected"]
    lines = [("delay", report["delay"])]
    if file is not None:
        delays = f"{several(file['delays'], 'delay')}, {file['never']:,} never arrived"
        lines.append(("observed", delays))
    if law is None:
        lines.append(("law", "none: the delay depends on the row or on the reward"))
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
        lines.append(("pending", f"{expected:,.1f} on average, by round {report['rounds']:,}"))
    return lines


def _notes(report: dict[str, Any]) -> list[str]:
    notes = []
    if report["file"] is not None:
        most = report["file"]["most_out"]
        note = f"note: if the lines are in the order of decisions, at most {most:,} were pending"
        if not report["file"]["independent"]:
            note += ", more than with independent delays: rewards arrive together, as in batches"
        notes.append(f"{note}.")
    if report["law"] is not None and report["law"]["never"] > FEW:
        notes.append(
            "note: rewards that never come accumulate over the rounds; a reward window limits the"
            " time for which they are pending."
        )
    return notes


def _advice(report: dict[str, Any]) -> str:
    """Return the conclusion as one sentence."""
    file, best = report["file"], report["best"]
    text = f"Plan for at most {several(report['plan'], 'pending reward')}"
    risk = f"at most {percent(report['delta'])} of runs of {several(report['rounds'], 'round')}"
    if file is None and best in CERTAIN:
        return f"{text}: {CERTAIN[best]}."
    if file is not None and file["plan_if_dependent"] > report["plan"]:
        text += f" if delays are independent, or {file['plan_if_dependent']:,} if they may not be"
    as_before = "" if file is None else ", if delays stay as they were"
    return f"{text}: {risk} exceed this{as_before}."


# --- delays in a file ----------------------------------------------------------------------------

#: Column separators to try, in order.
DIVIDERS = (",", ";", "\t")


def read_delays(path: str, column: str | None = None) -> NDArray[np.int64]:
    """Read delays in order, rounded up. An empty cell or ``never`` means NEVER.

    Args:
        path: the path of the file; ``-`` for standard input.
        column: the column to read from a CSV file with a header; None if each line is a delay.
    """
    name = "standard input" if path == "-" else path
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InvalidInput(f"{name} is not UTF-8 text", path) from None
    lines = io.StringIO(text.removeprefix("\ufeff"))
    cells = enumerate(lines, start=1) if column is None else _column(name, lines, column)
    delays = [_delay(name, number, cell.strip()) for number, cell in cells]
    if not delays:
        raise InvalidInput(f"{name} contains no delays", path)
    return np.array(delays, dtype=np.int64)


def _column(name: str, lines: Iterable[str], column: str) -> Iterator[tuple[int, str]]:
    remaining, number = iter(lines), 1
    first = next(remaining, "")
    try:
        for divider in DIVIDERS:
            head = next(csv.reader([first], delimiter=divider), [])
            if column in head:
                break
        else:
            message = f"{name} has no column {column!r}; its header: {shortened(first.strip())}"
            raise InvalidInput(message, column)
        reader = csv.reader(remaining, delimiter=divider)
        for row in reader:
            number = 1 + reader.line_num
            if not row and len(head) > 1:  # skip empty lines
                continue
            if row and len(row) != len(head):
                _refuse(name, number, f"{len(row)} cells for {len(head)} columns")
            yield number, row[head.index(column)] if row else ""
    except csv.Error as error:
        _refuse(name, number, str(error))


def _delay(name: str, number: int, cell: str) -> int:
    if cell.lower() in ("", "never"):
        return NEVER
    try:
        delay = float(cell)
    except ValueError:
        delay = math.nan
    if math.isnan(delay):
        many = any(divider in cell for divider in DIVIDERS)
        hint = "; select a column with --column NAME" if many else ""
        expectation = f"expected a number of rounds or NEVER{hint}"
        _refuse(name, number, f"{shortened(cell)!r} is not a delay: {expectation}")
    if delay < 0.0:
        _refuse(name, number, f"{cell} is below 0: delays cannot be negative")
    return math.ceil(delay) if delay < NEVER else NEVER


def _refuse(name: str, number: int, why: str) -> NoReturn:
    raise InvalidInput(f"{name}, line {number}: {why}", number)


# --- the figure ----------------------------------------------------------------------------------

#: Heights of a row and of the legend, in inches.
ROW, KEY = 0.5, 0.3
#: Bounds that exceed the number of rounds by more than this factor are drawn at the edge.
BEYOND = 10.0
#: Colors of the best bound, the best bound for dependent delays, other bounds, and the average.
BEST, DEPENDENT, OTHER, AVERAGE = COLOURS[0], COLOURS[2], "#888888", COLOURS[1]


def save(path: str, report: dict[str, Any]) -> None:
    """Draw a figure of the bounds and save it to a file."""
    rows = [row for row in report["bounds"] if row["holds"]]
    rounds, expected = report["rounds"], report["expected"]
    title, about = _words(report)
    top = HEAD + (len(about) - 1) * SMALL * LINE / 72 + KEY
    dependent = (report["file"] or {}).get("best_if_dependent")
    colours = {dependent: DEPENDENT, report["best"]: BEST}
    with drawn(path, top + ROW * len(rows) + FOOT) as figure:
        add_head(figure, title, about)
        axes = add_rows(figure, [f"{row['name']}\n{row['reference']}" for row in rows], top, ROW)
        plain = axes.xaxis.get_major_formatter()
        axes.set_xscale("symlog", linthresh=1.0)
        axes.xaxis.set_major_formatter(plain)
        axes.set_xlabel("pending rewards", fontsize=SMALL, color=GREY)
        for number, row in enumerate(rows):
            colour = colours.get(row["name"], OTHER)
            value, maximum = (min(row[name], BEYOND * rounds) for name in ("value", "maximum"))
            dot = {"marker": "o", "ms": 7.5, "mew": 1.6, "mec": colour, "ls": "none"}
            axes.plot([value, maximum], [number] * 2, color=colour, lw=2.0)
            axes.plot([maximum], [number], **dot, mfc=colour, label=f"in any of {rounds:,} rounds")
            add_note(axes, amount(row["maximum"]), (maximum, number), right=8, up=0)
            if amount(row["value"]) != amount(row["maximum"]):
                axes.plot([value], [number], **dot, mfc="white", label="in one round")
                add_note(axes, amount(row["value"]), (value, number), right=-8, up=0)
        if expected is not None:
            label = f"{expected:,.1f} on average"
            axes.axvline(expected, color=AVERAGE, lw=1.4, ls=(0, (4, 2)), zorder=1, label=label)
        axes.margins(x=0.12)
        handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        place = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "ncols": len(handles)}
        look = {"frameon": False, "fontsize": SMALL, "handletextpad": 0.3}
        axes.legend(handles.values(), handles, **place, **look)


def _words(report: dict[str, Any]) -> tuple[str, list[str]]:
    """Return the title of the figure and the lines below it."""
    file, about = report["file"], []
    where = f"{report['delay']} over {several(report['rounds'], 'round')}"
    if file is not None:
        where = f"{several(file['delays'], 'delay')} of {where}"
        if (dependent_plan := file["plan_if_dependent"]) > report["plan"]:
            about.append(f"or for {dependent_plan:,}, if delays may not be independent")
    about.append(f"{where}; each bound fails in at most {percent(report['delta'])} of runs")
    title = f"Plan for at most {several(report['plan'], 'pending reward')}"
    return title, [line for text in about for line in lines_of(text, 100)]
