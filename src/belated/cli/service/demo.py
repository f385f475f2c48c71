"""``belated demo``: watch a bandit earn in a simulated shop, two minutes, nothing to set up.

A shop whose purchases come days after the offer, time compressed, asks a real service on SQLite:
one bandit that counts pending decisions, with a holdout, and a twin that is blind for them. At the
end it says what the journal tells of lift, other policies and delays. Only the
report is left behind. It needs the extra ``service``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from belated.cli.demo.days import VISITORS, Play, Tally, play
from belated.cli.demo.screen import Screen
from belated.cli.demo.service import AWARE, BLIND, HOLDOUT, Caller, Running, running
from belated.cli.options import count
from belated.cli.text import pairs, several, table
from belated.evaluation import JournalEvaluation
from belated.exceptions import BelatedError, MissingExtra
from belated.journals import open_journal

EXAMPLE = "belated demo"

#: Days of the shop.
DAYS = 28
#: Where the report is left.
REPORT = "belated-demo.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "--seconds", type=count, default=84, help=f"how long {DAYS} days take; default: 84"
    )
    parser.add_argument("--seed", type=int, default=7, help="of visitors and luck; default: 7")


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    if find_spec("httptools") is None:
        raise MissingExtra("belated demo", "service")
    day = options.seconds / DAYS
    print(_introduction(options.seconds))
    with running(day) as service:
        print(_addresses(service))
        with Screen() as screen:
            for now in play(service.port, DAYS, options.seconds, options.seed):
                screen.show(_progress(now))
        print(_ending(service, day))
        _report(service)
    print("The service is stopped and its files are removed. For one of your own: belated init")
    return 0


def _introduction(seconds: int) -> str:
    return (
        f"A shop, {DAYS} days in {seconds} seconds. {VISITORS} visitors a day get one of four "
        "offers.\nPurchases come days later, up to a week; those of the best offers take longest.\n"
    )


def _addresses(service: Running) -> str:
    url = f"http://127.0.0.1:{service.port}"
    rows = [("service", f"{url}/v1/{AWARE}  (also /metrics, /openapi.json)")]
    caller = Caller(service.port)
    try:
        if caller.ask("GET", "/console")[0] == 200:
            rows.append(("console", f"{url}/console"))
    finally:
        caller.close()
    rows.append(("journal", service.store))
    return pairs(rows) + "\n"


def _progress(now: Play) -> str:
    names = {AWARE: "counts what is pending", BLIND: "blind for it"}
    lines = [_line(names[name], tally) for name, tally in now.tallies.items()]
    head = ["bandit", ">visitors", ">bought so far", ">will buy", ">of best"]
    return f"day {now.day:4.1f} of {DAYS}\n" + table(head, lines, indent="  ")


def _line(name: str, tally: Tally) -> list[str]:
    share = tally.promised / tally.visitors if tally.visitors else 0.0
    best = tally.promised / tally.best if tally.best else 0.0
    return [
        name,
        f"{tally.visitors:,}",
        f"{tally.purchases:,}",
        f"{share:.1%}",
        f"{best:.0%}",
    ]


def _ending(service: Running, day: float) -> str:
    """What the journal says, by the same functions as `belated lift | evaluate | delays`."""
    with open_journal(f"{service.store}?bandit={AWARE}") as journal:
        # As of now: the shop is closed, and what comes no more would count as never.
        evaluation = JournalEvaluation.of_journal(journal, until=journal.now())
        rows = list(_findings(evaluation, day))
    note = (
        "“will buy” is what the offers come to on average, which only the shop knows. The rest is\n"
        "from the journal, with 95 % intervals, though the last purchases are still to come."
    )
    return f"\nWhat the journal of {AWARE!r} says:\n" + pairs(rows, indent="  ") + f"\n\n{note}"


def _findings(evaluation: JournalEvaluation, day: float) -> Iterator[tuple[str, str]]:
    try:
        lift = evaluation.lift()
        change = "" if lift.relative is None else f", {lift.relative[0]:+.0%}"
        yield (
            "lift over the holdout",
            f"{100 * lift.difference:+.1f} ({100 * lift.low:+.1f} to {100 * lift.high:+.1f}) "
            f"purchases in 100 visitors{change}; {HOLDOUT:.0%} were held out",
        )
    except BelatedError as error:
        yield "lift over the holdout", str(error)
    try:
        value = evaluation.evaluate("uniform")
        yield (
            "offers at random",
            f"would bring {100 * value.value:.1f} ({100 * value.low:.1f} to "
            f"{100 * value.high:.1f}) in 100",
        )
    except BelatedError as error:
        yield "offers at random", str(error)
    try:
        curve = evaluation.delay_curve()
        half, most = curve.quantile(0.5), curve.quantile(0.9)
        if half is not None and most is not None:
            yield (
                "purchases come",
                f"half within {half.total_seconds() / day:.1f} days, 9 in 10 within "
                f"{most.total_seconds() / day:.1f}",
            )
        expected = evaluation.forecast().expected[-1]
        yield (
            "still to come",
            f"{several(round(expected.mean), 'purchase')} ({expected.low:,.0f} to "
            f"{expected.high:,.0f})",
        )
    except BelatedError as error:
        yield "delays", str(error)


def _report(service: Running) -> None:
    """Leave the report beside you."""
    target = Path(REPORT).resolve()
    address = f"{service.store}?bandit={AWARE}"
    arguments = ["report", address, "--output", str(target)]
    target.unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "belated", *arguments], check=False, stdout=subprocess.DEVNULL
    )
    if done.returncode == 0:
        print(f"\nreport  {target}")
