"""Common mistakes, and their error messages in the terms of the person who made them.

A Python user gets Python, a caller of HTTP gets JSON, and a user of the command line gets flags.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pandas as pd
import pytest

import belated
from belated import (
    Bandit,
    Bernoulli,
    Category,
    ConversionsOnly,
    DelayedUCB,
    Explicit,
    Hashed,
    Number,
    PerArm,
)
from belated.cli.main import main
from belated.client import Client
from belated.exceptions import BelatedError
from belated.journals import SQLiteStore
from belated.service import Definition, Service
from tests.integration.serving import served

FIELDS = {"age": Number(18, 90), "country": Category(["AT", "DE"])}
FEATURES = PerArm(["blue", "red"], context=FIELDS)
WEEK = ConversionsOnly("7d")
CONTEXT = {"age": 41, "country": "AT"}
JSON = {"content-type": "application/json"}
HOUR = timedelta(hours=1)
#: The longest answer, in characters.
LONGEST = 330


class Python(NamedTuple):
    """A Python call: a text that is executed."""

    code: str
    answer: tuple[str, ...]


class Http(NamedTuple):
    """A request: its method, path and body, and the status of the response."""

    method: str
    path: str
    body: str | None
    status: int
    answer: tuple[str, ...]
    headers: Mapping[str, str] = JSON


class Cli(NamedTuple):
    """A command with its arguments, and its exit code."""

    arguments: str
    answer: tuple[str, ...]
    code: int = 2


DECIDE, REWARD = "/v1/offers/decisions", "/v1/offers/decisions/order-1/reward"
LATER = (datetime.now(UTC) + HOUR).isoformat()
EARLIER = (datetime.now(UTC) - HOUR).isoformat()

#: In Python ``bandit`` has features, and ``rows`` takes rows of two numbers; ``client`` is one of a
#: service with the bandits offers and prices, at ``url``.
MISTAKES: dict[str, Python | Http | Cli] = {
    # --- Python: making a bandit
    "family as text": Python('DelayedUCB(2, "gaussian")', ("pass Gaussian()",)),
    "family as another text": Python('DelayedUCB(2, "yes/no")', ("pass Bernoulli()",)),
    "family as a class": Python("DelayedUCB(2, Bernoulli)", ("the class Bernoulli", "Bernoulli()")),
    "rewards as a class": Python(
        "Bandit(policy=policy, rewards=ConversionsOnly)",
        ("the class ConversionsOnly", "pass ConversionsOnly('7d') if only good outcomes"),
    ),
    "rewards as text": Python(
        'Bandit(policy=policy, rewards="7d")',
        ("must be ConversionsOnly(window)",),
    ),
    "rewards left out": Python(
        "Bandit(policy=policy)",
        ("`rewards` is missing", "ConversionsOnly('7d')"),
    ),
    "window in words": Python('ConversionsOnly("7 days")', ("'7 days'", "7d, 12h, 30m or 45s")),
    "window as a number": Python("ConversionsOnly(7)", ("got 7", "'7d'")),
    "journal as a file name": Python(
        'Bandit(policy=policy, rewards=week, journal="offers.db")', ("'sqlite:///offers.db'",)
    ),
    "unknown store": Python(
        'Bandit(policy=policy, rewards=week, journal="mysql://host/shop")',
        ("unknown scheme 'mysql'",),
    ),
    "clock in seconds": Python(
        "Bandit(policy=policy, rewards=week, clock=lambda: 1794830400.5)",
        ("`clock` returned 1794830400.5", "time.time_ns() // 1000"),
    ),
    "clock that returns floats later": Python(
        "for _ in range(2): ticking.decide(rows=[[1.0, 0.0], [0.0, 1.0]])",
        ("`clock` returned", "whole microseconds"),
    ),
    "too many coefficients": Python(
        "Bandit(Hashed(100_000), rewards=week)",
        ("100,000 coefficients", "75 GiB", "Hashed(4096)", "PerArm"),
    ),
    "clock_skew as a number": Python(
        "Bandit(policy=policy, rewards=week, clock_skew=300)",
        ("`clock_skew` must be a duration", "got 300", "'7d'"),
    ),
    "unit of retention": Python(
        "Bandit(policy=policy, rewards=week, retention=30)",
        ("`retention` must be a duration", "got 30"),
    ),
    # --- Python: deciding
    "misspelled field": Python(
        'bandit.decide({"age": 41, "contry": "AT"})',
        ("'country' of the context is missing", "'contry' was sent", "rename it to 'country'"),
    ),
    "field left out": Python(
        'bandit.decide({"age": 41})', ("'country' of the context is missing", "None in Python")
    ),
    "Series as a context": Python(
        "bandit.decide(frame.iloc[0])",
        ("must be a mapping", "got a Series", "pass context.to_dict()"),
    ),
    "fields as keywords": Python(
        "bandit.decide(age=41)", ("no argument 'age'", "pass decide({'age': 41})")
    ),
    "datetime for a number": Python(
        'bandit.decide({"age": NOW, "country": "AT"})', ("'age'", "Datetime('Europe/Vienna')")
    ),
    "text for a number": Python(
        'bandit.decide({"age": "old", "country": "AT"})', ("'old'", "must be a number or None")
    ),
    "list for a category": Python(
        'bandit.decide({"age": 41, "country": ["AT"]})',
        ("['AT']", "must be text, a whole number or None"),
    ),
    "unlisted action": Python(
        'bandit.decide(CONTEXT, ["green"])',
        ("unknown action 'green'", "known actions: 'blue', 'red'"),
    ),
    "action offered twice": Python('bandit.decide(CONTEXT, ["red", "red"])', ("'red'", "twice")),
    "actions as one text": Python('bandit.decide(CONTEXT, "red")', ("'red'", "a list of ids")),
    "context without features": Python(
        'rows.decide({"age": 41})', ("no features", "Bandit(PerArm(...), ...)")
    ),
    "one row alone": Python("rows.decide(rows=[1.0, 0.0])", ("pass a list of rows",)),
    "rows of another width": Python(
        "rows.decide(rows=[[1.0, 2.0, 3.0]])",
        ("must have 2 numbers per row", "got 3"),
    ),
    "NaN in a row": Python(
        'rows.decide(rows=[[float("nan"), 1.0]])', ("[0, 0] is nan", "must be from")
    ),
    "id as a number": Python(
        "rows.decide(rows=[[1.0, 0.0]], id=17)", ("the id must be text", "got 17", "'17'")
    ),
    "id used for another context": Python(
        'bandit.decide(CONTEXT, id="a"); bandit.decide({"age": 80, "country": "DE"}, id="a")',
        ("the id 'a' was used for another decision",),
    ),
    # --- Python: rewards
    "amount for yes or no": Python(
        'bandit.observe("order-1", 19.99)', ("19.99 is outside [0, 1]", "family=Gaussian()")
    ),
    "negative count": Python(
        'counting.observe("order-1", -3.0)', ("outside [0, 1e+09]", "family=Gaussian()")
    ),
    "reward as text": Python('bandit.observe("order-1", "yes")', ("'yes'", "a number")),
    "reward in the future": Python(
        'bandit.observe("order-1", 1.0, at=NOW + HOUR)', ("ahead of this machine's clock", "NTP")
    ),
    "reward before its decision": Python(
        "bandit.observe(bandit.decide(CONTEXT), 1.0, at=NOW - HOUR)",
        ("before its decision at", "with its time zone"),
    ),
    "second, different reward": Python(
        'id = bandit.decide(CONTEXT); bandit.observe(id, 1.0); bandit.observe(id, 0.0)',
        ("differs from the stored value", "send a higher revision"),
    ),
    "time without a zone": Python(
        'bandit.observe("order-1", 1.0, at=datetime(2026, 11, 16, 12))',
        ("no time zone", ".replace(tzinfo=UTC)"),
    ),
    "time in seconds": Python(
        'bandit.observe("order-1", 1.0, at=1794830400)', ("looks like seconds", "fromtimestamp")
    ),
    "id of None": Python(
        "bandit.observe(None, 1.0)", ("the id must be text", "got None", "decision.id")
    ),
    "bandit that was closed": Python(
        'rows.close(); rows.observe("order-1", 1.0)', ("closed", "accepts no events")
    ),
    # --- client
    "URL without a scheme": Python(
        'Client("localhost:8080", bandit="offers")', ("pass 'http://localhost:8080'",)
    ),
    "URL that ends in /v1": Python(
        'Client("http://localhost:8080/v1/", bandit="offers")', ("pass 'http://localhost:8080'",)
    ),
    "https to an http port": Python(
        'with Client(url.replace("http", "https"), bandit="offers") as other: other.state()',
        ("responds without TLS", "use http://127.0.0.1"),
    ),
    "service that is down": Python(
        'with Client("http://127.0.0.1:9", bandit="offers", retries=0) as other: other.state()',
        ("http://127.0.0.1:9 cannot be reached",),
    ),
    "unknown bandit of a client": Python(
        'with Client(url, bandit="ofers") as other: other.state()',
        ("unknown bandit 'ofers'", "'offers', 'prices'"),
    ),
    "amount for yes or no by a client": Python(
        'client.observe("order-1", 19.99)', ("outside [0, 1]", "family=Gaussian()")
    ),
    "key that is none": Python(
        'Client(url, bandit="offers", key="secret")', ("key",)
    ),
    "misspelled field by a client": Python(
        'client.decide({"age": 41, "contry": "AT"})', ("rename it to 'country'",)
    ),
    # --- HTTP
    "unknown bandit": Http(
        "GET", "/v1/ofers", None, 404,
        ("unknown bandit 'ofers'; known bandits: 'offers', 'prices'",),
    ),
    "slash at the end": Http("POST", f"{DECIDE}/", "{}", 404, ("remove the slash at the end",)),
    "slash after a page": Http("GET", "/readyz/", None, 404, ("remove the slash",)),
    "slash in an id": Http("PUT", f"{DECIDE}/a/b/reward", "{}", 404, ("write it as %2F",)),
    "slash in an id to read": Http("GET", f"{DECIDE}/a/b", None, 404, ("write it as %2F",)),
    "prefix twice": Http("POST", f"/v1{DECIDE}", "{}", 404, ("remove the second /v1",)),
    "method": Http("GET", DECIDE, None, 405, ("use POST here, not GET",)),
    "reward for value": Http(
        "PUT", REWARD, '{"reward": 1}', 422, ("unknown field `reward`", "did you mean `value`?")
    ),
    "value left out": Http("PUT", REWARD, "{}", 422, ("missing required field `value`",)),
    "value as text": Http(
        "PUT", REWARD, '{"value": "yes"}', 422, ("Expected `float`, got `str`", "$.value")
    ),
    "41000 for yes or no": Http(
        "PUT", REWARD, '{"value": 41000}', 422, ("41000.0 is outside [0, 1]", "Gaussian()")
    ),
    "reward in the future by HTTP": Http(
        "PUT", REWARD, json.dumps({"value": 1, "at": LATER}), 422, ("this machine's clock",)
    ),
    "reward before its decision by HTTP": Http(
        "PUT", f"{DECIDE}/DECIDED/reward", json.dumps({"value": 1, "at": EARLIER}), 422,
        ("before its decision at",),
    ),
    "time without a zone by HTTP": Http(
        "PUT", REWARD, '{"value": 1, "at": "2026-11-16T12:00:00"}', 422, ("RFC 3339",)
    ),
    "field in a batch": Http(
        "POST", "/v1/offers/rewards/batch", '{"rewards": [{"decision_id": "a", "value": 1}]}', 422,
        ("unknown field `decision_id`", "$.rewards[", "did you mean `id`?"),
    ),
    "truncated JSON": Http(
        "POST", DECIDE, '{"context": {"age": 41', 400,
        ("it ends after 22 bytes", "close all quotation marks and brackets"),
    ),
    "NaN in JSON": Http(
        "POST", DECIDE, '{"context": {"age": NaN, "country": "AT"}}', 400, ("send null",)
    ),
    "no body": Http("POST", DECIDE, "", 400, ("the body is empty", "-d '")),
    "no content type": Http(
        "POST", DECIDE, "{}", 415, ("Content-Type: application/json",), headers={}
    ),
    "misspelled field of a body": Http(
        "POST", DECIDE, '{"contexts": {}}', 422, ("did you mean `context`?",)
    ),
    "misspelled field of a context": Http(
        "POST", DECIDE, '{"context": {"age": 41, "contry": "AT"}}', 422,
        ("'contry' was sent", "rename it to 'country'"),
    ),
    "field of a context left out": Http(
        "POST", DECIDE, '{"context": {"age": 41}}', 422, ("'country'", "null")
    ),
    "unlisted action by HTTP": Http(
        "POST", DECIDE, json.dumps({"context": CONTEXT, "actions": ["green"]}), 422,
        ("unknown action 'green'", "'blue', 'red'"),
    ),
    "rows to a bandit with features": Http(
        "POST", DECIDE, '{"rows": [[1, 0]]}', 422, ("send `context` and `actions`, without `rows`",)
    ),
    "context to a bandit of rows": Http(
        "POST", "/v1/prices/decisions", '{"context": {"age": 41}}', 422, ("send `rows` instead",)
    ),
    # --- commands
    "no configuration": Cli("serve none.toml", ("none.toml does not exist", "`belated init")),
    "no configuration to check": Cli("serve --check none.toml", ("`belated init none.toml`",)),
    "no configuration for keys": Cli("keys list", ("`belated init belated.toml`",)),
    "port in use": Cli("serve offers.toml --port PORT", ("port PORT on 127.0.0.1", "--port")),
    "journal for a configuration": Cli(
        "serve sqlite:///offers.db", ("a service's config file", "`belated init`")
    ),
    "file for a configuration": Cli("learn offers.db", ("a service's config file",)),
    "no such file": Cli(
        "report none.db", ("none.db is not an address", "no such file", "sqlite:///offers.db")
    ),
    "journal that is not there": Cli("report sqlite:///none.db", ("no such file",)),
    "unknown bandit of a journal": Cli(
        "report sqlite:///offers.db?bandit=ofers",
        ("no bandit 'ofers'; known bandits: 'offers', 'prices'",),
    ),
    "several bandits": Cli("report offers.db", ("'offers', 'prices'", "add ?bandit=NAME")),
    "unknown bandit of a configuration": Cli(
        "mode ofers freeze --config offers.toml",
        ("offers.toml has no bandit 'ofers'; known bandits: 'offers'",)
    ),
    "misspelled argument": Cli(
        "simulate --delay Constant(1) --policy DelayedUCB(flor=0.1)",
        ("no argument flor", "Did you mean floor?"),
    ),
    "misspelled key": Cli(
        "serve --check wrong.toml", ("wrong.toml, line 5", "did you mean port?"), code=1
    ),
    "unlisted action by command": Cli(
        "action pause offers green --config offers.toml", ("unknown action 'green'", "blue, red")
    ),
}  # fmt: skip

CONFIG = """\
[store]
address = "sqlite:///offers.db"

[server]
port = 8080

[bandits.offers]
features = "PerArm(['blue', 'red'], context={'age': Number(18, 90)})"
rewards = "ConversionsOnly('7d')"
"""
WIDE = """\
[bandits.prices]
policy = "DelayedUCB(dim=3, family=Bernoulli())"
rewards = "Explicit()"
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with two bandits, in the folder in which commands run."""
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "offers.toml").write_text(CONFIG)
    (folder / "wide.toml").write_text(CONFIG + WIDE)
    (folder / "wrong.toml").write_text(CONFIG.replace("port", "ports"))
    policy = DelayedUCB(FEATURES.dim, Bernoulli())
    bandits = [
        Definition("offers", policy, WEEK, features=FEATURES),
        Definition("prices", DelayedUCB(2, Bernoulli()), Explicit()),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with served(Service(bandits, SQLiteStore(folder / "offers.db"))) as serving:
            yield serving.url


def answer_to_python(code: str, url: str) -> str:
    """Execute a text; return the error message of the library."""
    with ExitStack() as stack:
        names: dict[str, Any] = {name: getattr(belated, name) for name in belated.__all__}
        names |= {
            "CONTEXT": CONTEXT,
            "Client": Client,
            "HOUR": HOUR,
            "Hashed": Hashed,
            "NOW": datetime.now(UTC),
            "bandit": bandit(FEATURES),
            "client": stack.enter_context(Client(url, bandit="offers")),
            "counting": Bandit(policy=DelayedUCB(2, belated.Poisson()), rewards=WEEK),
            "datetime": datetime,
            "frame": pd.DataFrame([CONTEXT]),
            "policy": DelayedUCB(2, Bernoulli()),
            "rows": bandit(),
            "ticking": bandit(clock=Ticking()),
            "url": url,
            "week": WEEK,
        }
        with pytest.raises(BelatedError) as error:
            exec(code, names)
    return str(error.value)


def bandit(features: PerArm | None = None, **settings: Any) -> Bandit:
    """Return a bandit for yes/no rewards; without features, its rows have two numbers."""
    policy = DelayedUCB(2 if features is None else 0, Bernoulli())
    return Bandit(features, rewards=WEEK, policy=policy, **settings)


class Ticking:
    """A clock whose times are whole numbers that increase."""

    def __init__(self) -> None:
        self.now = 1_794_830_400_000_000

    def __call__(self) -> Any:
        """Return the time."""
        self.now += 1
        return self.now if self.now < 1_794_830_400_000_010 else self.now / 1e6


def answer_to_request(mistake: Http, url: str) -> str:
    """Send a request; return the detail of the problem."""
    path = mistake.path
    if "DECIDED" in path:
        decision = httpx.post(f"{url}{DECIDE}", json={"context": CONTEXT}).raise_for_status().json()
        path = path.replace("DECIDED", decision["id"])
    response = httpx.request(
        mistake.method, f"{url}{path}", content=mistake.body, headers=mistake.headers
    )
    assert response.headers["content-type"] == "application/problem+json"
    assert response.status_code == mistake.status, response.text
    detail: str = response.json()["detail"]
    assert not any(word in detail for word in ("with_actions(", "Bandit.of", "Traceback"))
    return detail


def answer_to_command(mistake: Cli, url: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command; return its output."""
    port = url.rpartition(":")[2]
    arguments = mistake.arguments.replace("PORT", port)
    assert main(arguments.split()) == mistake.code
    out, err = capsys.readouterr()
    output: str = (out + err).replace(port, "PORT").strip()
    assert "Errno" not in output
    return output


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_answered(name: str, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The message says what is wrong, and what to do."""
    match MISTAKES[name]:
        case Python() as mistake:
            message = answer_to_python(mistake.code, url)
        case Http() as mistake:
            message = answer_to_request(mistake, url)
        case mistake:
            message = answer_to_command(mistake, url, capsys)
    for part in mistake.answer:
        assert part in message
    assert len(message) <= LONGEST or "known: " in message  # a list of what can be written


def test_there_are_sixty() -> None:
    """All of them are different."""
    assert len(MISTAKES) >= 60
    assert len({str(mistake[:3]) for mistake in MISTAKES.values()}) == len(MISTAKES)


@pytest.mark.parametrize("command", [["serve", "--check"], ["doctor"]])
def test_a_configuration_that_cannot_start_is_refused(
    command: list[str], url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also if a bandit without features changes the width of its rows."""
    assert main([*command, "wide.toml"]) == 1
    out, _ = capsys.readouterr()
    assert "dim: 2 -> 3" in out
    assert "the journal was created with rows of 2 numbers, not 3: use the original settings" in out


def test_commands_take_addresses_files_and_configurations(
    url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """They report how they interpret anything that is not written as an address."""
    for argument, notice in (
        ("sqlite:///offers.db?bandit=offers", ""),
        (
            "offers.db?bandit=offers",
            "reading offers.db?bandit=offers as sqlite:///offers.db?bandit=offers",
        ),
        ("offers.toml", "reading offers.toml as the config file of"),
        ("offers.toml?bandit=offers", "bandit=offers as the config file of"),
    ):
        assert main(["journal", "inspect", argument]) == 0
        out, err = capsys.readouterr()
        assert "offers" in out
        assert "prices" not in out
        assert notice in err
        assert bool(notice) == bool(err)
        assert main(["doctor", argument.partition("?")[0]]) in (0, 1)
        assert "no such file" not in capsys.readouterr().out
