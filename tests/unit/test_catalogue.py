"""A catalogue: the records of actions are encoded once, and requests offer them by name."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from belated import Bandit, Category, DelayedUCB, Explicit, Flag, Gaussian, Number, Shared
from belated.decider.requests import offered
from belated.exceptions import InvalidInput, NotEvaluable
from belated.expressions import as_features
from belated.features import Hashed
from belated.journals import MemoryJournal

OFFERS: dict[Any, Any] = {
    "red shoes": {"price": 20, "brand": "A", "new": True},
    "blue shoes": {"price": 35.5, "brand": "B", "new": None},
    7: {"price": None, "brand": "C", "new": False},
}
CONTEXT = {"age": Number(18, 90)}
ACTION = {"price": Number(1, 100, log=True), "brand": Category(["A", "B"]), "new": Flag()}
PLAIN = Shared(context=CONTEXT, action=ACTION)
FEATURES = replace(PLAIN, catalogue=OFFERS)
ADULT = {"age": 41}


def bandit(features: Shared = FEATURES, **settings: Any) -> Bandit:
    """A bandit in memory, or on a journal."""
    policy = DelayedUCB(features.dim, Gaussian(), floor=0.3)
    return Bandit(policy=policy, rewards=Explicit(), features=features, seed=7, **settings)


def test_names_give_the_rows_of_their_records() -> None:
    """Rows are identical, in order; None means the catalogue's record."""
    rows = PLAIN.rows(ADULT, OFFERS)
    for actions in (list(OFFERS), tuple(OFFERS), dict.fromkeys(OFFERS), OFFERS):
        assert FEATURES.rows(ADULT, actions).tobytes() == rows.tobytes()
    assert FEATURES.rows(ADULT, [7, "red shoes"]).tobytes() == rows[[2, 0]].tobytes()
    first = FEATURES.rows(ADULT, offered(None, FEATURES))  # type: ignore[arg-type]
    assert first.tobytes() == rows.tobytes()
    first[:] = 0.0  # does not reach the catalogue
    assert FEATURES.rows(ADULT, list(OFFERS)).tobytes() == rows.tobytes()


def test_fields_of_a_request_replace_those_of_the_catalogue() -> None:
    """Some or all of them; unknown actions need all fields."""
    gift = {"price": 3, "brand": "A", "new": True}
    sale = {"price": 9}
    rows = FEATURES.rows(ADULT, {"blue shoes": sale, "gift": gift, "red shoes": None})
    records = {"blue shoes": OFFERS["blue shoes"] | sale, "gift": gift}
    assert rows.tobytes() == PLAIN.rows(ADULT, records | {"red": OFFERS["red shoes"]}).tobytes()
    with pytest.raises(InvalidInput, match="'brand' of action 'gift' is missing"):
        FEATURES.rows(ADULT, {"gift": sale})


def test_numbers_without_encoders() -> None:
    """If records are sequences, a request's record replaces all of it."""
    features = Shared(context=1, action=2, catalogue={"a": [1.0, 2.0], "b": np.array([3.0, 4.0])})
    rows = features.rows([1.0], {"a": None, "b": [5.0, 6.0]})
    assert rows[:, 2:4].tolist() == [[1.0, 2.0], [5.0, 6.0]]
    with pytest.raises(InvalidInput, match="action 'b'"):
        features.rows([1.0], {"a": None, "b": [1e300, 6.0]})


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (["red shoes", "hat"], "the action 'hat' is not in the catalogue: add it, or send"),
        ({"hat": None}, "the action 'hat' is not in the catalogue"),
        (["red shoes", "red shoes"], "'red shoes' is offered twice"),
        ([], "offer at least one action"),
    ],
)
def test_what_is_offered_must_be_known(actions: Any, message: str) -> None:
    """A name without a record must be in the catalogue."""
    with pytest.raises(InvalidInput, match=message):
        FEATURES.rows(ADULT, actions)


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ({"hat": {"price": 3}}, "'brand' of action 'hat' is missing"),
        ({}, "offer at least one action"),
        ({"hat": OFFERS[7] | {"more": object()}}, "action 'hat' of the catalogue"),
    ],
)
def test_a_catalogue_is_read_when_features_are_made(records: Any, message: str) -> None:
    """Errors in it are raised before the first request."""
    with pytest.raises(InvalidInput, match=message):
        replace(PLAIN, catalogue=records)
    with pytest.raises(InvalidInput, match=r"action 'big' must be .*got 1000000000000"):
        Shared(action=1, catalogue={"big": [1e12]})


def test_rows_mean_the_same_whatever_the_catalogue_holds() -> None:
    """It is neither in the fingerprint nor in the repr of the features."""
    assert FEATURES.fingerprint == PLAIN.fingerprint
    assert FEATURES == PLAIN == as_features(repr(FEATURES))
    assert hash(FEATURES) == hash(PLAIN)
    assert FEATURES.extends(PLAIN)
    for copied in (pickle.loads(pickle.dumps(FEATURES)), copy.deepcopy(FEATURES)):
        assert copied.rows(ADULT, [7]).tobytes() == FEATURES.rows(ADULT, [7]).tobytes()
    assert PLAIN.fit([ADULT], OFFERS).catalogue is None
    assert FEATURES.fit([ADULT], OFFERS).catalogue == OFFERS


def test_values_of_a_catalogue_are_counted_once() -> None:
    """They are counted when encoded, not each time they are offered."""
    features = replace(FEATURES)
    for _ in range(3):
        features.rows(ADULT, list(OFFERS))
    assert features.field_counts["action price"]["missing"] == 1
    assert features.field_counts["action brand"]["unknown"] == 1
    assert features.field_counts["context age"]["ok"] == 3


def test_a_bandit_offers_the_catalogue() -> None:
    """Without named actions all are offered; stored requests hold only names."""
    shop = bandit()
    decisions = [
        shop.decide(ADULT),
        shop.decide(ADULT, ["red shoes", 7]),
        *shop.decide_many([ADULT] * 2),
    ]
    offers = [shop.entry(decision.id).request for decision in decisions]
    assert [request.actions for request in offers if request] == [
        [*OFFERS],
        ["red shoes", 7],
        [*OFFERS],
        [*OFFERS],
    ]
    assert all(request and request.records is None and request.digests for request in offers)
    decision = shop.decide(ADULT, id="order-17")
    assert shop.decide(ADULT, id="order-17") == decision
    shop.pause("anything")  # other actions may be offered with records
    assert [state.action for state in shop.actions] == ["anything"]


def test_paused_actions_of_a_catalogue() -> None:
    """They are not in stored requests, which can still be evaluated."""
    shop = bandit()
    shop.pause("red shoes")
    for n in range(140):
        decision = shop.decide(ADULT, {"red shoes": None, "blue shoes": None, "hat": OFFERS[7]})
        assert decision.action != "red shoes"
        shop.observe(decision.id, float(n % 2))
    request = shop.entry(decision.id).request
    assert request is not None
    assert (request.actions, len(request.digests or b"")) == (["blue shoes", "hat"], 8)
    assert shop.evaluate("uniform").decisions == 140


def _run(one: Bandit, count: int, actions: Any = None) -> None:
    rng = np.random.default_rng(3)
    for _ in range(count):
        decision = one.decide(ADULT, actions)
        one.observe(decision.id, float(rng.normal()))


def test_requests_are_evaluated_with_the_records_of_their_time() -> None:
    """If a record has changed, the request is left out."""
    journal = MemoryJournal()
    first = bandit(journal=journal)
    _run(first, 130)
    _run(first, 120, ["red shoes", "blue shoes"])
    estimate = first.evaluate("uniform")
    assert (estimate.decisions, estimate.notes) == (250, bandit_notes(estimate.notes))
    catalogue = OFFERS | {7: OFFERS[7] | {"price": 50}, "hat": OFFERS[7]}
    second = bandit(replace(PLAIN, catalogue=catalogue), journal=journal)
    value = second.evaluate("uniform")
    assert value.decisions == 120
    assert "130 decisions are left out, because the catalogue has changed" in value.notes
    reduced = bandit(replace(PLAIN, catalogue={"hat": OFFERS[7]}), journal=journal)
    for reopened in (reduced, bandit(PLAIN, journal=journal)):
        with pytest.raises(NotEvaluable, match="250 of them used a different catalogue"):
            reopened.evaluate("uniform")


def bandit_notes(notes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the notes of the estimate, without others."""
    return tuple(note for note in notes if "left out" not in note)


def test_an_action_with_a_record_of_its_own_may_enter_the_catalogue_later() -> None:
    """Its request holds all fields, so nothing has changed."""
    journal = MemoryJournal()
    _run(bandit(journal=journal), 120, {"red shoes": None, "hat": OFFERS[7]})
    features = replace(PLAIN, catalogue=OFFERS | {"hat": OFFERS["red shoes"]})
    assert bandit(features, journal=journal).evaluate("uniform").decisions == 120


@given(
    st.dictionaries(
        st.text(max_size=3) | st.integers(-3, 3),
        st.fixed_dictionaries(
            {
                "price": st.none() | st.floats() | st.integers(-1000, 1000),
                "brand": st.none() | st.text(max_size=2),
                "new": st.none() | st.booleans(),
            }
        ),
        min_size=1,
        max_size=6,
    ),
    st.data(),
)
def test_any_part_of_any_catalogue_has_the_rows_of_its_records(offers: Any, data: Any) -> None:
    """An action can come by name, with some fields or with all."""
    features = replace(PLAIN, catalogue=offers)
    names = data.draw(st.lists(st.sampled_from(list(offers)), min_size=1, unique=True))
    selection = {
        name: data.draw(
            st.sampled_from([None, {}, {"price": 3}, {"new": None}, {**offers[name], "new": True}])
        )
        for name in names
    }
    rows = features.rows(ADULT, selection)
    records = {name: {**offers[name], **(record or {})} for name, record in selection.items()}
    assert rows.tobytes() == PLAIN.rows(ADULT, records).tobytes()


def test_other_features_have_no_catalogue() -> None:
    """Unnamed actions must come with the request."""
    assert offered(None, PLAIN) is None
    assert offered(None, Hashed(8)) is None
    with pytest.raises(InvalidInput, match="must be a mapping of ids to records"):
        PLAIN.rows(ADULT, ["red shoes"])
