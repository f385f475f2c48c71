"""Bad inputs 5 to 12 of the threat model: what can be read, and must not be believed.

As for the first four. All routes with all keys and tokens are in test_service_keys.py and
test_service_tokens.py.
"""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from belated.journals import Store
from belated.service.http.app import Service
from tests.integration.asking import SECRET, Asking, nothing_told
from tests.integration.bad_inputs.bandits import (
    COIN,
    DEFINITIONS,
    DIM,
    FREE,
    PLAIN,
    ROW,
    brief,
    coin,
    free,
    packed,
    shared,
)
from tests.integration.keyrings import answers, make, revoke
from tests.integration.ledgers import check_ledger, folds_of
from tests.integration.serving import Serving
from tests.waiting import eventually

# The learner warns of what it is given here, and goes on.
pytestmark = pytest.mark.filterwarnings("ignore::belated.exceptions.BelatedWarning")


# --- 5. an id that was used ----------------------------------------------------------------------


def test_bad_input_05_an_id_names_one_decision(asking: Asking) -> None:
    """The same id with other rows is refused; with the same rows it is the same decision."""
    first, before = asking.decide(PLAIN | {"id": "bad 5"}), asking.length
    assert asking.decide(PLAIN | {"id": "bad 5"}).json() == first.json()
    assert asking.length == before
    asking.refused(lambda: asking.decide({"rows": [[0.25] * DIM], "id": "bad 5"}), 422)
    many = [PLAIN, {"rows": [[0.25] * DIM], "id": "bad 5"}]
    asking.refused(lambda: asking.decide_many(*many), 422)


def test_bad_input_05_an_id_names_one_decision_also_in_a_crowd(asking: Asking) -> None:
    """Of two payloads at once one is decided, and nobody gets the decision of the other."""
    payloads = [{"rows": [[0.5] * DIM]}, {"rows": [ROW, [0.0, 1.0, 0.0, 1.0], [0.25] * DIM]}]
    for turn in range(10):
        id = f"bad crowd {turn}"
        bodies: list[dict[str, Any]] = [body | {"id": id} for body in payloads * 4]
        with ThreadPoolExecutor(8) as crowd:
            found = list(crowd.map(asking.decide, bodies))
        assert {one.status_code for one in found} <= {201, 422}
        counts = asking.story(id)["decision"]
        for body, answer in zip(bodies, found, strict=True):
            rows = body["rows"]
            mine = len(rows) > counts["index"] and rows[counts["index"]] == counts["x"]
            assert mine or answer.status_code == 422, (turn, answer.text)


# --- 6. rewards of decisions that nobody knows ---------------------------------------------------


def test_bad_input_06_an_unknown_or_foreign_decision_teaches_nothing(
    asking: Asking, http: httpx.Client
) -> None:
    """Its reward is taken and parked; nothing in the answer tells it from another."""
    mine = asking.decide(PLAIN).json()["id"]
    other = FREE if asking.journal.bandit == COIN else COIN
    foreign = http.post(f"/v1/{other}/decisions", json=PLAIN).json()["id"]
    answered = [asking.reward({"value": 1}, id) for id in (mine, foreign, "bad 6")]
    for id, one in zip((mine, foreign, "bad 6"), answered, strict=True):
        assert (one.status_code, one.json()) == (202, {"id": id, "status": "accepted"})
    assert [asking.story(id)["state"] for id in (foreign, "bad 6")] == ["unmatched"] * 2
    eventually(lambda: asking.send("GET", "").json()["version"] >= asking.length)
    n = asking.send("GET", "").json()["observations"]
    assert asking.reward({"value": 0}, "bad 6 too").status_code == 202
    eventually(lambda: asking.send("GET", "").json()["version"] >= asking.length)
    assert asking.send("GET", "").json()["observations"] == n


# --- 7. tokens -----------------------------------------------------------------------------------


@coin
@pytest.mark.parametrize("keyed", [True, False])
def test_bad_input_07_a_token_that_is_not_for_this_reward(
    asking: Asking, serving: Serving, keyed: bool
) -> None:
    """Forged, truncated, changed, of another decision, too long, or one of many: with a key too."""
    first, second = asking.decide_many(PLAIN, PLAIN).json()["decisions"]
    token: str = first["token"]
    changed = token[:-10] + ("A" if token[-10] != "A" else "B") + token[-9:]
    with httpx.Client(base_url=serving.url) as nobody:
        sender = asking if keyed else Asking(nobody, asking.journal, asking.base[4:])
        for bad in (SECRET, "", token[:-1], token[:20], changed, token + "=", second["token"]):
            body = {"value": 1, "token": bad}
            sender.refused(lambda: sender.reward(body, first["id"]), 403)  # noqa: B023
        sender.refused(lambda: sender.reward({"value": 1, "token": SECRET * 100}), 422)
        fine = {"id": first["id"], "value": 1, "token": token}
        forged = {"id": second["id"], "value": 1, "token": SECRET}
        sender.refused(lambda: sender.reward_many(fine, forged), 403)
        assert sender.reward_many(fine).status_code == 202


@brief
def test_bad_input_07_a_token_that_has_ended(asking: Asking) -> None:
    """Also with a key; and without the token that key will do."""
    made = asking.decide(PLAIN).json()
    body = {"value": 1, "token": made["token"]}
    eventually(lambda: asking.reward(body, made["id"]).status_code == 403)
    assert "expired" in asking.refused(lambda: asking.reward(body, made["id"]), 403)
    assert asking.reward({"value": 1}, made["id"]).status_code == 202


# --- 8. rewards ----------------------------------------------------------------------------------

OUT = [-5e-324, -1e-300, 1.0000000000000002, 1.0000001, -1, 2, 1e308, -1e308]


@coin
@pytest.mark.parametrize("value", OUT)
def test_bad_input_08_a_reward_out_of_range(asking: Asking, value: float) -> None:
    """Alone, and among many of which the others are right: then none is kept."""
    asking.refused(lambda: asking.reward({"value": value}), 422)
    many = [{"id": "fine", "value": 1}, {"id": SECRET, "value": value}]
    asking.refused(lambda: asking.reward_many(*many), 422)


@free
@pytest.mark.parametrize("value", [1e308, -1e308, 1.0000000000000002e9, -1e10, 10**20])
def test_bad_input_08_a_reward_whose_square_would_not_add_up(asking: Asking, value: float) -> None:
    """Where the family has no bounds: at most 1e9."""
    assert "1e+09" in asking.refused(lambda: asking.reward({"value": value}), 422)


@pytest.mark.parametrize("value", [-0.0, 0.0, 5e-324, 2.2e-308, 1.0])
def test_bad_input_08_the_smallest_rewards_are_taken(asking: Asking, value: float) -> None:
    """Minus zero is zero, and numbers below the normal ones are numbers."""
    id = asking.decide({"rows": [ROW]}).json()["id"]
    assert asking.reward({"value": value}, id).status_code == 202
    story = asking.story(id)
    assert (story["state"], story["value"]) == ("rewarded", value)


# --- 9. what only the service can say ------------------------------------------------------------

OURS: dict[str, Any] = {"propensity": 1.0, "model": 3, "mean": 0.5, "index": 0, "recorded": 5}
OURS |= {"position": 1, "x": ROW, "policy": "Uniform()", "bandit": "other", "status": "late"}


@pytest.mark.parametrize("field", OURS)
def test_bad_input_09_what_the_service_says_cannot_be_sent(asking: Asking, field: str) -> None:
    """A propensity or a model of the client's own is refused, not passed over in silence."""
    offer = {"rows": [ROW], "id": SECRET, field: OURS[field]}
    assert field in asking.refused(lambda: asking.decide(offer), 422)
    assert field in asking.refused(lambda: asking.reward({"value": 1, field: OURS[field]}), 422)


def test_bad_input_09_what_belongs_elsewhere_cannot_be_sent(asking: Asking) -> None:
    """A time or a token with an offer, an id within a reward that has one in its path."""
    for field, value in (("at", 5), ("token", SECRET)):
        offer = {"rows": [ROW], "id": SECRET, field: value}
        assert field in asking.refused(lambda: asking.decide(offer), 422)  # noqa: B023
    assert "id" in asking.refused(lambda: asking.reward({"value": 1, "id": SECRET}), 422)
    place = "/decisions/a/activation"
    for query in ("recorded=1", f"{SECRET}=1", f"at={SECRET}", "at=1&at=2"):
        asking.refused(lambda: asking.send("PUT", f"{place}?{query}"), 422)  # noqa: B023


@pytest.mark.parametrize(
    ("at", "told"),
    [
        (946_684_800_000_000, "2000-01-01T00:00:00Z"),
        (1_262_304_000_000_001, "2010-01-01T00:00:00.000001Z"),
        ("2000-01-01T00:00:00Z", "2000-01-01T00:00:00Z"),
        ("2010-01-01T05:30:00.5+05:30", "2010-01-01T00:00:00.500000Z"),
    ],
)
def test_bad_input_09_a_time_of_the_client_decides_nothing(
    asking: Asking, at: int | str, told: str
) -> None:
    """2000 and 2010 are kept: windows follow the journal's own clock.

    Only a reward cannot be before its decision.
    """
    id = asking.decide({"rows": [ROW], "activated": False}).json()["id"]
    written = str(at).replace("+", "%2B")
    assert asking.send("PUT", f"/decisions/{id}/activation?at={written}").status_code == 202
    detail = asking.refused(lambda: asking.reward({"value": 1, "at": at}, id), 422)
    assert "before its decision at" in detail
    assert asking.reward({"value": 1}, id).status_code == 202
    story = asking.story(id)
    assert (story["state"], story.get("late", False)) == ("rewarded", False)
    assert [one["kind"] for one in story["records"]] == ["decision", "activation", "reward"]
    assert story["records"][1]["at"] == told
    made = datetime.fromisoformat(story["decision"]["at"])
    for one in story["records"]:
        assert abs(datetime.fromisoformat(one["recorded"]) - made) < timedelta(minutes=1)


#: 1970, seconds, milliseconds, in 2100, and at the end of time.
NEVER: list[float | str] = [-1, 0, 1, 1_700_000_000, 1_700_000_000_000, 4_102_444_800_000_000]
NEVER += [1 << 62, 2**63 - 1, 2**63, 1.5]
#: The same as text, without a zone, as a date alone, and in other words.
NEVER += ["1999-12-31T23:59:59Z", "2100-01-01T00:00:00Z", "0001-01-01T00:00:00Z"]
NEVER += ["2026-11-16T12:00:00", "2026-11-16", "20261116T120000Z", "12:00", "yesterday", ""]
IN_TEN_DAYS = pytest.param(time.time_ns() // 1_000 + 10 * 86_400_000_000, id="in ten days")


@pytest.mark.parametrize("at", [*NEVER, IN_TEN_DAYS])
def test_bad_input_09_a_time_that_cannot_be(asking: Asking, at: float | str) -> None:
    """With a reward, an activation or a void; what to send is said."""
    details = [
        asking.refused(lambda: asking.reward({"value": 1, "at": at}), 422),
        asking.refused(lambda: asking.reward_many({"id": "a", "value": 1, "at": at}), 422),
    ]
    for method, path in (("PUT", "/decisions/x/activation"), ("POST", "/decisions/x/void")):
        details.append(asking.refused(lambda: asking.send(method, f"{path}?at={at}"), 422))  # noqa: B023
    for detail in details:
        assert re.search("send RFC 3339|ahead of this machine's clock|before the year 2000", detail)


# --- 10. actions ---------------------------------------------------------------------------------


def test_bad_input_10_one_action_is_a_choice_with_certainty(asking: Asking) -> None:
    """Its propensity is 1; it is learned from like any other."""
    response = asking.decide({"rows": [ROW], "actions": ["only"]})
    assert response.status_code == 201
    assert (response.json()["action"], response.json()["propensity"]) == ("only", 1.0)


def test_bad_input_10_no_action_the_same_twice_or_too_few(asking: Asking) -> None:
    """However they are given; 1 and "1" are two."""
    asking.refused(lambda: asking.decide({"rows": [], "id": SECRET}), 422)
    too_long = SECRET * 20
    for count, actions in (
        (0, []), (3, [SECRET, 1, SECRET]), (2, [7, 7]), (2, [SECRET]), (2, ["a", too_long]),
    ):  # fmt: skip
        offer = {"rows": [ROW] * count, "actions": actions}
        asking.refused(lambda: asking.decide(offer), 422)  # noqa: B023
    assert asking.decide({"rows": [ROW] * 2, "actions": [1, "1"]}).status_code == 201


def test_bad_input_10_a_hundred_thousand_actions(asking: Asking) -> None:
    """A thousand are chosen from, more are refused; more than a body may hold are 413."""
    response = asking.decide({"rows": [ROW] * 1_000, "actions": list(range(1_000))})
    assert response.status_code == 201, response.text
    assert 0 < response.json()["propensity"] <= 1
    for count in (1_001, 100_000):
        asking.refused(lambda: asking.decide({"rows": [[1, 2, 3, 4]] * count}), 422)  # noqa: B023
    asking.refused(lambda: asking.decide({"rows": packed(*ROW * 1_001)}), 422)
    asking.refused(lambda: asking.decide({"rows": [[1, 2, 3, 4]] * 300_000}), 413)
    names = list(range(999))
    asking.refused(lambda: asking.decide({"rows": [ROW], "actions": names}), 422)
    asking.refused(lambda: asking.decide(PLAIN | {"actions": list(range(1_001))}), 422)
    detail = asking.refused(lambda: asking.decide({"rows": [ROW], "actions": [*names, 998]}), 422)
    assert detail == "the action 998 is offered twice"
    asking.refused(lambda: asking.decide_many(*[PLAIN] * 1_001), 422)
    asking.refused(lambda: asking.reward_many(*[{"id": "a", "value": 1}] * 1_001), 422)


@shared
def test_bad_input_10_a_thousand_and_one_actions_with_records(asking: Asking) -> None:
    """Where features read them."""
    actions = {str(number): {"price": 1} for number in range(1_001)}
    asking.refused(lambda: asking.decide({"context": {"age": 1}, "actions": actions}), 422)


def test_bad_input_10_an_action_that_is_removed_in_flight(asking: Asking) -> None:
    """Its decision keeps it: the reward counts, though nobody offers it any more."""
    made = asking.decide({"rows": [ROW] * 2, "actions": ["old", "new"]}).json()
    left = "new" if made["action"] == "old" else "old"
    assert asking.decide({"rows": [ROW], "actions": [left]}).json()["action"] == left
    assert asking.reward({"value": 1}, made["id"]).status_code == 202
    story = asking.story(made["id"])
    assert (story["decision"]["action"], story["state"]) == (made["action"], "rewarded")


# --- 11. rows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e300, -1e300, 3.5e38, 1e9, 1.1e8])
def test_bad_input_11_rows_out_of_scale(asking: Asking, scale: float) -> None:
    """With the place of the first such number."""
    offer = {"rows": [ROW, [1, scale, 3, 4]], "id": SECRET}
    assert "rows[1, 1]" in asking.refused(lambda: asking.decide(offer), 422)


@pytest.mark.parametrize("width", [0, 1, DIM - 1, DIM + 1, 2 * DIM, 10_000])
def test_bad_input_11_rows_of_different_width(asking: Asking, width: int) -> None:
    """All of them, or one among others; or in base64."""
    asking.refused(lambda: asking.decide({"rows": [[1.0] * width] * DIM}), 422)
    asking.refused(lambda: asking.decide({"rows": [ROW, [1.0] * width, ROW]}), 422)
    if width % DIM:
        asking.refused(lambda: asking.decide({"rows": packed(*[1.0] * width)}), 422)
    asking.refused(lambda: asking.decide({"rows": "AAAA"}), 422)  # not even one number


@shared
def test_bad_input_11_a_context_that_gives_no_row(asking: Asking) -> None:
    """A name is missing, or its value is no number."""
    for context in ({}, {"age": SECRET}):
        offer = {"context": context, "actions": {"a": {"price": 1}}}
        asking.refused(lambda: asking.decide(offer), 422)  # noqa: B023


DEGENERATE = {
    "zero": [[0.0] * DIM] * 3,
    "minus zero": [[-0.0] * DIM],
    "constant": [[1.0] * DIM] * 3,
    "collinear": [[t, 2 * t, -t, 0.5 * t] for t in (1.0, 2.0, 3.0)],
    "tiny": [[1e-300] * DIM, [5e-324, 0, 0, 0], [-1e-300] * DIM],
    "subnormal": [[1e-45] * DIM, [1e-40] * DIM],
    "large": [[1e8] * DIM, [-1e8] * DIM, [1e8, -1e8, 0, 1]],
    "mixed": [[1e8, 1e-30, 1, 0], [1e-8, 1e4, -1, 1e-4]],
}


@pytest.mark.parametrize("rows", DEGENERATE.values(), ids=DEGENERATE)
def test_bad_input_11_rows_that_tell_little(asking: Asking, rows: list[list[float]]) -> None:
    """Columns that are constant, collinear or zero, of any scale that is let in: all is finite."""
    ids = []
    for turn in range(8):
        response = asking.decide({"rows": rows})
        assert response.status_code == 201, response.text
        answer = response.json()
        assert 0 < answer["propensity"] <= 1
        assert np.isfinite(answer["mean"])
        ids.append(answer["id"])
        assert asking.reward({"value": turn % 2}, answer["id"]).status_code == 202
    assert asking.story(ids[0])["state"] == "rewarded"


# --- 12. hostile strings, wrong scopes, revoked keys ---------------------------------------------


def test_bad_input_12_hostile_strings(asking: Asking, http: httpx.Client) -> None:
    """Ids of a megabyte, and places that are not there."""
    asking.refused(lambda: asking.decide({"rows": [ROW], "id": SECRET * 200_000}), 422)
    asking.refused(lambda: asking.reward({"value": 1}, SECRET * 20), 422)
    for path in (f"/{SECRET}", f"/v1/{SECRET}", f"{asking.base}/{SECRET}"):
        asking.refused(lambda: http.get(path), 404)  # noqa: B023
    asking.refused(lambda: asking.send("PATCH", f"/decisions/{SECRET}"), 405)
    before = asking.length
    assert asking.send(SECRET.upper(), f"/{SECRET}").status_code == 400  # no HTTP at all
    assert asking.length == before


def test_bad_input_12_keys_that_may_not(asking: Asking, serving: Serving, store: Store) -> None:
    """Of another scope, of another bandit, revoked, or of nobody."""
    reader, foreign = make(store, "read", "reward"), make(store, "decide", bandits=("another",))
    revoked = make(store, "decide")
    made = {reader: 403, foreign: 403, revoked: 401}
    eventually(lambda: 401 not in {answers(serving.url, one, "/metrics") for one in made})
    revoke(store, revoked.id)
    eventually(lambda: answers(serving.url, revoked, "/metrics") == 401)
    headers = {one.header["authorization"]: status for one, status in made.items()}
    for value, status in (headers | {SECRET: 401, f"Bearer {SECRET}": 401}).items():
        with nothing_told(asking.http, value.removeprefix("Bearer ")):
            asking.refused(
                lambda: asking.send("POST", "/decisions", PLAIN, authorization=value),  # noqa: B023
                status,
            )


# --- after all of it -----------------------------------------------------------------------------


def test_every_bad_input_is_in_one_file() -> None:
    """Found by its number."""
    files = [path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*.py")]
    found = [one for text in files for one in set(re.findall(r"def test_bad_input_(\d\d)_", text))]
    assert sorted(found) == [f"{number:02}" for number in range(1, 13)]


def test_after_all_of_it_the_ledgers_are_those_of_the_journals(
    app: Service, serving: Serving, http: httpx.Client, store: Store
) -> None:
    """And finite; the service is ready and has never failed."""
    eventually(lambda: http.get("/readyz").status_code == 200)
    text = http.get("/metrics").text
    assert 'status="5' not in text
    for definition in DEFINITIONS:
        assert f'belated_learner_restarts_total{{bandit="{definition.name}"}} 0.0' in text
    folds = folds_of(app)
    serving.stop()
    for definition in DEFINITIONS:
        check_ledger(folds[definition.name], definition, store)
