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
        return {name: one for name, one in context.items() if name not in ("seen", "member")}
    spec: Any = features.context  # type: ignore[attr-defined]
    known = spec.fields if isinstance(spec, RandomFeatures) else spec
    return {name: one for name, one in context.items() if name in known}


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
    """Return a record in which None represents missing values."""
    if isinstance(features, Hashed):
        return {
            name: one for name, one in (record or {}).items() if isinstance(one, float | int | str)
        }
    names = ["age", "country", "member", "seen", "visits", "price"]
    return dict.fromkeys(names) | (record or {})


def check(bandit: Bandit, made: Made) -> None:
    """Check that the model is that of the reference."""
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
    """With events of both; each time the journal is opened, old rows are encoded again."""
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


def encoded(bandit: Bandit) -> int:
    """Return the number of decisions that were encoded again since the journal was opened."""
    return bandit._fold.encoder.counts["encoded"]


def test_a_snapshot_of_other_features_is_ignored() -> None:
    """Also after a rollback; a snapshot of the same features is used."""
    journal, rng, made = MemoryJournal(), np.random.default_rng(7), Made()
    before, after = CHANGES["field added"]
    bandit = open_bandit(journal, before)
    live(bandit, made, rng)
    bandit.save()
    assert encoded(open_bandit(journal, before)) == 0
    changed = open_bandit(journal, after)
    assert encoded(changed) == 40
    assert changed._fold.encoder.features.field_counts["visits"]["missing"] == 40
    changed.save()
    assert encoded(open_bandit(journal, after)) == 0
    again = open_bandit(journal, before)
    assert encoded(again) == 0  # its rows are in the records
    check(again, made)


def test_many_records_are_folded_the_same(tmp_path: Path) -> None:
    """By the kernel, which leaves rows of other features to the rules, and without it."""
    rng, made = np.random.default_rng(7), Made()
    before, after = CHANGES["field rescaled"]
    path = tmp_path / "features.db"
    for features in (before, after, before):
        with SQLiteJournal(path, bandit="offers") as journal:
            bandit = open_bandit(journal, features)
            contexts = [drawn(rng, features) for _ in range(300)]
            for context, decision in zip(contexts, bandit.decide_many(contexts), strict=True):
                made[decision.id] = context, None
            bandit.observe_many([(id, float(rng.integers(2))) for id in list(made)[-250:]])
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
            wanted = reference(journal, after, made, fold.policy)
            for one in (fold, wanted):
                for _ in range(5):
                    one.learner.fit()
            np.testing.assert_allclose(fold.model.theta, wanted.model.theta, rtol=1e-9, atol=1e-9)


def test_a_decision_of_an_unknown_action_stays_in_the_ledger() -> None:
    """Its reward changes nothing in the model, whatever happens to it."""
    journal = MemoryJournal()
    context = drawn(np.random.default_rng(7), BASE)
    bandit = open_bandit(journal, BASE)
    first, second = (bandit.decide(context, ["call"], activated=n > 0) for n in range(2))
    bandit.observe(second.id, 1.0)
    smaller = open_bandit(journal, replace(BASE, actions=["mail"]))
    assert smaller._fold.encoder.counts == {"unknown action": 2}
    theta = smaller._fold.model.theta.copy()
    smaller.activate(first.id)
    assert smaller.observe(first.id, 1.0).status == "rewarded"
    assert smaller.observe(first.id, 0.0, revision=1).status == "revised"
    assert smaller.observe(second.id, 0.0, revision=1).status == "revised"
    smaller.void(second.id)
    assert smaller.decision_counts["rewarded"] == 1
    np.testing.assert_array_equal(smaller._fold.model.theta, theta)
    smaller.save()
    again = open_bandit(journal, smaller.features or BASE)
    assert (again.decision_counts, again.digest) == (smaller.decision_counts, smaller.digest)
    assert again.as_of(journal.now()).digest == again.digest


def test_a_retry_after_a_change_gets_its_decision() -> None:
    """Encoded with the new features, it is the same request; a different one is refused."""
    journal, context = MemoryJournal(), drawn(np.random.default_rng(7), BASE)
    made = open_bandit(journal, BASE).decide(context, id="order-1")
    _, after = CHANGES["action added at the front"]
    bandit = open_bandit(journal, after)
    assert bandit.decide(context, id="order-1") == made
    with pytest.raises(InvalidInput, match="'order-1' was used for another decision"):
        bandit.decide(context | {"age": 33.0}, id="order-1")


def test_a_retry_may_bring_a_field_that_the_decision_lacks() -> None:
    """It is unknown whether it is a different request."""
    journal = MemoryJournal()
    country = {"country": Category(["AT", "DE"])}
    before = Bandit(PerArm(["mail", "call"], context=country), Explicit(), journal=journal)
    decision = before.decide({"country": "AT"}, id="order-1")
    wider = PerArm(["mail", "call"], context=country | {"age": Number(18, 90)})
    after = Bandit(wider, Explicit(), journal=journal)
    assert after.decide({"country": "AT", "age": 41}, id="order-1") == decision
    later = after.decide({"country": "AT", "age": 41}, id="order-2")
    assert before.decide({"country": "AT"}, id="order-2").id == later.id
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
    grown = open_bandit(journal, BASE.with_actions(["none"]), contexts=False)
    assert grown.pending.count == 1
    with pytest.raises(InvalidInput, match="`contexts` must be True or False, got 'no'"):
        open_bandit(journal, BASE, contexts="no")


def test_a_request_is_evaluated_with_other_features() -> None:
    """The offer is encoded again, if the new features know all of it."""
    journal, rng, made = MemoryJournal(), np.random.default_rng(7), Made()
    live(open_bandit(journal, BASE), made, rng, count=100)
    _, after = CHANGES["field added"]
    assert 0.0 <= open_bandit(journal, after).evaluate("uniform").value <= 1.0
    removed = open_bandit(journal, replace(BASE, actions=["visit", "mail"]))
    with pytest.raises(NotEvaluable, match="cannot encode the requests of 100 decisions"):
        removed.evaluate("uniform")


def test_a_model_for_other_features_is_refused() -> None:
    """Even with the same policy and the same width."""
    before, after = CHANGES["field rescaled"]
    policy = DelayedUCB(before.dim, Bernoulli())
    ours, theirs = policy.bound_to(before), policy.bound_to(after)
    model = Fold(theirs, Explicit()).export_model(5)
    assert PublishedModel.read(model.write()).model(theirs).n == 0
    with pytest.raises(JournalMismatch, match="trained with different features"):
        model.model(ours)


def test_a_journal_of_two_features_is_read_by_all_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With rows of both: verified, reported, exported and imported."""
    rng, made = np.random.default_rng(7), Made()
    address = f"sqlite:///{tmp_path / 'features.db'}?bandit=offers"
    for features in (BASE, CHANGES["action added at the front"].after):
        bandit = Bandit(features, rewards=Explicit(), journal=address, family=Bernoulli())
        live(bandit, made, rng)
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
        Bandit(BASE, rewards=Explicit(), journal=address) as one,
        Bandit(BASE, rewards=Explicit(), journal=copy) as other,
    ):
        assert one.digest == other.digest
        np.testing.assert_allclose(one.estimate.theta, other.estimate.theta, rtol=1e-9)


def test_a_trimmed_journal_refuses_other_features() -> None:
    """The sums of trimmed records have no contexts; with the old features it can be opened."""
    journal, rng = MemoryJournal(), np.random.default_rng(7)
    bandit = open_bandit(journal, BASE)
    contexts = [drawn(rng, BASE) for _ in range(1_100)]
    bandit.observe_many([(made.id, 1.0) for made in bandit.decide_many(contexts)])
    bandit.save()
    last = [last_to_drop(journal, 0, 1 << 62, journal.end(0), LINK)]
    (base,) = make_bases(journal, bandit._new_fold(), last)
    trim(journal, base, last[0], 0, reason="old", actor="me")
    while journal.drop(0, 1_000):
        pass
    before, after = CHANGES["field rescaled"]
    with pytest.raises(JournalMismatch, match="trimmed with their contexts, so they cannot"):
        open_bandit(journal, after)
    again = open_bandit(journal, before)
    assert again.decision_counts["rewarded"] == 1_100


@pytest.mark.parametrize("length", [0, 300, 70_000])
def test_the_kernel_takes_decisions_with_contexts_of_any_size(length: int, tmp_path: Path) -> None:
    """With its own features: none of them is left to the rules."""
    with SQLiteJournal(tmp_path / "features.db", bandit="offers") as journal:
        bandit = open_bandit(journal, BASE, keep_requests=0)
        context = drawn(np.random.default_rng(7), BASE) | {"note": "x" * length}
        first = journal.end(0)
        bandit.decide_many([context] * 20)
        fold = bandit._new_fold()
        fold.begin(journal)
        fold.take_all(0, journal.read(0, 0, first))
        kernels = page_kernels(wait=True)
        if kernels is None:
            pytest.skip("there is no compiler")
        page = journal.read_columns(0, first, 100)
        with fold.learner.bulk():
            assert PageFolder(fold.ledgers[0], fold.adapters[0], page, kernels).take_plain(0) == 20
