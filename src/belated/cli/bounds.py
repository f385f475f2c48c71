"""``belated bounds``: how many rewards can be out at once under a delay, by every bound known.

Only ``--figure`` needs an extra.
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
    add_option(parser, "--rounds", "looked at", count, 10_000)
    risk = "the probability with which a bound may fail"
    add_option(parser, "--delta", risk, float, 0.05, metavar="P")
    parser.add_argument("--figure", metavar="FILE", help="draw the bounds: .png, .svg or .pdf")
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    check_figure(options.figure)
    if options.rounds > MOST_ROUNDS:
        message = f"--rounds is {options.rounds:,}: at most {MOST_ROUNDS:,} can be looked at"
        raise InvalidInput(message, options.rounds)
    report = bounded(options)
    if options.figure is not None:
        save(options.figure, report)
    print(msgspec.json.encode(report).decode() if options.json else _text(report))


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
    """The least delay that so many rewards do not exceed; None if none is long enough."""

    def enough(delay_rounds: int) -> bool:
        return float(delay.tail(delay_rounds + 1.0)) <= 1.0 - share + 1e-12

    found = bisect_left(range(NEVER), True, key=enough)
    return None if found == NEVER else found


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


# --- delays in a file ----------------------------------------------------------------------------

#: What divides the columns: the first of them that makes the column that is asked for.
DIVIDERS = (",", ";", "\t")


def read_delays(path: str, column: str | None = None) -> NDArray[np.int64]:
    """The delays in their order, rounded up; what is empty or ``never`` is NEVER.

    Args:
        path: of the file; ``-`` is the standard input.
        column: of a CSV file with a line of names; None where each line is a delay.
    """
    name = "the standard input" if path == "-" else path
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InvalidInput(f"{name} is no text in UTF-8", path) from None
    lines = io.StringIO(text.removeprefix("\ufeff"))
    cells = enumerate(lines, start=1) if column is None else _column(name, lines, column)
    delays = [_delay(name, number, cell.strip()) for number, cell in cells]
    if not delays:
        raise InvalidInput(f"{name} holds no delay", path)
    return np.array(delays, dtype=np.int64)


def _column(name: str, lines: Iterable[str], column: str) -> Iterator[tuple[int, str]]:
    rest, number = iter(lines), 1
    first = next(rest, "")
    try:
        for divider in DIVIDERS:
            head = next(csv.reader([first], delimiter=divider), [])
            if column in head:
                break
        else:
            message = f"{name} has no column {column!r}; its first line: {shortened(first.strip())}"
            raise InvalidInput(message, column)
        reader = csv.reader(rest, delimiter=divider)
        for row in reader:
            number = 1 + reader.line_num
            if not row and len(head) > 1:  # an empty line among several columns is no row
                continue
            if row and len(row) != len(head):
                _refuse(name, number, f"{len(row)} columns, but {len(head)} names")
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
        hint = ", and --column NAME takes one of several" if many else ""
        wanted = f"a number of rounds or NEVER was expected{hint}"
        _refuse(name, number, f"{shortened(cell)!r} is no delay: {wanted}")
    if delay < 0.0:
        _refuse(name, number, f"{cell} is below 0: a delay is not negative")
    return math.ceil(delay) if delay < NEVER else NEVER


def _refuse(name: str, number: int, why: str) -> NoReturn:
    raise InvalidInput(f"{name}, line {number}: {why}", number)


# --- the figure ----------------------------------------------------------------------------------

#: Inches of a row, and of the key above all of them.
ROW, KEY = 0.5, 0.3
#: Bounds beyond so many times the rounds say nothing; they are drawn at the edge.
BEYOND = 10.0
#: What is planned with, what for delays that depend on one another, all others, the average.
BEST, DEPENDENT, OTHER, AVERAGE = COLOURS[0], COLOURS[2], "#888888", COLOURS[1]


def save(path: str, report: dict[str, Any]) -> None:
    """Draw what the command found into a file."""
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
        axes.set_xlabel("rewards out at once", fontsize=SMALL, color=GREY)
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
    """The title, and the lines below it."""
    file, about = report["file"], []
    where = f"{report['delay']} over {several(report['rounds'], 'round')}"
    if file is not None:
        where = f"{several(file['delays'], 'delay')} of {where}"
        if (other := file["plan_if_dependent"]) > report["plan"]:
            about.append(f"or for {other:,}, if delays may depend on one another")
    about.append(f"{where}; a bound fails in {percent(report['delta'])} of runs at most")
    title = f"Plan for at most {several(report['plan'], 'reward')} out at once"
    return title, [line for one in about for line in lines_of(one, 100)]
