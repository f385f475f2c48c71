"""``belated plan``: estimate what a delay costs a bandit, and the holdout it needs.

The command simulates the planned period with the actual policy, learner and ledger.
"""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

import msgspec

from belated.cli.address import log_at
from belated.cli.options import add_json, add_module, add_option, count, duration
from belated.cli.text import Progress, percent, several, table, wrapped
from belated.core.times import as_duration, format_duration, lasting
from belated.delays import Exponential
from belated.exceptions import InvalidInput
from belated.expressions import as_delay, as_policy, load_modules

if TYPE_CHECKING:
    from belated.planning import Case, HoldoutTimes, Learning, LearningPlan, SecondsDelay

EXAMPLE = "belated plan --rate 1000/d --delay 2d --window 7d --lift 0.2"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_option(parser, "--rate", "decisions per second, or 1000/d or 50/h", rate)
    add_option(
        parser,
        "--delay",
        "delay of rewards: a mean such as 2d, or a distribution in seconds, such as "
        "'Lomax(shape=1.5, scale=3600)'",
    )
    share = {"type": _positive, "metavar": "SHARE"}
    add_option(parser, "--reward-share", "rewards per decision; default: 0.1", **share)
    lift = "gain of the best over random choices, and the smallest lift that you want to detect"
    add_option(parser, "--lift", lift, default=0.2, **share)
    add_option(parser, "--window", "reward window; default: 7d", duration)
    meanings = ("ConversionsOnly", "DefaultAfter", "Explicit")
    about = "meaning of a missing reward; default: ConversionsOnly"
    add_option(parser, "--rewards", about, choices=meanings)
    add_option(parser, "--period", "period to plan", duration, "30d")
    add_option(parser, "--actions", "number of actions; default: 10", count)
    add_option(parser, "--dim", "features per row", count, 20)
    parser.add_argument(
        "--journal",
        metavar="ADDRESS",
        help="take delays, rate, reward share, window and actions from a journal; options override "
        "them",
    )
    learner = "policy, such as 'DelayedThompson(scale=0.5)'"
    add_option(parser, "--policy", learner, default="DelayedUCB")
    add_module(parser)
    add_option(parser, "--seeds", "number of problems", count, 10)
    add_option(parser, "--rounds", "maximum rounds per simulation", count, 4_000)
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    from belated.planning import plan_learning, runs_of

    load_modules(options.module)
    policy = as_policy(options.policy)
    query = _asked(options)
    with Progress("simulated", runs_of(query, options.seeds, options.rounds)) as progress:
        plan = plan_learning(
            query,
            policy=policy,
            policy_name=options.policy,
            seeds=options.seeds,
            rounds=options.rounds,
            progress=progress.step,
        )
    print(msgspec.json.encode(plan.to_dict()).decode() if options.json else _text(plan))


def _asked(options: argparse.Namespace) -> Learning:
    from belated.planning import Learning, seen_in

    fields: dict[str, Any] = {
        "rate": options.rate,
        "delay": None if options.delay is None else _delay(options.delay),
        "reward_share": options.reward_share,
        "window": None if options.window is None else options.window.total_seconds(),
        "actions": options.actions,
        "rewards": options.rewards,
    }
    if options.journal is not None:
        with log_at(options.journal) as log:
            seen = seen_in(log)
        fields = {
            name: seen.get(name) if value is None else value for name, value in fields.items()
        }
    for name, example in (("delay", "2d"), ("rate", "1000/d")):
        if fields[name] is None:
            message = f"--{name} is required, for example --{name} {example};"
            raise InvalidInput(f"{message} alternatively, pass --journal to measure it", None)
    fields = {name: value for name, value in fields.items() if value is not None}
    period = options.period.total_seconds()
    return Learning(**fields, lift=options.lift, period=period, dim=options.dim)


def _delay(text: str) -> SecondsDelay:
    """Parse a delay: either a mean or a distribution."""
    if "(" in text:
        return as_delay(text)
    return Exponential(mean=as_duration(text, "--delay").total_seconds())


def rate(text: str) -> float:
    """Parse a rate in decisions per second.

    >>> rate("500"), rate("36/h"), round(rate("1000/d"), 4)
    (500.0, 0.01, 0.0116)
    """
    number, _, unit = text.partition("/")
    seconds = {"": 1.0, "s": 1.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}.get(unit)
    if seconds is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate: write 5, 5/min, 50/h or 1000/d")
    return _positive(number) / seconds


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0.0 < number < 1e12:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return number


# --- text ---------------------------------------------------------------------------------------


def _text(plan: LearningPlan) -> str:
    return "\n".join([*_head(plan), "", *_cases(plan), "", *_holdouts(plan)])


def _head(plan: LearningPlan) -> list[str]:
    query = plan.asked
    decisions = plan.decisions_a_round
    per_round = f", each for {decisions:,.3g} decisions" if decisions > 1.05 else ""
    planned = (
        f"planned: {_rate(query.rate)} for {lasting(query.period)}, "
        f"{several(query.actions, 'action')}, {several(query.dim, 'feature')}; "
        f"{percent(query.reward_share)} rewards with random choices, {percent(query.lift)} more "
        f"with the best ones; {query.rewards}, window {lasting(query.window)}"
    )
    simulated = (
        f"simulated: {plan.policy}, {several(plan.seeds, 'problem')} of "
        f"{several(plan.rounds, 'round')}{per_round}; 95% intervals"
    )
    return [wrapped(planned, indent="  "), wrapped(simulated, indent="  ")]


def _cases(plan: LearningPlan) -> list[str]:
    query = plan.asked
    rows = [
        [
            case.name,
            percent(round(case.kept.mean, 3)),
            f"{100 * case.kept.low:.0f} to {100 * case.kept.high:.0f}%",
            _change(case),
            f"{case.lost:,.0f}",
        ]
        for case in plan.cases
    ]
    head = ["", ">kept", ">", ">vs. the plan", ">rewards lost"]
    notes = [
        f"The bandit achieves {percent(round(plan.cases[1].kept.mean, 2))} of the possible "
        f"{percent(query.lift)} gain. {_cost_of_delay(plan)}"
    ]
    if plan.decisions_a_round > 1.05:
        notes.append(
            "Each round represents several decisions. A real bandit learns from more "
            "decisions, and loses less. To see this, increase --rounds."
        )
    return [
        f"how much of the {percent(query.lift)} gain is achieved, over the whole period",
        table(head, rows, indent="  "),
        *map(wrapped, notes),
    ]


def _cost_of_delay(plan: LearningPlan) -> str:
    at_once, planned = plan.cases[0], plan.cases[1]
    assert at_once.change is not None
    change = at_once.change
    ends = f"{100 * change.low:.0f} to {100 * change.high:.0f}"
    if change.low <= 0.0:
        return f"The cost of the delay is within the noise ({ends} points): increase --seeds."
    lost = planned.lost - at_once.lost
    return f"The delay costs {100 * change.mean:.0f} points ({ends}), or {lost:,.0f} rewards."


def _holdouts(plan: LearningPlan) -> list[str]:
    query = plan.asked
    rows = [
        [percent(times.share), _wait(times.seconds), _wait(times.seconds_sequential), _cost(times)]
        for times in plan.holdouts
    ]
    head = [">holdout", ">one look", ">daily looks", ">rewards it costs"]
    if plan.take is not None:
        advice = (
            f"Hold out {percent(plan.take.share)}: the smallest of these shares that detects the "
            f"lift within {lasting(query.period)}. Compare with `belated evaluate ADDRESS "
            f"--lift --limit {format_duration(round(1e6 * query.window))}`."
        )
    else:
        advice = (
            f"None of these shares detects it within {lasting(query.period)}: plan for a longer "
            "period, or for a larger lift."
        )
    return [
        f"time until a lift of {percent(query.lift)} is detected, with a probability of 80%",
        table(head, rows, indent="  "),
        wrapped(advice),
    ]


def _change(case: Case) -> str:
    if case.change is None:
        return ""
    change = case.change
    return f"{100 * change.mean:+.0f} ({100 * change.low:+.0f} to {100 * change.high:+.0f}) points"


def _rate(rate: float) -> str:
    if rate >= 1.0:
        return f"{rate:,.3g} decisions/s"
    return f"{86_400 * rate:,.0f} decisions/day"


def _wait(seconds: float) -> str:
    from belated.planning import DAY

    if math.isinf(seconds) or seconds > 3_650 * DAY:
        return "over 10 years"
    return f"{max(1, math.ceil(seconds / DAY - 0.02)):,} d"


def _cost(times: HoldoutTimes) -> str:
    return f"{times.rewards:,.0f}" if math.isfinite(times.seconds) else ""
