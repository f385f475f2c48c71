"""The published providers of OpenFeature evaluate, and what they report is learned."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
import yaml
from openfeature import api
from openfeature.contrib.provider.ofrep import OFREPProvider
from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import ErrorCode
from openfeature.track import TrackingEventDetails

from belated import Bernoulli, ConversionsOnly, DelayedUCB, PerArm
from belated.client import Client
from belated.journals import Store
from belated.service import Definition, Service
from belated.service.http.ofrep import PREFIX
from tests.integration.chromium import Chromium
from tests.integration.javascript import node_modules, pages
from tests.integration.serving import served
from tests.waiting import eventually

HERE = Path(__file__).parent
GUIDE = HERE.parents[2] / "docs/howto/openfeature.md"
#: Reports outcomes, as the guide has it.
(REPORT_TO,) = re.findall(r"```js\n(export .*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
SERVER = """
import {OpenFeature} from "@openfeature/server-sdk";
import {OFREPProvider} from "@openfeature/ofrep-provider";
import {reportTo} from "./report.js";
const [url, flag] = process.argv.slice(2);
await OpenFeature.setProviderAndWait(reportTo(url, new OFREPProvider({baseUrl: url})));
const client = OpenFeature.getClient(), visitor = {targetingKey: "server visitor", returning: 1};
const details = await client.getStringDetails(flag, "none", visitor);
client.track(flag, visitor, {value: 1, id: "server order"});
console.log(JSON.stringify(details));
"""
PAGE = """<!doctype html><title>shop</title>
<script type="importmap">{"imports": {
  "@openfeature/core": "/node_modules/@openfeature/core/dist/esm/index.js",
  "@openfeature/web-sdk": "/node_modules/@openfeature/web-sdk/dist/esm/index.js",
  "@openfeature/ofrep-core": "/node_modules/@openfeature/ofrep-web-provider/node_modules/@openfeature/ofrep-core/index.esm.js",
  "@openfeature/ofrep-web-provider": "/node_modules/@openfeature/ofrep-web-provider/index.esm.js"
}}</script>
<script type="module">
import {OpenFeature} from "@openfeature/web-sdk";
import {OFREPWebProvider} from "@openfeature/ofrep-web-provider";
import {reportTo} from "./report.js";
Object.assign(window, {OpenFeature, OFREPWebProvider, reportTo});
</script>"""  # noqa: E501


@pytest.fixture
def origin(tmp_path: Path) -> Iterator[str]:
    """Serve a page that can import the packages; yields its origin."""
    with pages(tmp_path) as address:
        yield address


@pytest.fixture
def flag(bandit: str) -> str:
    """Return a name that no other test uses and that needs no escaping."""
    return bandit.replace(" ", "-")


@pytest.fixture
def url(store: Store, flag: str, origin: str) -> Iterator[str]:
    """Serve a bandit that learns."""
    features = PerArm(["blue", "red"], context=["returning"])
    offers = Definition(
        flag, DelayedUCB(features.dim, Bernoulli()), ConversionsOnly("7d"), features
    )
    with served(Service([offers], store, learn=True, cors=[origin])) as serving:
        yield serving.url


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """Return a folder with the packages and the functions of the guide."""
    (tmp_path / "node_modules").symlink_to(node_modules(HERE))
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "report.js").write_text(REPORT_TO)
    return tmp_path


def is_learned(url: str, flag: str, decision: str) -> None:
    """Wait until the reward of a decision has been learned."""
    with Client(url, bandit=flag) as client:
        eventually(lambda: client.entry(decision).state == "rewarded")
        eventually(lambda: client.state().observations == 1)


def test_python_provider(url: str, flag: str) -> None:
    """A variant, the same for a day; its outcome; and the errors of the protocol."""
    guide: dict[str, Any] = {}
    (source,) = re.findall(r"```python\n(import uuid.*?)```", GUIDE.read_text(), re.DOTALL)
    exec(source, guide)
    provider: OFREPProvider = guide["Belated"](url)
    api.set_provider(provider)
    client = api.get_client()
    visitor = EvaluationContext("visitor 7", {"returning": 1})
    details = client.get_string_details(flag, "none", visitor)
    assert details.value in ("blue", "red")
    assert details.reason == "SPLIT"
    assert details.flag_metadata["propensity"] == 0.5
    assert client.get_string_details(flag, "none", visitor).flag_metadata == details.flag_metadata
    for _ in range(2):  # it counts once
        client.track(flag, visitor, TrackingEventDetails(1.0, {"id": "order 1"}))
    is_learned(url, flag, str(details.flag_metadata["decision"]))

    def error(name: str, **context: Any) -> ErrorCode | None:
        return client.get_string_details(name, "none", EvaluationContext("v", context)).error_code

    assert error("nobody") == ErrorCode.FLAG_NOT_FOUND
    assert error(flag, returning="often") == ErrorCode.INVALID_CONTEXT
    assert client.get_integer_details(flag, 0, visitor).error_code == ErrorCode.TYPE_MISMATCH


def test_javascript_provider(url: str, flag: str, packages: Path) -> None:
    """The same in Node.js."""
    (packages / "server.js").write_text(SERVER)
    command = ["node", "server.js", url, flag]
    output = subprocess.run(
        command, check=False, cwd=packages, capture_output=True, text=True, timeout=120
    )
    assert output.returncode == 0, output.stderr
    details = json.loads(output.stdout)
    assert details["value"] in ("blue", "red")
    is_learned(url, flag, details["flagMetadata"]["decision"])


def test_web_provider(
    url: str, flag: str, origin: str, packages: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Decisions of a bulk evaluation count once their flag is used."""
    (packages / "index.html").write_text(PAGE)
    with (
        Chromium(tmp_path_factory.mktemp("profile")) as browser,
        Client(url, bandit=flag) as client,
    ):
        browser.open(f"{origin}/index.html")
        browser.run(
            "OpenFeature.setContext({targetingKey: 'page visitor', returning: 0}).then(() =>"
            " OpenFeature.setProviderAndWait("
            f"reportTo('{url}', new OFREPWebProvider({{baseUrl: '{url}', pollInterval: -1}}))))"
        )
        evaluated = browser.run(
            f"fetch('{url}{PREFIX}', {{method: 'POST',"
            " headers: {'Content-Type': 'application/json'},"
            " body: JSON.stringify({context: {targetingKey: 'page visitor', returning: 0}})})"
            ".then(response => response.json())"
        )
        (decision,) = [
            each["metadata"]["decision"] for each in evaluated["flags"] if each["key"] == flag
        ]
        assert client.entry(decision).state == "dormant"
        variant = browser.run(f"OpenFeature.getClient().getStringDetails('{flag}', 'none')")
        assert variant["flagMetadata"]["decision"] == decision
        eventually(lambda: client.entry(decision).state == "pending")
        browser.run(f"OpenFeature.getClient().track('{flag}', {{value: 1, id: 'page order'}})")
    is_learned(url, flag, decision)


def test_bulk_evaluation_is_not_repeated_for_the_same_tag(url: str, flag: str) -> None:
    """A client that polls gets 304 while its variants stay the same."""
    body = {"context": {"targetingKey": "poller", "returning": 1}}
    first = httpx.post(f"{url}{PREFIX}", json=body)
    tag = first.headers["etag"]
    again = httpx.post(f"{url}{PREFIX}", json=body, headers={"if-none-match": f'"other", {tag}'})
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
    assert again.headers["etag"] == tag
    missing = httpx.post(f"{url}{PREFIX}", json={"context": {}})
    assert (missing.status_code, missing.json()["errorCode"]) == (400, "TARGETING_KEY_MISSING")


def test_responses_have_the_schemas_of_the_protocol(url: str, flag: str) -> None:
    """Successes and failures of both routes, by the OpenAPI document of the protocol."""
    document = yaml.safe_load((HERE / "openapi.yaml").read_text(encoding="utf-8"))
    context = {"targetingKey": "visitor", "returning": 1}
    requests = [
        (flag, {"context": context}, 200),
        (flag, {"context": {"returning": 1}}, 200),
        (flag, {"context": {"returning": "often"}}, 400),
        (flag, {"context": 1}, 400),
        ("nobody", {"context": context}, 404),
        ("", {"context": context}, 200),
        ("", {"context": {"targetingKey": "another", "returning": "often"}}, 200),
        ("", {}, 400),
    ]
    for name, body, status in requests:
        path = f"{PREFIX}/{name}" if name else PREFIX
        response = httpx.post(f"{url}{path}", json=body)
        assert response.status_code == status, response.text
        documented = document["paths"][f"{PREFIX}/{{key}}" if name else PREFIX]["post"]
        (media,) = documented["responses"][str(status)]["content"].values()
        jsonschema.validate(response.json(), {**document, **media["schema"]})
    (failed,) = httpx.post(f"{url}{PREFIX}", json=requests[-2][1]).json()["flags"]
    assert (failed["key"], failed["errorCode"]) == (flag, "INVALID_CONTEXT")
