"""The TypeScript client in Node.js and in headless Chromium, against the service."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from belated import Bernoulli, DelayedUCB, Explicit, PerArm
from belated.client import Client
from belated.journals import Store
from belated.service import Definition, Service
from belated.service.access.tokens import TokenSecrets
from tests.integration.chromium import Chromium
from tests.integration.javascript import node_modules, pages
from tests.integration.keyrings import known
from tests.integration.serving import served
from tests.ports import free_port
from tests.waiting import eventually

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "clients/typescript"
#: The most lines of code, and bytes minified and compressed.
MAX_LINES, MAX_BYTES = 500, 6000
#: Uses all methods of the client; prints the decisions and the receipts.
PROGRAM = """
import {Client} from "./dist/index.js";
const [url, bandit] = process.argv.slice(2);
const client = new Client(url, {bandit});
const visitor = {context: {returning: 1}};
const plain = await client.decide(visitor);
const again = await client.decide({...visitor, id: plain.id});
const late = await client.decide({...visitor, activated: false});
const unused = await client.decide(visitor);
const subject = await client.decide({...visitor, subject: "user-17", sticky: "1d"});
const sticky = await client.decide({...visitor, subject: "user-17", sticky: "1d"});
const rewards = [plain, late].map(({id}) => ({id, value: 1}));
const reports = rewards.map((reward) => client.observe(reward));
reports.push(client.observe({subject: "user-17", value: 1, event_id: "order 1"}));
const refused = await client.observe({id: plain.id, value: 7}).catch((error) => error.name);
const receipts = await Promise.all(reports);
await client.activate(late.id);
await client.void(unused.id);
await client.close();
console.log(JSON.stringify({plain, again, late, unused, subject, sticky, refused, receipts}));
"""
#: Options of the compiler for a program that uses the package.
STRICT = ["--strict", "--target", "ES2022", "--module", "NodeNext"]
PAGE = """<!doctype html><title>shop</title>
<script type="module">
import {Client} from "./dist/index.js";
import {differences} from "./test/conformance.js";
Object.assign(window, {Client, differences});
</script>"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the compiled client and a page that imports it."""
    packages = node_modules(SOURCE)
    root = tmp_path_factory.mktemp("repository")
    shutil.copy(ROOT / "LICENSE", root)
    ignored = shutil.ignore_patterns("node_modules", "dist")
    shutil.copytree(SOURCE.parent, root / "clients", ignore=ignored)
    folder = root / "clients/typescript"
    (folder / "node_modules").symlink_to(packages)
    run(folder, "node_modules/.bin/tsc")
    (folder / "index.html").write_text(PAGE)
    return folder


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chromium]:
    """A browser."""
    with Chromium(tmp_path) as found:
        yield found


@pytest.fixture
def origin(built: Path) -> Iterator[str]:
    """The origin of the page."""
    with pages(built) as address:
        yield address


def run(folder: Path, *command: str, text: str | None = None) -> str:
    """Run a command that must succeed; return its output."""
    result = subprocess.run(
        command, check=False, cwd=folder, input=text, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def typescript_in(page: Path) -> str:
    """Return the code of a page, which has one block of it."""
    (code,) = re.findall(r"```ts\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    return str(code)


def exchanges() -> list[dict[str, Any]]:
    """Return the cases of clients/conformance.json."""
    text = (SOURCE.parent / "conformance.json").read_text(encoding="utf-8")
    cases: list[dict[str, Any]] = json.loads(text)["cases"]
    return cases


def offers(name: str, **settings: Any) -> Definition:
    """Return a bandit with features."""
    features = PerArm(["blue", "red"], context=["returning"])
    policy = DelayedUCB(features.dim, Bernoulli())
    return Definition(name, policy, Explicit("7d"), features, **settings)


def test_generated_types_are_up_to_date(built: Path) -> None:
    """`npm run types` changes no type; the comments are descriptions, which change more often."""
    document = run(built, sys.executable, "openapi.py")
    script = json.loads((built / "package.json").read_text())["scripts"]["types"]
    _, _, generate = script.partition(" | ")
    run(built, f"node_modules/.bin/{generate.split()[0]}", *generate.split()[1:], text=document)
    generated, committed = (
        re.sub(r"\s*/\*\*.*?\*/", "", (folder / "src/openapi.ts").read_text(), flags=re.DOTALL)
        for folder in (built, SOURCE)
    )
    assert "DecisionRequest: {" in generated
    assert generated == committed


def test_conformance_in_node(built: Path) -> None:
    """All exchanges of clients/conformance.json."""
    output = run(built, "node", "--test", "--test-reporter=tap", "test/client.test.js")
    assert f"# pass {len(exchanges())}\n" in output


def test_rewards_are_sent_in_batches(built: Path) -> None:
    """In Node.js, with a service that is a function."""
    run(built, "node", "--test", "test/rewards.test.js")


def test_conformance_in_a_browser(built: Path, browser: Chromium, origin: str) -> None:
    """The same in a page."""
    browser.open(f"{origin}/index.html")
    for case in exchanges():
        assert browser.run(f"differences(Client, {json.dumps(case)})") == [], case["name"]


def test_service(built: Path, store: Store, bandit: str) -> None:
    """Every method, in Node.js, and what the service records."""
    (built / "program.js").write_text(PROGRAM)
    with served(Service([offers(bandit)], store, learn=True)) as serving:
        found = json.loads(run(built, "node", "program.js", serving.url, bandit))
        assert found["again"] == found["plain"]
        assert found["sticky"] == {**found["subject"], "repeated": True}
        assert found["refused"] == "InvalidInput"
        receipts = [(receipt["id"], receipt["status"]) for receipt in found["receipts"]]
        ids = {name: found[name]["id"] for name in ("plain", "late", "unused", "subject")}
        expected = [ids["plain"], ids["late"], "order 1"]
        assert receipts == [(id, "accepted") for id in expected]
        with Client(serving.url, bandit=bandit) as client:
            states = {"plain": "rewarded", "late": "rewarded", "unused": "voided"}
            states["subject"] = "rewarded"
            eventually(lambda: {name: client.entry(id).state for name, id in ids.items()} == states)


def test_fallback(built: Path, store: Store, bandit: str) -> None:
    """A decision that was taken during an outage is recorded after it."""
    url = f"http://127.0.0.1:{free_port()}"
    (built / "outage.js").write_text("""
import {Client} from "./dist/index.js";
const [unreachable, url, bandit] = process.argv.slice(2);
const real = fetch;
globalThis.fetch = (address, options) => real(address.replace(url, unreachable), options);
const client = new Client(url, {bandit, fallback: "red"});
const decision = await client.decide({context: {returning: 1}});
globalThis.fetch = real;
await client.close();
console.log(JSON.stringify(decision));
""")
    with (
        served(Service([offers(bandit)], store, learn=True)) as serving,
        Client(serving.url, bandit=bandit) as client,
    ):
        decision = json.loads(run(built, "node", "outage.js", url, serving.url, bandit))
        assert (decision["action"], decision["fallback"]) == ("red", True)
        recorded = client.entry(decision["id"]).decision
        assert recorded is not None
        assert (recorded.action, recorded.source) == ("red", "fallback")


def test_documented_code(built: Path, tmp_path: Path) -> None:
    """The code of the guide and of the README is valid TypeScript and runs."""
    guides = ROOT / "docs/howto/client.md", SOURCE / "README.md"
    codes = {f"documented/{page.stem}.ts": typescript_in(page) for page in guides}
    (built / "documented").mkdir()
    for name, code in codes.items():
        (built / name).write_text(code)
    run(built, "node_modules/.bin/tsc", "--noEmit", "--rootDir", ".", *codes, *STRICT)
    features = PerArm(["summer", "books", "none"], context=["age"])
    policy = DelayedUCB(features.dim, Bernoulli())
    banners = Definition("banners", policy, Explicit("7d"), features)
    with served(Service([banners], f"sqlite:///{tmp_path}/belated.db", learn=True)) as serving:
        for code in codes.values():
            program = code.replace("http://decisions:8080", serving.url)
            program = program.replace("timeout: 500", "timeout: 60000")  # processors are shared
            run(built, "node", "--input-type=module", "--eval", program)
        with Client(serving.url, bandit="banners") as client:
            eventually(lambda: client.state().observations == len(codes))


def test_page_reports_with_tokens(
    browser: Chromium, origin: str, store: Store, bandit: str
) -> None:
    """Directly; and with a beacon when the page is left before its request was answered."""
    secrets = TokenSecrets({"k1": bytes(range(32))})
    app = Service(
        [offers(bandit, tokens="enforce")], store, learn=True, cors=[origin], auth="keys",
        token_keys=secrets,
    )  # fmt: skip
    with served(app) as serving:
        key = known(store, serving.url).key
        with Client(serving.url, bandit=bandit, key=key) as server:
            direct, beacon = (server.decide({"returning": 1}) for _ in range(2))
            browser.open(f"{origin}/index.html")
            browser.run(f"void (client = new Client('{serving.url}', {{bandit: '{bandit}'}}))")

            def observe(id: str, token: str | None) -> str:
                reward = json.dumps({"id": id, "value": 1, "token": token})
                return f"client.observe({reward})"

            receipt = browser.run(observe(direct.id, direct.token))
            assert receipt == {"id": direct.id, "status": "accepted"}
            eventually(lambda: server.entry(direct.id).state == "rewarded")
            browser.run("void (fetch = () => new Promise(() => {}))")  # it never ends
            browser.run(f"void {observe(beacon.id, beacon.token)}")
            browser.open("about:blank")
            eventually(lambda: server.entry(beacon.id).state == "rewarded")


def test_size(built: Path) -> None:
    """The code that is written by hand, and what a page loads."""
    sources = [path for path in (SOURCE / "src").glob("*.ts") if path.name != "openapi.ts"]
    assert sum(len(path.read_text().splitlines()) for path in sources) <= MAX_LINES
    options = ["dist/index.js", "--bundle", "--minify", "--format=esm"]
    code = run(built, "node_modules/.bin/esbuild", *options)
    assert 1000 < len(gzip.compress(code.encode(), 9)) <= MAX_BYTES


def test_package_contents(built: Path) -> None:
    """The compiled modules with their types, and no dependencies."""
    (packed,) = json.loads(run(built, "npm", "pack", "--dry-run", "--json", "--silent"))
    modules = {path.stem for path in (SOURCE / "src").glob("*.ts")}
    expected = {f"dist/{name}{suffix}" for name in modules for suffix in (".js", ".d.ts")}
    files = {file["path"] for file in packed["files"]}
    assert files == expected | {"LICENSE", "README.md", "package.json"}
    package = json.loads((SOURCE / "package.json").read_text())
    assert package.keys() & {"dependencies", "peerDependencies", "optionalDependencies"} == set()
