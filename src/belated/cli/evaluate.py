"""``belated evaluate``: estimate what a bandit or another policy earns, and when rewards arrive.

``--lift`` compares the bandit with its holdout. ``--policy`` requires a journal with stored
requests, recorded with a policy that has a floor. ``--delays`` also forecasts future rewards.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
from scipy.special import ndtri

from belated.cli.address import add_address, add_archive, log_at
from belated.cli.figures import (
    COLOURS,
    FOOT,
    GREY,
    GRID,
    HEAD,
    MARGIN,
    PALE,
    SMALL,
    WIDTH,
    add_axes,
    add_head,
    add_note,
    add_rows,
    check_figure,
    drawn,
)
from belated.cli.options import add_json, add_module, add_option, duration, time
from belated.cli.text import pairs, percent, several, wrapped
from belated.core.times import largest_unit, lasting
from belated.evaluation import DelayCurve, Lift, Value
from belated.evaluation.delays import delay_curve, delay_depends
from belated.evaluation.forecasts import forecast
from belated.evaluation.journal import JournalLog
from belated.evaluation.sources import JournalTable
from belated.exceptions import InvalidInput, NotEvaluable
from belated.expressions import as_whole_policy, load_modules
from belated.features.shared import with_catalogue
from belated.policies import Policy
from belated.report.panels.headline import relative_lift

EXAMPLE = """belated evaluate sqlite:///offers.db --lift
  belated evaluate sqlite:///offers.db --policy uniform
  belated evaluate sqlite:///offers.db --delays --ahead 1d 7d"""

#: Heights of a line with an interval and of the curve, in inches.
LINE, CURVE = 0.55, 3.2
#: Options that can be combined with each kind of evaluation, in addition to ``--figure``.
OPTIONS = {
    "lift": ("limit",),
    "policy": ("limit", "since", "module", "catalogue"),
    "delays": ("ahead",),
}


class Interval(NamedTuple):
    """An estimate and the bounds of its interval."""

    name: str
    value: float
    low: float
    high: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_address(parser)
    question = parser.add_mutually_exclusive_group(required=True)
    add_option(
        question,
        "--lift",
        "estimate how much more the bandit earns than its holdout",
        action="store_true",
    )
    question.add_argument(
        "--policy",
        help="estimate what another policy would have earned: uniform, first, an action name, or a "
        "policy such as 'DelayedUCB(alpha=0.5)', which requires --since",
    )
    about = "estimate when rewards arrive, and how many are still to come"
    add_option(question, "--delays", about, action="store_true")
    limit = "with --lift or --policy: count only rewards within this time, such as 7d"
    add_option(parser, "--limit", limit, duration)
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="with --policy: evaluate decisions from this time on, such as 2026-11-16T12:00:00Z; a "
        "policy first learns from earlier data",
    )
    add_module(parser)
    catalogue = "with --policy: JSON file with the records of actions offered by name"
    add_option(parser, "--catalogue", catalogue, metavar="FILE")
    ahead = "with --delays: forecast horizons; default: 1d 7d"
    add_option(parser, "--ahead", ahead, duration, nargs="+")
    add_archive(parser)
    add_option(parser, "--as-of", "use only what was known at this time; default: everything", time)
    parser.add_argument("--figure", metavar="FILE", help="draw a figure: .png, .svg or .pdf")
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    question = "policy" if options.policy else "lift" if options.lift else "delays"
    for name in ("limit", "since", "module", "catalogue", "ahead"):
        if getattr(options, name) and name not in OPTIONS[question]:
            message = f"--{name} cannot be combined with --{question}: leave it out"
            raise InvalidInput(message, getattr(options, name))
    check_figure(options.figure)
    load_modules(options.module)
    answer = {"policy": _policy, "lift": _lift, "delays": _delays}[question]
    with log_at(options.address, options.archive, options.as_of) as log:
        result, text = answer(options, log)
    print(msgspec.json.encode(result).decode() if options.json else text)


# --- lift ----------------------------------------------------------------------------------------


def _lift(options: argparse.Namespace, log: JournalLog) -> tuple[Any, str]:
    lift = log.lift(limit=options.limit)
    if options.figure is not None:
        title = f"Lift {lift.difference:+.4g}"
        save_intervals(options.figure, title, lift.estimand, _lift_lines(lift))
    return lift.to_dict() | {"relative": relative_lift(lift)}, _lift_text(lift)


def _lift_lines(lift: Lift) -> list[Interval]:
    """Return the intervals of both groups and of their difference, for the figure."""
    wide = float(ndtri(0.5 + lift.level / 2))
    groups = [
        Interval(
            estimate.name,
            estimate.value,
            estimate.value - wide * estimate.error,
            estimate.value + wide * estimate.error,
        )
        for estimate in (lift.bandit, lift.holdout)
    ]
    return [*groups, Interval("difference", lift.difference, lift.low, lift.high)]


def _lift_text(lift: Lift) -> str:
    relative = always = "not known"
    if (shares := relative_lift(lift)) is not None:
        relative = "{} ({} to {})".format(*map(percent, shares))
    if lift.confidence_sequence is not None:
        always = "{:+.4g} ({:+.4g} to {:+.4g})".format(*lift.confidence_sequence)
    rows = [(lift.estimand, f"{lift.difference:+.4g} ({lift.low:+.4g} to {lift.high:+.4g})")]
    for group in (lift.bandit, lift.holdout):
        estimate = f"{group.value:.4g} ± {group.error:.2g}"
        name = group.name
        if name == "holdout" and lift.baseline is not None:
            name = f"holdout: {lift.baseline}"
        rows.append((name, f"{estimate}, {group.rewards:,} of {group.decisions:,} rewarded"))
    rows += [("relative", relative), ("at all times", always), ("p", f"{lift.p:.2g}")]
    return pairs(rows)


# --- another policy ------------------------------------------------------------------------------


def _policy(options: argparse.Namespace, log: JournalLog) -> tuple[Any, str]:
    policy: Policy | str = options.policy
    if "(" in options.policy:
        policy = as_whole_policy(options.policy)
    if options.catalogue is not None:
        log = replace(log, features=with_catalogue(log.features, options.catalogue))
    value = log.evaluate(policy, since=options.since, limit=options.limit)
    if options.figure is not None:
        lines = [Interval(options.policy, value.value, value.low, value.high)]
        if value.confidence_sequence is not None:
            lines.append(Interval("at all times", value.value, *value.confidence_sequence))
        title = f"{options.policy}: {value.value:.4g}"
        save_intervals(options.figure, title, value.estimand, lines)
    return value.to_dict(), _policy_text(options.policy, value)


def _policy_text(policy: str, value: Value) -> str:
    always = "not known"
    if value.confidence_sequence is not None:
        always = f"{value.confidence_sequence[0]:.4g} to {value.confidence_sequence[1]:.4g}"
    rows = [
        ("value of", value.estimand),
        (f"{value.level:.0%}, at all times", always),
        ("decisions", f"{value.decisions:,}, outcome known for {value.arrived:,}"),
        ("worth", f"{value.effective_sample_size:,.0f} decisions made by the policy itself"),
        ("model alone", f"{value.dm:.4g}"),
    ]
    head = f"{policy}: {value.value:.4g} ({value.low:.4g} to {value.high:.4g})"
    notes = (wrapped(f"  note: {note}", "  ") for note in value.notes)
    return "\n".join([head, pairs(rows, indent="  "), *notes])


# --- delays --------------------------------------------------------------------------------------


def _delays(options: argparse.Namespace, log: JournalLog) -> tuple[Any, str]:
    table = log.table()
    if options.figure is not None:
        save_curve(options.figure, delay_curve(table))
    ahead = options.ahead or [timedelta(days=1), timedelta(days=7)]
    report = describe(table, log.predicted(table), ahead)
    return report, _delays_text(report)


def describe(
    table: JournalTable, predicted: JournalTable, ahead: list[timedelta]
) -> dict[str, Any]:
    """Return a report on the delays. Parts are None if there are too few rewards to compute them.

    Args:
        table: the decisions.
        predicted: the decisions with predicted means, as in the report.
        ahead: forecast horizons. A forecast of the total is added.
    """
    report: dict[str, Any] = {"delays": delay_curve(table).to_dict()}
    report["forecast"], expected = None, []
    for span in (*ahead, None):
        try:
            report["forecast"] = forecast(predicted, span).to_dict()
        except (InvalidInput, NotEvaluable) as error:
            report["forecast_refused"] = str(error)
        else:
            expected += report["forecast"]["expected"]
            report["forecast"]["expected"] = expected
    for factor in ("action", "reward"):
        report[f"depends_on_{factor}"] = _or_none(
            lambda factor=factor: delay_depends(table, factor).to_dict()
        )
    return report


def _or_none(work: Any) -> Any:
    try:
        return work()
    except InvalidInput:
        return None


def _delays_text(report: dict[str, Any]) -> str:
    curve = report["delays"]
    rows = [("rewards", f"{curve['rewards']:,}, {several(curve['missing'], 'decision')} without")]
    for name, share in (("p50", "half"), ("p90", "9 in 10"), ("p99", "99 in 100")):
        when = "not known" if curve[name] is None else f"after {lasting(curve[name])}"
        rows.append((f"{share} have arrived", when))
    if report["forecast"] is not None:
        for step in report["forecast"]["expected"]:
            when = "still to come"
            if step["ahead"] is not None:
                when = f"to come within {lasting(step['ahead'])}"
            count = f"{step['mean']:,.0f} ({step['low']:,.0f} to {step['high']:,.0f})"
            rows.append((when, count))
    if "forecast_refused" in report:
        rows.append(("no other forecast", report["forecast_refused"]))
    for factor in ("action", "reward"):
        test = report[f"depends_on_{factor}"]
        result = "not known" if test is None else f"p = {test['p']:.2g}"
        if test is not None and test["p"] < 0.01:
            result += ", by " + ", ".join(
                f"{name} {'+' if share > 0 else ''}{percent(share)}"
                for name, share in list(test["sooner"].items())[:4]
            )
        rows.append((f"depend on the {factor}", result))
    return pairs(rows)


# --- figures -------------------------------------------------------------------------------------


def save_intervals(path: str, title: str, about: str, lines: Sequence[Interval]) -> None:
    """Draw a figure of estimates with their intervals, one per row, and save it to a file."""
    with drawn(path, HEAD + LINE * len(lines) + FOOT) as figure:
        add_head(figure, title, [about])
        axes = add_rows(figure, [line.name for line in lines], HEAD, LINE)
        for place, line in enumerate(lines):
            colour = COLOURS[place % len(COLOURS)]
            axes.plot([line.low, line.high], [place, place], lw=2.2, color=colour)
            axes.plot([line.value], [place], "o", ms=7, color=colour)
            add_note(axes, f"{line.value:.4g}", (line.value, place), right=0, up=7)
        if min(line.low for line in lines) < 0.0 < max(line.high for line in lines):
            axes.axvline(0.0, color=PALE, lw=0.8, zorder=0)


def save_curve(path: str, curve: DelayCurve) -> None:
    """Draw a figure of the share of rewards that have arrived, by age, and save it to a file."""
    if not len(curve.delays):
        return
    unit, name = largest_unit(float(curve.delays[-1]) / 1e6, least=2.0)
    with drawn(path, HEAD + CURVE + FOOT) as figure:
        half = curve.quantile(0.5)
        title = "When rewards arrive"
        if half is not None:
            title = f"Half of the rewards arrive within {lasting(half.total_seconds())}"
        about = f"{several(curve.rewards, 'reward')}; band: {curve.level:.0%} for each age"
        add_head(figure, title, [about])
        axes = add_axes(figure, 4 * MARGIN, HEAD, WIDTH - 6 * MARGIN, CURVE)
        age = curve.delays / (1e6 * unit)
        colour = COLOURS[0]
        axes.fill_between(age, curve.low, curve.high, step="post", color=colour, alpha=0.16, lw=0)
        axes.step(age, curve.share, where="post", lw=1.8, color=colour)
        axes.set_xlim(0.0, float(age[-1]))
        axes.set_ylim(0.0, 1.02)
        axes.set_xlabel(f"{name}s since the decision", fontsize=SMALL, color=GREY)
        axes.grid(axis="y", color=GRID, lw=0.6)
