"""``belated plan``: say what a bandit takes: machines for a rate, or time and rewards to learn.

``belated plan`` measures for about half a minute what decisions, commits, learning and HTTP cost on
SQLite in a temporary folder, and on the stores whose addresses are given; it needs the extra
``service``. ``belated plan learning`` simulates.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import msgspec

from belated.cli.options import add_json, count, duration
from belated.cli.service import plan_learning
from belated.cli.text import pairs, percent, several, size, span, table, wrapped
from belated.exceptions import InvalidInput

if TYPE_CHECKING:
    from belated.planning import Costs, Demand, Linear, LogCosts, Plan

EXAMPLE = """belated plan --rate 500 --reward-share 0.1 --dim 20 --window 7d
  belated plan learning --rate 1000/d --delay 2d --window 7d --lift 0.2"""

#: Decisions a second that are planned for beside the one that is asked for.
RATES = (1e3, 1e4, 1e5, 1e6)
#: What to do about the part that has the least to spare.
REMEDIES = {
    "memory": "shorten the window and the retention, or split the bandit by customer",
    "process": "use PostgreSQL, so that other processes can decide and learn",
    "commits": "set keep_requests below 1, take a faster disk, or use Kafka",
    "database": "set keep_requests below 1, take a larger database server, or use Kafka",
    "learner": 'set learners = "many", with at least 16 partitions',
    "learners": "use fewer features, or split the bandit",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "what",
        nargs="?",
        choices=("machines", "learning"),
        default="machines",
        help="what is planned; default: machines",
    )
    parser.add_argument(
        "--rate", type=rate, metavar="RATE", help="decisions a second, or as 1000/d or 50/h"
    )
    parser.add_argument(
        "--reward-share",
        type=_positive,
        metavar="SHARE",
        help="rewards for each decision; default: 0.1",
    )
    parser.add_argument("--dim", type=count, default=20, help="features of a row; default: 20")
    parser.add_argument("--actions", type=count, help="to choose from; default: 10", metavar="N")
    parser.add_argument(
        "--window",
        type=duration,
        metavar="TIME",
        help="of the rewards; for machines the retention, if it is longer; default: 7d",
    )
    add_json(parser)
    plan_learning.add_arguments(parser.add_argument_group("learning"), _positive)
    machines = parser.add_argument_group("machines")
    machines.add_argument(
        "--store",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="a PostgreSQL or Kafka for tests, to be measured too: journals named belated-plan "
        "are left in it (repeatable)",
    )
    machines.add_argument(
        "--server-pid",
        action="append",
        default=[],
        type=count,
        metavar="PID",
        help="a broker, or PostgreSQL's postmaster, on this machine: its CPU is measured, too "
        "(repeatable)",
    )


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    if options.what == "learning":
        if options.store or options.server_pid:
            message = "--store and --server-pid are for machines: leave them out"
            raise InvalidInput(message, options.store)
        return plan_learning.run(options)
    plan_learning.refuse_given(options)
    if options.rate is None:
        raise InvalidInput("--rate is needed: decisions a second, such as 500 or 1000/d", None)
    return _run_machines(options)


def _run_machines(options: argparse.Namespace) -> int:
    from belated.planning import Demand, Learning, measure, plan

    # What is assumed of a bandit is the same in both plans.
    share = options.reward_share or Learning.reward_share
    window = Learning.window if options.window is None else options.window.total_seconds()
    costs = measure(
        dim=options.dim,
        reward_share=share,
        actions=options.actions or Learning.actions,
        stores=options.store,
        server_pids=options.server_pid,
        progress=_progress,
    )
    _progress("")
    asked = Demand(options.rate, share, options.dim, window)
    plans = [plan(costs, replace(asked, rate=rate)) for rate in (asked.rate, *RATES)]
    if options.json:
        told = {"costs": asdict(costs), "plans": [_told(one) for one in plans]}
        print(msgspec.json.format(msgspec.json.encode(told)).decode())
    else:
        print(_text(costs, asked, plans))
    return 0


def rate(text: str) -> float:
    """Decisions a second.

    >>> rate("500"), rate("36/h"), round(rate("1000/d"), 4)
    (500.0, 0.01, 0.0116)
    """
    number, _, unit = text.partition("/")
    seconds = {"": 1.0, "s": 1.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}.get(unit)
    if seconds is None:
        raise argparse.ArgumentTypeError(f"{text!r}: a number, or one as 1000/d, 50/h or 5/min")
    return _positive(number) / seconds


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0.0 < number < 1e12:
        raise argparse.ArgumentTypeError(f"{text!r}: a number above 0 was expected")
    return number


def _progress(what: str) -> None:
    if sys.stderr.isatty():
        line = f"measuring: {what} …" if what else ""
        print(f"\r{line:60}\r", end="", file=sys.stderr, flush=True)


def _told(one: Plan) -> dict[str, object]:
    name, rate = one.breaks_first
    return asdict(one) | {"breaks_first": name, "breaks_at": rate, "fits": one.fits}


# --- text ---------------------------------------------------------------------------------------


def _text(costs: Costs, asked: Demand, plans: list[Plan]) -> str:
    parts = [
        f"measured here: {several(costs.dim, 'feature')}, {several(costs.actions, 'action')}",
        pairs(_measured(costs), indent="  "),
        "",
        f"what it takes: {percent(asked.reward_share)} rewards, "
        f"remembered for {_days(asked.window)}",
        _columns(plans),
        "",
        *_notes(costs, plans),
    ]
    return "\n".join(parts)


def _measured(costs: Costs) -> list[tuple[str, str]]:
    lines = [
        ("a choice", f"{_us(costs.choose)} of CPU"),
        (
            "Bandit on SQLite",
            f"decide {_us(costs.embedded_decision)}, observe {_us(costs.embedded_reward)}: "
            f"{1 / costs.embedded_decision:,.0f} decisions/s at most",
        ),
        ("remembered", f"{costs.pending_bytes:.0f} bytes of memory a decision"),
    ]
    for log in costs.logs.values():
        lines += [
            (
                f"{log.name}: commit",
                f"{_line(log.commit)} of CPU, durable after {_line(log.wait)}",
            ),
            *_server(log),
            (
                f"{log.name}: HTTP",
                f"{_us(log.service.request)} of CPU a decision, {_us(log.service.reward)} a "
                f"reward, {_us(log.service.commit)} a commit",
            ),
            (
                f"{log.name}: stored",
                f"{log.decision_bytes:.0f} bytes a decision, {log.reward_bytes:.0f} a reward",
            ),
            (
                f"{log.name}: learn",
                f"{_us(log.event)} of CPU an event; shared: {_us(log.shared_event)}",
            ),
        ]
    return lines


def _server(log: LogCosts) -> list[tuple[str, str]]:
    if log.server is None or log.name == "sqlite":
        return []
    return [(f"{log.name}: server", f"{_line(log.server)} of CPU")]


def _columns(plans: list[Plan]) -> str:
    rows: dict[str, list[str]] = {
        "log": [str(one.setup.log) for one in plans],
        "decider processes": [f"{one.deciders:,}" for one in plans],
        "decider cores": [_cores(one.decider_cores) for one in plans],
        "learners": [f"{one.learners:,}" for one in plans],
        "learner cores": [_cores(one.learner_cores) for one in plans],
        "database or broker cores": [_cores(one.server_cores) for one in plans],
        "brokers": [f"{one.brokers:,}" for one in plans],
        "partitions": [f"{one.partitions:,}" for one in plans],
        "log a second": [size(round(one.bytes)) for one in plans],
        "log a day": [size(round(one.bytes * 86_400)) for one in plans],
        "memory of learners": [size(round(one.memory)) for one in plans],
        "lag": [f"{one.lag:.2f} s" for one in plans],
        "lag after a kill": [f"{one.lag_after_kill:.0f} s" for one in plans],
        "breaks first": [one.breaks_first[0] for one in plans],
        "at decisions/s": [f"{one.breaks_first[1]:,.0f}" for one in plans],
    }
    head = ["decisions/s", *(f">{one.demand.rate:,.0f}" for one in plans)]
    return table(head, [[name, *cells] for name, cells in rows.items()], indent="  ")


def _notes(costs: Costs, plans: list[Plan]) -> list[str]:
    asked = plans[0]
    name, rate = asked.breaks_first
    notes = [
        f"For {asked.demand.rate:,.0f} decisions/s: {asked.setup}. What breaks first is {name}, at "
        f"{rate:,.0f} decisions/s: {REMEDIES[name]}."
    ]
    if not asked.fits:
        notes.append("No set-up carries this rate with half of its capacity to spare.")
    for log in dict.fromkeys(one.setup.log for one in plans):
        if log not in costs.logs:
            notes.append(f"{log} was not measured, its figures are from elsewhere: give --store.")
        elif costs.logs[log].server is None and log != "sqlite":
            notes.append(f"CPU of {log}'s server was not measured: give --server-pid.")
    return [wrapped(one) for one in notes]


def _us(seconds: float) -> str:
    return f"{1e6 * seconds:,.1f} µs" if seconds < 1e-5 else f"{1e6 * seconds:,.0f} µs"


def _line(cost: Linear) -> str:
    return f"{_us(cost.fixed)} + {_us(cost.each)} an event"


def _cores(count: float) -> str:
    return f"{count:.2f}" if count < 10 else f"{count:,.0f}"


def _days(seconds: float) -> str:
    return span(round(1e6 * seconds))
