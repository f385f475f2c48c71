"""Tokens of rewards: a browser may report one reward, and do nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from belated import Bernoulli, DelayedUCB, Explicit, Gaussian
from belated.cli.main import main
from belated.client import Client
from belated.exceptions import InvalidInput, ServiceError
from belated.journals import Store
from belated.service import Definition, Service
from belated.service.access.tokens import TokenSecrets
from belated.service.http.app import ROUTES
from belated.wire.messages import Problem
from tests.integration.keyrings import Made, known
from tests.integration.serving import Serving, served

ROWS = [[1.0, 0.0], [0.0, 1.0]]
KEYS = TokenSecrets({"k1": bytes(range(32))})
FORGED = "k1." + "A" * 72


def definitions() -> list[Definition]:
    """Return one bandit per mode."""
    return [
        Definition(
            f"{mode} tokens", DelayedUCB(2, Bernoulli()), Explicit(timedelta(days=7)), tokens=mode
        )
        for mode in ("off", "report", "enforce")
    ]


@pytest.fixture(scope="module")
def guarded(store: Store) -> Iterator[Serving]:
    """A service that requires keys or tokens."""
    with served(Service(definitions(), store, auth="keys", token_keys=KEYS)) as handle:
        yield handle


@pytest.fixture(scope="module")
def key(store: Store, guarded: Serving) -> Made:
    """A key with all scopes."""
    return known(store, guarded.url)


@pytest.fixture(scope="module")
def unguarded(store: Store) -> Iterator[Serving]:
    """A service without keys."""
    with served(Service(definitions(), store, token_keys=KEYS)) as handle:
        yield handle


def put(serving: Serving, bandit: str, id: str, **body: Any) -> httpx.Response:
    """Report a reward without a key, as a browser does."""
    with httpx.Client(base_url=serving.url) as http:
        return http.put(f"/v1/{bandit} tokens/decisions/{id}/reward", json=body)


def problem_in(response: httpx.Response) -> Problem:
    """Return the body of a response, which must be a problem."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    return msgspec.json.decode(response.content, type=Problem)


def test_a_browser_reports_one_reward(guarded: Serving, key: Made, store: Store) -> None:
    """The token of the decision is enough; a duplicate counts once."""
    with Client(guarded.url, bandit="enforce tokens", key=key.key) as server:
        decision = server.decide(rows=ROWS)
        assert decision.token is not None
        with Client(guarded.url, bandit="enforce tokens") as browser:
            assert browser.observe(decision.id, 1.0, token=decision.token).status == "accepted"
            browser.observe(decision.id, 1.0, token=decision.token)
            for call in (
                lambda: browser.decide(rows=ROWS),
                lambda: browser.entry(decision.id),
                lambda: browser.void(decision.id),
                lambda: browser.activate(decision.id),
                browser.state,
            ):
                with pytest.raises(ServiceError, match="401"):
                    call()
        entry = server.entry(decision.id)
        assert entry.value == 1.0
        assert [record.status for record in entry.records] == ["decided", "rewarded", "duplicate"]
        assert entry.decision is not None
        assert entry.decision.token is None  # whoever may read cannot report by that


def test_a_token_alone_opens_no_other_route(guarded: Serving, key: Made) -> None:
    """Wherever it is sent: not even as a key."""
    with Client(guarded.url, bandit="enforce tokens", key=key.key) as server:
        token = server.decide(rows=ROWS).token
    with httpx.Client(base_url=guarded.url) as http:
        for route in ROUTES:
            if route.scope in (None, "reward"):
                continue
            path = route.path.format(bandit="enforce tokens", id="a", subject="user")
            for headers in ({"authorization": f"Bearer {token}"}, {}):
                answer = http.request(route.method, path, json={"token": token}, headers=headers)
                assert answer.status_code == 401, path


def test_what_is_refused_leaves_nothing(guarded: Serving, key: Made, store: Store) -> None:
    """Forged, for another decision or bandit, out of range, in parts, or missing."""
    with Client(guarded.url, bandit="enforce tokens", key=key.key) as server:
        decision, other_decision = server.decide_many(rows=[ROWS, ROWS])
    with Client(guarded.url, bandit="report tokens", key=key.key) as server:
        foreign_decision = server.decide(rows=ROWS, id=decision.id)
    journal = store.journal("enforce tokens")
    records_before = len(journal.read(0, 0, 100_000))
    for status, body in (
        (403, {"value": 1, "token": FORGED}),
        (403, {"value": 1, "token": other_decision.token}),
        (403, {"value": 1, "token": foreign_decision.token}),
        (403, {"value": 2, "token": decision.token}),
        (403, {"value": 1, "token": decision.token, "part": "x"}),
        (403, {"value": 1, "token": decision.token, "revision": 1}),
        (403, {"value": 1, "token": decision.token, "at": decision.at.isoformat()}),
        (403, {"value": 1, "token": ""}),
        (422, {"value": 1, "token": "x" * 257}),
        (422, {"value": 1, "token": 7}),
        (401, {"value": 1}),
        (401, {"value": 1, "token": None}),
    ):
        answer = put(guarded, "enforce", decision.id, **body)
        assert problem_in(answer).status == answer.status_code == status, body
        assert "AAA" not in answer.text
    assert len(journal.read(0, 0, 100_000)) == records_before
    journal.close()


def test_what_was_told_first_under_a_token_stays(guarded: Serving, key: Made) -> None:
    """Another value is stored as a conflict, and not learned."""
    with Client(guarded.url, bandit="enforce tokens", key=key.key) as server:
        decision = server.decide(rows=ROWS)
        for value in (1, 0):
            answer = put(guarded, "enforce", decision.id, value=value, token=decision.token)
            assert answer.status_code == 202
        entry = server.entry(decision.id)
    assert entry.conflict
    assert entry.value == 1.0


def test_each_reward_of_many_has_its_token(guarded: Serving, key: Made) -> None:
    """All or none: with one bad token, nothing is accepted."""
    with Client(guarded.url, bandit="enforce tokens", key=key.key) as server:
        decisions = server.decide_many(rows=[ROWS] * 3)
        rewards = [
            {"id": decision.id, "value": 1.0, "token": decision.token} for decision in decisions
        ]
        path = f"{guarded.url}/v1/enforce tokens/rewards/batch"
        for token, status in ((FORGED, 403), (None, 401)):
            invalid = {**rewards[2], "token": token}
            answer = httpx.post(path, json={"rewards": [*rewards[:2], invalid]})
            assert answer.status_code == status
        assert {server.entry(decision.id).state for decision in decisions} == {"pending"}
        assert httpx.post(path, json={"rewards": rewards}).json() == {"accepted": 3}
        assert {server.entry(decision.id).state for decision in decisions} == {"rewarded"}
        # With a key none is needed, but one that is there must be good.
        assert server.observe(decisions[0].id, 1.0).status == "accepted"
        with pytest.raises(ServiceError, match="403"):
            server.observe(decisions[0].id, 1.0, token=FORGED)


@pytest.mark.parametrize("body", [{"value": 1}, {"value": 1, "token": FORGED}])
def test_whether_a_bandit_exists_is_not_told(guarded: Serving, body: dict[str, Any]) -> None:
    """With tokens, without tokens, or unknown: the responses are the same."""
    responses = [put(guarded, bandit, "a", **body) for bandit in ("enforce", "report", "off", "no")]
    assert len({(response.status_code, response.content) for response in responses}) == 1
    assert responses[0].status_code == (403 if "token" in body else 401)


def test_without_keys_tokens_alone_can_be_asked_for(unguarded: Serving) -> None:
    """enforce: a reward needs its token; report: all are accepted; off: there are none."""
    statuses = {}
    for mode in ("off", "report", "enforce"):
        with Client(unguarded.url, bandit=f"{mode} tokens") as client:
            decision = client.decide(rows=ROWS)
        assert (decision.token is None) == (mode == "off")
        statuses[mode] = [
            put(unguarded, mode, decision.id, value=1, **fields).status_code
            for fields in ({}, {"token": FORGED}, {"token": decision.token})
        ]
    assert statuses == {"off": [202] * 3, "report": [202] * 3, "enforce": [403, 403, 202]}
    assert put(unguarded, "no", "a", value=1).status_code == 404


def test_tokens_are_counted_by_what_they_were(unguarded: Serving) -> None:
    """With labels from a short list; no token is in the metrics."""
    with Client(unguarded.url, bandit="report tokens") as client:
        token = client.decide(rows=ROWS).token
    put(unguarded, "report", "another", value=1, token=token)
    put(unguarded, "report", "another", value=1, token="<mArKeR>")
    text = httpx.get(f"{unguarded.url}/metrics").text
    lines = [line for line in text.splitlines() if line.startswith("belated_reward_tokens_total")]
    assert len(lines) == 2 * 6
    (sample,) = [line for line in lines if 'bandit="report tokens",token="forged"' in line]
    assert float(sample.split()[-1]) >= 2
    assert str(token) not in text
    assert "mArKeR" not in text


def test_a_service_without_token_keys_makes_none() -> None:
    """It says so when it is made, and not with the first decision."""
    with pytest.raises(InvalidInput, match=r"set secrets_env under \[tokens\]"):
        Service(definitions(), "postgresql://nowhere")


def test_rewards_without_bounds_have_no_tokens(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``serve``, its ``--check``, ``doctor`` and ``Service`` name the setting and the remedy."""
    file = tmp_path / "belated.toml"
    file.write_text(
        f"""
        [store]
        address = "sqlite:///{tmp_path}/belated.db"
        [tokens]
        secrets_env = "BELATED_TOKEN_KEYS"
        [bandits.offers]
        policy = "DelayedUCB(dim=2, family=Gaussian())"
        rewards = "Explicit('7d')"
        tokens = "enforce"
        """
    )
    for command in (["serve", "--check"], ["serve"], ["doctor"]):
        assert main([*command, str(file)]) != 0
        output = "".join(capsys.readouterr())
        assert "bandits.offers.tokens" in output
        assert "add bounds, as in rewards =" in output
    definition = Definition("offers", DelayedUCB(2, Gaussian()), Explicit("7d"), tokens="enforce")
    with pytest.raises(InvalidInput, match="add bounds"):
        Service([definition], store, token_keys=KEYS)
