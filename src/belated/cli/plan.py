"""``belated plan``: say what a delay costs a bandit, and which holdout to take.

The time that is planned is simulated with the real policy, learner and ledger.
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
    """What the command takes."""
    add_option(parser, "--rate", "decisions a second, or as 1000/d or 50/h", rate)
    add_option(
        parser,
        "--delay",
        "of rewards: a mean such as 2d, or a law in seconds as in 'Lomax(shape=1.5, scale=3600)'",
    )
    share = {"type": _positive, "metavar": "SHARE"}
    add_option(parser, "--reward-share", "rewards for each decision; default: 0.1", **share)
    lift = (
        "by how much more the best choice brings than one by lot, and the least lift worth knowing"
    )
    add_option(parser, "--lift", lift, default=0.2, **share)
    add_option(parser, "--window", "of the rewards; default: 7d", duration)
    meanings = ("ConversionsOnly", "DefaultAfter", "Explicit")
    about = "what a missing reward means; default: ConversionsOnly"
    add_option(parser, "--rewards", about, choices=meanings)
    add_option(parser, "--period", "that is planned", duration, "30d")
    add_option(parser, "--actions", "to choose from; default: 10", count)
    add_option(parser, "--dim", "features of a row", count, 20)
    parser.add_argument(
        "--journal",
        metavar="ADDRESS",
        help="take delays, rate, reward share, window and actions from a journal; what is given "
        "as an option comes first",
    )
    learner = "what learns, as in 'DelayedThompson(scale=0.5)'"
    add_option(parser, "--policy", learner, default="DelayedUCB")
    add_module(parser)
    add_option(parser, "--seeds", "problems", count, 10)
    add_option(parser, "--rounds", "of a simulation, at most", count, 4_000)
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    from belated.planning import plan_learning, runs_of

    load_modules(options.module)
    policy = as_policy(options.policy)
    asked = _asked(options)
    with Progress("simulated", runs_of(asked, options.seeds, options.rounds)) as progress:
        made = plan_learning(
            asked,
            policy=policy,
            policy_name=options.policy,
            seeds=options.seeds,
            rounds=options.rounds,
            progress=progress.step,
        )
    print(msgspec.json.encode(made.to_dict()).decode() if options.json else _text(made))


def _asked(options: argparse.Namespace) -> Learning:
    from belated.planning import Learning, seen_in

    given: dict[str, Any] = {
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
        given = {name: seen.get(name) if one is None else one for name, one in given.items()}
    for name, example in (("delay", "2d"), ("rate", "1000/d")):
        if given[name] is None:
            message = f"--{name} is needed, such as {example}"
            raise InvalidInput(f"{message}; or a --journal that tells it", None)
    given = {name: one for name, one in given.items() if one is not None}
    period = options.period.total_seconds()
    return Learning(**given, lift=options.lift, period=period, dim=options.dim)


def _delay(text: str) -> SecondsDelay:
    """A mean, or a law."""
    if "(" in text:
        return as_delay(text)
    return Exponential(mean=as_duration(text, "--delay").total_seconds())


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


# --- text ---------------------------------------------------------------------------------------


def _text(made: LearningPlan) -> str:
    return "\n".join([*_head(made), "", *_cases(made), "", *_holdouts(made)])


def _head(made: LearningPlan) -> list[str]:
    asked = made.asked
    each = made.decisions_a_round
    stands = f", each for {each:,.3g} decisions" if each > 1.05 else ""
    planned = (
        f"planned: {_rate(asked.rate)} for {lasting(asked.period)}, "
        f"{several(asked.actions, 'action')}, {several(asked.dim, 'feature')}; "
        f"{percent(asked.reward_share)} rewards if chosen by lot, {percent(asked.lift)} more if "
        f"chosen best; {asked.rewards}, window {lasting(asked.window)}"
    )
    simulated = (
        f"simulated: {made.policy}, {several(made.seeds, 'problem')} of "
        f"{several(made.rounds, 'round')}{stands}; 95% intervals"
    )
    return [wrapped(planned, indent="  "), wrapped(simulated, indent="  ")]


def _cases(made: LearningPlan) -> list[str]:
    asked = made.asked
    rows = [
        [
            one.name,
            percent(round(one.kept.mean, 3)),
            f"{100 * one.kept.low:.0f} to {100 * one.kept.high:.0f}%",
            _change(one),
            f"{one.lost:,.0f}",
        ]
        for one in made.cases
    ]
    head = ["", ">kept", ">", ">against the plan", ">rewards lost"]
    notes = [
        f"Of the {percent(asked.lift)} that the best choices would bring, the bandit brings "
        f"{percent(round(made.cases[1].kept.mean, 2))}. {_cost_of_delay(made)}"
    ]
    if made.decisions_a_round > 1.05:
        notes.append(
            "A round stands for several decisions: a real bandit learns from more, and loses less; "
            "more --rounds show that."
        )
    return [
        f"what is kept of the {percent(asked.lift)}, over the whole period",
        table(head, rows, indent="  "),
        *map(wrapped, notes),
    ]


def _cost_of_delay(made: LearningPlan) -> str:
    at_once, planned = made.cases[0], made.cases[1]
    assert at_once.change is not None
    change = at_once.change
    ends = f"{100 * change.low:.0f} to {100 * change.high:.0f}"
    if change.low <= 0.0:
        return f"What the delay costs is lost in chance here ({ends} points): more --seeds tell."
    lost = planned.lost - at_once.lost
    return f"The delay costs {100 * change.mean:.0f} points ({ends}) of it, or {lost:,.0f} rewards."


def _holdouts(made: LearningPlan) -> list[str]:
    asked = made.asked
    rows = [
        [percent(times.share), _wait(times.seconds), _wait(times.seconds_always), _cost(times)]
        for times in made.holdouts
    ]
    head = [">holdout", ">one look", ">looking every day", ">rewards it costs"]
    if made.take is not None:
        told = (
            f"Hold out {percent(made.take.share)}: the smallest of these shares by which the lift "
            f"is known within {lasting(asked.period)}. Compare with `belated evaluate ADDRESS "
            f"--lift --limit {format_duration(round(1e6 * asked.window))}`."
        )
    else:
        told = (
            f"No share tells within {lasting(asked.period)}: plan for a longer time, or for a "
            "larger lift."
        )
    return [
        f"until a lift of {percent(asked.lift)} is known, four times in five",
        table(head, rows, indent="  "),
        wrapped(told),
    ]


def _change(one: Case) -> str:
    if one.change is None:
        return ""
    change = one.change
    return f"{100 * change.mean:+.0f} ({100 * change.low:+.0f} to {100 * change.high:+.0f}) points"


def _rate(rate: float) -> str:
    if rate >= 1.0:
        return f"{rate:,.3g} decisions a second"
    return f"{86_400 * rate:,.0f} decisions a day"


def _wait(seconds: float) -> str:
    from belated.planning import DAY

    if math.isinf(seconds) or seconds > 3_650 * DAY:
        return "over 10 years"
    return f"{max(1, math.ceil(seconds / DAY - 0.02)):,} d"


def _cost(times: HoldoutTimes) -> str:
    return f"{times.rewards:,.0f}" if math.isfinite(times.seconds) else ""
