"""Whatever is sent: no 5xx, answers as documented, a finite estimate, and the journal's own ledger.

schemathesis makes requests from the OpenAPI document, such as conform to it and such as do not, one
by one and in chains: the id in an answer goes to whatever can be asked of a decision. It does so
with a service that anyone may ask, and with one that asks for keys and tokens; there each request
is sent once more by someone who may not.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from belated import Bernoulli, DelayedThompson, DelayedUCB, Explicit, Gaussian, Shared
from belated.advice import WARNINGS
from belated.core.events import Configured, Decision
from belated.fold.fold import Fold
from belated.journals import Store, open_store
from belated.service import Definition, Service
from belated.service.access.tokens import TokenSecrets
from belated.service.http.app import ROUTES
from belated.service.http.ofrep import EVALUATE
from belated.wire.keys import SCOPES, new_key
from tests.fuzz.documents import CANARY, for_features, for_rows
from tests.integration.keyrings import Made, answers, make, revoke
from tests.integration.ledgers import check_ledger, folds_of
from tests.integration.listening import listening
from tests.integration.postgres_server import PostgresServer, require_programs
from tests.integration.serving import Serving
from tests.waiting import eventually

pytestmark = [
    # The learner warns of what it is given here, and goes on.
    pytest.mark.filterwarnings("ignore::belated.exceptions.BelatedWarning"),
    pytest.mark.skipif(
        find_spec("schemathesis") is None and not os.environ.get("CI"),
        reason="schemathesis is not installed",
    ),
]

DIM = 4
SHARED = Shared(context=["age"], action=["price"])


def of_rows(name: str, **more: Any) -> Definition:
    """A bandit with short spans, so that all that can become of a decision does."""
    return Definition(
        name,
        DelayedThompson(DIM, Bernoulli()),
        Explicit(timedelta(seconds=2)),
        retention=10_000_000,
        partitions=2,
        **more,
    )


#: Of the service that anyone may ask.
OPEN = [
    of_rows("rows"),
    Definition("shared", DelayedUCB(SHARED.dim, Gaussian()), Explicit(), features=SHARED),
    of_rows("switched"),
]
#: Of the one with keys; what strangers send is about the last.
KEYED = [of_rows("guarded", tokens="enforce"), of_rows("switchable"), of_rows("untouched")]
DEFINITIONS = [*OPEN, *KEYED]
DOCUMENTS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "rows": lambda document: for_rows(document, "rows", "switched", DIM),
    "shared": lambda document: for_features(document, "shared", "switched"),
    "guarded": lambda document: for_rows(document, "guarded", "switchable", DIM),
}
#: What does not hold here, and need not.
EXCLUDED = [
    "allow_header_conformance",  # a decision may be called batch: then that path takes DELETE too
    "object_level_authorization",  # a key is for a bandit, not for a decision
    "positive_data_acceptance",  # our own check is for that
    "use_after_free",  # a decision that is void is still told of
]
#: All that may be logged meanwhile: none of it has anything of a request.
SAID = {
    "this learner leads",
    "this learner is on standby",  # until its lease is confirmed, after an erasure
    "new head of the journal",
    "mode changed",
    "actions changed",
    "an operator chose a model",
    "rewards are dated before their decision",
    "rewards are dated in the future",
    "rewards are invalid",
    "rewards arrived after the retention",
    "rewards contradict an earlier value",
    "rewards name an unknown decision",
    "records were erased or retracted: folding again",
    "Invalid HTTP request received.",
} | {f"advice: {name}" for name in WARNINGS}


class Fuzzed:
    """A service, and what its learners made of the journal."""

    def __init__(self, app: Service) -> None:
        self.app = app
        self.serving = Serving()
        #: Who may do all with the bandits that are fuzzed; None where nobody is asked.
        self.key: Made | None = None
        #: Who may look at what is of all bandits.
        self.watcher: Made | None = None
        self.strangers: dict[str, Any] | None = None
        self.folds: dict[str, Fold] = {}

    def ask_for_keys(self, store: Store) -> None:
        """Have keys: one that may do all, and others that may not."""
        bandits, untouched = ["guarded", "switchable"], "untouched"
        self.key, revoked = make(store, *SCOPES, bandits=tuple(bandits)), make(store, *SCOPES)
        self.watcher = make(store, "read")
        lesser = {
            scope: make(store, *[other_scope for other_scope in SCOPES if other_scope != scope])
            for scope in SCOPES
        }
        revoke(store, revoked.id)
        self.strangers = {
            "place": untouched,
            "known": bandits,
            "keys": {
                "nobody": None,
                "unknown": new_key()[0],
                "revoked": revoked.key,
                "foreign": self.key.key,
            },
            "without": {scope: key.key for scope, key in lesser.items()},
        }
        keys = [self.key, self.watcher, *lesser.values()]
        eventually(lambda: 401 not in {answers(self.serving.url, key, "/metrics") for key in keys})

    @property
    def secrets(self) -> set[str]:
        """All keys that are sent to it."""
        if self.strangers is None:
            return set()
        values = [*self.strangers["keys"].values(), *self.strangers["without"].values()]
        return {value for value in values if value is not None}

    def get(self, path: str) -> httpx.Response:
        """Ask for something, as who may look at all."""
        headers = None if self.watcher is None else self.watcher.header
        return httpx.get(self.serving.url + path, headers=headers)

    def metrics(self) -> dict[str, set[frozenset[tuple[str, str]]]]:
        """The sets of labels that there are, by metric."""
        return {
            family.name: {frozenset(sample.labels.items()) for sample in family.samples}
            for family in text_string_to_metric_families(self.get("/metrics").text)
        }

    def stop(self) -> None:
        """Stop it, and keep what its learners had made of the journal."""
        self.folds |= folds_of(self.app)  # none once it has stopped
        self.serving.stop()


class Both:
    """The two services on one database, and all that they log."""

    def __init__(self, store: Store, lines: list[str]) -> None:
        self.store = store
        self.lines = lines
        keys = TokenSecrets({"k1": bytes(range(32))})
        self.open = Fuzzed(Service(OPEN, store, learn=True))
        self.keyed = Fuzzed(Service(KEYED, store, learn=True, auth="keys", token_keys=keys))
        self.each = (self.open, self.keyed)
        self.metrics_before: list[dict[str, set[frozenset[tuple[str, str]]]]] = []

    def start(self) -> None:
        """Serve, and note what there is before anything is sent."""
        for service in self.each:
            service.serving.start(service.app)
        self.keyed.ask_for_keys(self.store)
        eventually(lambda: all(service.get("/readyz").is_success for service in self.each))
        self.metrics_before = [service.metrics() for service in self.each]
        for service in self.each:
            assert service.get("/v1").is_success
        self.lines.clear()  # what is said at the start says where they are

    @property
    def failed(self) -> int:
        """How many requests were answered with a 5xx."""
        counts = sum((service.app.requests for service in self.each), Counter())
        return sum(count for (_, _, status), count in counts.items() if status >= 500)


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    """Services that learn, on a PostgreSQL of their own."""
    require_programs()
    postgres = PostgresServer()
    try:
        store = open_store(postgres.dsn)
        store.create_tables()
        with listening() as lines:
            services = Both(store, lines)
            try:
                services.start()
                yield services
            finally:  # a server that goes on would keep the tests from ending
                for service in services.each:
                    service.stop()
    finally:
        postgres.stop()


def fuzz(
    fuzzed: Fuzzed, document: dict[str, Any], folder: Path, seed: int, examples: int
) -> dict[str, Any]:
    """Send requests made from a document; returns the report of schemathesis."""
    folder.mkdir()
    (folder / "openapi.json").write_text(json.dumps(document), encoding="utf-8")
    # What does not depend on the seed is sent once.
    phases = "coverage,fuzzing,stateful" if seed == 0 else "fuzzing,stateful"
    headers = {"user-agent": CANARY, "x-request-id": CANARY, "cookie": f"{CANARY}={CANARY}"}
    excluded = EXCLUDED
    if fuzzed.key is None:
        excluded = [*EXCLUDED, "ignored_auth"]
    else:
        headers["Authorization"] = f"Bearer {fuzzed.key.key}"
    process = subprocess.run(
        [
            sys.executable, "-m", "schemathesis.cli", "run", "openapi.json",
            "--url", fuzzed.serving.url, "--seed", str(seed), "--phases", phases,
            "--max-examples", str(examples),
            *[f"--header={name}: {value}" for name, value in headers.items()],
            "--exclude-checks", ",".join(excluded), "--continue-on-failure", "--no-color",
            "--report", "json", "--report-json-path", "report.json",
        ],
        cwd=folder,
        env=os.environ
        | {
            "SCHEMATHESIS_HOOKS": str(Path(__file__).with_name("checks.py")),
            "BELATED_FUZZ_STRANGERS": json.dumps(fuzzed.strangers),
        },
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    report: dict[str, Any] = json.loads((folder / "report.json").read_bytes() or b"{}")
    return report | {"code": process.returncode, "told": process.stdout + process.stderr}


def test_every_answer_is_as_documented(
    both: Both, full: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """None of them is a 5xx; what the document forbids is refused, what it allows is taken."""
    start = time.monotonic()
    runs = [(bandit, seed) for bandit in DOCUMENTS for seed in range(2 if full else 1)]

    def run(bandit: str, seed: int) -> dict[str, Any]:
        fuzzed = both.keyed if bandit == "guarded" else both.open
        document = DOCUMENTS[bandit](fuzzed.get("/openapi.json").json())
        return fuzz(fuzzed, document, tmp_path / f"{bandit}-{seed}", seed, 420 if full else 20)

    with ThreadPoolExecutor(len(runs)) as pool:  # all at once, as clients come
        reports = list(pool.map(run, *zip(*runs, strict=True)))
    cases = sum(result["test_cases"]["generated"] for result in reports if "test_cases" in result)
    violations = sum(
        result["test_cases"]["unique_failures"] for result in reports if "test_cases" in result
    )
    with capsys.disabled():
        print(
            f"\n{cases:,} cases, {both.failed} answers of 5xx, {violations} violations, "
            f"{time.monotonic() - start:.0f} s"
        )
    output = "\n".join(report["told"] for report in reports if report["code"] != 0)
    assert not output, output
    for report in reports:
        assert report["stop_reason"] == "completed"
        assert report["test_cases"]["errored"] == 0
    assert violations == both.failed == 0
    assert cases >= (20_000 if full else 1_000)


def test_every_route_was_asked_by_those_who_may_and_those_who_may_not(both: Both) -> None:
    """And what strangers were refused has left nothing."""
    requests = both.keyed.app.requests
    for route in ROUTES:
        # A bandit without features cannot be evaluated as a flag.
        status = 400 if route is EVALUATE else route.status
        assert requests[route.method, route.path, status] > 0, route.path
        assert both.open.app.requests[route.method, route.path, route.status] > 0
        for status in (401, 403):
            assert (requests[route.method, route.path, status] > 0) == (route.scope is not None)
            assert both.open.app.requests[route.method, route.path, status] == 0
    with both.store.journal("untouched") as journal:
        events = [
            record.event for p in range(journal.partitions) for record in journal.read(p, 0, 9)
        ]
        assert [type(event) for event in events] == [Configured]  # its learner's
        assert journal.mode() is None


#: What the leader of a bandit tells from its report.
FROM_REPORTS = (
    "belated_report_age_seconds",
    "belated_reward_per_decision",
    "belated_lift_ratio",
    "belated_action_share",
    "belated_predicted_ratio",
    "belated_advice",
)


def test_labels_of_metrics_are_bounded(both: Both) -> None:
    """Names of bandits and routes, and words from short lists: nothing that was sent."""
    allowed = {
        "bandit": {bandit.name for bandit in DEFINITIONS},
        "method": {route.method for route in ROUTES} | {"other"},
        "route": {route.path for route in ROUTES} | {"other"},
        "action": {"others"} | {name for bandit in DEFINITIONS for name in bandit.actions},
    }
    for fuzzed, metrics_before in zip(both.each, both.metrics_before, strict=True):
        metrics = fuzzed.metrics()
        # Of each bandit one at a time, and another after an hour.
        heads = {dict(labels)["head"] for labels in metrics.pop("belated_journal_head_info", [])}
        assert all(re.fullmatch(r"[0-9,]+:[0-9a-f]{48}", head) for head in heads)
        assert len(heads) <= len(fuzzed.app.definitions)
        pairs = {pair for samples in metrics.values() for labels in samples for pair in labels}
        for label, values in allowed.items():
            assert {value for name, value in pairs if name == label} <= values
        # Numbers of bounds and statuses, and words of the ledger.
        words = {value for name, value in pairs if name not in allowed}
        assert [word for word in words if not re.fullmatch(r"[a-z0-9.+ -]+|\+Inf", word)] == []
        # Requests are counted by route and status, records by bandit and what they meant; all else
        # was there before the first of them.
        calls, events = metrics.pop("belated_http_requests"), metrics.pop("belated_learner_events")
        assert len(calls) <= (len(ROUTES) + 1) * 12
        assert len(events) <= len(fuzzed.app.definitions) * 20
        for name in FROM_REPORTS:  # which are made now and then
            assert len(metrics.pop(name)) <= len(fuzzed.app.definitions) * 20
        assert metrics == {name: metrics_before[name] for name in metrics}


def test_neither_log_nor_metrics_have_anything_of_what_was_sent(both: Both) -> None:
    """Only what is known to be said, and no canary, key or token."""
    ids = set()
    for name in ("rows", "shared", "guarded"):
        with both.store.journal(name) as journal:
            for partition in range(journal.partitions):
                ids |= {
                    record.event.id
                    for record in journal.read(partition, 0, 1_000_000)
                    if isinstance(record.event, Decision)
                }
    assert any(CANARY in id for id in ids)  # so it was sent, and taken
    assert [line for line in both.lines if json.loads(line)["message"] not in SAID] == []
    text = "\n".join([*both.lines, *(service.get("/metrics").text for service in both.each)])
    for secret in (CANARY, *both.keyed.secrets):
        assert secret not in text
    assert not re.search(r"blt_|k1\.[A-Za-z0-9_=-]{40}", text)


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition.name)
def test_the_ledger_is_that_of_the_journal(both: Both, definition: Definition) -> None:
    """The learner's own equals a fold of the journal from its start; its estimate is finite."""
    fuzzed = both.open if definition in OPEN else both.keyed
    fuzzed.stop()
    check_ledger(fuzzed.folds[definition.name], definition, both.store)
