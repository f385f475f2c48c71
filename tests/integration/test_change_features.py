"""Features change over a journal: the model is that of a bandit which had the new ones always."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from belated import (
    Bandit,
    Bernoulli,
    Category,
    DelayedUCB,
    Explicit,
    Flag,
    Hashed,
    Number,
    PerArm,
    RandomFeatures,
    Shared,
    Text,
    Vector,
)
from belated.core.events import Decision
from belated.features import Features
from belated.fold.fold import Fold
from belated.journals import Journal, MemoryJournal, PostgresJournal, SQLiteJournal
from belated.journals.pages import pages

FIELDS = {
    "age": Number(18, 90),
    "country": Category(["AT", "DE"]),
    "member": Flag(),
    "seen": Vector(3, norm=2.0),
}
BASE = PerArm(["mail", "call", "visit"], context=FIELDS)
RECORDS = {"mail": {"price": 1.0}, "call": {"price": 5.0}, "visit": {"price": 9.0}}
SHARED = Shared(context=FIELDS, action={"price": Number(0, 10)})
NEW_ACTIONS = ["none", "mail", "call", "visit"]


def fields(**changes: Any) -> PerArm:
    """The first features with other fields; None drops one."""
    changed = {name: one for name, one in (FIELDS | changes).items() if one is not None}
    return replace(BASE, context=changed)


class Change(NamedTuple):
    """Features before and after."""

    before: Features
    after: Features


CHANGES = {
    "field added": Change(BASE, fields(visits=Number(1, 100, log=True))),
    "field dropped": Change(BASE, fields(country=None)),
    "field rescaled": Change(BASE, fields(age=Number(0, 50))),
    "field encoded otherwise": Change(BASE, fields(country=Text(hash=8))),
    "category added": Change(BASE, fields(country=Category(["FR", "AT", "DE"]))),
    "norm of an embedding": Change(BASE, fields(seen=Vector(3))),
    "action added at the end": Change(BASE, BASE.grown(["none"])),
    "action added at the front": Change(BASE, replace(BASE, actions=NEW_ACTIONS)),
    "action renamed": Change(
        BASE, replace(BASE, actions=["mail", "phone", "visit"], renamed={"call": "phone"})
    ),
    "action removed": Change(BASE, replace(BASE, actions=["visit", "mail"])),
    "field of actions rescaled": Change(SHARED, replace(SHARED, action={"price": Number(0, 99)})),
    "shared coefficients": Change(BASE, SHARED),
    "hashed": Change(Hashed(64, seed=1), Hashed(32, seed=2, interactions=False)),
    "waves": Change(BASE, replace(BASE, context=RandomFeatures(FIELDS, size=8, scale=2.0))),
}


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def journals(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Any]:
    """Open one journal again and again."""
    if request.param == "memory":
        journal = MemoryJournal(clock=ticks())

        @contextmanager
        def opened() -> Iterator[Journal]:
            yield journal  # it would be gone once it is closed

        return opened
    if request.param == "sqlite":
        return lambda: SQLiteJournal(tmp_path / "features.db", bandit="offers", clock=ticks())
    dsn = request.getfixturevalue("dsn")
    name = f"features {request.node.name}"
    return lambda: PostgresJournal(dsn, bandit=name)


_TIME = count(1_700_000_000_000_000, 1_000_000)


def ticks() -> Callable[[], int]:
    """A clock of which each look takes a second."""
    return lambda: next(_TIME)


def open_bandit(journal: Journal, features: Features, **settings: Any) -> Bandit:
    """With a policy that chooses all actions at times."""
    policy = DelayedUCB(features.dim, Bernoulli(), ridge=1.0, floor=0.3)
    return Bandit(policy, rewards=Explicit(), journal=journal, features=features, **settings)


def drawn(rng: np.random.Generator, features: Features) -> dict[str, Any]:
    """A context with the fields that these features read."""
    context = {
        "age": float(rng.uniform(10, 95)),
        "country": str(rng.choice(["AT", "DE", "FR"])),
        "member": bool(rng.integers(2)),
        "seen": rng.normal(size=3).tolist(),
        "visits": int(rng.integers(1, 80)),
    }
    if isinstance(features, Hashed):
        return {name: one for name, one in context.items() if name not in ("seen", "member")}
    spec: Any = features.context  # type: ignore[attr-defined]
    known = spec.fields if isinstance(spec, RandomFeatures) else spec
    return {name: one for name, one in context.items() if name in known}


Made = dict[str, tuple[dict[str, Any], Any]]


def live(bandit: Bandit, made: Made, rng: np.random.Generator, count: int = 40) -> None:
    """Decide, and report rewards of some decisions of now and of before."""
    features = bandit.features
    assert features is not None
    for _ in range(count):
        context = drawn(rng, features)
        actions: Any = getattr(features, "actions", list(RECORDS))
        if isinstance(features, Shared):
            actions = RECORDS
        decision = bandit.decide(context, actions)
        record = actions[decision.action] if isinstance(actions, Mapping) else None
        made[decision.id] = context, record
        for id in rng.choice(list(made), 2).tolist():
            if bandit.entry(id).state == "pending":
                bandit.observe(id, float(rng.integers(2)))


def reference(journal: Journal, features: Features, made: Made, policy: Any) -> Fold:
    """A fold of the same events, with rows encoded by these features from the start."""
    renamed = getattr(features, "renamed", {})
    known = getattr(features, "actions", None)
    events: list[Any] = []
    stamps = []
    gone = set()
    for page in pages(journal, 0):
        for record in page:
            event: Any = record.event
            if isinstance(event, Decision):
                context, fields = made[event.id]
                action = renamed.get(event.action, event.action)
                if known is not None and action not in known:
                    gone.add(event.id)
                    continue
                row = features.rows(lenient(context, features), {action: lenient(fields, features)})
                event = Decision(
                    event.id, event.at_us, action, 0, row[0], event.mean, event.propensity, 0
                )
            elif getattr(event, "id", None) in gone:
                continue
            events.append(event)
            stamps.append(record.recorded)
    replayed = MemoryJournal()
    replayed.append(events, recorded=stamps)
    fold = Fold(policy, Explicit())
    fold.begin(replayed)
    fold.catch_up(replayed)
    return fold


def lenient(record: Any, features: Features) -> Any:
    """A record in which None stands for what is missing."""
    if isinstance(features, Hashed):
        return {
            name: one for name, one in (record or {}).items() if isinstance(one, float | int | str)
        }
    names = ["age", "country", "member", "seen", "visits", "price"]
    return dict.fromkeys(names) | (record or {})


def check(bandit: Bandit, made: Made) -> None:
    """Its model is that of the reference."""
    assert bandit.features is not None
    wanted = reference(bandit.journal, bandit.features, made, bandit.policy)
    for fold in (bandit._fold, wanted):
        for _ in range(5):  # to the last digits
            fold.learner.fit()
    for name in ("theta", "observed", "decided"):
        one, other = (getattr(fold.model, name) for fold in (bandit._fold, wanted))
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9, err_msg=name)
    for name in ("n", "pending", "decisions"):
        one, other = (getattr(fold.model, name) for fold in (bandit._fold, wanted))
        assert one == other, name
    assert sum(bandit.decision_counts.values()) == len(made)


@pytest.mark.parametrize("name", CHANGES)
def test_features_change_and_are_rolled_back(name: str, journals: Callable[[], Any]) -> None:
    """Events are those of both; each time the journal is opened, old rows are encoded again."""
    change, rng = CHANGES[name], np.random.default_rng(7)
    made: Made = {}
    for features in (change.before, change.after, change.before, change.after):
        with journals() as journal:
            bandit = open_bandit(journal, features)
            check(bandit, made)  # folded by the start
            live(bandit, made, rng)
            check(bandit, made)  # folded by the way
            bandit.save()
        with journals() as journal:
            bandit = open_bandit(journal, features)
            check(bandit, made)  # from its snapshot
