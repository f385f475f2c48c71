"""The message about an outcome, and when it is sent."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import get_args

import msgspec
import numpy as np
import pytest

from belated import Bandit, Bernoulli, DelayedUCB, Explicit, PerArm
from belated.core.outcomes import DecisionOutcome, OutcomeState
from belated.core.tuning import Tuning
from belated.evaluation.files import named_columns
from belated.evaluation.sources import read_journal
from belated.exceptions import InvalidInput, JournalUnavailable
from belated.fold import outcomes as module
from belated.fold.fold import Fold
from belated.fold.rules import State
from belated.journals import MemoryJournal, MemoryStore
from belated.service import Definition
from tests.learners import learning_service

REWARDS = Explicit(timedelta(days=1))
POLICY = DelayedUCB(2, Bernoulli())
SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "outcome.schema.json"


def played(rounds: int = 1, store: MemoryStore | None = None) -> MemoryJournal:
    """A journal with decisions and their rewards; a store to which to add them."""
    store = store or MemoryStore()
    with Bandit(policy=POLICY, rewards=REWARDS, journal=store.journal(), seed=1) as bandit:
        for _ in range(rounds):
            bandit.observe(bandit.decide(rows=np.eye(2)).id, 1.0)
    return store.journal()


def fold_of(journal: MemoryJournal) -> Fold:
    """A fold that sends outcomes."""
    fold = Fold(POLICY, REWARDS, outcomes=journal)
    fold.load(journal)
    return fold


def test_columns_of_exports_have_the_same_names() -> None:
    """And only exports have the place in the journal."""
    fields = {field.name for field in msgspec.structs.fields(DecisionOutcome)}
    columns = named_columns(read_journal(played(), rewards=REWARDS)).keys()
    assert columns - fields == {"partition", "position"}
    assert fields - columns == {"version", "subject", "context", "record", "delay"}


def test_states_have_the_names_of_the_ledger() -> None:
    """In the same order; only an erased decision is not in the ledger."""
    assert get_args(OutcomeState) == (*(state.name.lower() for state in State), "erased")


def test_the_published_schema_describes_every_field() -> None:
    """It requires what an erased decision has."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    assert schema["required"] == ["id", "version", "state"]
    assert all(field["description"] for field in schema["properties"].values())
    assert schema["properties"].keys() == set(DecisionOutcome.__struct_fields__)


def test_a_snapshot_waits_for_outcomes() -> None:
    """One without them would lose them if the learner stopped."""
    journal = played()
    fold = fold_of(journal)
    put_outcomes = journal.put_outcomes
    journal.put_outcomes = refuse  # type: ignore[method-assign]
    fold.follow(journal, 0, 100)
    for _ in range(2):
        with pytest.raises(JournalUnavailable):
            fold.follow(journal, 0, 100)
        with pytest.raises(JournalUnavailable):
            fold.save(journal)
    assert not has_sent(journal)
    journal.put_outcomes = put_outcomes  # type: ignore[method-assign]
    fold.follow(journal, 0, 100)
    assert [outcome.version for outcome in journal._facts.outcomes.values()] == [journal.end(0)]
    fold.save(journal)
    assert has_sent(journal)


def has_sent(journal: MemoryJournal) -> bool:
    """Whether the stored snapshot is of a learner that sends outcomes."""
    snapshot = journal.load(0)
    return snapshot is not None and "outcomes" in snapshot.pieces


def refuse(partition: int, outcomes: object) -> None:
    """Fail, like a store that is down."""
    raise JournalUnavailable("down")


def test_turned_on_later_all_outcomes_are_sent() -> None:
    """A snapshot of a learner without outcomes is not used."""
    store = MemoryStore()
    journal = played(3, store)
    plain = Fold(POLICY, REWARDS)
    plain.load(journal)
    plain.catch_up(journal)
    plain.save(journal)
    fold = fold_of(journal)
    assert fold.positions == [0]
    fold.catch_up(journal)
    assert len(journal._facts.outcomes) == 3
    played(1, store)
    fold.catch_up(journal)
    fold.save(journal)
    assert fold_of(journal).positions == fold.positions


def test_a_context_that_is_too_large_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other fields are sent."""
    store, features = MemoryStore(), PerArm(["blue", "red"], context=["age"])
    policy = DelayedUCB(family=Bernoulli()).bound_to(features)
    for limit, context in ((1 << 20, {"age": 41}), (100, None)):
        monkeypatch.setattr(module, "MAX_BYTES", limit)
        with Bandit(features, rewards=REWARDS, journal=store.journal(), seed=1) as bandit:
            id = bandit.decide({"age": 41}).id
            bandit.observe(id, 1.0)
        journal = store.journal()
        fold = Fold(policy, REWARDS, features=features, outcomes=journal)
        fold.begin(journal)
        fold.catch_up(journal)
        outcome = msgspec.json.decode(journal._facts.outcomes[id].data, type=DecisionOutcome)
        assert (outcome.value, outcome.context) == (1.0, context)


def test_neighbors_and_distant_decisions_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """With any size of pages and batches."""
    journal = played(200)
    for batch, page in ((1, 1), (7, 30), (1_000, 512)):
        monkeypatch.setattr(module, "BATCH", batch)
        monkeypatch.setattr(module, "PAGE", page)
        journal._facts.outcomes.clear()
        fold = Fold(POLICY, REWARDS, outcomes=journal, tuning=Tuning(page=150))
        fold.begin(journal)
        fold.catch_up(journal)
        assert len(journal._facts.outcomes) == 200


def test_a_store_that_cannot_store_outcomes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the learner starts."""
    monkeypatch.setattr(MemoryJournal, "put_outcomes", None)
    definition = Definition("offers", POLICY, REWARDS, outcomes=True)
    with pytest.raises(InvalidInput, match="cannot store outcomes: remove outcomes = true"):
        learning_service(definition, MemoryStore())
