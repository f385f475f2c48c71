"""Mistakes of a first hour, and what is said of each; run it to print the table of the docs."""

from __future__ import annotations

import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd

import belated
from belated import Bandit, ConversionsOnly, DelayedUCB, PerArm, delays, environments
from belated.exceptions import BelatedError
from belated.journals import SQLiteJournal
from belated.model.estimators import Laplace

ROWS = [[1.0, 0.0], [0.0, 1.0]]

#: What somebody writes. In it ``bandit`` takes rows, ``shop`` a context with an age, and
#: ``colors`` no context.
MISTAKES = """\
Bandit(names)
Bandit(rewards=week)
Bandit("red", rewards=week)
Bandit(PerArm, rewards=week)
Bandit(policy, rewards=week)
Bandit(names, rewards=ConversionsOnly)
Bandit(names, rewards="7d")
Bandit(names, rewards=week, family="gaussian")
Bandit(names, rewards=week, policy="ucb")
Bandit(names, rewards=week, policy=DelayedUCB(3))
Bandit(names, rewards=week, policy=DelayedUCB(), family=Gaussian())
Bandit(names, rewards=week, policy=DelayedUCB(), floor=0.1)
Bandit(policy=DelayedUCB(), rewards=week)
Bandit(names, rewards=week, journal="offers.db")
Bandit(names, rewards=week, journal=Path("offers.db"))
Bandit(names, rewards=week, journal=SQLiteJournal)
Bandit(names, rewards=week, journal="mysql://host/shop")
Bandit(names, rewards=week, retention=30)
Bandit(names, rewards=week, retention="1d")
Bandit(names, rewards=week, seed="seven")
Bandit(names, rewards=week, clock=5)
Bandit(names, rewards=week, clock=lambda: 1794830400.5)
Bandit(names, rewards=week, keep_requests="none")
Bandit(names, rewards=week, holdout=Holdout(0.05))
Bandit(names, rewards=DefaultAfter("7d", value=-1.0))
Bandit(policy=policy, rewards=week, journal=file).close(); Bandit(names, week, journal=file)
DelayedUCB(2, "bernoulli")
DelayedUCB(2, Bernoulli)
DelayedUCB(["age", "price"], Bernoulli())
DelayedUCB(2, Bernoulli(), alpha="high")
DelayedUCB(2, Bernoulli(), floor=5)
DelayedUCB(2, Bernoulli(), ridge=-1)
DelayedUCB(2, Bernoulli(), estimator=Laplace)
Gaussian(-1)
ConversionsOnly()
ConversionsOnly(7)
Explicit("7 days")
bandit.decide()
bandit.decide(rows)
bandit.decide(["red", "blue"])
bandit.decide({"age": 0.4}, ["red", "blue"])
bandit.decide(rows=[[1.0, 2.0, 3.0]])
bandit.decide(rows=[1.0, 0.0])
bandit.decide(rows=[])
bandit.decide(rows=[[float("nan"), 1.0]])
bandit.decide(rows=rows, actions=["red"])
bandit.decide(rows=rows, id=17)
shop.decide(rows=rows)
colors.decide(["red"])
shop.decide({"age": "old"}, ["red", "blue"])
shop.decide({}, ["red", "blue"])
shop.decide({"age": 0.4}, "red")
shop.decide({"age": 0.4}, ["green"])
bandit.decide_many(frame)
bandit.decide_many(rows)
bandit.observe(1, 1.0)
bandit.observe(None, 1.0)
bandit.observe("order-17", "yes")
bandit.observe("order-17", None)
bandit.observe("order-17", 2.0)
bandit.observe("order-17", 1.0, at=1794830400)
bandit.observe("order-17", 1.0, at=datetime(2026, 11, 16, 12))
bandit.observe("order-17", 1.0, at="yesterday")
bandit.decide(rows=rows, id="a"); bandit.observe("a", 1.0); bandit.observe("a", 0.0)
bandit.close(); bandit.observe("order-17", 1.0)
bandit.observe_many({"order-17": 1.0})
bandit.observe_many(frame)
bandit.as_of(datetime(2026, 11, 16, 12))
bandit.change_mode("pause")
simulate("ucb", world, delay, horizon=100)
simulate(policy, world, delay, horizon=100)
simulate(DelayedUCB(10, Bernoulli()), world, 5, horizon=100)
simulate(DelayedUCB(10, Bernoulli()), world, delay, horizon=1e3)
""".splitlines()


def bandit() -> Bandit:
    """A bandit that takes rows."""
    return Bandit(policy=DelayedUCB(2), rewards=ConversionsOnly("7d"), seed=1)


def said_of(mistake: str) -> str:
    """Make a mistake, and return what the library says of it."""
    features, week = PerArm(["red", "blue"], context=["age"]), ConversionsOnly("7d")
    with tempfile.TemporaryDirectory() as folder:
        names: dict[str, Any] = {name: getattr(belated, name) for name in belated.__all__} | {
            "Laplace": Laplace,
            "Path": Path,
            "SQLiteJournal": SQLiteJournal,
            "bandit": bandit(),
            "colors": Bandit(["red", "blue"], rewards=week),
            "datetime": datetime,
            "delay": delays.Constant(1),
            "file": f"sqlite:///{folder}/offers.db",
            "frame": pd.DataFrame({"decision": ["a"], "reward": [1.0]}),
            "names": ["red", "blue"],
            "policy": DelayedUCB(2),
            "rows": ROWS,
            "shop": Bandit(features, rewards=week),
            "week": week,
            "world": environments.fixed(seed=1),
        }
        try:
            exec(mistake, names)
        except BelatedError as error:
            return f"{type(error).__name__}: {error}"
    raise AssertionError(f"nothing is said of {mistake}")


def table() -> str:
    """The page of the docs."""
    lines = [
        "# Common mistakes and their error messages",
        "",
        "Every error states what is wrong, the value that caused it, and what to do. In these",
        "examples, `bandit` accepts rows of two numbers, `shop` has the context field `age`, and",
        "`colors` has only actions.",
        "`python -m tests.unit.mistakes > docs/reference/mistakes.md` writes this page, and a test",
        "compares it with the code.",
        "",
        "| code | error |",
        "|---|---|",
    ]
    lines += [f"| `{mistake}` | `` {said_of(mistake)} `` |" for mistake in MISTAKES]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
