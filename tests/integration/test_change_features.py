"""Features change for an existing journal: the model is as if the bandit had always had them."""

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
from belated.cli.main import main
from belated.core.events import Decision
from belated.exceptions import InvalidInput, JournalMismatch, NotEvaluable
from belated.features import Features
from belated.fold.columns import PageFolder
from belated.fold.fold import Fold
from belated.fold.published import PublishedModel
from belated.fold.trimming import last_to_drop, make_bases, trim
from belated.journals import Journal, MemoryJournal, PostgresJournal, SQLiteJournal
from belated.journals.chain import LINK
from belated.journals.pages import pages
from belated.model.kernels import page_kernels

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
    """Return the first features with other fields; None drops one."""
    context = {name: field for name, field in (FIELDS | changes).items() if field is not None}
    return replace(BASE, context=context)


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
    "action added at the end": Change(BASE, BASE.with_actions(["none"])),
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
    """Return a function that reopens one journal repeatedly."""
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
    """Return a clock that advances by a second on each call."""
    return lambda: next(_TIME)


def open_bandit(journal: Journal, features: Features, **settings: Any) -> Bandit:
    """Open a bandit with a policy that chooses all actions at times."""
    policy = DelayedUCB(features.dim, Bernoulli(), ridge=1.0, floor=0.3)
    return Bandit(policy=policy, rewards=Explicit(), journal=journal, features=features, **settings)


def drawn(rng: np.random.Generator, features: Features) -> dict[str, Any]:
    """Draw a context with the fields that these features read."""
    context = {
        "age": float(rng.uniform(10, 95)),
        "country": str(rng.choice(["AT", "DE", "FR"])),
        "member": bool(rng.integers(2)),
        "seen": rng.normal(size=3).tolist(),
        "visits": int(rng.integers(1, 80)),
    }
    if isinstance(features, Hashed):
        return {name: value for name, value in context.items() if name not in ("seen", "member")}
    spec: Any = features.context  # type: ignore[attr-defined]
    names = spec.fields if isinstance(spec, RandomFeatures) else spec
    return {name: value for name, value in context.items() if name in names}


Made = dict[str, tuple[dict[str, Any], Any]]


def live(bandit: Bandit, made: Made, rng: np.random.Generator, count: int = 40) -> None:
    """Decide, and report rewards of some new and earlier decisions."""
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
    """Return a fold of the same events, with rows encoded by these features from the start."""
    new_names = getattr(features, "renamed", {})
    actions = getattr(features, "actions", None)
    events: list[Any] = []
    stamps = []
    dropped_ids = set()
    for page in pages(journal, 0):
        for record in page:
            event: Any = record.event
            if isinstance(event, Decision):
                context, fields = made[event.id]
                action = new_names.get(event.action, event.action)
                if actions is not None and action not in actions:
                    dropped_ids.add(event.id)
                    continue
                row = features.rows(lenient(context, features), {action: lenient(fields, features)})
                event = Decision(
                    event.id, event.at_us, action, 0, row[0], event.mean, event.propensity, 0
                )
            elif getattr(event, "id", None) in dropped_ids:
                continue
            events.append(event)
            stamps.append(record.recorded)
    replay = MemoryJournal()
    replay.append(events, recorded=stamps)
    fold = Fold(policy, Explicit())
    fold.begin(replay)
    fold.catch_up(replay)
    return fold


def lenient(record: Any, features: Features) -> Any:
    """Return a record in which None represents missing values."""
    if isinstance(features, Hashed):
        return {
            name: value
            for name, value in (record or {}).items()
            if isinstance(value, float | int | str)
        }
    names = ["age", "country", "member", "seen", "visits", "price"]
    return dict.fromkeys(names) | (record or {})


def check(bandit: Bandit, made: Made) -> None:
    """Check that the model is that of the reference."""
    assert bandit.features is not None
    expected = reference(bandit.journal, bandit.features, made, bandit.policy)
    for fold in (bandit._fold, expected):
        for _ in range(5):  # to the last digits
            fold.learner.fit()
    for name in ("theta", "observed", "decided"):
        actual, desired = (getattr(fold.model, name) for fold in (bandit._fold, expected))
        np.testing.assert_allclose(actual, desired, rtol=1e-9, atol=1e-9, err_msg=name)
    for name in ("n", "pending", "decisions"):
        actual, desired = (getattr(fold.model, name) for fold in (bandit._fold, expected))
        assert actual == desired, name
    assert sum(bandit.decision_counts.values()) == len(made)


@pytest.mark.parametrize("name", CHANGES)
def test_features_change_and_are_rolled_back(name: str, journals: Callable[[], Any]) -> None:
    """With events of both; each time the journal is opened, old rows are encoded again."""
    change, rng = CHANGES[name], np.random.default_rng(7)
    requests: Made = {}
    for features in (change.before, change.after, change.before, change.after):
        with journals() as journal:
            bandit = open_bandit(journal, features)
            check(bandit, requests)  # folded by the start
            live(bandit, requests, rng)
            check(bandit, requests)  # folded by the way
            bandit.save()
        with journals() as journal:
            bandit = open_bandit(journal, features)
            check(bandit, requests)  # from its snapshot


def encoded(bandit: Bandit) -> int:
    """Return the number of decisions that were encoded again since the journal was opened."""
    return bandit._fold.encoder.counts["encoded"]


def test_a_snapshot_of_other_features_is_ignored() -> None:
    """Also after a rollback; a snapshot of the same features is used."""
    journal, rng, requests = MemoryJournal(), np.random.default_rng(7), Made()
    before, after = CHANGES["field added"]
    bandit = open_bandit(journal, before)
    live(bandit, requests, rng)
    bandit.save()
    assert encoded(open_bandit(journal, before)) == 0
    successor = open_bandit(journal, after)
    assert encoded(successor) == 40
    assert successor._fold.encoder.features.field_counts["visits"]["missing"] == 40
    successor.save()
    assert encoded(open_bandit(journal, after)) == 0
    reopened = open_bandit(journal, before)
    assert encoded(reopened) == 0  # its rows are in the records
    check(reopened, requests)


def test_many_records_are_folded_the_same(tmp_path: Path) -> None:
    """By the kernel, which leaves rows of other features to the rules, and without it."""
    rng, requests = np.random.default_rng(7), Made()
    before, after = CHANGES["field rescaled"]
    path = tmp_path / "features.db"
    for features in (before, after, before):
        with SQLiteJournal(path, bandit="offers") as journal:
            bandit = open_bandit(journal, features)
            contexts = [drawn(rng, features) for _ in range(300)]
            for context, decision in zip(contexts, bandit.decide_many(contexts), strict=True):
                requests[decision.id] = context, None
            bandit.observe_many([(id, float(rng.integers(2))) for id in list(requests)[-250:]])
    for compiled in (True, False):
        with SQLiteJournal(path, bandit="offers") as journal:
            fold = open_bandit(journal, after)._new_fold()
            fold.begin(journal)
            kernels = page_kernels(wait=True) if compiled else None
            with fold.learner.bulk():
                if kernels is None:
                    fold.catch_up(journal)
                else:
                    columns = journal.read_columns(0, 0, 10_000)
                    fold.take_columns(0, columns, kernels)
            assert fold.encoder.counts == {"encoded": 600}
            expected = reference(journal, after, requests, fold.policy)
            for current in (fold, expected):
                for _ in range(5):
                    current.learner.fit()
            np.testing.assert_allclose(fold.model.theta, expected.model.theta, rtol=1e-9, atol=1e-9)


def test_a_decision_of_an_unknown_action_stays_in_the_ledger() -> None:
    """Its reward changes nothing in the model, whatever happens to it."""
    journal = MemoryJournal()
    context = drawn(np.random.default_rng(7), BASE)
    bandit = open_bandit(journal, BASE)
    first, second = (bandit.decide(context, ["call"], activated=n > 0) for n in range(2))
    bandit.observe(second.id, 1.0)
    successor = open_bandit(journal, replace(BASE, actions=["mail"]))
    assert successor._fold.encoder.counts == {"unknown action": 2}
    theta = successor._fold.model.theta.copy()
    successor.activate(first.id)
    assert successor.observe(first.id, 1.0).status == "rewarded"
    assert successor.observe(first.id, 0.0, revision=1).status == "revised"
    assert successor.observe(second.id, 0.0, revision=1).status == "revised"
    successor.void(second.id)
    assert successor.decision_counts["rewarded"] == 1
    np.testing.assert_array_equal(successor._fold.model.theta, theta)
    successor.save()
    reopened = open_bandit(journal, successor.features or BASE)
    assert (reopened.decision_counts, reopened.digest) == (
        successor.decision_counts,
        successor.digest,
    )
    assert reopened.as_of(journal.now()).digest == reopened.digest


def test_a_retry_after_a_change_gets_its_decision() -> None:
    """Encoded with the new features, it is the same request; a different one is refused."""
    journal, context = MemoryJournal(), drawn(np.random.default_rng(7), BASE)
    decision = open_bandit(journal, BASE).decide(context, id="order-1")
    _, after = CHANGES["action added at the front"]
    bandit = open_bandit(journal, after)
    assert bandit.decide(context, id="order-1") == decision
    with pytest.raises(InvalidInput, match="'order-1' was used for another decision"):
        bandit.decide(context | {"age": 33.0}, id="order-1")


def test_a_retry_may_bring_a_field_that_the_decision_lacks() -> None:
    """It is unknown whether it is a different request."""
    journal = MemoryJournal()
    country = {"country": Category(["AT", "DE"])}
    before = Bandit(PerArm(["mail", "call"], context=country), Explicit(), journal=journal)
    decision = before.decide({"country": "AT"}, id="order-1")
    features = PerArm(["mail", "call"], context=country | {"age": Number(18, 90)})
    after = Bandit(features, Explicit(), journal=journal)
    assert after.decide({"country": "AT", "age": 41}, id="order-1") == decision
    new_decision = after.decide({"country": "AT", "age": 41}, id="order-2")
    assert before.decide({"country": "AT"}, id="order-2").id == new_decision.id
    with pytest.raises(InvalidInput, match="was used for another decision"):
        before.decide({"country": "DE"}, id="order-2")


def test_without_contexts_features_stay_as_they_are() -> None:
    """The error gives the reason; actions may be added at the end, and rows are stored."""
    journal, context = MemoryJournal(), drawn(np.random.default_rng(7), BASE)
    bandit = open_bandit(journal, BASE, contexts=False)
    decision = bandit.decide(context)
    request = bandit.entry(decision.id).request
    assert request is not None
    assert request.context is None
    assert request.rows is not None
    assert len(decision.context) == 16
    _, after = CHANGES["field added"]
    for contexts in (True, False):
        with pytest.raises(JournalMismatch, match=r"contexts=False: without contexts, rows cannot"):
            open_bandit(journal, after, contexts=contexts)
    successor = open_bandit(journal, BASE.with_actions(["none"]), contexts=False)
    assert successor.pending.count == 1
    with pytest.raises(InvalidInput, match="`contexts` must be True or False, got 'no'"):
        open_bandit(journal, BASE, contexts="no")


def test_a_request_is_evaluated_with_other_features() -> None:
    """The offer is encoded again, if the new features know all of it."""
    journal, rng, requests = MemoryJournal(), np.random.default_rng(7), Made()
    live(open_bandit(journal, BASE), requests, rng, count=100)
    _, after = CHANGES["field added"]
    assert 0.0 <= open_bandit(journal, after).evaluate("uniform").value <= 1.0
    successor = open_bandit(journal, replace(BASE, actions=["visit", "mail"]))
    with pytest.raises(NotEvaluable, match="cannot encode the requests of 100 decisions"):
        successor.evaluate("uniform")


def test_a_model_for_other_features_is_refused() -> None:
    """Even with the same policy and the same width."""
    before, after = CHANGES["field rescaled"]
    policy = DelayedUCB(before.dim, Bernoulli())
    old_policy, new_policy = policy.bound_to(before), policy.bound_to(after)
    model = Fold(new_policy, Explicit()).export_model(5)
    assert PublishedModel.read(model.write()).model(new_policy).n == 0
    with pytest.raises(JournalMismatch, match="trained with different features"):
        model.model(old_policy)


def test_a_journal_of_two_features_is_read_by_all_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With rows of both: verified, reported, exported and imported."""
    rng, requests = np.random.default_rng(7), Made()
    address = f"sqlite:///{tmp_path / 'features.db'}?bandit=offers"
    for features in (BASE, CHANGES["action added at the front"].after):
        bandit = Bandit(features, rewards=Explicit(), journal=address, family=Bernoulli())
        live(bandit, requests, rng)
        assert bandit.report().to_dict()
        bandit.close()
    lines, copy = str(tmp_path / "records.jsonl"), f"sqlite:///{tmp_path / 'copy.db'}?bandit=offers"
    for command in (
        ["verify", address],
        ["export", address, "-o", lines],
        ["import", lines, copy],
        ["verify", copy],
    ):
        assert main(["journal", *command]) == 0, capsys.readouterr()
    with (
        Bandit(BASE, rewards=Explicit(), journal=address) as original,
        Bandit(BASE, rewards=Explicit(), journal=copy) as imported,
    ):
        assert original.digest == imported.digest
        np.testing.assert_allclose(original.estimate.theta, imported.estimate.theta, rtol=1e-9)


def test_a_trimmed_journal_refuses_other_features() -> None:
    """The sums of trimmed records have no contexts; with the old features it can be opened."""
    journal, rng = MemoryJournal(), np.random.default_rng(7)
    bandit = open_bandit(journal, BASE)
    contexts = [drawn(rng, BASE) for _ in range(1_100)]
    bandit.observe_many([(decision.id, 1.0) for decision in bandit.decide_many(contexts)])
    bandit.save()
    positions = [last_to_drop(journal, 0, 1 << 62, journal.end(0), LINK)]
    (base,) = make_bases(journal, bandit._new_fold(), positions)
    trim(journal, base, positions[0], 0, reason="old", actor="me")
    while journal.drop(0, 1_000):
        pass
    before, after = CHANGES["field rescaled"]
    with pytest.raises(JournalMismatch, match="trimmed with their contexts, so they cannot"):
        open_bandit(journal, after)
    reopened = open_bandit(journal, before)
    assert reopened.decision_counts["rewarded"] == 1_100


@pytest.mark.parametrize("length", [0, 300, 70_000])
def test_the_kernel_takes_decisions_with_contexts_of_any_size(length: int, tmp_path: Path) -> None:
    """With its own features: none of them is left to the rules."""
    with SQLiteJournal(tmp_path / "features.db", bandit="offers") as journal:
        bandit = open_bandit(journal, BASE, keep_requests=0)
        context = drawn(np.random.default_rng(7), BASE) | {"note": "x" * length}
        start = journal.end(0)
        bandit.decide_many([context] * 20)
        fold = bandit._new_fold()
        fold.begin(journal)
        fold.take_all(0, journal.read(0, 0, start))
        kernels = page_kernels(wait=True)
        if kernels is None:
            pytest.skip("there is no compiler")
        page = journal.read_columns(0, start, 100)
        with fold.learner.bulk():
            assert PageFolder(fold.ledgers[0], fold.adapters[0], page, kernels).take_plain(0) == 20
