"""What is no HTTP, or could be read in two ways: one answer a request, no 5xx, nothing smuggled."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from belated import Bernoulli, DelayedUCB, Explicit
from belated.journals import open_store
from belated.service import Definition, Service
from tests.fuzz.malformed import CORPUS, INNER
from tests.fuzz.proxies import PROXIES, before
from tests.integration.raw_http import Raw, answers_in, get, statuses
from tests.integration.serving import Serving, served

#: The second request of this is no secret: the first one says that it ends before it.
OPEN = ("a length of nothing, then a body",)
#: What proxies answer by themselves, in words of their own: to unknown methods, codings and
#: versions; and Caddy also where the client's body breaks off.
THEIRS = {"nginx": {501, 505}, "haproxy": {501, 505}, "caddy": {501, 502, 505}}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Service:
    """A bandit that is asked, and one that only smuggled requests ask for."""
    store = open_store(f"sqlite:///{tmp_path_factory.mktemp('corpus')}/belated.db")
    policy = DelayedUCB(2, Bernoulli())
    return Service([Definition(name, policy, Explicit()) for name in ("corpus", "hidden")], store)


@pytest.fixture(scope="module")
def serving(app: Service) -> Iterator[Serving]:
    """It runs."""
    with served(app) as handle:
        yield handle


def sent_alone(port: int, data: bytes) -> bytes:
    """All that comes back to some bytes, after which nothing more is sent."""
    with Raw(port) as raw:
        raw.send(data)
        with suppress(OSError):
            raw.socket.shutdown(socket.SHUT_WR)
        return raw.rest()


def hidden(app: Service) -> int:
    """How often the smuggled request was answered."""
    return app.requests["GET", "/v1/{bandit}", 200]


def test_the_corpus_is_large() -> None:
    """And the request that is hidden in it would be answered, if it were read."""
    assert len(CORPUS) >= 300


def test_what_is_hidden_would_be_answered(serving: Serving, app: Service) -> None:
    """Else all of this would prove nothing."""
    hidden_before = hidden(app)
    assert statuses(serving.port, INNER) == [200, 200]
    assert hidden(app) == hidden_before + 1


@pytest.mark.parametrize("case", CORPUS)
def test_straight(serving: Serving, app: Service, case: str) -> None:
    """As many answers as requests were read, all but one refused, and then the end."""
    requests_before, hidden_before = sum(app.requests.values()), hidden(app)
    decisions = app.bandits["corpus"].stats.decisions
    replies = [
        answer
        for answer in answers_in(sent_alone(serving.port, CORPUS[case]))
        if answer.status != 100
    ]
    assert sum(app.requests.values()) - requests_before == len(replies)
    assert all(answer.status < 500 for answer in replies)
    assert len([answer for answer in replies if answer.status < 300]) <= 1 + (case in OPEN)
    assert app.bandits["corpus"].stats.decisions - decisions <= 1
    assert hidden(app) - hidden_before == (case in OPEN)
    assert statuses(serving.port, get("/livez")) == [200, 200]


@pytest.mark.parametrize("name", PROXIES)
def test_through_a_proxy(serving: Serving, app: Service, name: str, tmp_path: Path) -> None:
    """Whatever the proxy makes of it: nobody's answer is that to a request within another."""
    with before(name, serving.port, tmp_path) as port:
        assert re.findall(rb"HTTP/1\.1 (\d+)", sent_alone(port, get("/livez"))) == [b"200"]
        decisions = app.bandits["corpus"].stats.decisions
        for case, data in CORPUS.items():
            hidden_before = hidden(app)
            answer = sent_alone(port, data)
            codes = [int(code) for code in re.findall(rb"HTTP/1\.[01] (\d\d\d) ", answer)]
            assert all(code < 500 or code in THEIRS[name] for code in codes), (case, answer[:300])
            assert len([code for code in codes if 200 <= code < 300]) <= 2, (case, answer[:300])
            # What a proxy itself reads as a second request it sends and answers as such.
            assert hidden(app) - hidden_before <= codes.count(200), case
        assert app.bandits["corpus"].stats.decisions - decisions <= len(CORPUS)
        assert not [status for _, _, status in app.requests if status >= 500]
        # A connection to the service that was left with half a request would spoil this one.
        for _ in range(20):
            assert b" 200 OK" in sent_alone(port, get("/livez"))[:20]
